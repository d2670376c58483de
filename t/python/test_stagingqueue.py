# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Whose turn it is to have storage made before there are nodes."""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass
from typing import Any
from unittest.mock import Mock

import pytest

from flux_k8s.errors import StorageUnavailable
from flux_k8s.jobs import turns
from flux_k8s.jobs.turns import StagingQueue
from flux_k8s.reasons import Reason

AWAY = StorageUnavailable("the nodes do not serve", Reason.RABBIT_BROKEN)


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
            with contextlib.suppress(StorageUnavailable):
                with queue.turn(job):
                    tried[job.userid] += 1
                    raise AWAY
        now[0] += 0.05
    for count in tried.values():  # each job at once, and then some again
        again = count - len(jobs) / users
        assert 0 < again < 2 + seconds / turns.SPACING / users
