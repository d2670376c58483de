# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The benchmark: what it measures with is what there is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"


@pytest.mark.parametrize("path", sorted((BENCH / "measure").glob("*.py")), ids=str)
def test_each_file_of_the_benchmark_can_be_imported(path: Path) -> None:
    program = (
        f"import sys; sys.path.insert(0, {str(BENCH)!r}); import measure.{path.stem}"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], stderr=subprocess.PIPE, text=True
    )
    missing = "No module named 'flux'" in done.stderr  # where there is no Flux
    assert done.returncode == 0 or missing, done.stderr
