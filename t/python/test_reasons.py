# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The reasons of what is raised, logged and recorded."""

from __future__ import annotations

import ast
import json
import re

import pytest

from flux_k8s.config.table import Config
from flux_k8s.reasons import Reason, log_line, read_reason
from flux_k8s.text import LINE
from rabbitsim.dws.options import Fault, Options
from rabbitsim.system import VirtualSystem
from support.service import (
    LUSTRE,
    XFS,
    jobspec,
    settle,
    started,
)
from support.tree import TOP

SOURCE = TOP / "src/pymod/flux_k8s/reasons.py"
DOCUMENT = TOP / "doc/messages.md"


def meanings() -> dict[str, str]:
    """What each reason means, by its docstring."""
    (body,) = (
        node.body
        for node in ast.parse(SOURCE.read_text()).body
        if isinstance(node, ast.ClassDef) and node.name == Reason.__name__
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


@pytest.mark.parametrize("reason", Reason, ids=lambda reason: reason.value)
def test_each_reason_is_used(reason: Reason) -> None:
    used = re.compile(rf"\bReason\.{reason.name}\b")
    package = TOP / "src/pymod/flux_k8s"
    sources = [path for path in package.rglob("*.py") if path != SOURCE]
    assert any(used.search(path.read_text()) for path in sources)


def test_a_line_of_the_log_ends_with_its_reason_however_long_it_is() -> None:
    said = log_line("a\nb", Reason.DATA_OUT)
    assert said == r"a\nb [data-out]"
    long = log_line("ä" * LINE, Reason.DATA_OUT)
    assert long.endswith("ä... [data-out]")
    assert LINE - 2 <= len(long.encode()) <= LINE


@pytest.mark.parametrize("value", [None, "of-a-later-version", 3, ["data-out"]])
def test_a_reason_that_cannot_be_read_is_unknown(value: object) -> None:
    assert read_reason("data-out") is Reason.DATA_OUT
    assert read_reason(value) is Reason.CAUSE_UNKNOWN


# In the whole system, under virtual time


def reasons(system: VirtualSystem, jobid: int) -> list[Reason | None]:
    """Those of the exceptions of a job. Their events do not show them."""
    events = [e for e in system.instance.eventlog(jobid) if e.name == "exception"]
    assert not any("reason" in json.dumps(event.as_json()) for event in events)
    return [event.reason for event in events]


def test_the_plugin_raises_with_the_reason_that_the_service_gives() -> None:
    config = Config.parse({"policy": {"maximums": {"xfs": 1}}})
    faults = (Fault("Proposal", "error"),)
    system = started(options=Options(faults=faults), config=config)
    failed = system.instance.submit(jobspec(LUSTRE))
    refused = system.instance.submit(jobspec(XFS))
    settle(system)
    assert reasons(system, failed) == [Reason.DWS_FAILED]
    assert reasons(system, refused) == [Reason.BAD_REQUEST]
