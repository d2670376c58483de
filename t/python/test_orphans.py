# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What the eventlog of a job says about its epilog."""

from __future__ import annotations

import json

import pytest

from flux_k8s.jobs.orphans import given_up

SEPARATORS = "\u2028\u2029\x85"
"""Line separators that JSON allows in strings."""


def eventlog(type: str, severity: int, note: str) -> str:
    """An eventlog with an exception, written as Flux writes it."""
    context = {"type": type, "severity": severity, "note": note, "userid": 7}
    events = (
        {"timestamp": 1.0, "name": "submit", "context": {"userid": 1}},
        {"timestamp": 2.0, "name": "exception", "context": context},
    )
    return "".join(json.dumps(event, ensure_ascii=False) + "\n" for event in events)


@pytest.mark.parametrize("separator", SEPARATORS)
def test_a_fatal_dws_epilog_timeout_is_an_abort_with_any_note(separator: str) -> None:
    assert given_up(eventlog("dws-epilog-timeout", 0, f"a{separator}b"), owner=7)


@pytest.mark.parametrize("separator", SEPARATORS)
def test_a_note_cannot_make_up_an_abort(separator: str) -> None:
    event = eventlog("dws-epilog-timeout", 0, "").splitlines()[1]
    assert not given_up(
        eventlog("cancel", 0, f"a{separator}{event}{separator}b"), owner=7
    )


def test_a_dws_epilog_timeout_that_is_not_fatal_is_no_abort() -> None:
    assert not given_up(eventlog("dws-epilog-timeout", 1, ""), owner=7)


def test_a_dws_epilog_timeout_of_a_guest_is_no_abort() -> None:
    assert not given_up(eventlog("dws-epilog-timeout", 0, ""), owner=8)


@pytest.mark.parametrize("levels", [10, 1_500, 2_040])
def test_a_memo_cannot_hide_an_abort(levels: int) -> None:
    """A job's owner writes memos, of as many levels as Flux takes."""
    value = "[" * levels + '"dws-epilog-timeout"' + "]" * levels
    memo = f'{{"timestamp":1.5,"name":"memo","context":{{"x":{value}}}}}\n'
    assert given_up(memo + eventlog("dws-epilog-timeout", 0, ""), owner=7)
    assert not given_up(memo, owner=7)
