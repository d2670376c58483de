# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Which small faults the tests do not find.

``python t/survivors`` draws mutants of the sources from a seed, runs the tests that
reach each, the quickest first, until one fails, and says which mutants
survive. It goes on where it was ended: what is known of a commit is in a folder of
``build/survivors``. The tests that reach a line are found first, by a run of all of
them. What only a real Flux reaches is tried with files ``t/*.t``, if there is one.

The mutants are those of one commit, carried over to the tree as it is, so that trees
can be compared. For those whose lines have changed, others are drawn, of the first of
some later commits that lacks these lines, and else of the tree. Those that
``equivalents.txt`` lists are not tried.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import Queue
from typing import Optional

import known
from making import Mutant, draw
from reach import Reach, measure

TOP = Path(__file__).resolve().parents[2]
FOLDER = TOP / "build" / "survivors"

DRAWN_OF = ("df0a9685", "3996a118")
"""The commit whose mutants are tried, the last one before this tool was made; and those
of which others are drawn, so that a change of a file does not draw them all anew."""

KILLED, SURVIVED, UNREACHED = "killed", "survived", "not reached"
UNBUILT, EQUIVALENT = "not built", "equivalent"
RESULTS = (KILLED, SURVIVED, UNREACHED, UNBUILT, EQUIVALENT)
NO_FAULTS = (UNBUILT, EQUIVALENT)
"""What no test can find: the compiler refuses it, or nothing can tell."""

# What shows a fault of what only a real Flux reaches, the quickest first.
REAL_FLUX = {
    "src/pymod/flux_k8s/broker/rabbit": ("t1045",),
    "src/pymod/flux_k8s/broker/": (
        *("t1000", "t1001", "t1004", "t1007", "t1016", "t1018", "t1048"),
        *("t1002", "t1020", "t1033", "t1039", "t1008", "t1017"),
    ),
    "src/pymod/flux_k8s/rules/jgfextend": ("t2011",),
    "src/pymod/dwscli/": ("t3000",),
}
REAL_LIMIT = 300
"""Seconds that one of these files may take."""

FAILED = ("FAILED", "ERROR ")
NOT_RUN = (2, 4, 5)
"""The exit status of pytest that was interrupted, called wrongly, or found no test."""


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant.

    Attributes:
        result: one of RESULTS.
        by: the test that failed, or how the run ended, or why the mutant is equivalent;
            "" if there is none.
        tests: how many tests were to be run.
        left: how many more reach it, for which there was no time.
    """

    mutant: Mutant
    result: str
    by: str = ""
    tests: int = 0
    left: int = 0

    def __str__(self) -> str:
        mutant = self.mutant
        line = f"{self.result:<11} {mutant.path}:{mutant.line}: {mutant.kind}"
        return line + (f" ({self.by})" if self.by else "")


class Tree:
    """A clone of a commit's tree, with what is installed from it."""

    def __init__(self, path: Path, commit: str) -> None:
        self.path = path
        self._passing: dict[Path, bool] = {}
        clone(path, commit)
        _run(["make", "--silent", ".venv/.installed"], path)

    @property
    def _python(self) -> str:
        return str(self.path / ".venv/bin/python")

    def try_mutant(self, mutant: Mutant, reach: Reach, limit: float) -> Verdict:
        """Run the tests that reach a mutant.

        Args:
            limit: the seconds that these tests may take, as they were measured.
        """
        tests = reach.tests(mutant)
        chosen = list(tests)
        while len(chosen) > 1 and reach.seconds(chosen) > limit:
            chosen = chosen[: len(chosen) * 9 // 10]
        real = self._of_real_flux(mutant) if not chosen else []
        if not chosen and not real:
            return Verdict(mutant, UNREACHED)
        source = self.path / mutant.path
        intact = source.read_bytes()
        source.write_bytes(mutant.applied(intact))
        try:
            if not self._install(mutant):
                return Verdict(mutant, UNBUILT)
            if chosen:
                by = self._fails(chosen, 60 + 2 * limit)
            else:
                by = next(filter(None, map(self._fails_in_flux, real)), "")
        finally:
            source.write_bytes(intact)
            self._install(mutant)
        left = len(tests) - len(chosen)
        number = len(chosen or real)
        return Verdict(mutant, KILLED if by else SURVIVED, by, number, left)

    def _of_real_flux(self, mutant: Mutant) -> list[Path]:
        """The files t/*.t that show a fault there, for they pass without it; none
        without a Flux."""
        for prefix, names in REAL_FLUX.items():
            if mutant.path.startswith(prefix) and shutil.which("flux"):
                found = (self.path.glob(f"t/{name}-*.t") for name in names)
                return [path for paths in found for path in paths if self._passes(path)]
        return []

    def _passes(self, file: Path) -> bool:
        """Whether such a file passes in the tree as it is."""
        if file not in self._passing:
            self._passing[file] = _run_in_flux(file).returncode == 0
        return self._passing[file]

    def _fails_in_flux(self, file: Path) -> str:
        """The first test of such a file that fails, or how else it ends; or ""."""
        done = _run_in_flux(file)
        if done.returncode == 0:
            return ""
        failed = [line for line in done.stdout.splitlines() if line[:6] == "not ok"]
        return f"{file.name}: {failed[0] if failed else 'it ended early, or never'}"

    def _install(self, mutant: Mutant) -> bool:
        """Have the tests take what is in the tree. Returns whether it can be built."""
        if not mutant.in_c:
            name = Path(mutant.path).relative_to("src/pymod")
            for site in self.path.glob(".venv/lib/python3.*/site-packages"):
                shutil.copy(self.path / mutant.path, site / name)
            return True
        install = ["install", "-q", "--no-deps", "--no-build-isolation", "."]
        done = subprocess.run(
            [self._python, "-m", "pip", *install],
            cwd=self.path,
            capture_output=True,
            start_new_session=True,
        )
        return done.returncode == 0

    def _fails(self, tests: Sequence[str], limit: float) -> str:
        """The first of these tests that fails, in this order, or ""."""
        wanted = self.path / "build" / "wanted"
        wanted.parent.mkdir(exist_ok=True)
        wanted.write_text("\n".join(tests))
        files = sorted({test.partition("::")[0] for test in tests})
        command = [self._python, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
        environment["FLUX_DWS_WANTED"] = str(wanted)
        try:
            done = subprocess.run(
                [*command, "-p", "only", *files],
                cwd=self.path,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=limit,
                start_new_session=True,
            )
        except subprocess.TimeoutExpired:
            return f"not over in {limit:g} s"
        failed = [line for line in done.stdout.splitlines() if line[:6] in FAILED]
        if done.returncode in NOT_RUN and not failed:
            sys.exit(f"{tests[0]}, ...: the tests do not run:\n{done.stdout[-2000:]}")
        if done.returncode == 0:
            return ""
        return failed[0] if failed else f"pytest ended with {done.returncode}"


def _run_in_flux(file: Path) -> subprocess.CompletedProcess[str]:
    limit = ["timeout", "-k", "10", str(REAL_LIMIT), str(file)]
    return subprocess.run(
        limit, capture_output=True, text=True, errors="replace", start_new_session=True
    )


def _run(command: Sequence[str], folder: Path) -> None:
    subprocess.run(command, cwd=folder, check=True)


def clone(path: Path, commit: str) -> None:
    """Have a clone at a commit."""
    if not path.exists():
        _run(["git", "clone", "--quiet", "--shared", str(TOP), str(path)], TOP)
    _run(["git", "fetch", "--quiet"], path)
    found = subprocess.check_output(["git", "rev-parse", commit], cwd=TOP, text=True)
    _run(["git", "checkout", "--quiet", "--force", "--detach", found.strip()], path)


def drawn(top: Path, commits: Sequence[str], seed: int, number: int) -> list[Mutant]:
    """The mutants of the first of these commits, in a tree; for those whose lines have
    changed others, of the first that lacks them."""
    trees = [FOLDER / f"drawn-{commit}" for commit in commits]
    for tree, commit in zip(trees, commits):
        clone(tree, commit)
    found = draw(trees[0], seed, number)
    for before, after in zip(trees, [*trees[1:], top]):
        found = draw(after, seed, number, list(_carried(found, before, after)))
    return found


def _carried(mutants: Sequence[Mutant], before: Path, after: Path) -> Iterator[Mutant]:
    """Those of a tree whose lines another one has as well, as they are there."""
    for mutant in mutants:
        old, new = before / mutant.path, after / mutant.path
        if new.exists():
            found = known.carried(mutant, old.read_bytes(), new.read_bytes())
            if found is not None:
                yield found


class Results:
    """Verdicts, in a file with a line of JSON for each."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.verdicts: dict[Mutant, Verdict] = {}
        if path.exists():
            for line in path.read_text().splitlines():
                found = json.loads(line)
                self.add(Verdict(Mutant(**found.pop("mutant")), **found), keep=False)

    def add(self, verdict: Verdict, keep: bool = True) -> None:
        self.verdicts[verdict.mutant] = verdict
        if keep:
            with self._path.open("a") as file:
                file.write(json.dumps(asdict(verdict)) + "\n")

    def table(self) -> str:
        """How many were killed, by folder, and each that was not."""
        found = sorted(self.verdicts.values(), key=lambda verdict: verdict.mutant)
        count = Counter((_folder(v.mutant), v.result) for v in found)
        lines = [f"{'':<36} " + " ".join(f"{result:>11}" for result in RESULTS)]
        for folder in sorted({_folder(verdict.mutant) for verdict in found}):
            numbers = (count[folder, result] for result in RESULTS)
            lines.append(f"{folder:<36} " + " ".join(f"{n:>11}" for n in numbers))
        killed = sum(verdict.result == KILLED for verdict in found)
        others = sum(verdict.result not in NO_FAULTS for verdict in found)
        lines.append(f"{killed} of {others} that can be are killed. The others:")
        lines += [str(verdict) for verdict in found if verdict.result != KILLED]
        return "\n".join(lines)


def _folder(mutant: Mutant) -> str:
    return "/".join(Path(mutant.path).parent.parts[1:]).replace("pymod/", "")


def run(args: argparse.Namespace) -> Results:
    """Try those that are not known yet."""
    command = ["git", "rev-parse", "HEAD"]
    commit = subprocess.check_output(command, cwd=TOP, text=True).strip()
    folder = FOLDER / commit[:12]
    folder.mkdir(parents=True, exist_ok=True)
    results = Results(folder / "results.jsonl")
    trees: Queue[Tree] = Queue()
    for number in range(args.parallel):
        trees.put(Tree(FOLDER / f"tree-{number}", commit))
    top = trees.queue[0].path
    mutants = drawn(top, args.of, args.seed, args.number)
    for found in known.read((Path(__file__).parent / "equivalents.txt").read_text()):
        for mutant in mutants:
            if found.is_(mutant, (top / mutant.path).read_bytes()):
                results.add(Verdict(mutant, EQUIVALENT, found.why), keep=False)
    if not (folder / "times.xml").exists():
        status = measure(top, folder)
        if status:
            (folder / "times.xml").unlink(missing_ok=True)
            sys.exit(f"the tests fail without any mutant (pytest ended with {status})")
    reach = Reach(folder)

    def one(mutant: Mutant) -> None:
        tree = trees.get()
        try:
            verdict = tree.try_mutant(mutant, reach, args.limit)
        finally:
            trees.put(tree)
        results.add(verdict)
        print(verdict, flush=True)

    with ThreadPoolExecutor(args.parallel) as pool:
        for _ in pool.map(one, [m for m in mutants if m not in results.verdicts]):
            pass
    # Others are of another seed or number.
    results.verdicts = {mutant: results.verdicts[mutant] for mutant in mutants}
    return results


def main(arguments: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("--seed", type=int, default=52, metavar="N", help="(%(default)s)")
    add("--number", type=int, default=200, metavar="N", help="mutants (%(default)s)")
    of = " ".join(DRAWN_OF)
    add("--of", nargs="+", default=DRAWN_OF, metavar="COMMIT", help=f"whose ({of})")
    add("--limit", type=float, default=100.0, metavar="SECONDS", help="of a mutant")
    add("--parallel", type=int, default=os.cpu_count() or 1, metavar="N")
    # What is under way is tried to its end, in sessions of its own: else it would fail
    # by the interruption.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    print(run(parser.parse_args(arguments)).table())
    return 0


if __name__ == "__main__":
    sys.exit(main())
