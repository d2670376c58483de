# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""How long ``make check`` takes, with the Flux on PATH and without it."""

from __future__ import annotations

import os
import pathlib
import subprocess
import time
from collections.abc import Iterator

from .bench import Bench
from .child import ChildError
from .results import TOP
from .rows import REAL_FLUX, STAND_IN, Row

NAME = "check"
FLUX = "flux-check"


def with_flux(bench: Bench) -> Iterator[Row]:
    yield from _check(bench, REAL_FLUX, FLUX, os.environ["PATH"], 8)


def without_flux(bench: Bench) -> Iterator[Row]:
    """The same with all programs but those of Flux."""
    folder = bench.scratch / "without-flux"
    folder.mkdir()
    for place in os.get_exec_path():
        for path in pathlib.Path(place).glob("*"):
            link = folder / path.name
            if not path.name.startswith("flux") and not link.is_symlink():
                link.symlink_to(path.absolute())
    yield from _check(bench, STAND_IN, NAME, str(folder), 4)


def _check(
    bench: Bench, section: str, name: str, path: str, target: float
) -> Iterator[Row]:
    """Run it once. A quick run does without."""
    if bench.quick:
        return
    begin = time.monotonic()
    with open(bench.scratch / f"{name}.log", "wb") as log:
        done = subprocess.run(
            ["make", "check"],
            cwd=TOP,
            env={**os.environ, "PATH": path, "MAKEFLAGS": ""},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    if done.returncode:
        raise ChildError("make check failed")
    minutes = (time.monotonic() - begin) / 60
    what = "make check" if section == STAND_IN else "make check, with Flux"
    yield Row(section, name, what, [minutes], "min", target, "on 2 cores")
