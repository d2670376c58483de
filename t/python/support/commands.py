# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The commands of ``src/cmd``, in processes of their own, as ``flux`` runs them."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from support.tree import TOP

SOURCES = TOP / "src"


def run(
    name: str, *args: Any, stdin: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run ``flux NAME ARGS``."""
    return subprocess.run(
        [sys.executable, str(SOURCES / "cmd" / f"flux-{name}.py"), *map(str, args)],
        input=stdin,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SOURCES / "pymod"), **environment},
    )


def run_without(stream: str, name: str, *args: Any) -> subprocess.CompletedProcess[str]:
    """Run ``flux NAME ARGS`` with a standard stream closed, as in ``<&-``."""
    script = f'exec "$@" {stream}'
    command = [sys.executable, str(SOURCES / "cmd" / f"flux-{name}.py")]
    return subprocess.run(
        ["sh", "-c", script, "sh", *command, *map(str, args)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SOURCES / "pymod")},
    )


def refused(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The lines of a command's error."""
    assert done.returncode == 1, done
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    return done.stderr.splitlines()
