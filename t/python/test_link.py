# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""``make install``: what src/link.sh links, where, and what it leaves alone."""

from __future__ import annotations

import os
import py_compile
import subprocess
import sys
from pathlib import Path

import pytest

from support.effort import night
from support.tree import TOP

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
        self.environment = {
            "PATH": f"{flux.parent}:{os.environ['PATH']}",
            "XDG_CONFIG_DIRS": f"/etc/xdg/of-a-desktop:{self.places}/xdg",
        }

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
            if path.is_symlink() or not path.is_dir()
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
        and not {"examples", "xdg", "__pycache__"}.intersection(path.parts)
    }
    manual = {
        f"man_path/{path.relative_to(TOP / 'doc/man')}"
        for path in (TOP / "doc/man").rglob("*.[1-9]")
    }
    assert manual
    assert flux.files() == commands | site | manual | {
        "dws.json",  # in the folder of cmdhelp_pattern
        "module_path/dws.py",
        "module_path/sched-rabbit.py",
        "jobtap_pluginpath/dws-jobtap.so",
        "shell_pluginpath/dws_environment.so",
        "xdg/flux/flux-jobs.dws.toml",
        "python_path/dwscli",
        "python_path/flux_k8s",
        "python_path/sssjob",
    }


def python_of_flux(
    flux: Flux, system: Path, code: str, *args: str
) -> subprocess.CompletedProcess:
    """Run code in a Python that knows the folder of Flux and that of the system, and
    the site-packages of no environment."""
    paths = [str(flux.places / "python_path"), str(system)]
    code = f"import sys; sys.path[:0] = {paths}; before = list(sys.path)\n{code}"
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.fixture
def system(tmp_path: Path) -> Path:
    """The packages of the system: one is older than we need it."""
    folder = tmp_path / "system"
    folder.mkdir()
    (folder / "urllib3.py").write_text("__version__ = '1.26.5'\n")
    return folder


WITHIN = """
import flux_k8s.ingest, flux_k8s.errors, sssjob.xml.reading
assert sys.path == before, sys.path
import urllib3
print(urllib3.__version__)
try:
    import kubernetes
except ModuleNotFoundError as error:
    print(error.name)
"""
SERVICE = """
sys.path.insert(0, 'the folder of the program')
import runpy
runpy.run_path(sys.argv[1], run_name="imported")
import kubernetes, urllib3
print(int(urllib3.__version__.partition(".")[0]) >= 2)
"""


@night
def test_a_program_of_others_keeps_its_own_packages_and_the_service_has_ours(
    flux: Flux, system: Path
) -> None:
    """flux submit imports ours, with our CLI plugin."""
    flux.link()
    assert python_of_flux(flux, system, WITHIN).stdout == "1.26.5\nkubernetes\n"
    program = str(flux.places / "python_path/flux_k8s/broker/__main__.py")
    assert python_of_flux(flux, system, SERVICE, program).stdout == "True\n"


@pytest.mark.parametrize("ours", [True, False])
@night
def test_an_installation_elsewhere_is_named_and_not_replaced(
    flux: Flux, tmp_path: Path, ours: bool
) -> None:
    """But not a package of the system, which may have our links in its lib/flux."""
    other = tmp_path / "with blanks"
    module = other / "lib/flux/modules/dws.py"
    module.parent.mkdir(parents=True)
    module.touch()
    if ours:
        (other / "pyvenv.cfg").touch()
    link = flux.places / "python_path/dwscli"
    link.parent.mkdir(parents=True)
    link.symlink_to(other / "lib/python3/site-packages/dwscli")
    text = (
        f"is of the installation in {other}; make uninstall DEST='{other}' first"
        if ours
        else "is another dwscli; remove it first"
    )
    for args in (["--check"], []):
        done = flux.link(*args)
        assert (done.returncode, done.stdout) == (1, f"link.sh: {link}: {text}\n")
    assert flux.link("--remove").returncode == 0
    assert flux.files() == {"python_path/dwscli"}


def test_all_links_can_be_removed_and_only_these(flux: Flux) -> None:
    own = flux.places / "exec_path/flux-own.py"
    own.parent.mkdir(parents=True)
    own.write_text("")
    flux.link()
    for linked in ("module_path/dws", "confdir/cli/plugins/rabbit"):
        path = flux.places / f"{linked}.py"
        py_compile.compile(str(path), doraise=True)  # as Python does at an import
    assert flux.link("--remove").returncode == 0
    assert flux.files() == {"exec_path/flux-own.py"}
    assert not list(flux.places.rglob("__pycache__"))


@pytest.mark.parametrize(
    ("name", "place", "what"),
    [
        ("confdir/cli/plugins/rabbit.py", "", "file"),
        # A site may have had other software for Rabbits, which is called like this.
        ("python_path/flux_k8s.py", "python_path/flux_k8s.py", "flux_k8s"),
        ("python_path/flux_k8s/__init__.py", "python_path/flux_k8s", "flux_k8s"),
    ],
)
@night
def test_what_is_the_sites_is_named_and_not_replaced(
    flux: Flux, name: str, place: str, what: str
) -> None:
    done = flux.link("--check")
    assert (done.returncode, done.stdout, flux.files()) == (0, "", set())
    own = flux.places / name
    own.parent.mkdir(parents=True)
    own.write_text("of the site\n")
    named = flux.places / (place or name)
    text = f"link.sh: {named}: is another {what}; remove it first\n"
    for args in (["--check"], []):
        done = flux.link(*args)
        assert (done.returncode, done.stdout) == (1, text)
        assert flux.files() == {name}
    assert flux.link("--remove").returncode == 0
    assert own.read_text() == "of the site\n"


@pytest.mark.parametrize(
    "line",
    [
        'plugins = [ "/etc/flux/validator/dws.py" ]',
        'plugins = [ "/site/check#1.py", "/etc/flux/validator/dws.py" ]',
        'load = "dws-jobtap.so"',
        'alternatives.sched = "sched-rabbit"',
    ],
)
@pytest.mark.parametrize("named", [True, False])
@night
def test_what_the_configuration_names_is_not_removed(
    flux: Flux, tmp_path: Path, line: str, named: bool
) -> None:
    """Where FLUX_CONF_DIR names no folder, it is Flux's own."""
    installed = tmp_path / "dws"
    folder = tmp_path / "conf" if named else flux.places / "confdir/system/conf.d"
    folder.parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "managed").mkdir()
    folder.symlink_to(tmp_path / "managed")
    (folder / "other.toml").write_text(f"# {line}\n[ingest.validator]\n{line}\n")
    assert named_lines(flux, installed, FLUX_CONF_DIR=folder if named else "") == [
        f"{folder}/other.toml:3:{line}"
    ]


def named_lines(flux: Flux, installed: Path, **environment: object) -> list[str]:
    """The lines of a configuration for which an installation is not removed."""
    for name in ("pyvenv.cfg", "lib/flux/modules/dws.py"):
        (installed / name).parent.mkdir(parents=True, exist_ok=True)
        (installed / name).touch()
    set_ = {name: str(value) for name, value in environment.items() if value}
    done = subprocess.run(
        ["src/install.sh", "--remove", str(installed)],
        cwd=TOP,
        env={"PATH": flux.environment["PATH"], **set_},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert done.returncode != 0 and "nothing is removed" in done.stderr
    assert (installed / "pyvenv.cfg").exists()
    return done.stderr.splitlines()[1:]
