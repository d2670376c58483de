# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""doc/durable.md lists whatever the code writes down, and nothing else."""

from __future__ import annotations

import ast
import re
from functools import lru_cache
from pathlib import Path
from typing import Iterator, Optional

import pytest

from flux_k8s import reasons
from flux_k8s.rules import drainreason
from support.tree import TOP

PACKAGE = TOP / "src/pymod/flux_k8s"
JOBS = PACKAGE / "jobs"
PLUGIN = TOP / "src/jobtap"
DOCUMENT = (TOP / "doc/durable.md").read_text()
PREFIX = "flux-framework.readthedocs.io/"

PUTS = {"kvs_put": 1, "put": 1, "put_json": 1}
"""Which argument of a method is the key."""


@lru_cache(maxsize=None)
def trees(folder: Path) -> tuple[ast.Module, ...]:
    return tuple(ast.parse(path.read_text()) for path in sorted(folder.rglob("*.py")))


def nodes(folder: Path = PACKAGE) -> Iterator[tuple[ast.Module, ast.AST]]:
    return ((tree, node) for tree in trees(folder) for node in ast.walk(tree))


def strings() -> set[str]:
    """All strings of the service."""
    constants = (node for _, node in nodes() if isinstance(node, ast.Constant))
    return {node.value for node in constants if isinstance(node.value, str)}


def value_of(tree: ast.Module, node: ast.AST) -> Optional[str]:
    """The text of an expression: ``<state>`` stands for what is not constant in it.
    None for a name that is no constant of its module: a parameter."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        parts = (
            part if isinstance(part, ast.Constant) else None for part in node.values
        )
        return "".join("<state>" if part is None else str(part.value) for part in parts)
    assert isinstance(node, ast.Name), ast.dump(node)
    for other in ast.walk(tree):
        if isinstance(other, ast.Assign) and node.id in map(ast.unparse, other.targets):
            return value_of(tree, other.value)
    return None


def keys() -> Iterator[str]:
    """The keys in the KVS that the service writes."""
    for tree, node in nodes(JOBS):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func).rpartition(".")[2]
        place = PUTS.get(name)
        if name == "call" and ast.unparse(node.args[0]).endswith(".kvs_commit"):
            place = 2
        if place is not None and len(node.args) > place:
            found = value_of(tree, node.args[place])
            if found is not None:
                yield found


def memos() -> Iterator[str]:
    for tree, node in nodes(JOBS):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".post_memo"):
            memo = node.args[1]
            if isinstance(memo, ast.Dict):
                names = (value_of(tree, key) for key in memo.keys if key is not None)
                yield from filter(None, names)
    yield from re.findall(r'#define DWS_\w*MEMO "(\w+)"', plugin())


@lru_cache(maxsize=None)
def plugin() -> str:
    """The code of the plugin."""
    return "\n".join(path.read_text() for path in sorted(PLUGIN.glob("*.[ch]")))


def events() -> set[str]:
    """Whatever of ours is in eventlogs, and the event that is published."""
    posted = set(re.findall(r'"(dws[-_][a-z-]+)"', plugin()))
    published = {text for text in strings() if re.fullmatch(r"dws\.data-out", text)}
    exceptions = {reasons.DWS, reasons.NODE_FAILURE, reasons.EPILOG_TIMEOUT}
    return posted | published | exceptions


def drains() -> set[str]:
    public = {k: v for k, v in vars(drainreason).items() if k.isupper() and k[0] != "_"}
    texts = {value for value in public.values() if isinstance(value, str)}
    return texts | set(drainreason.NOT_SERVED.values())


READERS = {
    "`flux dws`": "src/pymod/dwscli",
    "`flux getrabbit`": "src/pymod/flux_k8s/rules/getrabbit.py",
    "SSS job objects": "src/pymod/sssjob/from_flux",
    "the plugin": "src/jobtap",
    "the shell plugin": "src/shell",
    "script": "etc/system",
}
"""Who reads keys of the KVS, besides the service, and where that is."""

KEY_READ = re.compile(
    r'"(rabbit_[a-z_]+|dws_token)"|(f"rabbit_\{.*\}_timing")|FLUX_JOB_ID" (rabbit_\w+)'
)

WRITTEN = {
    "Annotations, labels and the finalizer": {
        text[len(PREFIX) :] for text in strings() if text.startswith(PREFIX)
    },
    "Keys in the KVS directory of a job": set(keys()),
    "Memos": set(memos()),
    "Events and exceptions": events(),
    "Drains": drains(),
}


def rows(section: str) -> list[list[str]]:
    """The rows of the table of a section, without its head."""
    (text,) = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", DOCUMENT, re.M | re.S)
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[2:]]


def listed(section: str) -> list[str]:
    return [row[0][1:-1] for row in rows(section)]


@pytest.mark.parametrize("section", WRITTEN)
def test_what_is_written_down_is_listed(section: str) -> None:
    assert WRITTEN[section] - set(listed(section)) == set()


@pytest.mark.parametrize("section", WRITTEN)
def test_what_is_listed_is_written_down(section: str) -> None:
    assert set(listed(section)) - WRITTEN[section] == set()
    assert len(listed(section)) == len(set(listed(section)))


@pytest.mark.parametrize("section", WRITTEN)
def test_each_has_a_writer_and_a_reader(section: str) -> None:
    assert all(all(row) and len(row) >= 3 for row in rows(section))


@pytest.mark.parametrize(
    "name,constant",
    [(row[0][1:-1], row[2][1:-1]) for row in rows(next(iter(WRITTEN)))],
)
def test_an_annotation_is_found_by_its_constant(name: str, constant: str) -> None:
    found = [
        value_of(tree, node.value)
        for tree, node in nodes()
        if isinstance(node, ast.Assign)
        and [constant] == list(map(ast.unparse, node.targets))
        and isinstance(node.value, ast.Constant)
    ]
    assert PREFIX + name in found


@pytest.mark.parametrize("reader", READERS)
def test_a_key_names_those_who_read_it(reader: str) -> None:
    top = TOP / READERS[reader]
    files = [top] if top.is_file() else [each for each in top.rglob("*.*")]
    texts = [path.read_text(errors="replace") for path in files if path.is_file()]
    found = {
        "rabbit_<state>_timing" if match[2] else match[1] or match[3]
        for text in texts
        for match in KEY_READ.finditer(text)
    }
    keys = rows("Keys in the KVS directory of a job")
    named = {key[1:-1] for key, _, readers in keys if reader in readers}
    assert named == found & set(listed("Keys in the KVS directory of a job"))
