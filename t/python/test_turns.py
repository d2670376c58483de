# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Jobs with colocation keys are placed in turn, and each is on its own all the same."""

from __future__ import annotations

import pytest

from flux_k8s.jobs.storagechooser import StorageChooser
from flux_k8s.jobs.work import Work
from support.service import LIFE, LUSTRE, exceptions, jobspec, names, settle, started
from support.supervised import DEATHS, Supervised, breaks


@pytest.mark.parametrize("place", range(3))
def test_a_job_that_fails_in_its_turn_passes_it_on(
    place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    guilty: list[int] = []
    breaks(monkeypatch, StorageChooser, "choose", guilty)
    system = started()
    jobs = [system.instance.submit(jobspec(LUSTRE, nodes=1)) for _ in range(3)]
    guilty.append(jobs[place])
    settle(system)
    notes = {job: exceptions(system, job) for job in jobs}
    assert "it broke in choose" in notes.pop(jobs[place])[0]["note"]
    for job in notes:
        assert names(system, job) == LIFE


def test_a_service_that_dies_in_a_job_s_turn_has_died_of_that_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    supervised = Supervised(monkeypatch, StorageChooser, "choose")
    system = supervised.system
    jobs = [system.instance.submit(jobspec(LUSTRE, nodes=1)) for _ in range(3)]
    guilty = jobs[2]
    supervised.guilty.add(guilty)
    supervised.run(600.0)
    assert supervised.deaths == {Work(guilty, False): DEATHS}
    for job in jobs[:2]:
        assert names(system, job) == LIFE
