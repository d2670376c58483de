# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Whose turn it is to have storage made before there are nodes."""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass
from typing import Any, Callable, Optional
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.errors import StorageUnavailable
from flux_k8s.formats.jobid import workflow_name
from flux_k8s.jobs import stagingqueue
from flux_k8s.jobs.stagingqueue import Full, NoRoom, StagingQueue, Turn, UserBound
from flux_k8s.ports import WORKFLOW, KubeError
from flux_k8s.reasons import Reason
from rabbitsim.kube.direct import Fault
from rabbitsim.kube.direct import Request as ApiRequest
from rabbitsim.system import VirtualSystem
from support.queries import GUEST, OTHER
from support.service import DAY, desired, wait
from support.staging import config, occupy, reaches, set_urgency, slow, submit

AWAY = StorageUnavailable("the nodes do not serve", Reason.RABBIT_BROKEN)


@pytest.mark.parametrize(
    "leave",
    [
        lambda system, jobid: set_urgency(system, jobid, 0),
        lambda system, jobid: set_urgency(system, jobid, 10),
        lambda system, jobid: system.instance.cancel(jobid),
    ],
    ids=["is held", "gets less urgent", "is cancelled"],
)
def test_when_the_first_job_makes_way_the_next_is_staged_at_once(
    leave: Callable[[VirtualSystem, int], None],
) -> None:
    system = slow(config=config(stage_limit=30))
    occupy(system, 4, seconds=int(DAY))
    reaches(system, submit(system, 1, 40, userid=500), "DataIn")
    first = submit(system, 1, 50, userid=GUEST)
    behind = submit(system, 1, 10, userid=OTHER)
    wait(system, 600.0)
    assert desired(system, first) == desired(system, behind) == "Proposal"
    leave(system, first)
    wait(system, 2.0)
    assert desired(system, behind) != "Proposal"


@pytest.mark.parametrize("end", ["hold", "cancel"])
def test_the_rabbits_kept_for_a_job_that_makes_way_are_soon_given_to_others(
    end: str,
) -> None:
    on_one = {"constraints": {"hostlist": ["compute-[01-02]"]}}
    system = slow()
    submit(system, 1, 60, dw_stage="prolog", seconds=30 * int(DAY), **on_one)
    wait(system, 1200.0)
    first = submit(system, 1, 60, userid=GUEST, **on_one)
    wait(system, 10.0)
    behind = submit(system, 1, 30, userid=OTHER, **on_one)
    wait(system, 600.0)
    assert desired(system, first) == desired(system, behind) == "Proposal"
    if end == "cancel":
        system.instance.cancel(first)
    else:
        set_urgency(system, first, 0)
    wait(system, 3.0)
    assert desired(system, behind) != "Proposal"


def test_a_job_whose_workflow_kubernetes_does_not_take_holds_up_no_other() -> None:
    system = slow()
    first = submit(system, 1, 10, userid=GUEST)
    name = workflow_name(first)

    def refuse(request: ApiRequest) -> Optional[Fault]:
        refused = (request.verb, request.kind, request.name) == (
            "patch",
            WORKFLOW,
            name,
        )
        text = "a webhook of the site refuses it"
        return Fault(error=KubeError(422, "Invalid", text)) if refused else None

    assert system.service_kube is not None
    system.service_kube.faults = refuse
    wait(system, 600.0)
    behind = submit(system, 1, 10, userid=OTHER)
    wait(system, 120.0)
    assert desired(system, first) == "Proposal"
    assert desired(system, behind) != "Proposal"


@dataclass
class Request:
    urgency: int


@dataclass(eq=False)
class Info:
    """As much of a WorkflowInfo as the queue looks at."""

    jobid: int
    userid: int
    request: Request
    awaits_staging: bool = True


class Model:
    """The queue as its description says, by a look at all jobs."""

    def __init__(self) -> None:
        self.passed: dict[Info, Optional[bool]] = {}

    def turn(self, job: Info) -> tuple[int, int]:
        return -job.request.urgency, job.jobid

    def held_up(self, job: Info) -> bool:
        return any(
            up and other.userid == job.userid and self.turn(other) < self.turn(job)
            for other, up in self.passed.items()
        )

    def first(self) -> Optional[Info]:
        ready = (job for job, up in self.passed.items() if up is None)
        free = (job for job in ready if not self.held_up(job))
        return min(free, key=self.turn, default=None)

    def waits(self, job: Info) -> bool:
        first = self.first()
        behind = first is not None and self.turn(first) < self.turn(job)
        return behind or self.held_up(job)


