# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""States that are never observed: the service sees some of what happens only."""

from __future__ import annotations

from typing import Callable

import pytest

from flux_k8s.ports import KubeError
from rabbitsim.system import VirtualSystem
from support.service import COPY_OUT, LIFE, XFS, jobspec, names, settle

EVERY = (0.3, 2.0, 7.0, 61.0)


def looking_now_and_then(system: VirtualSystem, seconds: float) -> None:
    """From now on the service sees what there is each ``seconds``, and nothing
    of what happened in between."""

    def look() -> None:
        if system.service_kube is not None:
            system.service_kube.drop_watches(KubeError(410, "Expired", "too old"))
            # The list is made half a second later; then silence again.
            system.loop.call_later(0.55, system.service_kube.silence_watches)
        system.loop.call_later(seconds + 0.6, look)

    look()


def finished(make: Callable[[VirtualSystem], None]) -> tuple[VirtualSystem, int]:
    system = VirtualSystem()
    system.start()
    make(system)
    jobid = system.instance.submit(jobspec([XFS, COPY_OUT]))
    settle(system)
    return system, jobid


@pytest.mark.parametrize("seconds", EVERY)
def test_a_job_lives_its_life_on_glimpses(seconds: float) -> None:
    system, jobid = finished(lambda system: looking_now_and_then(system, seconds))
    assert names(system, jobid) == LIFE


@pytest.mark.parametrize("seconds", EVERY)
def test_deletions_that_nobody_saw_are_seen(seconds: float) -> None:
    system = VirtualSystem()
    system.start()
    looking_now_and_then(system, seconds)
    jobids = [system.instance.submit(jobspec(nodes=1)) for _ in range(5)]
    settle(system)
    system.loop.run(timeout=300)
    assert all(names(system, jobid) == LIFE for jobid in jobids)
    answers = []
    assert system.service is not None
    system.service.request("stats-get", {}, lambda *answer: answers.append(answer[2]))
    assert answers[0]["jobs"] == 0
