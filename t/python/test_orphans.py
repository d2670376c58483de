# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Workflows that no job claims, and the eventlogs of their jobs."""

from __future__ import annotations

import errno
import json
from typing import Callable, Optional

import pytest

from flux_k8s.dws.workflowview import FINALIZER
from flux_k8s.jobs.hello import JobLister
from flux_k8s.jobs.orphans import LOOK_AGAIN, given_up
from flux_k8s.ports import WORKFLOW, Json
from flux_k8s.rfc.jobid import f58, workflow_name
from rabbitsim.dws.options import Options, table
from rabbitsim.flux import services
from rabbitsim.flux.broker import FluxPort
from rabbitsim.flux.fluxion import MODULE as FLUXION
from rabbitsim.system import VirtualSystem
from support.service import (
    COPY_OUT,
    HOUR,
    XFS,
    in_state,
    lines,
    long,
    running,
    settle,
    started,
)

Done = Callable[[Optional[bool]], None]

PURGED = 4711
"""A job that Flux does not know any more."""

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


def system_with_orphan() -> VirtualSystem:
    system = VirtualSystem()
    workflow = {
        "metadata": {"name": workflow_name(PURGED), "finalizers": [FINALIZER]},
        "spec": {
            "desiredState": "Proposal",
            "dwDirectives": [],
            "forceReady": False,
            "groupID": 0,
            "jobID": f58(PURGED),
            "userID": 0,
            "wlmID": "flux",
        },
    }
    system.store.create(WORKFLOW, "default", workflow)
    return system


def is_torn_down_at_the_fourth_try(asked: list[int]) -> None:
    """Let the service find an orphan, and check that it is torn down in the end."""
    system = system_with_orphan()
    system.start()
    assert system.loop.run(lambda: not system.workflows(), HOUR)
    assert len(asked) == 4
    assert len(lines(system, "cannot tell whether")) == 1


def test_an_orphan_is_torn_down_although_job_list_is_loaded_again_at_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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
    is_torn_down_at_the_fourth_try(asked)


def test_a_job_that_the_plugin_could_not_hold_loses_its_storage_at_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended_at = 0.0

    def ask(self: FluxPort, jobid: int, done: Callable[[Optional[bool]], None]) -> None:
        self.call_later(0.0, lambda: done(self.now() >= ended_at))

    monkeypatch.setattr(FluxPort, "job_ended", ask)
    system = system_with_orphan()
    ended_at = system.loop.now() + HOUR
    system.start()
    system.loop.run(timeout=HOUR - 1.0)
    assert system.workflows()
    assert system.loop.run(lambda: not system.workflows(), LOOK_AGAIN + 10.0)


def test_a_job_that_the_plugin_holds_after_all_is_not_taken_for_one_that_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its nodes have unmounted when it would be looked at again, but Fluxion does not
    answer, so that it cannot end yet."""
    options = Options(latency=table({"DataOut": 2 * LOOK_AGAIN}))
    system = started(options=options)
    spec = long([XFS, COPY_OUT], seconds=200, dw_release="unmounted")
    jobid = system.instance.submit(spec)
    running(system, jobid)
    system.kill_module()
    with monkeypatch.context() as context:
        context.setattr(JobLister, "_take", lambda self, entry, held: None)
        system.load_module()
        system.loop.run(timeout=10.0)
    system.instance.unload_plugin()
    system.load_plugin()
    broker_services = system.instance.broker._services
    fluxion = broker_services[FLUXION]
    broker_services[FLUXION] = lambda method, payload, user, respond: respond(
        errno.EIO, "a fault", None
    )
    assert system.loop.run(in_state(system, "DataOut"), HOUR)
    system.loop.run(timeout=LOOK_AGAIN)
    assert system.instance.job(jobid).active
    broker_services[FLUXION] = fluxion
    settle(system)


@pytest.mark.parametrize("errnum", [errno.ENOSYS, errno.EHOSTUNREACH, errno.EIO])
def test_an_orphan_is_torn_down_although_job_info_fails_at_the_time(
    errnum: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    lookup = services._Jobs.lookup

    def fail(self: services._Jobs, payload: Json, userid: int) -> Json:
        if "eventlog" in payload["keys"]:
            asked.append(payload["id"])
        if len(asked) < 4:
            raise OSError(errnum, "job-info is away")
        return lookup(self, payload, userid)

    monkeypatch.setattr(services._Jobs, "lookup", fail)
    is_torn_down_at_the_fourth_try(asked)
