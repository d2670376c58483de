# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""A day of a whole machine in virtual time (``python -m rabbitsim day``)."""

from __future__ import annotations

from typing import Mapping

import pytest

from flux_k8s.objects.storagerequest import AHEAD, UNMOUNTED
from rabbitsim.day import idle
from rabbitsim.day.run import Day
from rabbitsim.day.site import HOUR, Site
from rabbitsim.flux.events import Event, JobState
from rabbitsim.flux.job import Job
from support.effort import seeds


class NodesOfJobs:
    """The node seconds of jobs and of their tasks, by their eventlogs."""

    def __init__(self) -> None:
        self.held = self.ran = 0.0

    def seen(self, job: Job, event: Event, before: JobState) -> None:
        if job.state is not JobState.INACTIVE or before is job.state:
            return
        times = {entry.name: entry.timestamp for entry in job.events}
        if "alloc" in times:
            nodes = len(job.kvs["R"].split('"type": "node"')) - 1
            self.held += nodes * (times["free"] - times["alloc"])
            if "start" in times:
                assert job.end_event is not None
                self.ran += nodes * (job.end_event.timestamp - times["start"])


AHEAD_AND_UNMOUNTED = {"stage": AHEAD, "release": UNMOUNTED}

TROUBLED = {
    "rabbit_mtbf": 20 * HOUR,
    "node_mtbf": 100 * HOUR,
    "link_mtbf": 200 * HOUR,
    "mount_failures": 0.01,
    "unmount_failures": 0.005,
    "setup_failures": 0.05,
    "copy_failures": 0.1,
    "api_restarts": 24.0,
    "controller_restarts": 24.0,
    "module_restarts": 24.0,
}


@pytest.mark.parametrize(
    ("seed", "mode"),
    [(seed, (AHEAD_AND_UNMOUNTED, {})[seed % 2]) for seed in seeds(1, soaking=80)],
)
def test_in_a_day_of_trouble_each_node_hour_has_one_cause_and_nothing_is_stuck(
    seed: int, mode: Mapping[str, str]
) -> None:
    size = {"nodes": 32, "rabbits": 4, "jobs": 12, "hours": 3.0}
    day = Day(Site(seed=seed, **size, **mode, **TROUBLED))
    expected = NodesOfJobs()
    day.system.instance.manager.listeners.append(expected.seen)
    day.run()
    assert day.stuck == []
    assert sum(day.hours.ends.values()) == len(day.jobs)
    assert day.failures.counts and day.failures.outages
    seconds = day.hours.seconds
    assert sum(seconds.values()) == pytest.approx(expected.held)
    assert seconds[idle.RUN] == pytest.approx(expected.ran)
    assert seconds[idle.FAILURES] > 0 and seconds[idle.OUTAGES] > 0
    in_bins = [sum(counts.values()) for counts in day.hours.bins.values()]
    assert sum(in_bins) == pytest.approx(expected.held)
