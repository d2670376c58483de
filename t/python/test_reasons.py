# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The reasons of what is raised, logged and recorded."""

from __future__ import annotations

import ast
import re

import pytest

from flux_k8s.reasons import Reason
from support.tree import TOP

SOURCE = TOP / "src/pymod/flux_k8s/reasons.py"
DOCUMENT = TOP / "doc/messages.md"


def meanings() -> dict[str, str]:
    """What each reason means, by its docstring."""
    (body,) = (
        node.body
        for node in ast.parse(SOURCE.read_text()).body
        if isinstance(node, ast.ClassDef)
    )
    found = {}
    for node, following in zip(body, body[1:]):
        if isinstance(node, ast.Assign) and isinstance(following, ast.Expr):
            text = " ".join(ast.literal_eval(following.value).split())
            found[ast.literal_eval(node.value)] = text.replace("``", "`")
    return found


def test_the_document_has_each_reason_with_its_meaning() -> None:
    _, _, table = DOCUMENT.read_text().partition("\n## Reasons\n")
    table, _, _ = table.partition("\n## ")
    rows = re.findall(r"^\| `([a-z-]+)` \| (.+) \|$", table, re.M)
    assert dict(rows) == meanings()
    assert [name for name, _ in rows] == [reason.value for reason in Reason]


@pytest.mark.parametrize("reason", Reason, ids=lambda reason: reason.value)
def test_a_reason_is_of_lower_case_words_with_hyphens(reason: Reason) -> None:
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", reason.value)
    assert reason.name == reason.value.replace("-", "_").upper()
