# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The source tree."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from flux_k8s.ports import Json

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


def quick_compiler(folder: Path) -> dict[str, str]:
    """An environment in which a build does not optimize: ``make`` did so before the
    tests, with the warnings of that, and this takes half as long."""
    script = folder / "quick-cc"
    compiler = os.environ.get("CC", "cc")
    options = "-O0 -U_FORTIFY_SOURCE"  # which glibc has with -O only
    script.write_text(f'#!/bin/sh\nexec {compiler} "$@" {options}\n')
    script.chmod(0o755)
    return {**os.environ, "CC": str(script)}


def recorded(name: str, kind: str) -> list[Json]:
    """The versions of the objects of a kind in a recording of a real cluster, as they
    came, each with a status."""
    path = RECORDED / f"{name}.jsonl"
    if not path.exists():
        pytest.skip(f"there is no {path}")
    objects = (json.loads(line).get("object", {}) for line in path.open())
    return [o for o in objects if o.get("kind") == kind and o.get("status")]
