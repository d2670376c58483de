# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The oldest flux-core: what is refused, and that all who name it name the same."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

from flux_k8s.errors import DWSError
from flux_k8s.version import OLDEST_FLUX, check_flux
from support.tree import TOP

SAID = [TOP / "README.md", TOP / "doc/admin.md", TOP / "NEWS.md"]


@pytest.mark.parametrize(
    "version",
    ["0.86.0", "0.86.1", "0.88.0", "0.88.0-59-g6ccb6c1", "0.100.0", "1.0.0"],
)
def test_the_oldest_flux_and_all_newer_ones_are_taken(version: str) -> None:
    check_flux(version)


@pytest.mark.parametrize("version", ["0.85.0", "0.85.0-99-g6ccb6c1", "0.9.0"])
def test_an_older_flux_is_refused_with_one_line_that_names_the_version(
    version: str,
) -> None:
    with pytest.raises(DWSError) as error:
        check_flux(version, "sched-rabbit")
    assert (
        str(error.value)
        == f"sched-rabbit needs flux-core {OLDEST_FLUX} or newer, this is {version}"
    )


def test_a_build_against_an_older_flux_ends_with_that_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "pkg-config"
    fake.write_text("#!/bin/sh\ncase $1 in --modversion) echo 0.79.0;; esac\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PKG_CONFIG", str(fake))
    monkeypatch.chdir(TOP)
    monkeypatch.setattr(sys, "path", list(sys.path))
    component: Any = runpy.run_path("src/jobtap/build_jobtap.py")["COMPONENT"]
    with pytest.raises(DWSError, match=f"{OLDEST_FLUX} or newer, this is 0.79.0"):
        component.plugin_command(str(tmp_path / "dws-jobtap.so"))


@pytest.mark.parametrize("path", SAID, ids=lambda path: path.name)
def test_what_people_read_names_the_oldest_flux(path: Path) -> None:
    versions = re.findall(r"flux-core (\d+\.\d+\.\d+)", path.read_text())
    assert versions[:1] == [OLDEST_FLUX]
