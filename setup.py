# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Build the Python packages, the two plugins, and place what Flux loads.

``pyproject.toml`` has the metadata. ``python setup.py build_ext --inplace``
builds for work in a checkout: the extensions beside their Python modules, the
plugins in ``build/plugins``.
"""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_ext import build_ext

BUILD_SCRIPTS = ["src/jobtap/build_jobtap.py", "src/shell/build_shell.py"]
PLUGINS = Path("build/plugins")
COMPONENTS = [runpy.run_path(script)["COMPONENT"] for script in BUILD_SCRIPTS]

# Importable since the first build script was run.
from component import DWSError, check_command  # noqa: E402


class BuildExtAndPlugins(build_ext):
    """Build the extensions, then the plugins."""

    def run(self) -> None:
        super().run()
        try:
            check = check_command()
        except DWSError as error:
            sys.exit(f"building the plugins failed: {error}")
        if check is not None:
            self.compile(check)
        version = self.distribution.get_version()
        PLUGINS.mkdir(parents=True, exist_ok=True)
        for component in COMPONENTS:
            self.compile(
                component.plugin_command(str(PLUGINS / component.plugin), version)
            )

    def compile(self, command: list[str]) -> None:
        self.announce(" ".join(command), level=2)
        try:
            subprocess.run(command, check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            sys.exit(f"building the plugins failed: {error}")


def data_files() -> list[tuple[str, list[str]]]:
    """What is installed below the prefix, where Flux looks for it."""
    files = [(c.directory, [str(PLUGINS / c.plugin)]) for c in COMPONENTS]
    modules = ["src/pymod/dws.py", "src/pymod/sched-rabbit.py"]
    files.append(("lib/flux/modules", modules))
    commands = sorted(str(path) for path in Path("src/cmd").glob("flux-*"))
    if commands:
        files.append(("libexec/flux/cmd", commands))
    for path in sorted(
        [*Path("doc/man").glob("man?/*"), *Path("doc/help.d").glob("*")]
    ):
        files.append((manual_directory(path), [str(path)]))
    for path in sorted(Path("etc").rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            files.append((site_directory(path), [str(path)]))
    return files


def manual_directory(path: Path) -> str:
    """Where a man page goes, or the commands that ``flux help`` lists."""
    directory = path.parent.relative_to("doc")
    return str(
        Path("share/flux" if directory.name == "help.d" else "share") / directory
    )


def site_directory(path: Path) -> str:
    """Where a site file goes: examples to the documentation, what Flux's commands
    read from the folders of XDG to these, all others to Flux's own configuration."""
    directory = path.parent.relative_to("etc")
    if directory == Path("examples"):
        return "share/doc/flux-dws"
    if directory.parts[:1] == ("xdg",):
        return str(Path("etc") / directory)
    return str(Path("etc/flux") / directory)


setup(
    cffi_modules=[f"{script}:ffibuilder" for script in BUILD_SCRIPTS],
    cmdclass={"build_ext": BuildExtAndPlugins},
    data_files=data_files(),
)
