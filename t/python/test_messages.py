# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""doc/messages.md has each message of the sources, and no other.

A string of the sources is a message if it has three words or more, where ``…`` stands
for each part that is not constant. The document has it as a whole.
"""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path
from typing import Iterable, Iterator

from support.tree import TOP

HOLE = "…"
EDGES = " :;"
"""What is left out at the ends of a message."""

PACKAGE = TOP / "src/pymod/flux_k8s"
DOCUMENT = (TOP / "doc/messages.md").read_text()

ANSWERS = {
    "heldqueries.py",
    "progress.py",
    "queries.py",
    "querybounds.py",
    "rabbitqueries.py",
    "setupreader.py",
}
"""Files whose strings are answers to programs, which show them."""

OTHERS = {
    "==> … <==\n…",
    "R of job …",
    "dws: …: …",
    "dws.…: no such method",
    "status=down and sched-now=allocated",
    "property=rabbit or names=ssd0",
    "struct flux_match *",
    "…: '…': …",
    "…: …: …",
    "…… is …",
    "….config-reload: expected an object",
}
"""Strings that are no messages, or consist of others that are listed."""


def template(node: ast.AST) -> str:
    """The text of a string, with ``…`` for the parts that are not constant."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if not isinstance(node, ast.JoinedStr):
        return ""
    parts = [v.value if isinstance(v, ast.Constant) else HOLE for v in node.values]
    return "".join(map(str, parts))


def strings_of_python(text: str) -> Iterator[str]:
    """The strings of a module that are no docstrings and no part of another one."""
    tree = ast.parse(text)
    skipped: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            skipped.add(id(node.value))
        if isinstance(node, ast.JoinedStr):
            skipped.update(id(part) for part in ast.walk(node) if part is not node)
    for node in ast.walk(tree):
        if id(node) not in skipped:
            yield template(node)


def strings_of_c(text: str) -> Iterator[str]:
    """The strings of a file of C, but for the formats of jansson."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    text = re.sub(r'"\s*\n\s*"', "", text)
    for string in re.findall(r'"((?:[^"\\\n]|\\.)*)"', text):
        if not string.startswith("{"):
            yield re.sub(r"%[a-z]*[cdgisu]", HOLE, string)


def messages(strings: Iterable[str]) -> set[str]:
    return {text for text in strings if len(text.split()) >= 3} - OTHERS


def sources() -> Iterator[Path]:
    for folder in ("broker", "jobs", "machine"):
        yield from sorted((PACKAGE / folder).glob("*.py"))
    for name in ("agreement", "nodefailure", "directiverules"):
        yield PACKAGE / f"rules/{name}.py"
    yield PACKAGE / "formats/directives.py"
    yield from sorted((PACKAGE / "rules/directivebreakdown").glob("*.py"))
    for name in ("policy", "submission"):
        yield PACKAGE / f"config/{name}.py"
    for name in ("pool", "request"):
        yield PACKAGE / f"scheduler/{name}.py"
    yield TOP / "src/pymod/dws.py"
    yield TOP / "src/pymod/sched-rabbit.py"
    for folder in ("jobtap", "shell"):
        yield from sorted((TOP / "src" / folder).glob("*.c"))


@functools.lru_cache(maxsize=None)
def strings(path: Path) -> frozenset[str]:
    """The strings of a source."""
    text = path.read_text()
    read = strings_of_c if path.suffix == ".c" else strings_of_python
    return frozenset(read(text))


def documented() -> list[str]:
    """The messages in the first column of the tables."""
    cells = re.findall(r"^\| (`.*?`) \| (?=[A-Z`])", DOCUMENT, re.M)
    found = [message for cell in cells for message in re.findall(r"`([^`]+)`", cell)]
    return [message.strip(EDGES) for message in found]


FILES = [path for path in sources() if path.name not in ANSWERS]


def test_the_document_has_each_message_of_the_sources() -> None:
    listed = set(documented())
    missing = [
        (path.name, message)
        for path in FILES
        for message in sorted(messages(strings(path)))
        if message.strip(EDGES) not in listed
    ]
    assert missing == []


def test_the_document_has_no_message_that_the_sources_do_not_have() -> None:
    everything = {
        text.strip(EDGES)
        for path in (*PACKAGE.rglob("*.py"), *FILES)
        for text in strings(path)
    }
    stale = [message for message in documented() if message not in everything]
    assert stale == []


def test_texts_that_are_listed_as_no_messages_are_in_the_sources() -> None:
    assert OTHERS <= {text for path in FILES for text in strings(path)}
