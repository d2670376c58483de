# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""How far long states are: data movements, mounts and memos, in a whole system under
virtual time."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from dwscli.page import limit_line
from flux_k8s.config.table import Config
from flux_k8s.jobs import optionalwatches, progress
from flux_k8s.jobs.progress import MEMO, duration
from flux_k8s.ports import (
    CLIENTMOUNT,
    NNFDATAMOVEMENT,
    Json,
    Request,
)
from rabbitsim.dws.files import NoFiles
from rabbitsim.dws.options import Fault as DwsFault
from rabbitsim.dws.options import Options
from rabbitsim.system import VirtualSystem
from support.queries import query
from support.records import COPY_IN, labels
from support.service import (
    COPY_OUT,
    DAY,
    HOUR,
    XFS,
    in_state,
    jobspec,
    long,
    settle,
    settle_jobs,
    started,
)

GIB = 2**30
SIZE = 10 * GIB
RATE = GIB / 20  # 200 s for each copy
MOUNT_HANGS = DwsFault("PreRun", "never", node="compute-02", duration=120.0)


def copying(*faults: DwsFault, **options: Any) -> tuple[VirtualSystem, int]:
    """A system, and a job in the middle of its copy_in."""
    system = started(
        options=Options(copy_rate=RATE, copy_step=GIB // 4, faults=faults),
        files=NoFiles(size=SIZE),
        **options,
    )
    jobid = system.instance.submit(long([XFS, COPY_IN, COPY_OUT], 1, 60))
    assert system.loop.run(in_state(system, "DataIn"), HOUR)
    system.loop.run(timeout=100.0)
    return system, jobid


def mounting(**options: Any) -> tuple[VirtualSystem, int]:
    """A system, and a job one of whose nodes takes long to mount."""
    system = started(options=Options(faults=(MOUNT_HANGS,)), **options)
    jobid = system.instance.submit(jobspec(XFS, 2))
    assert system.loop.run(in_state(system, "PreRun"), HOUR)
    system.loop.run(timeout=30.0)
    return system, jobid


def show(system: VirtualSystem, jobid: int) -> Json:
    return query(system, "job-show", {"id": jobid})


def annotation(system: VirtualSystem, jobid: int) -> Any:
    return system.instance.job(jobid).annotations.get("user", {}).get(MEMO)


def posted(system: VirtualSystem, jobid: int) -> list[Any]:
    """The memos about progress that are in the eventlog."""
    return [
        event.context
        for event in system.instance.eventlog(jobid)
        if event.name == "memo" and MEMO in (event.context or {})
    ]


def test_a_job_tells_how_far_its_copy_is() -> None:
    system, jobid = copying()
    found = show(system, jobid)
    assert found["state"] == "DataIn" and 40 <= found["percent"] <= 60
    assert found["total"] == pytest.approx(SIZE, rel=0.1)
    assert found["moved"] == pytest.approx(SIZE / 2, rel=0.2)
    (movement,) = found["movements"]
    assert found["nmovements"] == 1
    assert movement["state"] == "Running" and movement["source"] == "/lustre/in"
    assert movement["rate"] == pytest.approx(RATE, rel=0.2)
    assert movement["left"] == pytest.approx(100, abs=30)
    (row,) = query(system, "job-list")["jobs"]
    assert row["percent"] == found["percent"]
    settle_jobs(system)


def test_the_copies_of_another_state_do_not_count() -> None:
    system, jobid = copying()
    assert system.loop.run(in_state(system, "DataOut"), HOUR)
    system.loop.run(timeout=20.0)
    found = show(system, jobid)
    assert found["state"] == "DataOut" and found["percent"] < 30
    assert sorted(m["percent"] for m in found["movements"])[-1] == 100
    settle_jobs(system)


def test_a_job_tells_which_nodes_have_not_mounted() -> None:
    system, jobid = mounting()
    found = show(system, jobid)
    assert found["mounts"] == {
        "wanted": 2,
        "mounted": 1,
        "unmounted": None,
        "waiting": "compute-02",
    }
    assert annotation(system, jobid) == "PreRun 1/2 mounted"
    settle_jobs(system)


def test_a_memo_that_no_eventlog_has_says_how_far_a_copy_is() -> None:
    system, jobid = copying()
    text = annotation(system, jobid)
    assert text.startswith("DataIn ") and " %, " in text and text.endswith(" left")
    assert system.loop.run(in_state(system, "PreRun"), HOUR)
    system.loop.run(timeout=progress.INTERVAL)
    assert annotation(system, jobid) is None
    settle_jobs(system)
    assert posted(system, jobid) == []


def test_memos_come_at_a_bounded_rate() -> None:
    system = started(
        options=Options(copy_rate=RATE, copy_step=GIB // 8), files=NoFiles(size=SIZE)
    )
    jobids = [system.instance.submit(jobspec([XFS, COPY_IN], 1)) for _ in range(4)]
    assert system.loop.run(in_state(system, "DataIn"), HOUR)
    told: dict[int, list[tuple[float, str]]] = {jobid: [(0, "")] for jobid in jobids}
    for _ in range(100):
        system.loop.run(timeout=1.0)
        for jobid, memos in told.items():
            if annotation(system, jobid) not in (None, memos[-1][1]):
                memos.append((system.loop.now(), annotation(system, jobid)))
    for memos in told.values():
        times = [time for time, _ in memos]
        gaps = [b - a for a, b in zip(times, times[1:])]
        assert len(gaps) > 2
        assert all(gap > progress.INTERVAL - 1.0 for gap in gaps)
    settle_jobs(system)


# What that costs Kubernetes


def requests_of(system: VirtualSystem, *kinds: Any) -> list[Request]:
    """The lists and watches of these kinds, from now on."""
    assert system.service_kube is not None
    found: list[Request] = []

    def note(request: Request) -> None:
        if request.kind in kinds and request.verb in ("list", "watch"):
            found.append(request)

    system.service_kube.faults = note  # type: ignore[assignment]
    return found


def test_nothing_is_watched_for_states_that_are_short() -> None:
    system = started()
    found = requests_of(system, NNFDATAMOVEMENT, CLIENTMOUNT)
    for _ in range(3):
        system.instance.submit(jobspec([XFS, COPY_IN, COPY_OUT], 1))
        settle(system)
    system.loop.run(timeout=HOUR)
    # One list for each job, of what it has moved.
    asked_for = [(request.verb, request.kind) for request in found]
    assert asked_for == [("list", NNFDATAMOVEMENT)] * 3


def test_of_a_job_with_too_many_objects_nothing_is_shown() -> None:
    system, jobid = copying()
    assert show(system, jobid)["nmovements"] == 1
    system.store.ensure_namespace("x")
    for index in range(optionalwatches.MOVEMENTS):
        meta = {"namespace": "x", "name": f"more-{index}", "labels": labels(jobid)}
        system.store.create(NNFDATAMOVEMENT, "x", {"metadata": meta})
    system.loop.run(timeout=10.0)
    found = show(system, jobid)
    assert found["percent"] is None and found["nmovements"] == 0


def test_a_watch_is_closed_when_no_job_needs_it() -> None:
    system, jobid = copying()
    assert system.service_kube is not None
    assert NNFDATAMOVEMENT in system.service_kube.watched
    settle_jobs(system)
    system.loop.run(timeout=2 * optionalwatches.LINGER)
    assert NNFDATAMOVEMENT not in system.service_kube.watched


def test_nothing_is_known_of_what_is_not_watched_any_more() -> None:
    movements = optionalwatches.DataMovements(Mock(), Mock())
    for _ in range(2):
        assert movements.of(1) is None
        movements.open()
        movements.synced()
        assert movements.of(1) == {}
        movements.close()


@pytest.mark.parametrize(
    "seconds, text",
    [
        (0, "0 s"),
        (0.2, "1 s"),
        (59, "59 s"),
        (61, "2 min"),
        (3600, "60 min"),
        (3601, "2 h"),
    ],
)
def test_times_have_one_unit(seconds: float, text: str) -> None:
    assert duration(seconds) == text


# Limits, and copies that are waited for


def test_a_job_shows_the_limit_and_since_when_no_data_has_moved() -> None:
    config = Config(stall_timeout=600.0, teardown_after=DAY)
    system, jobid = copying(DwsFault("DataOut", "stall"), config=config)
    assert system.loop.run(in_state(system, "DataOut"), HOUR)
    system.loop.run(timeout=400.0)
    found = query(system, "job-show", {"id": jobid})
    stall, teardown = found["limits"]
    assert teardown["name"] == "teardown_after" and set(teardown) == {"name", "at"}
    assert stall["name"] == "stall_timeout"
    assert found["now"] - stall["unmoved_since"] == pytest.approx(300, abs=10)
    assert stall["at"] - stall["unmoved_since"] == pytest.approx(600, abs=1)
    line = limit_line(stall, found["now"])
    assert line.startswith("stall_timeout in ") and "; no data moved for " in line


def test_a_job_shows_that_it_waits_for_copies_that_go_on() -> None:
    faults = (
        DwsFault("DataOut", "copy", directive=2),
        DwsFault("DataOut", "stall", directive=3),
    )
    system = started(options=Options(faults=faults), files=NoFiles(size=GIB))
    more = COPY_OUT.replace("/x", "/y")
    jobid = system.instance.submit(jobspec([XFS, COPY_IN, COPY_OUT, more], 1))
    assert system.loop.run(in_state(system, "DataOut"), HOUR)
    system.loop.run(timeout=10.0)
    found = query(system, "job-show", {"id": jobid})
    assert found["waits"] == "copies that go on: another one of the job has failed"
    assert (found["state"], found["status"]) == ("DataOut", "Error")
