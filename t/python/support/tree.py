# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The source tree."""

from __future__ import annotations

import shutil
from pathlib import Path

TOP = Path(__file__).parents[3]
SHARED = TOP.parent / "shared"
"""The records of real systems. A tree of sources need not have them."""
RECORDED = SHARED / "recorded"
CRDS = SHARED / "crds"

FILES = ["pyproject.toml", "setup.py", "MANIFEST.in", "README.md"]
LICENCES = ["COPYING", "COPYING.LESSER"]
FOLDERS = ["src", "etc", "doc/man", "doc/help.d"]


def copy_sources(folder: Path) -> Path:
    """A copy of what a build reads, in a new folder. Builds at the same time need
    one each: all of them write to the build folder and the egg-info of their tree."""
    folder.mkdir()
    for name in [*FILES, *LICENCES]:
        shutil.copy(TOP / name, folder)
    left_out = shutil.ignore_patterns("__pycache__", "*.egg-info", "*.so", "*.o")
    for name in FOLDERS:
        shutil.copytree(TOP / name, folder / name, ignore=left_out)
    return folder
