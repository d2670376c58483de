# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What the layers promise besides their order, which ``lint-imports`` checks by the
contracts in pyproject.toml.
"""

from __future__ import annotations

import ast
import functools
import re
import shutil
import sys
from pathlib import Path
from typing import Iterator

from support.tree import TOP

SOURCES = TOP / "src" / "pymod"
TESTS = TOP / "t" / "python"

OTHER_NAMES = {"cleanup", "directivebreakdown", "storage", "systemstatus", "watch"}
"""Modules that are but names of others, by which they are imported from elsewhere."""

ADAPTERS = {"broker", "kube", "command", "ingest"}


@functools.lru_cache(maxsize=None)
def parsed(path: Path) -> ast.AST:
    return ast.parse(path.read_text())


def imports(path: Path, package: str) -> Iterator[str]:
    """The full names of all modules that a file imports, wherever it does."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")
                parents = parents[: len(parents) - node.level + 1]
                base = ".".join([*parents, base]).rstrip(".")
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def files(package: str) -> list[Path]:
    return sorted((SOURCES / package).rglob("*.py"))


def package_of(path: Path) -> str:
    return ".".join(path.relative_to(SOURCES).parent.parts)


def folder_of(path: Path) -> str:
    """The folder of ``flux_k8s`` that a file is in, or the file's own name."""
    return path.relative_to(SOURCES / "flux_k8s").with_suffix("").parts[0]


def pure_files() -> list[Path]:
    """Those that do no input or output."""
    return [
        path
        for path in files("flux_k8s")
        if folder_of(path) not in {*ADAPTERS, *OTHER_NAMES}
    ]


def test_modules_that_are_no_adapters_call_no_input_or_output() -> None:
    calls = {
        (path.name, node.func.id)
        for path in pure_files()
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    barred = {"open", "print", "input", "exec", "eval"}
    assert [call for call in calls if call[1] in barred] == []


def test_names_of_seed_001_can_be_imported() -> None:
    from flux_k8s import cleanup, directivebreakdown, storage, systemstatus, watch

    assert directivebreakdown.apply_breakdowns
    assert storage.RabbitManager and watch.Watchers
    assert systemstatus.SystemStatus and cleanup.finalizer_patch


def closure(path: Path) -> set[str]:
    """The names of all that a file imports, and what it imports of ours imports."""
    found: set[str] = set()
    paths = [path]
    while paths:
        path = paths.pop()
        for name in set(imports(path, package_of(path))) - found:
            found.add(name)
            parts = name.split(".")
            folders = [SOURCES.joinpath(*parts[:end]) for end in range(1, len(parts))]
            ours = [folder / "__init__.py" for folder in folders]
            ours += [
                SOURCES.joinpath(*parts).with_suffix(".py"),
                SOURCES.joinpath(*parts) / "__init__.py",
            ]
            paths += [path for path in ours if path.exists()]
    return {name.partition(".")[0] for name in found}


def test_the_supervisor_needs_neither_kubernetes_nor_the_simulator() -> None:
    found = closure(SOURCES / "dws.py")
    assert {"flux", "flux_k8s"} <= found
    assert not found & {
        "kubernetes",
        "rabbitsim",
        "pycurl",
        "urllib3",
        "yaml",
        "threading",
    }


def test_importing_the_service_imports_nothing_that_is_heavy() -> None:
    import subprocess

    program = (
        "import sys; import flux_k8s.jobs.service; "
        "heavy = {'kubernetes', 'pycurl', 'urllib3', 'yaml', 'asyncio', 'aiohttp'}; "
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_query_of_flux_dws_imports_nothing_that_is_heavy() -> None:
    """A user waits for these imports. Flux's own come when it is asked."""
    import subprocess

    program = (
        "import sys; import dwscli.list, dwscli.show, dwscli.disable; "
        "heavy = {'asyncio', 'flux', 'http', 'kubernetes', 'lxml', 'sssjob',"
        " 'subprocess', 'tomllib', 'pycurl', 'urllib3', 'yaml'}; "
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)"
    )
    subprocess.run([sys.executable, "-I", "-c", program], check=True)


def test_what_flux_imports_finds_msgspec_beside_itself_and_nothing_else(
    tmp_path: Path,
) -> None:
    """Flux's Python has links to our packages, but not to what they need."""
    import subprocess

    import msgspec

    environment, links = tmp_path / "environment", tmp_path / "links"
    links.mkdir()
    for name in ("dwscli", "flux_k8s", "sssjob"):
        shutil.copytree(SOURCES / name, environment / name)
        (links / name).symlink_to(environment / name)
    (environment / "msgspec").symlink_to(Path(msgspec.__file__).parent)
    (environment / "yaml.py").touch()
    program = """
import importlib.util, runpy, sys
sys.path.insert(0, sys.argv[1])
before = list(sys.path)
import dwscli.list, flux_k8s.ingest, sssjob.from_flux
assert sys.path == before and importlib.util.find_spec("yaml") is None
sys.argv = ["flux-rabbitmapping.py", "--help"]
runpy.run_path(sys.path[0] + "/../rabbitmapping", run_name="__main__")
"""
    shutil.copy(TOP / "src/cmd/flux-rabbitmapping.py", tmp_path / "rabbitmapping")
    command = [sys.executable, "-I", "-S", "-c", program, str(links)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    assert done.stdout.startswith(b"usage: flux rabbitmapping")


def test_helpers_of_several_tests_are_in_support() -> None:
    found = {
        path.name: re.findall(r"^\s*(?:from|import) (test_\w+)", path.read_text(), re.M)
        for path in TESTS.rglob("*.py")
    }
    assert found.pop("conftest.py") == []
    assert {name: names for name, names in found.items() if names} == {}
    beside = {path.name for path in TESTS.glob("*.py")} - {"conftest.py"}
    assert {name for name in beside if not name.startswith("test_")} == set()
