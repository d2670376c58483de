# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Which layer may import what (DESIGN section 2)."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Iterator

import pytest

SOURCES = Path(__file__).parents[2] / "src" / "pymod"

# The adapters, and the commands' files: they do the I/O of the package.
ADAPTERS = {"client", "command", "readerprocess", "watch"}
# What these are made of is private to them.
PRIVATE = "_"
# The service's own file, and those that carry out its steps, know no more of
# the world than the ports.
FORBIDDEN = {"flux", "kubernetes", "urllib3", "rabbitsim", "cffi", "yaml"}
# Input, output and waiting have no place in what only knows rules.
IMPURE = {
    "asyncio",
    "http",
    "io",
    "multiprocessing",
    "os",
    "pathlib",
    "queue",
    "select",
    "socket",
    "ssl",
    "subprocess",
    "tempfile",
    "threading",
    "time",
    "urllib",
}


def imports(path: Path, package: str) -> Iterator[str]:
    """The full names of all modules that a file imports, wherever it does."""
    for node in ast.walk(ast.parse(path.read_text())):
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


def is_flux_adapter(path: Path) -> bool:
    return path.parent.name == "broker"


def is_adapter(path: Path) -> bool:
    return (
        is_flux_adapter(path)
        or path.stem in ADAPTERS
        or (path.stem.startswith(PRIVATE) and path.stem != "__init__")
    )


@pytest.mark.parametrize("path", files("flux_k8s"), ids=lambda path: path.stem)
def test_the_package_knows_flux_and_kubernetes_in_their_adapters_only(
    path: Path,
) -> None:
    found = {name.partition(".")[0] for name in imports(path, package_of(path))}
    allowed = set()
    if is_flux_adapter(path):
        allowed = {"flux"}
    elif is_adapter(path):
        allowed = {"kubernetes", "urllib3", "yaml"}
    assert not found & (FORBIDDEN - allowed)


@pytest.mark.parametrize(
    "path",
    [path for path in files("flux_k8s") if not is_adapter(path)],
    ids=lambda path: path.stem,
)
def test_what_is_no_adapter_does_no_input_or_output(path: Path) -> None:
    found = set(imports(path, package_of(path)))
    assert not {name.partition(".")[0] for name in found} & IMPURE
    adapters = {f"flux_k8s.{name}" for name in ADAPTERS}
    assert not found & adapters
    assert not any(name.startswith("flux_k8s._") for name in found)
    calls = ast.walk(ast.parse(path.read_text()))
    names = {
        node.func.id
        for node in calls
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert not names & {"open", "print", "input", "exec", "eval"}


@pytest.mark.parametrize("path", files("rabbitsim"), ids=str)
def test_the_simulator_does_not_need_flux_or_the_private_parts(path: Path) -> None:
    found = set(imports(path, package_of(path)))
    assert "flux" not in {name.partition(".")[0] for name in found}
    assert not any(name.startswith("flux_k8s._") for name in found)


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
    assert not found & {"kubernetes", "rabbitsim", "urllib3", "yaml", "threading"}


def test_the_service_is_what_needs_kubernetes() -> None:
    found = closure(SOURCES / "flux_k8s" / "broker" / "process.py")
    assert "urllib3" in found and "rabbitsim" not in found


def test_importing_the_service_imports_nothing_that_is_heavy() -> None:
    import subprocess

    program = (
        "import sys; import flux_k8s.service; "
        "heavy = {'kubernetes', 'urllib3', 'yaml', 'asyncio', 'aiohttp'}; "
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
