# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The benchmark: what it measures with is what there is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.effort import night
from support.tree import TOP

BENCH = TOP / "bench"
PROGRAM = """
import importlib, sys
sys.path.insert(0, sys.argv[1])
for name in sys.argv[2:]:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != "flux":  # where there is no Flux
            raise
"""


@night
def test_each_file_of_the_benchmark_can_be_imported() -> None:
    names = [f"measure.{path.stem}" for path in (BENCH / "measure").glob("*.py")]
    assert names
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(BENCH), *sorted(names)],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert done.returncode == 0, done.stderr


@night
@pytest.mark.parametrize(
    "program", sorted(BENCH.glob("*.py")), ids=lambda path: path.name
)
def test_each_program_of_the_benchmark_begins(program: Path) -> None:
    command = [sys.executable, str(program), "--help"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage: ")
