# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Whose turn it is to have storage made before there are nodes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any
from unittest.mock import Mock

import pytest

from flux_k8s.errors import StorageUnavailable
from flux_k8s.jobs import turns
from flux_k8s.jobs.step import Step
from flux_k8s.jobs.turns import BEFORE, NoRoom, StagingQueue
from flux_k8s.reasons import Reason

AWAY = StorageUnavailable("the nodes do not serve", Reason.RABBIT_BROKEN)
NO_ROOM = NoRoom("rabbit.stage_limit is reached", Reason.LIMIT_REACHED)
STAGE = Step.STAGE()


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
            if queue.decide(job, STAGE) == STAGE:
                tried[job.userid] += 1
                queue.failed(job, AWAY)
        now[0] += 0.05
    for count in tried.values():  # each job at once, and then some again
        again = count - len(jobs) / users
        assert 0 < again < 2 + seconds / turns.SPACING / users


def test_to_look_at_a_job_that_waits_no_other_one_is_looked_at() -> None:
    class Jobid(int):
        def __lt__(self, other: int) -> bool:
            compared.append(other)
            return int(self) < other

    compared: list[int] = []
    jobs = 10_000
    queue: Any = StagingQueue(Mock(now=lambda: 0.0), lambda jobid: None)
    infos = [Info(Jobid(number), 1, Request(1)) for number in range(jobs)]
    for info in infos:
        queue.decide(info, STAGE)
    queue.failed(infos[0], NO_ROOM)
    del compared[:]
    for info in infos[1:]:
        assert queue.decide(info, STAGE) == Step.WAIT(BEFORE)
        queue.update(info)
    assert len(compared) < 3 * jobs
