# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What the jobs of one user cost others before they have nodes (``user_workflows``,
``user_directives_limit``)."""

from __future__ import annotations

from random import Random
from typing import Any, Callable

from flux_k8s.config.table import Config
from flux_k8s.jobs.turns import CREATES, LIMITS
from flux_k8s.ports import WORKFLOW
from rabbitsim.dws.options import Options, table
from rabbitsim.system import VirtualSystem
from support.queries import GUEST, OTHER, query
from support.service import (
    HOUR,
    jobspec,
    lines,
    memo,
    started,
    wait,
)

WAITS = "rabbit_waits_for"
WORK = 0.02
"""Seconds that DWS works on one Workflow, in Proposal and in Teardown."""


def one_at_a_time() -> tuple[Options, Callable[[VirtualSystem], None]]:
    """Options of a DWS that works on one Workflow after the other, and what gives it
    its clock."""
    clock: list[Callable[[], float]] = []
    free = 0.0

    def latency(state: str, rng: Random) -> float:
        nonlocal free
        if state not in ("Proposal", "Teardown"):
            return 0.0
        now = clock[0]()
        free = max(free, now) + WORK
        return free - now

    return Options(latency=latency), lambda system: clock.append(system.loop.now)


def busy(**limits: Any) -> VirtualSystem:
    """A system whose DWS works on one Workflow after the other."""
    options, connect = one_at_a_time()
    system = VirtualSystem(options=options, config=Config.parse(limits))
    connect(system)
    system.start()
    return system


def slow(**limits: Any) -> VirtualSystem:
    """A system whose DWS takes a minute for Proposal, of any number of Workflows."""
    options = Options(latency=table({"Proposal": 60.0}))
    return started(options=options, config=Config.parse(limits))


def hold(system: VirtualSystem, count: int, userid: int = GUEST) -> list[int]:
    """Submit so many jobs, each of which is held."""
    return [
        system.instance.submit(jobspec(), userid=userid, urgency=0)
        for _ in range(count)
    ]


def is_planned(system: VirtualSystem, jobid: int) -> bool:
    return system.instance.job(jobid).was_posted("dependency-remove")


def time_to_plan(system: VirtualSystem) -> float:
    """Submit a job of another user; the seconds until its storage is planned."""
    submitted = system.loop.now()
    jobid = system.instance.submit(jobspec(), userid=OTHER)
    assert system.loop.run(lambda: is_planned(system, jobid), HOUR)
    return system.loop.now() - submitted


def test_a_job_beside_the_held_jobs_of_another_user_is_planned_as_if_alone() -> None:
    alone = time_to_plan(busy())
    system = busy()
    held = hold(system, 60)
    wait(system, 0.1)
    assert time_to_plan(system) < alone + 0.3
    assert not all(is_planned(system, jobid) for jobid in held)
    wait(system, 30.0)
    assert all(is_planned(system, jobid) for jobid in held)


def test_a_job_that_waits_says_so_in_its_memo_and_to_queries() -> None:
    system = slow(user_workflows=2)
    *others, waits = hold(system, 3)
    wait(system, 1.0)
    text = LIMITS.text
    assert memo(system, waits, WAITS) == text
    rows = {row["id"]: row for row in query(system, "job-list")["jobs"]}
    assert rows[waits]["waits"] == text and rows[waits]["state"] == "none"
    assert query(system, "job-show", {"id": waits})["waits"] == text
    assert [memo(system, jobid, WAITS) for jobid in others] == [None, None]
    wait(system, 300.0)
    assert is_planned(system, waits) and memo(system, waits, WAITS) is None
    assert not lines(system, "user_workflows")


def test_a_job_that_comes_to_wait_for_others_says_so() -> None:
    system = slow(user_workflows=2)
    held = hold(system, 1)
    wait(system, 90.0)
    held += hold(system, CREATES + 2)
    wait(system, 1.0)
    silent = [job for job in held if memo(system, job, WAITS) is None]
    assert silent == held[:3]


def test_users_take_turns() -> None:
    system = busy(user_workflows=1000)
    made: list[int] = []
    system.store.watch(
        WORKFLOW,
        None,
        lambda event: (
            made.append(event.object["spec"]["userID"])
            if event.type == "ADDED"
            else None
        ),
        resource_version=str(system.store.version),
    )
    first = hold(system, 60, GUEST)
    hold(system, 20, OTHER)
    hold(system, 20, OTHER + 1)
    wait(system, 60.0)
    assert len(first) == made.count(GUEST)
    last = max(n for n, userid in enumerate(made) if userid != GUEST)
    assert made[:last].count(GUEST) <= 20 + 2 * CREATES
