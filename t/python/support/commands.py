# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The commands of ``src/cmd``, as ``flux`` runs them."""

from __future__ import annotations

import io
import os
import runpy
import subprocess
import sys
import traceback
from typing import Any
from unittest import mock

from support.tree import TOP

SOURCES = TOP / "src"


def _program(name: str) -> str:
    return str(SOURCES / "cmd" / f"flux-{name}.py")


def run(
    name: str, *args: Any, stdin: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run ``flux NAME ARGS`` within this process, which has imported everything."""
    argv = [_program(name), *map(str, args)]
    out, err = (
        io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
        for _ in range(2)
    )
    given = io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8")
    streams = mock.patch.multiple(sys, stdin=given, stdout=out, stderr=err)
    packages = mock.patch.multiple(sys, argv=argv, path=list(sys.path))
    with mock.patch.dict(os.environ, environment), packages, streams:
        try:
            runpy.run_path(argv[0], run_name="__main__")
            status = 0
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else 1
        except Exception:
            traceback.print_exc()
            status = 1
    texts = (stream.buffer.getvalue().decode() for stream in (out, err))  # type: ignore[attr-defined]
    return subprocess.CompletedProcess(argv, status, *texts)


def run_apart(
    streams: str, name: str, *args: Any, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run ``flux NAME ARGS`` in a process of its own, with redirections such as
    ``<&-``."""
    command = ["sh", "-c", f'exec "$@" {streams}', "sh", sys.executable, _program(name)]
    return subprocess.run(
        [*command, *map(str, args)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SOURCES / "pymod"), **environment},
    )


def refused(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The lines of a command's error."""
    assert done.returncode == 1, done
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    return done.stderr.splitlines()
