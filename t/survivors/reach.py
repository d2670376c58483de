# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Which tests run a line, and how long each takes.

Measured once for a tree, by all Python tests with a context of coverage for each.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from coverage import CoverageData

from making import Mutant

# The modules that load what is built from C: their tests are those of all C.
LOADED_BY = {
    "src/jobtap": "rabbitsim/jobtap.py",
    "src/shell": "rabbitsim/shellplugin.py",
}
LOADERS = ("rabbitsim.jobtap", "rabbitsim.shellplugin")
MEASURED = ("dwscli", "flux_k8s", "sssjob", *LOADERS)


def measure(tree: Path, folder: Path) -> int:
    """Run all Python tests of a tree, and put into the folder what they reach. Returns
    the exit status of pytest."""
    config = folder / "coveragerc"
    config.write_text("[run]\nbranch = false\ndata_file = " + str(folder / "coverage"))
    command = [str(tree / ".venv/bin/python"), "-m", "pytest", "-q", "-n", "auto"]
    command += ["--dist", "worksteal", f"--junitxml={folder / 'times.xml'}"]
    command += ["--cov-report=", "--cov-context=test", f"--cov-config={config}"]
    command += [f"--cov={package}" for package in MEASURED]
    return subprocess.run(command, cwd=tree, check=False).returncode


class Reach:
    """What was measured.

    Args:
        folder: where :func:`measure` has put it.
    """

    def __init__(self, folder: Path) -> None:
        self._data = CoverageData(str(folder / "coverage"))
        self._data.read()
        self._files = {_module(path): path for path in self._data.measured_files()}
        self._seconds = _seconds(folder / "times.xml")

    def tests(self, mutant: Mutant) -> list[str]:
        """The node IDs of the tests that run a mutant's line, the quickest first: these
        are of the fewest things, and most of them fit into a limit."""
        contexts = self._contexts(mutant)
        found = {context.rpartition("|")[0] for context in contexts} - {""}
        return sorted(found, key=lambda test: (self.seconds([test]), test))

    def seconds(self, tests: Sequence[str]) -> float:
        """What these take together."""
        return sum(self._seconds.get(_key(test), 1.0) for test in tests)

    def _contexts(self, mutant: Mutant) -> set[str]:
        module = _module(mutant.path)
        if mutant.in_c:
            module = LOADED_BY[str(Path(mutant.path).parent)]
        lines = self._data.contexts_by_lineno(self._files.get(module, ""))
        found = set(lines.get(mutant.line, ()))
        if mutant.in_c or found == {""}:  # a line that runs when the module is imported
            found = {context for contexts in lines.values() for context in contexts}
        return found


def _module(path: str) -> str:
    """The path of a module, from its package on."""
    for top in ("site-packages/", "src/pymod/"):
        path = path.rpartition(top)[2]
    return path


def _seconds(path: Path) -> dict[str, float]:
    """The seconds of each test, by what is said of it in JUnit's format."""
    found: dict[str, float] = {}
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        key = f"{case.get('classname')}.{case.get('name')}"
        found[key] = float(case.get("time", 0))
    return found


def _key(test: str) -> str:
    """The same key of a node ID."""
    file, _, rest = test.partition("::")
    names, bracket, parameters = rest.partition("[")
    module = file[: -len(".py")].replace("/", ".")
    return ".".join((module, *names.split("::"))) + bracket + parameters
