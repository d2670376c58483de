# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What guests and Kubernetes write reaches people without control characters."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.command import write_message
from flux_k8s.errors import BadObject, ConfigError, DirectiveError, DWSError, show
from flux_k8s.formats.directives import parse_attribute
from flux_k8s.objects.workflowview import WorkflowView
from flux_k8s.ports import Json, KubeError, RpcError
from flux_k8s.text import SHOWN, printable, printable_lines
from rabbitsim.dws.options import Fault as DwsFault
from rabbitsim.dws.options import Options
from rabbitsim.system import VirtualSystem
from support.effort import SOAKING, examples
from support.service import HOUR, XFS, exceptions, jobspec, started

TEXT = st.text(st.characters(), max_size=300)
"""With surrogates, which JSON may have."""
EVIL = "\x1b]0;owned\x07\r\n\x1b[2J\x9b31m\u202e\u2028\x00\x7f%n%s"


@given(TEXT, st.integers(4, 100))
def test_printable_text_is_one_line_without_control_characters(
    text: str, limit: int
) -> None:
    shown = printable(text)
    assert shown.isprintable() and printable(shown) == shown
    shown.encode("utf-8")
    assert shown == text or not text.isprintable()
    short = printable(text, limit)
    assert len(short) <= limit and (short == shown or short.endswith("..."))
    lines = printable_lines(text).split("\n")
    assert len(lines) == text.count("\n") + 1
    assert all(line.isprintable() for line in lines)


def test_every_character_of_unicode_is_shown() -> None:
    # Planes 3 to 13 have no characters, and 15 and 16 are for private use.
    rest = range(0x30000, sys.maxunicode + 1) if SOAKING else range(0xE0000, 0xF0000)
    for code in (*range(0x30000), *rest):
        character = chr(code)
        if not character.isprintable():
            assert printable(character).startswith("\\")


@given(TEXT)
def test_the_messages_of_errors_are_printable(text: str) -> None:
    errors = [
        DWSError(text.replace("\n", " ")),
        DirectiveError(text, 0, len(text), text, text),
        BadObject(text, text, text, text),
        KubeError(500, text, text),
        RpcError(1, text),
    ]
    assert all(str(error).isprintable() for error in errors)
    assert show(text).isprintable() and show([text, {text: text}]).isprintable()
    assert str(ConfigError(text, "is wrong")).isprintable()


def test_a_directive_is_repeated_up_to_a_bound() -> None:
    with pytest.raises(DirectiveError) as caught:
        parse_attribute("#DW jobdw x=" + "y" * 50_000 + " =")
    assert len(str(caught.value)) < SHOWN + 200


def test_a_command_writes_no_control_character(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_message("dws", "ERROR", EVIL)
    assert capsys.readouterr().err.rstrip("\n").isprintable()


def test_messages_of_dws_are_made_printable_where_they_are_read() -> None:
    workflow: Json = {
        "metadata": {"name": "fluxjob-1", "uid": "1", "resourceVersion": "1"},
        "spec": {"jobID": "f1", "wlmID": "flux", "desiredState": "Setup"},
        "status": {"state": "Setup", "status": EVIL, "message": EVIL},
    }
    for desired in ("Setup", 7):
        workflow["spec"]["desiredState"] = desired
        view = WorkflowView.parse(workflow)
        assert view.status.isprintable() and view.message.isprintable()


# A whole system


def shown(system: VirtualSystem, jobids: list[int]) -> list[str]:
    """All that people get to see of jobs: the log, exceptions' notes, memos."""
    texts = [message for _, _, message in system.log]
    for jobid in jobids:
        for event in system.instance.eventlog(jobid):
            context: Any = event.context or {}
            if event.name == "exception":
                texts.append(context["note"])
            elif event.name == "memo":
                texts += [str(value) for value in context.values()]
    return texts


CONTROLS = st.text(
    st.characters(
        whitelist_categories=["Cc", "Cf", "Zl", "Zp", "Ll", "Co"],
        blacklist_characters="\0",
    ),
    min_size=1,
    max_size=20,
)
"""Flux takes no NUL in a jobspec."""


@examples(6)
@given(st.lists(CONTROLS, min_size=1, max_size=3))
def test_nothing_that_a_guest_writes_into_directives_is_shown_raw(
    texts: list[str],
) -> None:
    system = started()
    forms = ("{}", "#DW {}", "#DW jobdw type={} capacity=1GiB name=p1", XFS + " {}=x")
    forms += ("#DW jobdw type=xfs capacity={} name=p1", "#DW persistentdw name={}")
    jobids = [
        system.instance.submit(jobspec(form.format(text)))
        for text in texts
        for form in forms
        if form.format(text).strip(" \t\n\v\f\r")
    ]
    system.loop.run(timeout=60.0)
    assert exceptions(system, jobids[0])
    for text in shown(system, jobids):
        assert text.isprintable()


@pytest.mark.parametrize("kind", ["error", "transient", "never"])
@pytest.mark.parametrize("state", ["Proposal", "Setup", "PreRun", "PostRun"])
def test_nothing_that_dws_says_is_shown_raw(state: str, kind: str) -> None:
    fault = DwsFault(state, kind, message=f"it broke: {EVIL}")
    system = started(options=Options(faults=(fault,)))
    jobid = system.instance.submit(jobspec())
    system.loop.run(timeout=HOUR)
    texts = shown(system, [jobid])
    assert all(text.isprintable() for text in texts)
    assert kind == "never" or any("it broke: \\x1b]0;owned" in text for text in texts)