ERRORS: list[Exception] = [
    NoRoom("none", Reason.NOT_READY),
    Full("full", ["rabbit-01"]),
    UserBound("enough", Reason.LIMIT_REACHED),
    AWAY,
]
ACTIONS = ["try", "try", "try", "urgency", "hold", "forget", "wake"]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(ACTIONS),
            st.integers(0, 5),
            st.sampled_from([None, *ERRORS]),
            st.integers(1, 3),
        ),
        max_size=60,
    )
)
def test_a_job_waits_for_those_before_it_and_the_first_is_always_asked(
    actions: list[tuple[str, int, Optional[Exception], int]],
) -> None:
    now, timers, asked = [0.0], list[Callable[[], None]](), list[int]()
    flux = Mock(now=lambda: now[0], call_later=lambda _, done: timers.append(done))
    queue: Any = StagingQueue(flux, asked.append)
    jobs = [Info(n, n % 3, Request(1)) for n in range(6)]
    model = Model()
    known: Optional[Info] = None
    for action, number, error, urgency in actions:
        job = jobs[number]
        now[0] += 2 * stagingqueue.PAUSE
        asked.clear()
        if action == "try" and job.awaits_staging:
            model.passed.setdefault(job, None)
            if model.waits(job):
                with pytest.raises(StorageUnavailable):
                    queue.take_turn(job)
            else:
                queue.take_turn(job)
                model.passed[job] = None
                if error is None:
                    job.awaits_staging = False
                    del model.passed[job]
                    queue.update(job)
                else:
                    queue.note_failed(job, error)
                    if not isinstance(error, NoRoom):
                        model.passed[job] = isinstance(error, (Full, UserBound))
        elif action == "urgency":
            job.request = Request(urgency)
            queue.update(job)
        elif action == "hold":
            job.awaits_staging = not job.awaits_staging
            model.passed.pop(job, None)
            queue.update(job)
        elif action == "forget":
            model.passed.pop(job, None)
            queue.forget(job)
        elif action == "wake":
            queue.wake()
        if action in ("forget", "wake") and timers:
            timers.pop()()
            model.passed.update((j, None) for j, up in model.passed.items() if up)
        first = model.first()
        if first is not None and first not in (known, job):
            assert asked[-1:] == [first.jobid]
        known = first
    for job in jobs:
        queue.forget(job)
    assert not queue._jobs and not queue._users


def test_a_try_costs_the_same_whatever_the_number_of_jobs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """2,000 jobs of one user, whose nodes do not serve, are tried one after the other,
    twice."""
    looks = [0]

    class CountedTurn(Turn):
        def __lt__(self, other: Any) -> bool:
            looks[0] += 1
            return tuple(self) < tuple(other)

    monkeypatch.setattr(stagingqueue, "Turn", CountedTurn)
    now = [0.0]
    flux = Mock(now=lambda: now[0])
    queue = StagingQueue(flux, lambda jobid: None)
    jobs = [Info(n, 1, Request(1)) for n in range(2000)]
    for job in jobs[1:]:
        queue.note_failed(job, NoRoom("none", Reason.NOT_READY))
    for _ in range(2):
        for job in jobs:
            now[0] += stagingqueue.PAUSE
            queue.take_turn(job)
            queue.note_failed(job, AWAY)
    assert looks[0] < 100 * len(jobs)


@pytest.mark.parametrize("users", [1, 50])
def test_few_jobs_that_were_passed_over_are_tried_again_however_many_users_wait(
    users: int,
) -> None:
    seconds, now = 20, [0.0]
    queue: Any = StagingQueue(Mock(now=lambda: now[0]), lambda jobid: None)
    jobs = [Info(n, n % users, Request(1)) for n in range(200)]
    tried = Counter[int]()
    while now[0] < seconds:
        for job in jobs:
            with contextlib.suppress(StorageUnavailable):
                queue.take_turn(job)
                queue.note_failed(job, AWAY)
                tried[job.userid] += 1
        now[0] += 0.05
    for count in tried.values():  # each job at once, and then some again
        again = count - len(jobs) / users
        assert 0 < again < 2 + seconds / stagingqueue.SPACING / users
