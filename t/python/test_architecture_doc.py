# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What the documents name exists: files, functions and classes, links.

Names stand in backticks. A file is named from the top of the repository or from one of
``ROOTS``, or by its last part alone; ``*`` stands for anything. Functions and classes
belong to the file that they stand next to::

    `path/file.py` (`function`, `Class.method`)
    (`path/file.py`, `function`, `Class.method`)
    | `path/file.py` | `function`, `Class.method` | a row of a table
    `function` in `path/file.py`

So does what docstrings refer to by ``:mod:`` and the like, by its full name, or from
the folder of the module (``.name``).
"""

from __future__ import annotations

import ast
import re
from functools import lru_cache
from pathlib import Path
from typing import Iterator, NamedTuple

import pytest

from support.tree import TOP

ROOTS = ("", "src/pymod", "etc")
DOCUMENTS = sorted([*TOP.glob("*.md"), *TOP.glob("doc/*.md")])
SKIPPED = {".git", ".venv", "build", "dist", "__pycache__"}

FILE = r"`((?!/)[\w.*/-]+(?:\.(?:c|h|md|py|rst|sh|svg|t|toml|xsd|yaml)|/))`"
NAME = r"`([A-Za-z_][\w.]*)(?:\(\))?`"
NAMES = rf"{NAME}(?:(?:, | and |, and ){NAME})*"
NEXT_TO = (
    re.compile(rf"{FILE} \((?P<names>{NAMES})\)"),
    re.compile(rf"\({FILE}, (?P<names>{NAMES})\)"),
    re.compile(rf"^\| {FILE} \| (?P<names>[^|]*) \|", re.M),
    re.compile(rf"(?P<names>{NAMES}) in {FILE}"),
)
BLOCK = re.compile(r"^```.*?^```$", re.M | re.S)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.M)

SOURCES = TOP / "src" / "pymod"
PACKAGES = ("dwscli", "flux_k8s", "rabbitsim", "sssjob")
REFERENCE = re.compile(r":(?:attr|class|data|func|meth|mod):`~?([\w.]+)`")
FOLDER = re.compile(r"^  │ (\w+)  ", re.M)
"""A folder of ``flux_k8s`` in the picture of the layers."""


class Named(NamedTuple):
    """A function or class, and the file that it stands next to."""

    file: str
    name: str


def prose(text: str) -> str:
    """A document without its blocks of code, each paragraph on one line."""
    return re.sub(r"(?<!\n)\n(?![\n|#-])", " ", BLOCK.sub("", text))


@lru_cache(maxsize=None)
def all_files() -> tuple[Path, ...]:
    found = []
    for path in TOP.rglob("*"):
        if not SKIPPED.intersection(path.relative_to(TOP).parts):
            found.append(path)
    return tuple(found)


def find(name: str) -> list[Path]:
    """The files, or folders, that a document means."""
    exact = [TOP / root / name for root in ROOTS if (TOP / root / name).exists()]
    if exact:
        return exact
    if "/" not in name.rstrip("/"):
        return [path for path in all_files() if path.match(name.rstrip("/"))]
    return [path for root in ROOTS for path in (TOP / root).glob(name)]


def files_in(text: str) -> list[str]:
    return re.findall(FILE, prose(text))


def named_in(text: str) -> Iterator[Named]:
    for pattern in NEXT_TO:
        for match in pattern.finditer(prose(text)):
            file = next(group for group in re.findall(FILE, match[0]))
            if not file.endswith("/"):
                names = re.findall(NAME, match["names"])
                others = (n for n in names if not re.fullmatch(FILE, f"`{n}`"))
                yield from (Named(file, name) for name in others)


def members(body: list[ast.stmt], prefix: str = "") -> Iterator[str]:
    """What statements of a module or class define."""
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield prefix + node.name
        elif isinstance(node, ast.ClassDef):
            yield prefix + node.name
            yield from members(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (prefix + t.id for t in targets if isinstance(t, ast.Name))


@lru_cache(maxsize=None)
def defined_in(path: Path) -> frozenset[str]:
    """What a module of Python defines."""
    return frozenset(members(ast.parse(path.read_text()).body))


def defines(path: Path, name: str) -> bool:
    """Whether a function, a class or a constant is defined in a file."""
    if path.suffix == ".py":
        return name in defined_in(path)
    text = path.read_text()
    if path.suffix in (".c", ".h"):
        word = re.escape(name)
        function = rf"^\w[\w \t*]*\b{word} \([^;]*?\)\s*\{{"
        other = rf"^(?:#define |(?:struct|enum) |    ){word}\b"
        return re.search(f"{function}|{other}", text, re.M) is not None
    return re.search(rf"\b{re.escape(name)}\b", text) is not None


def exists(name: str) -> bool:
    """Whether there is a module of this full name, or something in one."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        path = SOURCES.joinpath(*parts[:count])
        for file in (path.with_suffix(".py"), path / "__init__.py"):
            if file.is_file():
                return count == len(parts) or ".".join(parts[count:]) in defined_in(
                    file
                )
    return False


