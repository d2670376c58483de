#!/usr/bin/env python3
# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Whether torture finds each fix that is taken out.

A file ``t/mutants/NN-name.patch`` takes one fix out of the tree. It begins with::

    Item: NN
    Finds: RULE
    Torture: --jobs 30 --faults module,watch
    One sentence, or more, about what is taken out.

and a ``git diff`` follows. Each is applied to a copy of the tree, and torture is run
there with these arguments until it finds a breach of the rule, while the tree as it
is passes the same seed. Those that are not found make the exit status 1.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

TOP = Path(__file__).resolve().parents[1]
MUTANTS = TOP / "t" / "mutants"
COPIED = ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "src", "etc")
EXTENSIONS = ("rabbitsim._jobtap", "rabbitsim._shell")
FIELDS = ("Item", "Finds", "Torture")

_BREACH = re.compile(r"^breach at step \d+ of seed (\d+): (.*?): ", re.MULTILINE)
_IS_C = re.compile(r"^\+\+\+ b/src/.*(\.[ch]|/build_\w+\.py)$", re.MULTILINE)


class MutantError(Exception):
    """A mutant cannot be tried. The text names it, and says why."""


@dataclass(frozen=True)
class Mutant:
    """A patch: which item's fix it takes out, and which rule finds that."""

    path: Path
    item: str
    rule: str
    arguments: tuple[str, ...]
    diff: str

    @classmethod
    def read(cls, path: Path) -> Mutant:
        """Read a patch with its header."""
        header, start, rest = path.read_text().partition("diff --git ")
        found = dict(re.findall(r"^(\w+): *(\S.*?) *$", header, re.MULTILINE))
        missing = [field for field in FIELDS if field not in found]
        if missing or not start:
            what = f"line '{missing[0]}: ...'" if missing else "'diff --git'"
            raise MutantError(f"{path.name}: has no {what}")
        arguments = tuple(shlex.split(found["Torture"]))
        return cls(path, found["Item"], found["Finds"], arguments, start + rest)

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def changes_c(self) -> bool:
        return _IS_C.search(self.diff) is not None


@dataclass(frozen=True)
class Verdict:
    """What came of a mutant. ``seed`` is the one that finds it, or None; ``others``
    are rules that were broken on the way."""

    mutant: Mutant
    seed: Optional[int]
    seconds: float
    others: tuple[str, ...]

    def __str__(self) -> str:
        mutant = self.mutant
        seed = "-" if self.seed is None else self.seed
        line = f"{mutant.item:>4}  {mutant.name:<40} {mutant.rule:<16} {seed:>5}"
        line += f" {self.seconds:>7.0f}"
        if self.seed is None:
            line += "  NOT FOUND"
            line += f" (but {', '.join(self.others)})" if self.others else ""
        return line


def copy_tree(folder: Path) -> None:
    """The tree, with the extensions as they are installed."""
    for name in COPIED:
        source = TOP / name
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "*.so")
            shutil.copytree(source, folder / name, ignore=ignored)
        elif source.exists():
            shutil.copy(source, folder / name)
    for extension in EXTENSIONS:
        spec = importlib.util.find_spec(extension)
        if spec is None or spec.origin is None:
            raise MutantError(f"{extension} is not installed in {sys.executable}")
        shutil.copy(spec.origin, folder / "src" / "pymod" / "rabbitsim")


def patch(mutant: Mutant, folder: Path) -> None:
    """Apply the patch."""
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(folder.parent)}
    _check(mutant, ["git", "apply", "-"], folder, environment, mutant.diff)


def apply(mutant: Mutant, folder: Path) -> None:
    """Apply the patch, and build what it changes."""
    patch(mutant, folder)
    if mutant.changes_c:
        build = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
        _check(mutant, build, folder, dict(os.environ))


def _check(
    mutant: Mutant,
    command: Sequence[str],
    folder: Path,
    environment: dict[str, str],
    text: str = "",
) -> None:
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        input=text,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if done.returncode != 0:
        shown = " ".join(command[-2:])
        raise MutantError(f"{mutant.path.name}: {shown} failed:\n{done.stdout}")


def torture(
    mutant: Mutant, folder: Path, seed: int, seeds: int
) -> Optional[tuple[int, str]]:
    """The seed of the first breach from ``seed`` on, and its rule; None when
    there is none among so many seeds."""
    command = [sys.executable, "-m", "rabbitsim", "torture", *mutant.arguments]
    command += [f"--seed={seed}", f"--seeds={seeds}", "--no-shrink"]
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder / "src" / "pymod")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    found = _BREACH.search(done.stdout)
    if found is not None:
        return int(found[1]), found[2]
    if done.returncode != 0:
        shown = f"{' '.join(command[1:])} ended with status {done.returncode}"
        raise MutantError(f"{mutant.path.name}: {shown}:\n{done.stdout}")
    return None


def search(mutant: Mutant, intact: Path, folder: Path, seeds: int) -> Verdict:
    """Look for a seed that the tree passes, and the mutant does not."""
    begin = time.monotonic()
    copy_tree(folder)
    apply(mutant, folder)
    others: dict[str, None] = {}
    seed: Optional[int] = None
    first = 1
    while seed is None and first <= seeds:
        found = torture(mutant, folder, first, seeds - first + 1)
        if found is None:
            break
        at, rule = found
        if rule != mutant.rule:
            others[rule] = None
        elif torture(mutant, intact, at, 1) is not None:
            others[f"the tree as it is with seed {at}"] = None
        else:
            seed = at
        first = at + 1
    return Verdict(mutant, seed, time.monotonic() - begin, tuple(others))


def run(paths: Sequence[Path], seeds: int, parallel: int) -> int:
    """Try each, and print a table; the exit status."""
    mutants = [Mutant.read(path) for path in paths]
    failed = False
    print(f"item  {'mutant':<40} {'rule':<16}  seed seconds")
    with tempfile.TemporaryDirectory(prefix="flux-dws-mutants-") as scratch:
        intact = Path(scratch) / "intact"
        intact.mkdir()
        copy_tree(intact)

        def one(mutant: Mutant) -> Verdict:
            folder = Path(tempfile.mkdtemp(dir=scratch))
            return search(mutant, intact, folder, seeds)

        with ThreadPoolExecutor(parallel) as pool:
            for future in [pool.submit(one, mutant) for mutant in mutants]:
                try:
                    verdict = future.result()
                except MutantError as error:
                    print(error, file=sys.stderr)
                    failed = True
                else:
                    print(verdict, flush=True)
                    failed = failed or verdict.seed is None
    return 1 if failed else 0


def main(arguments: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("patches", nargs="*", type=Path, help="these (default: all of t/mutants)")
    add("--seeds", type=int, default=100, metavar="N", help="of each (%(default)s)")
    add("--parallel", type=int, default=os.cpu_count() or 1, metavar="N")
    args = parser.parse_args(arguments)
    paths = args.patches or sorted(MUTANTS.glob("*.patch"))
    try:
        return run(paths, args.seeds, args.parallel)
    except (MutantError, OSError) as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
