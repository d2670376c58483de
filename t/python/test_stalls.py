# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""stall_timeout: data movement is given up when no data moves any more."""

from __future__ import annotations

import dataclasses
from typing import Any, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dwscli.page import limit_line
from flux_k8s.config.table import Config
from flux_k8s.dws.datamovement import parse
from flux_k8s.dws.workflowstate import State
from flux_k8s.dws.workflowview import WorkflowView
from flux_k8s.jobs import progresswatch, records
from flux_k8s.jobs.dataprogress import DataProgress
from flux_k8s.jobs.step import Fail, ListMovements, Lookup, Record, Step, Wait
from flux_k8s.jobs.workflow import next_step
from flux_k8s.jobs.workflowinfo import Goal, WorkflowInfo
from flux_k8s.ports import NNFDATAMOVEMENT, Json
from flux_k8s.reasons import Note, Reason
from flux_k8s.rfc.jobid import f58
from rabbitsim.dws.files import NoFiles
from rabbitsim.dws.options import Fault as DwsFault
from rabbitsim.dws.options import Options
from rabbitsim.system import VirtualSystem
from support.queries import query
from support.records import COPY_IN
from support.service import (
    COPY_OUT,
    DAY,
    LIFE,
    XFS,
    exceptions,
    in_state,
    jobspec,
    more,
    names,
    settle,
    settle_jobs,
    started,
)

LIMIT = 60.0
STEPS = 32
"""A copy has so many steps, one each LIMIT / 2: it takes sixteen times the limit."""

HALF = STEPS / 2 * LIMIT / 2
"""Seconds after which a copy stops that stalls."""

REPORTS = 15.0
"""Seconds between two reports of a data movement."""

GIB = 2**30
SIZE = 10 * GIB
OUT = "$DW_JOB_p1/x to /lustre/x"


def copying(
    *faults: DwsFault, limit: Optional[float] = LIMIT, **options: Any
) -> VirtualSystem:
    """A system whose data movement gets on in time, unless a fault keeps it."""
    step = SIZE // STEPS
    return started(
        options=Options(
            copy_rate=step / (LIMIT / 2),
            copy_step=step,
            report_interval=REPORTS,
            faults=faults,
        ),
        files=NoFiles(size=SIZE),
        config=options.pop("config", Config(stall_timeout=limit)),
        **options,
    )


def copying_job(system: VirtualSystem, state: str) -> int:
    """A job whose Workflow has just got to a state."""
    jobid = system.instance.submit(jobspec([XFS, COPY_IN, COPY_OUT], 1))
    assert system.loop.run(in_state(system, state), DAY)
    return jobid


def notes(system: VirtualSystem, jobid: int) -> list[str]:
    return [context["note"] for context in exceptions(system, jobid)]


def note_of(state: str, jobid: int) -> str:
    problem = f"no data moved in {state} for stall_timeout=60s"
    lost = f"; not copied: {OUT}" if state == "DataOut" else ""
    return f"{problem}{lost}{more(jobid)}"


def given_up_after(system: VirtualSystem, jobid: int, timeout: float = DAY) -> float:
    """The seconds until the data of a job is given up. It is, once."""
    begin, state = system.loop.now(), system.workflows()[0]["spec"]["desiredState"]
    assert system.loop.run(lambda: bool(notes(system, jobid)), timeout)
    after = system.loop.now() - begin
    assert notes(system, jobid) == [note_of(state, jobid)]
    assert system.loop.run(in_state(system, "Teardown"), 5.0)
    settle(system)
    assert notes(system, jobid) == [note_of(state, jobid)]
    return after


# Whole systems