def references(text: str, folder: str) -> Iterator[str]:
    """The full names of what docstrings in a folder of modules refer to. Names
    without a package, or a dot before them, are not looked up."""
    for name in REFERENCE.findall(text):
        if name.startswith("."):
            yield f"{folder}{name}"
        elif name.split(".")[0] in PACKAGES:
            yield name


def layers() -> list[list[str]]:
    """The layers of ``flux_k8s`` by the contract of ``lint-imports``, which is
    exhaustive: folders, and modules beside them."""
    text = (TOP / "pyproject.toml").read_text()
    contract = text.split('containers = ["flux_k8s"]')[1].split("]\n")[0]
    lines = re.findall(r'^    "(.*)",$', contract, re.M)
    return [re.findall(r"\w+", line) for line in lines]


def anchors(text: str) -> set[str]:
    """What may stand after the # of a link."""
    headings = HEADING.findall(BLOCK.sub("", text))
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in headings
    }


def wrong(text: str, folder: Path = TOP) -> list[str]:
    """What a document in ``folder`` names and does not exist."""
    found = [f"no file {name}" for name in files_in(text) if not find(name)]
    for file, name in named_in(text):
        if not any(path.is_file() and defines(path, name) for path in find(file)):
            found.append(f"no {name} in {file}")
    for link in LINK.findall(BLOCK.sub("", text)):
        if re.match(r"https?://", link):
            continue
        target, _, anchor = link.partition("#")
        path = folder / target
        if target and not path.exists():
            found.append(f"no {target} to link to")
        elif anchor and anchor not in anchors(path.read_text() if target else text):
            found.append(f"no heading {link}")
    return found


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_all_that_a_document_names_exists(path: Path) -> None:
    assert wrong(path.read_text(), path.parent) == []


@pytest.mark.parametrize("name", ["doc/architecture.md", "CONTRIBUTING.md"])
def test_the_documents_for_those_who_carry_on_name_functions(name: str) -> None:
    """Fewer would mean that the names are not found, not that they are right."""
    assert len(list(named_in((TOP / name).read_text()))) > 20


def test_the_picture_has_the_folders_of_the_tree_in_the_order_of_the_layers() -> None:
    (picture,) = (
        block
        for block in BLOCK.findall((TOP / "doc/architecture.md").read_text())
        if FOLDER.search(block)
    )
    _, *rows, beside = layers()
    assert FOLDER.findall(picture) == [first for first, *_ in rows]
    folders = [name for row in rows for name in row]
    assert [n for n in folders if not (SOURCES / "flux_k8s" / n).is_dir()] == []
    assert {*folders, *beside} <= set(re.findall(r"\w+", picture))


def test_the_package_says_what_is_in_it() -> None:
    text = (SOURCES / "flux_k8s" / "__init__.py").read_text()
    named = {name.split(".")[1] for name in references(text, "flux_k8s")}
    assert named == {name for row in layers() for name in row}


def test_all_that_docstrings_refer_to_exists() -> None:
    found = [
        f"{path.relative_to(SOURCES)}: {name}"
        for path in SOURCES.rglob("*.py")
        for name in references(
            path.read_text(), ".".join(path.parent.relative_to(SOURCES).parts)
        )
        if not exists(name)
    ]
    assert found == []


def test_all_documents_can_be_reached_from_the_readme() -> None:
    links = set(LINK.findall((TOP / "README.md").read_text()))
    # The manual includes NEWS.md and CONTRIBUTING.md.
    reached = {"README.md", "doc/news.md", "doc/contributing.md", *links}
    assert {str(p.relative_to(TOP)) for p in DOCUMENTS} <= reached


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("see `src/pymod/gone.py`", "no file src/pymod/gone.py"),
        ("see `t/gone*.t`", "no file t/gone*.t"),
        ("`dws.py` (`gone`)", "no gone in dws.py"),
        ("`dws.py`\n(`DwsModule.gone`)", "no DwsModule.gone in dws.py"),
        ("(`dws.py`, `gone`)", "no gone in dws.py"),
        ("`serve` in `dws.py`", "no serve in dws.py"),
        ("| `dws.py` | `mod_main`, `gone` | x |", "no gone in dws.py"),
        ("`src/jobtap/R.c` (`flux_rpc`)", "no flux_rpc in src/jobtap/R.c"),
        ("[x](doc/gone.md)", "no doc/gone.md to link to"),
        ("[x](README.md#gone)", "no heading README.md#gone"),
        ("# Here\n[x](#there)", "no heading #there"),
    ],
)
def test_the_check_finds_names_that_do_not_exist(text: str, problem: str) -> None:
    assert wrong(text) == [problem]


def test_nothing_refers_to_a_document_that_the_repository_does_not_have() -> None:
    reference = re.compile(r"\b(?:seed\s`?0\d\d|D" + r"ESIGN\b)")
    files = (path for top in ("src", "doc", "t") for path in (TOP / top).rglob("*.*"))
    texts = {".c", ".h", ".md", ".py", ".rst", ".sh", ".t", ".toml"}
    found = [
        str(path.relative_to(TOP))
        for path in files
        if path.suffix in texts and reference.search(path.read_text(errors="replace"))
    ]
    assert found == []
