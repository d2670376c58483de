# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What users who have data copied in before their jobs have nodes cost each other."""

from __future__ import annotations

from typing import Optional

from flux_k8s.formats.directives import GIB
from flux_k8s.formats.jobid import f58
from flux_k8s.objects import storageusage
from flux_k8s.objects.servers import Servers
from flux_k8s.ports import SERVERS, Request
from rabbitsim.dws import Topology
from rabbitsim.dws.options import Options, table
from rabbitsim.kube.direct import Fault
from rabbitsim.system import VirtualSystem
from support.queries import GUEST, OTHER
from support.service import (
    DAY,
    HOUR,
    desired,
    exceptions,
    lines,
    memo,
    names,
    running,
    settle,
    started,
)
from support.staging import (
    ALL,
    config,
    occupy,
    reaches,
    set_urgency,
    slow,
    submit,
    wait,
)

ON_ONE = {"constraints": {"hostlist": ["compute-[01-02]"]}}


def fill(system: VirtualSystem, seconds: int = 30 * int(DAY)) -> int:
    """A job of a guest that has much of the first Rabbit for a long time."""
    jobid = submit(
        system, 1, 60, dw_stage="prolog", seconds=seconds, userid=GUEST, **ON_ONE
    )
    running(system, jobid)
    return jobid


def hold_most(system: VirtualSystem) -> None:
    """Another user's job leaves little of what jobs without nodes may have."""
    reaches(system, submit(system, 1, 30, userid=500), "DataIn")


def test_a_job_that_waits_for_a_full_rabbit_holds_up_its_own_user() -> None:
    system = slow()
    fill(system)
    waits, behind = submit(system, 1, 60, userid=GUEST, **ON_ONE), 0
    behind = submit(system, 1, 10, userid=GUEST)
    wait(system, HOUR)
    assert desired(system, behind) == "Proposal"
    text = f"{f58(waits)} gets its storage before"
    assert memo(system, behind, "rabbit_waits_for") == text
    assert not lines(system, text)  # there may be thousands that wait
    system.instance.cancel(waits)
    running(system, behind)


def test_a_job_that_is_held_while_it_is_tried_has_no_rabbits_kept() -> None:
    system = slow()
    fill(system)
    system.instance.broker.register("job-list", lambda *request: None)
    held = submit(system, 1, 60, userid=GUEST, **ON_ONE)
    wait(system, 0.4)
    set_urgency(system, held, 0)
    others = [submit(system, 1, 30, userid=OTHER)]
    wait(system, 2.0)
    others.append(submit(system, 1, 30, userid=OTHER, **ON_ONE))
    for jobid in others:
        running(system, jobid)
    set_urgency(system, held, 16)
    wait(system, 120.0)
    assert desired(system, held) == "Proposal" and not exceptions(system, held)


def test_a_job_that_is_held_while_it_is_tried_holds_up_nobody() -> None:
    """Kubernetes takes its time with the answers about that job."""
    system = slow()
    held = submit(system, 1, 40, userid=GUEST)

    def fault(request: Request) -> Optional[Fault]:
        late = request.verb == "get" and str(held) in (request.name or "")
        return Fault(delay=50.0) if late else None

    assert system.service_kube is not None
    system.service_kube.faults = fault
    other = submit(system, 1, 10, userid=OTHER)
    wait(system, 0.4)
    set_urgency(system, held, 0)
    wait(system, 2.0)
    assert desired(system, other) == "DataIn"


def test_a_job_has_no_more_rabbits_kept_than_it_needs() -> None:
    system = slow(rabbits=4)
    for rabbit in range(4):
        host = f"compute-0{2 * rabbit + 1}"
        jobid = submit(
            system,
            1,
            30 + rabbit,
            dw_stage="prolog",
            seconds=int(DAY),
            userid=GUEST,
            constraints={"hostlist": [host]},
        )
        running(system, jobid)
    submit(system, 2, 45, userid=GUEST)
    jobs = [submit(system, 1, 20, userid=OTHER) for _ in range(3)]
    running(system, *jobs)


def test_urgencies_that_change_all_the_time_fill_no_other_users_eventlog() -> None:
    system = slow(config=config(stage_limit=30))
    occupy(system, 4, seconds=int(DAY))
    hold_most(system)
    first, second = (submit(system, 1, 40, userid=GUEST) for _ in range(2))
    behind = submit(system, 1, 40, userid=OTHER)
    for change in range(100):
        set_urgency(system, first, 15 + change % 2)
        set_urgency(system, second, 16 - change % 2)
        wait(system, 10.0)
    events = [event.name for event in system.instance.eventlog(behind)]
    assert events.count("memo") < 4
    text = "jobs of other users get their storage before"
    assert memo(system, behind, "rabbit_waits_for") == text


def test_all_jobs_are_staged_in_the_end_whoever_waits() -> None:
    system = slow(rabbits=3, config=ALL)
    users = (GUEST, OTHER, 500)
    jobs = [
        submit(system, 1 + n % 3, 20 + 7 * (n % 5), userid=users[n % 3], seconds=300)
        for n in range(18)
    ]
    settle(system, 3 * DAY)
    for jobid in jobs:
        assert not exceptions(system, jobid) and "start" in names(system, jobid)


def test_storage_of_jobs_that_are_cancelled_counts_until_it_is_gone() -> None:
    system = started(
        topology=Topology.regular(4, 2, capacity=100 * GIB),
        options=Options(latency=table({"DataIn": 60.0, "Teardown": HOUR})),
        config=config(stage_user_limit=25),
    )
    occupy(system, 4, seconds=int(DAY))
    for _ in range(10):
        jobs = [submit(system, 1, 20, userid=GUEST) for _ in range(3)]
        wait(system, 90.0)
        made = sum(
            sum(storageusage.parse(Servers.read(found)).unavailable.values())
            for found in system.store.list(SERVERS, None)["items"]
        )
        assert made <= 50 * GIB
        for jobid in jobs:
            system.instance.cancel(jobid)
    wait(system, 2 * HOUR)
    jobid = submit(system, 1, 20, userid=GUEST)
    reaches(system, jobid, "DataIn")
