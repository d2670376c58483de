# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""``t/run.sh``: what it says of the files that it runs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from support.tree import TOP

GOOD = "echo 'ok 1 - all is well'; echo 1..1"
BAD = "echo 'ok 1 - so far'; echo 'not ok 2 - so good'; echo '# why'; echo 1..2; exit 1"
SHORT = "echo 'ok 1 - so far'; echo 'it ends' >&2"
LATE = "echo 'ok 1 - all is well'; echo 1..1; echo 'and then' >&2; exit 1"
FAILURES = {"bad": BAD, "short": SHORT, "late": LATE}

Done = subprocess.CompletedProcess


class Runner:
    """A folder with t/run.sh, a Flux that only has a version, and the given files."""

    def __init__(self, folder: Path) -> None:
        self.tests = folder / "t"
        self.tools = folder / "bin"
        self.temporary = folder / "tmp"
        for made in (self.tests, self.tools, self.temporary):
            made.mkdir()
        shutil.copy(TOP / "t/run.sh", self.tests)
        write_script(self.tools / "flux", "echo 'commands:    0.88.0'")

    def run(self, files: dict[str, str], *args: str, path: str = "") -> Done:
        for name, text in files.items():
            write_script(self.tests / f"t1-{name}.t", text)
        return subprocess.run(
            ["/bin/sh", str(self.tests / "run.sh"), *args],
            env={
                "PATH": path or f"{self.tools}:/usr/bin:/bin",
                "JOBS": "2",
                "TMPDIR": str(self.temporary),
            },
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
        )


def write_script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    if shutil.which("prove") is None:
        pytest.skip("prove is not installed")
    return Runner(tmp_path)


def lines(done: Done, name: str) -> list[str]:
    return [line for line in done.stdout.splitlines() if f"t1-{name}.t" in line]


def test_a_test_file_that_passes_is_one_line_of_output(runner: Runner) -> None:
    done = runner.run({"good": GOOD, "other": GOOD})
    assert done.returncode == 0, done.stdout
    for name in ("good", "other"):
        (line,) = lines(done, name)
        assert ".. ok" in line
    assert "all is well" not in done.stdout


@pytest.mark.parametrize("name", FAILURES)
def test_the_whole_output_of_a_test_file_that_fails_is_shown(
    runner: Runner, name: str
) -> None:
    done = runner.run({"good": GOOD, name: FAILURES[name]})
    assert done.returncode != 0
    _, shown = done.stdout.split(f"---- t1-{name}.t\n")
    said = subprocess.run(
        [str(runner.tests / f"t1-{name}.t")],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert shown == said.stdout
    assert len(lines(done, "good")) == 1
