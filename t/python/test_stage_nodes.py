# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Jobs are staged where they get nodes soonest."""

from __future__ import annotations

from collections import Counter
from typing import Optional

import pytest

from flux_k8s.rabbits.nodeuse import INTERVAL, LIST
from rabbitsim.flux.broker import Respond
from rabbitsim.system import VirtualSystem
from support.service import DAY, LUSTRE, exceptions, names, running, settle
from support.staging import (
    COPY,
    COPY_IN,
    made_for,
    occupy,
    set_urgency,
    slow,
    submit,
    time_of,
    wait,
)

FIRST, SECOND = "compute-[01-04]", "compute-[05-08]"


def busy(
    system: VirtualSystem, hosts: str, nodes: int = 4, seconds: int = 20000
) -> int:
    """A job without storage that has these nodes."""
    return occupy(
        system, nodes, seconds, constraints={"hostlist": [hosts]}, duration=seconds
    )


def fill(system: VirtualSystem, hosts: str) -> None:
    """Have less room on the Rabbit of these nodes than on others."""
    jobid = submit(
        system,
        dw_stage="prolog",
        size=40,
        seconds=40000,
        constraints={"hostlist": [hosts]},
    )
    running(system, jobid)


def rabbits(system: VirtualSystem, jobid: int) -> Counter[str]:
    """The Rabbits that a job is staged on, which waits for nodes or has them."""
    assert system.loop.run(lambda: "priority" in names(system, jobid), timeout=DAY)
    return made_for(system, jobid)


def count_requests(system: VirtualSystem) -> list[float]:
    """The times of the requests to job-list from now on."""
    times: list[float] = []
    send = system.instance.broker.send

    def counted(topic: str, *args: object) -> None:
        if topic == LIST:
            times.append(system.loop.now())
        send(topic, *args)

    system.instance.broker.send = counted
    return times


def two_rabbits() -> VirtualSystem:
    """Four nodes below each of two Rabbits, the second of which has less room."""
    system = slow(nodes=4)
    fill(system, "compute-08")
    return system


def test_a_job_is_staged_where_nodes_are_free_if_more_room_is_elsewhere() -> None:
    system = two_rabbits()
    busy(system, FIRST)
    jobid = submit(system, 3)
    begun = system.loop.now()
    assert rabbits(system, jobid) == {"rabbit-02": 3}
    running(system, jobid)
    assert time_of(system, jobid, "start") < begun + 2 * COPY


def test_a_job_is_staged_where_nodes_are_free_soonest() -> None:
    system = two_rabbits()
    busy(system, FIRST)
    ends = busy(system, SECOND, nodes=3, seconds=2000)
    jobid = submit(system, 3)
    assert rabbits(system, jobid) == {"rabbit-02": 3}
    running(system, jobid)
    assert "finish" in names(system, ends)
    settle(system, DAY)


def test_two_jobs_do_not_wait_for_the_same_nodes() -> None:
    system = two_rabbits()
    busy(system, FIRST, seconds=2000)
    busy(system, SECOND, nodes=3, seconds=2500)
    jobs = [submit(system, 3, size=1, seconds=9000) for _ in range(2)]
    assert [list(rabbits(system, jobid)) for jobid in jobs] == [
        ["rabbit-01"],
        ["rabbit-02"],
    ]
    settle(system, DAY)


def test_a_job_is_staged_on_more_rabbits_than_it_needs_when_it_starts_sooner() -> None:
    system = slow(nodes=4)
    busy(system, "compute-[01-02]", nodes=2)
    busy(system, "compute-[05-06]", nodes=2)
    jobid = submit(system, 4)
    assert rabbits(system, jobid) == {"rabbit-01": 2, "rabbit-02": 2}
    settle(system, DAY)
    assert not exceptions(system, jobid)


def test_a_lustre_file_system_is_staged_where_there_is_room() -> None:
    system = two_rabbits()
    busy(system, FIRST)
    jobid = submit(system, 2, dw=[LUSTRE, COPY_IN])
    assert "rabbit-01" in rabbits(system, jobid)
    running(system, jobid)


@pytest.mark.parametrize("answer", [None, {"jobs": 0}, {"jobs": [{"ranks": "x"}]}])
def test_without_a_list_of_jobs_the_room_decides(answer: Optional[object]) -> None:
    system = two_rabbits()
    busy(system, FIRST, seconds=5000)

    def handle(method: str, payload: object, userid: int, respond: Respond) -> None:
        if answer is not None:
            respond(0, "", answer)

    system.instance.broker.register("job-list", handle)
    jobid = submit(system, 3)
    assert rabbits(system, jobid) == {"rabbit-01": 3}
    settle(system, DAY)
    assert not exceptions(system, jobid)


def test_a_guest_does_not_have_jobs_listed_often() -> None:
    system = slow(nodes=4)
    fill(system, "compute-01")
    jobs = [
        submit(system, 1, 60, userid=1000, constraints={"hostlist": ["compute-01"]})
        for _ in range(10)
    ]
    wait(system, 10.0)
    times = count_requests(system)
    for change in range(300):
        set_urgency(system, jobs[change % len(jobs)], 10 + change % 3)
        submit(system, 1, 60, userid=1000 + change % 7)
        wait(system, 0.1)
    assert 0 < len(times) <= 30.0 / INTERVAL + 1
