# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What is in a compiled file."""

from __future__ import annotations

import shutil
import subprocess

import pytest


def readelf(*args: str) -> str:
    if shutil.which("readelf") is None:
        pytest.skip("readelf (binutils) is not installed")
    return subprocess.run(
        ["readelf", "-W", *args], stdout=subprocess.PIPE, text=True, check=True
    ).stdout
