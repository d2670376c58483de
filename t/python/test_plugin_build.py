# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The plugins can be built with a Flux and without one."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.compiled import readelf
from support.tree import TOP

SCRIPTS = ["src/jobtap/build_jobtap.py", "src/shell/build_shell.py"]


@pytest.fixture(params=SCRIPTS)
def component(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A component, described on a machine with or without Flux."""
    monkeypatch.chdir(TOP)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return runpy.run_path(request.param)["COMPONENT"]


def without_flux(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let the build see the compiler and pkg-config, but no Flux."""
    for tool in ("cc", "gcc", "as", "ld", "collect2", "pkg-config"):
        found = shutil.which(tool)
        if found:
            (folder / tool).symlink_to(found)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("PKG_CONFIG_PATH", raising=False)


def test_a_plugin_is_built_without_flux_too(
    component: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    without_flux(monkeypatch, tools)
    output = str(tmp_path / component.plugin)
    monkeypatch.setenv("CFLAGS", "-O0")
    command = component.plugin_command(output)
    assert "-Isrc/standin" in command and "-lflux-core" not in command
    subprocess.run(command, check=True)
    monkeypatch.undo()
    symbols = readelf("--dyn-syms", output)
    assert re.search(r" UND flux_plugin_", symbols)
    assert not re.search(r" UND standin_", symbols)


@pytest.fixture
def check_command(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What compares the declarations of the stand-in with Flux's own."""
    monkeypatch.chdir(TOP)
    monkeypatch.setattr(sys, "path", list(sys.path))
    command = runpy.run_path("src/standin/component.py")["check_command"]()
    if command is None:
        pytest.skip("Flux's headers are not installed")
    return list(command)


def test_the_standin_declarations_agree_with_flux(check_command: list[str]) -> None:
    subprocess.run(check_command, check=True)
