# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""t/console.py, which runs the console examples of documents in t/t2021-guide.t."""

from __future__ import annotations

import re
import runpy
from typing import Any

import pytest

from support.tree import TOP

CONSOLE: Any = runpy.run_path(str(TOP / "t/console.py"))


def block(*lines: str) -> str:
    return "\n".join(["```console", *lines, "```", ""])


def run(text: str) -> int:
    return int(CONSOLE["run"](text, "text"))


@pytest.mark.parametrize(
    "text",
    [
        block("$ echo a", "b"),
        block("$ echo a"),
        block("$ true", "a"),
        block("$ seq 9", "1", "...", "8"),
        block("$ seq 2", "1"),
        block("$ echo took 12.3s", "took 12.3"),
        block("$ echo ƒabc; echo ƒdef", "ƒxyz", "ƒxyz"),
        block("$ nosuchcommand"),
        "<!-- run: false -->\n",
        ".. run: false\n",
        ".. code-block:: console\n\n   $ echo a\n   b\n\ntext\n",
    ],
)
def test_an_example_that_prints_something_else_is_wrong(text: str) -> None:
    assert run(text) == 1


def test_every_document_with_console_examples_is_run() -> None:
    test = (TOP / "t/t2021-guide.t").read_text()
    documents = [
        str(path.relative_to(TOP))
        for path in (
            *TOP.glob("*.md"),
            *TOP.glob("doc/**/*.md"),
            *TOP.glob("doc/**/*.rst"),
        )
        if list(CONSOLE["commands"](path.read_text()))
    ]
    assert "doc/user.md" in documents
    (listed,) = re.findall(r"^for document in (.*); do$", test, re.M)
    assert set(listed.split()) == set(documents)
