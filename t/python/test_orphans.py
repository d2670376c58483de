# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Workflows that no job claims, and the eventlogs of their jobs."""

from __future__ import annotations

import errno
import json
from typing import Callable, Optional

import pytest

from flux_k8s.jobs.orphans import LOOK_AGAIN, End, read_end
from flux_k8s.ports import Json
from rabbitsim.dws.options import Options, table
from rabbitsim.flux.broker import FluxPort, Offered, Respond
from rabbitsim.flux.fluxion import MODULE as FLUXION
from rabbitsim.torture.crashpoints import course_of
from rabbitsim.torture.life import live
from stories.orphans import STORIES
from support.service import (
    COPY_OUT,
    HOUR,
    XFS,
    in_state,
    long,
    running,
    settle,
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


@pytest.mark.parametrize("separator", SEPARATORS)
def test_a_fatal_dws_epilog_timeout_is_an_abort_with_any_note(separator: str) -> None:
    assert read_end(
        eventlog("dws-epilog-timeout", 0, f"a{separator}b"), owner=7
    ).aborted


@pytest.mark.parametrize("separator", SEPARATORS)
def test_a_note_cannot_make_up_an_abort(separator: str) -> None:
    event = eventlog("dws-epilog-timeout", 0, "").splitlines()[1]
    assert not read_end(
        eventlog("cancel", 0, f"a{separator}{event}{separator}b"), owner=7
    ).aborted


def test_a_dws_epilog_timeout_that_is_not_fatal_is_no_abort() -> None:
    assert not read_end(eventlog("dws-epilog-timeout", 1, ""), owner=7).aborted


def test_a_dws_epilog_timeout_of_a_guest_is_no_abort() -> None:
    assert not read_end(eventlog("dws-epilog-timeout", 0, ""), owner=8).aborted


@pytest.mark.parametrize("levels", [10, 1_500, 2_040])
def test_a_memo_cannot_hide_an_abort(levels: int) -> None:
    """A job's owner writes memos, of as many levels as Flux takes."""
    value = "[" * levels + '"dws-epilog-timeout"' + "]" * levels
    memo = f'{{"timestamp":1.5,"name":"memo","context":{{"x":{value}}}}}\n'
    assert read_end(memo + eventlog("dws-epilog-timeout", 0, ""), owner=7).aborted
    assert not read_end(memo, owner=7).aborted


@pytest.mark.parametrize(
    ("names", "end"),
    [
        ("alloc", End()),
        ("alloc start", End(ran=True)),
        ("alloc start finish", End(ran=True)),
        ("alloc start exception finish", End(ran=True)),
        ("alloc start finish exception", End(ran=True, abandoned=True)),
        ("exception", End()),
    ],
)
def test_how_a_job_has_ended_is_read_from_its_eventlog(names: str, end: End) -> None:
    fatal = {"type": "cancel", "severity": 0, "userid": 1}
    events = ({"name": name, "context": fatal} for name in names.split())
    assert read_end("\n".join(map(json.dumps, events)), owner=7) == end


def test_an_orphan_is_torn_down_although_job_list_is_loaded_again_at_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The simulated job-list always answers."""
    asked: list[int] = []
    ask = FluxPort.job_ended

    def fail(
        self: FluxPort, jobid: int, done: Callable[[Optional[bool]], None]
    ) -> None:
        asked.append(jobid)
        if len(asked) < 4:
            self.call_later(0.0, lambda: done(None))
        else:
            ask(self, jobid, done)

    monkeypatch.setattr(FluxPort, "job_ended", fail)
    told = next(each for each in STORIES if "job is unknown is torn down" in each.name)
    assert course_of(live(told)) == told.course and len(asked) >= 4


def test_a_job_that_the_plugin_holds_after_all_is_not_taken_for_one_that_ended() -> (
    None
):
    """Its nodes have unmounted when it would be looked at again, but Fluxion does not
    answer, so that it cannot end yet."""
    options = Options(latency=table({"DataOut": 2 * LOOK_AGAIN}))
    system = started(options=options)
    spec = long([XFS, COPY_OUT], seconds=200, dw_release="unmounted")
    jobid = system.instance.submit(spec)
    running(system, jobid)
    system.kill_module()

    def forgetful(before: Offered) -> Offered:
        def answer(method: str, payload: Json, user: int, respond: Respond) -> None:
            def without_jobs(errnum: int, text: str, found: Optional[Json]) -> None:
                respond(errnum, text, {**(found or {}), "jobs": []})

            before(method, payload, user, without_jobs)

        return answer

    def broken(method: str, payload: Json, user: int, respond: Respond) -> None:
        respond(errno.EIO, "a fault", None)

    broker = system.instance.broker
    restore = broker.stand_in("job-manager.dws", forgetful)
    system.load_module()
    system.loop.run(timeout=10.0)
    restore()
    system.instance.unload_plugin()
    system.load_plugin()
    restore = broker.stand_in(FLUXION, lambda before: broken)
    assert system.loop.run(in_state(system, "DataOut"), HOUR)
    system.loop.run(timeout=LOOK_AGAIN)
    assert system.instance.job(jobid).active
    restore()
    settle(system)
