# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Workflows that no job claims, and the eventlogs of their jobs."""

from __future__ import annotations

import errno
import json
from typing import Any

import pytest

from flux_k8s.formats.jobid import workflow_name
from flux_k8s.jobs.orphans import End, read_end
from flux_k8s.jobs.workflowinfo import Haste
from flux_k8s.ports import WORKFLOW, Json
from rabbitsim.flux.broker import Offered, Respond
from rabbitsim.torture.deeds import leave_workflow
from support.service import (
    HOUR,
    lines,
    long,
    started,
)

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


EVENT = eventlog("dws-epilog-timeout", 0, "").splitlines()[1]


@pytest.mark.parametrize("separator", SEPARATORS)
@pytest.mark.parametrize(
    ("type", "severity", "note", "owner", "aborted"),
    [
        ("dws-epilog-timeout", 0, "a", 7, True),
        ("dws-epilog-timeout", 0, "a", 8, False),  # a guest's
        ("dws-epilog-timeout", 1, "a", 7, False),
        ("cancel", 0, EVENT, 7, False),
    ],
)
def test_a_fatal_dws_epilog_timeout_is_an_abort_with_any_note(
    separator: str, type: str, severity: int, note: str, owner: int, aborted: bool
) -> None:
    text = eventlog(type, severity, f"a{separator}{note}{separator}b")
    assert (read_end(text, owner).haste is Haste.ABORT) is aborted


@pytest.mark.parametrize("levels", [10, 1_500, 2_040])
def test_a_memo_cannot_hide_an_abort(levels: int) -> None:
    """A job's owner writes memos, of as many levels as Flux takes."""
    value = "[" * levels + '"dws-epilog-timeout"' + "]" * levels
    memo = f'{{"timestamp":1.5,"name":"memo","context":{{"x":{value}}}}}\n'
    end = read_end(memo + eventlog("dws-epilog-timeout", 0, ""), owner=7)
    assert end.haste is Haste.ABORT
    assert read_end(memo, owner=7).haste is Haste.NONE


@pytest.mark.parametrize(
    ("names", "end"),
    [
        ("alloc", End()),
        ("alloc start", End(ran=True)),
        ("alloc start finish", End(ran=True)),
        ("alloc start exception finish", End(ran=True)),
        ("alloc start finish exception", End(ran=True, haste=Haste.ABANDON)),
        ("alloc start finish timeout", End(ran=True)),
        ("alloc start finish part timeout", End(ran=True)),
        ("alloc start finish release timeout", End(ran=True, haste=Haste.ABANDON)),
        ("exception", End()),
    ],
)
def test_how_a_job_has_ended_is_read_from_its_eventlog(names: str, end: End) -> None:
    fatal = {"type": "cancel", "severity": 0, "userid": 1}
    late = {"name": "exception", "context": {**fatal, "type": "timeout"}}
    others = {
        "timeout": late,
        "part": {"name": "release", "context": {"ranks": "0", "final": False}},
        "release": {"name": "release", "context": {"ranks": "all", "final": True}},
    }
    events = (
        others.get(name, {"name": name, "context": fatal}) for name in names.split()
    )
    assert read_end("\n".join(map(json.dumps, events)), owner=7) == end


def test_nothing_is_told_of_a_job_whose_workflow_goes_before_it_is_looked_up() -> None:
    system: Any = started()
    jobid = system.instance.submit(long("", seconds=int(HOUR)))
    asked: list[str] = []

    def spy(before: Offered) -> Offered:
        def answer(method: str, payload: Json, user: int, respond: Respond) -> None:
            asked.append(method)
            before(method, payload, user, respond)

        return answer

    def broken(method: str, payload: Json, user: int, respond: Respond) -> None:
        respond(errno.EIO, "a fault", None)

    broker = system.instance.broker
    broker.stand_in("job-manager.dws", spy)
    restore = broker.stand_in("job-info", lambda before: broken)
    leave_workflow(jobid)(system)
    system.loop.run(timeout=0.5)
    assert lines(system, "cannot tell whether")
    system.store.merge_patch(
        WORKFLOW, "default", workflow_name(jobid), {"metadata": {"finalizers": None}}
    )
    system.store.delete(WORKFLOW, "default", workflow_name(jobid))
    system.loop.run(timeout=1.0)
    assert not system.workflows()
    restore()
    system.loop.run(timeout=60.0)
    assert "data-out" not in asked
