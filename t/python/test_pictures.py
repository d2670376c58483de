# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The pictures of the guides (make pictures)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.effort import night
from support.tree import TOP

DOC = TOP / "doc"


def pictures(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(DOC / "pictures.py"), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **environment},
        timeout=300,
    )


@night
@pytest.mark.parametrize("name", ["timeline.svg", "follow.svg"])
def test_the_picture_in_the_guide_is_what_the_command_makes(
    name: str, tmp_path: Path
) -> None:
    """If what the command shows has changed: make pictures."""
    done = pictures("-o", str(tmp_path), name, LC_ALL="C", TZ="Asia/Tokyo")
    assert (done.returncode, done.stdout) == (0, "")
    assert (tmp_path / name).read_text("utf-8") == (DOC / name).read_text("utf-8")