@pytest.mark.parametrize("page", [1, 100])
def test_the_progress_of_any_data_movement_counts(
    page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DWS has stalled with one of them, and another one gets on."""
    monkeypatch.setattr(records, "PAGE", page)
    system = copying(DwsFault("DataOut", "stall"), plugin_conf=None)
    jobid = copying_job(system, "DataOut")
    system.loop.run(timeout=10.0)
    found = system.store.list(NNFDATAMOVEMENT, None)["items"]
    labels = dict(found[-1]["metadata"]["labels"])
    metadata = {"name": "other", "namespace": "rabbit-01", "labels": labels}
    system.store.create(NNFDATAMOVEMENT, "rabbit-01", {"metadata": metadata})
    for percent in range(50):
        system.loop.run(timeout=LIMIT / 2)
        status = {"state": "Running", "commandStatus": {"progress": percent}}
        system.store.merge_patch(
            NNFDATAMOVEMENT,
            "rabbit-01",
            "other",
            {"status": status},
            subresource="status",
        )
    assert notes(system, jobid) == []
    assert given_up_after(system, jobid) == pytest.approx(LIMIT, abs=1)


# Trouble with Kubernetes, and restarts


@pytest.mark.parametrize("stalls", [False, True])
def test_a_job_with_too_many_data_movements_to_watch_has_the_limit_as_well(
    stalls: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progresswatch, "MOVEMENTS", 0)
    monkeypatch.setattr(records, "PAGE", 1)
    system = copying(*[DwsFault("DataOut", "stall")] * stalls)
    jobid = copying_job(system, "DataOut")
    if stalls:
        assert HALF <= given_up_after(system, jobid) <= HALF + 2 * LIMIT
        return
    settle_jobs(system)
    assert names(system, jobid) == LIFE


# What flux dws show says


def test_a_job_shows_the_limit_and_since_when_no_data_has_moved() -> None:
    config = Config(stall_timeout=600.0, teardown_after=DAY)
    system = copying(DwsFault("DataOut", "stall"), config=config)
    jobid = copying_job(system, "DataOut")
    system.loop.run(timeout=HALF + 270.0)
    found = query(system, "job-show", {"id": jobid})
    stall, teardown = found["limits"]
    assert teardown["name"] == "teardown_after" and set(teardown) == {"name", "at"}
    assert stall["name"] == "stall_timeout"
    assert found["now"] - stall["unmoved_since"] == pytest.approx(300, abs=1)
    assert stall["at"] - found["now"] == pytest.approx(300, abs=1)
    line = limit_line(stall, found["now"])
    assert line.startswith("stall_timeout in ") and "; no data moved for " in line


# The decision

NOW = 1000.0
JOBID = 1234


def info_of(state: State, **data: Any) -> WorkflowInfo:
    """A job whose copies have begun LIMIT ago."""
    name, ended = state.name, state is State.DataOut
    driver = {"dwdIndex": 1, "watchState": name, "completed": False}
    command = "copy_out" if ended else "copy_in"
    copy = f"#DW {command} source=$DW_JOB_p1/x destination=/lustre/x"
    view = WorkflowView.parse(
        {
            "metadata": {"uid": "uid", "resourceVersion": "1"},
            "spec": {
                "desiredState": name,
                "jobID": f58(JOBID),
                "wlmID": "flux",
                "dwDirectives": [XFS, copy],
            },
            "status": {"state": name, "ready": False, "drivers": [driver]},
        }
    )
    assert view.damage is None
    goal = Goal.RELEASED if ended else Goal.READY
    return WorkflowInfo(
        JOBID,
        goal,
        view=dataclasses.replace(view, requested=NOW - LIMIT, changed=NOW - LIMIT),
        ran=ended,
        looked_up=NOW,
        data=DataProgress(**data),
    )


def step(info: WorkflowInfo, now: float = NOW, **config: Any) -> Step:
    return next_step(info, now, Config(**{"stall_timeout": LIMIT, **config}))


@pytest.mark.parametrize("state", [State.DataIn, State.DataOut])
def test_the_workflow_and_its_data_movements_are_read_before_data_is_given_up(
    state: State,
) -> None:
    info = info_of(state)
    assert step(info, NOW - 1) == Wait(NOW)
    info.looked_up = NOW - 1
    assert step(info) == Lookup()
    info.looked_up = NOW
    assert step(info) == ListMovements()
    info.data.listed = NOW
    note = f"no data moved in {state.name} for stall_timeout=60s"
    lost = f"; not copied: {OUT}" if state is State.DataOut else ""
    assert step(info) == Fail(Note(note + lost, Reason.STALL_TIMEOUT))
    info.failed = True
    assert step(info) == (Record() if state is State.DataOut else Wait())


def test_a_list_that_shows_progress_starts_the_time_again() -> None:
    info = info_of(State.DataOut, listed=NOW, moved=NOW + 1)
    assert step(info, NOW + 2) == Wait(NOW + 1 + LIMIT)
    info.looked_up = NOW + 1 + LIMIT
    assert step(info, NOW + 1 + LIMIT) == ListMovements()


def test_what_is_given_up_anyway_needs_no_list() -> None:
    info = info_of(State.DataOut)
    info.abandoned = True
    text = f"no data moved in DataOut for stall_timeout=60s; not copied: {OUT}"
    assert step(info) == Fail(Note(text, Reason.STALL_TIMEOUT))


@pytest.mark.parametrize("listed", [0.0, NOW])
def test_a_limit_that_is_certain_comes_before_one_that_is_not(listed: float) -> None:
    info = info_of(State.DataOut, listed=listed)
    assert info.view is not None
    info.view = dataclasses.replace(info.view, unmounting=NOW - 100)
    chosen = step(info, teardown_after=99.0)
    assert isinstance(chosen, Fail) and "teardown_after" in chosen.note.text


def test_while_kubernetes_is_out_of_reach_no_time_passes() -> None:
    info = info_of(State.DataOut)
    info.out_since = NOW - 50
    assert step(info, NOW + 500) == Wait()
    info.end_outage(NOW + 500)
    assert info.data.moved == NOW - LIMIT + 550
    assert info.view is not None
    info.view = dataclasses.replace(info.view, out_of_reach=info.out_of_reach)
    assert step(info, NOW + 500) == Wait(NOW + 550)


# What counts as progress

COPIED = "Copied 10.000 MiB (10%) in 0.200 secs (50.000 MiB/s) 2 secs left ..."
STATUS: Json = {
    "state": "Running",
    "commandStatus": {"progress": 10, "lastMessage": COPIED, "data": "10.000 MiB"},
}


def achieved(status: Any) -> tuple[Any, ...]:
    return parse(
        {"metadata": {"namespace": "a", "name": "b"}, "status": status}
    ).achieved


@pytest.mark.parametrize(
    "changed",
    [
        {"state": "Finished", "status": "Success"},
        {"state": "Finished", "status": "Failed"},
        {"state": "Starting"},
        {"commandStatus": {**STATUS["commandStatus"], "progress": 11}},
        {"commandStatus": {"progress": 10, "data": "11.000 MiB"}},
        {"commandStatus": {"lastMessage": COPIED.replace("10.000", "10.001")}},
        {"commandStatus": {"lastMessage": "Walked 30001 items in 3.000 secs (1/s)"}},
        {"commandStatus": {"lastMessage": "a program of the site: 4711 files"}},
    ],
)
def test_a_movement_gets_on(changed: Json) -> None:
    assert achieved({**STATUS, **changed}) != achieved(STATUS)


@pytest.mark.parametrize(
    "changed",
    [
        {"elapsedTime": "17m3.2s", "lastMessageTime": "2026-01-01T00:00:01Z"},
        {"rate": "1.000 MiB/s", "seconds": "1023.200"},
        {"lastMessage": COPIED.replace("0.200 secs (50.000", "1023.2 secs (0.010")},
        {"unknown": {"x": [1, 2, 3]}},
    ],
)
def test_a_movement_does_not_get_on_by_the_time_that_it_takes(changed: Json) -> None:
    command = {**STATUS["commandStatus"], **changed}
    assert achieved({**STATUS, "commandStatus": command}) == achieved(STATUS)


def test_the_time_at_which_a_message_was_written_is_no_progress() -> None:
    texts = (f"[2026-01-01T00:00:0{second}] {COPIED}" for second in (1, 2))
    first, second = (achieved({"commandStatus": {"lastMessage": t}}) for t in texts)
    assert first == second


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
COMMANDS = st.dictionaries(
    st.sampled_from(["progress", "data", "lastMessage", "elapsedTime"]), VALUES
)


@given(VALUES | st.builds(lambda command: {"commandStatus": command}, COMMANDS))
def test_what_a_movement_has_achieved_is_known_of_any_status(status: Any) -> None:
    assert achieved(status) == achieved(status)
    assert isinstance(hash(achieved(status)), int)
