# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""``make install``: what src/link.sh links, where, and what it leaves alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
LINK = TOP / "src/link.sh"
PREFIX = Path(sys.prefix)

if not (PREFIX / "lib/flux/modules/dws.py").exists():
    pytest.skip("flux-dws is not installed here", allow_module_level=True)


class Flux:
    """The places of a Flux that has nothing installed."""

    def __init__(self, folder: Path) -> None:
        self.places = folder / "flux"
        flux = folder / "bin/flux"
        flux.parent.mkdir(parents=True)
        flux.write_text(f'#!/bin/sh\necho "{self.places}/$3"\n')
        flux.chmod(0o755)
        self.environment = {"PATH": f"{flux.parent}:{os.environ['PATH']}"}

    def link(self, *args: str, prefix: Path = PREFIX) -> subprocess.CompletedProcess:
        return subprocess.run(
            [str(LINK), str(prefix), *args],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def files(self) -> set[str]:
        return {
            str(path.relative_to(self.places))
            for path in self.places.rglob("*")
            if not path.is_dir()
        }


@pytest.fixture
def flux(tmp_path: Path) -> Flux:
    return Flux(tmp_path)


def test_everything_is_linked_to_where_flux_looks_for_it(flux: Flux) -> None:
    done = flux.link()
    assert (done.returncode, done.stdout) == (0, "")
    commands = {f"exec_path/{path.name}" for path in (TOP / "src/cmd").glob("flux-*")}
    site = {
        f"confdir/{path.relative_to(TOP / 'etc')}"
        for path in (TOP / "etc").rglob("*")
        if path.is_file()
        and "examples" not in path.parts
        and "__pycache__" not in path.parts
    }
    assert flux.files() == commands | site | {
        "module_path/dws.py",
        "jobtap_pluginpath/dws-jobtap.so",
        "shell_pluginpath/dws_environment.so",
        "python_path/flux_k8s.py",
        "python_path/sssjob.py",
    }


@pytest.mark.parametrize("module", ["flux_k8s.kube.client", "sssjob.model"])
def test_a_python_that_knows_only_flux_finds_the_package(
    flux: Flux, module: str
) -> None:
    flux.link()
    code = (
        f"import sys; sys.path.insert(0, sys.argv[1]); import {module};"
        f"print(sys.modules['{module.partition('.')[0]}'].__file__)"
    )
    found = subprocess.run(
        # Without the site-packages of any environment.
        [sys.executable, "-I", "-S", "-c", code, str(flux.places / "python_path")],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    assert Path(found.strip()).parents[1].name == "site-packages"


def test_what_is_no_longer_installed_is_no_longer_linked(flux: Flux) -> None:
    flux.link()
    before = flux.files()
    gone = PREFIX / "libexec/flux/cmd/flux-gone.py"
    (flux.places / "exec_path/flux-gone.py").symlink_to(gone)
    assert flux.link().returncode == 0
    assert flux.files() == before


def test_all_links_can_be_removed_and_only_these(flux: Flux) -> None:
    own = flux.places / "exec_path/flux-own.py"
    own.parent.mkdir(parents=True)
    own.write_text("")
    flux.link()
    assert flux.link("--remove").returncode == 0
    assert flux.files() == {"exec_path/flux-own.py"}


def test_a_file_of_the_site_is_not_replaced(flux: Flux) -> None:
    own = flux.places / "confdir/cli/plugins/rabbit.py"
    own.parent.mkdir(parents=True)
    own.write_text("of the site\n")
    done = flux.link()
    assert done.returncode != 0 and str(own) in done.stdout
    assert own.read_text() == "of the site\n"


@pytest.mark.parametrize("name", ["flux_k8s.py", "flux_k8s/__init__.py"])
def test_another_package_of_the_name_is_not_replaced(flux: Flux, name: str) -> None:
    """A site may have had other software for Rabbits, which is called like this."""
    own = flux.places / "python_path" / name
    own.parent.mkdir(parents=True)
    own.write_text("of the site\n")
    done = flux.link()
    other = flux.places / "python_path" / name.partition("/")[0]
    assert (done.returncode, done.stdout) == (
        1,
        f"link.sh: {other}: is another flux_k8s; remove it first\n",
    )
    assert flux.files() == {f"python_path/{name}"}
    assert flux.link("--remove").returncode == 0
    assert own.read_text() == "of the site\n"
