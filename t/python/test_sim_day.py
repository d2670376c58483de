# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""A day of a whole machine in virtual time (``python -m rabbitsim day``)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Mapping
from xml.etree import ElementTree

import pytest

from flux_k8s.dws.storagerequest import AHEAD, UNMOUNTED
from flux_k8s.ports import Json
from rabbitsim.day import idle
from rabbitsim.day.plots import PLOTS
from rabbitsim.day.run import Day
from rabbitsim.day.site import HOUR, Site
from rabbitsim.flux.events import Event, JobState
from rabbitsim.flux.job import Job
from support.effort import night, seeds
from support.tree import TOP

SMALL = ["--nodes", "32", "--rabbits", "4", "--jobs", "6", "--hours", "1"]
DOC = TOP / "doc"


def day_command(out: Path, *words: str, hash_seed: str = "0") -> str:
    """Run ``rabbitsim day``; what it prints."""
    command = [sys.executable, "-m", "rabbitsim", "day", "--out", str(out), *words]
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def numbers(out: Path) -> Json:
    """The numbers that a seed decides."""
    found: Json = json.loads((out / "day.json").read_text("utf-8"))
    del found["measured"]
    return found


@night
def test_a_seed_gives_the_same_day_in_each_process(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    printed = day_command(one, *SMALL, hash_seed="1")
    day_command(other, *SMALL, hash_seed="2")
    assert numbers(one) == numbers(other)
    assert numbers(one)["flux-dws"] == metadata.version("flux-dws")
    assert "stuck: nothing" in printed
    for name in PLOTS:
        assert (one / name).read_bytes() == (other / name).read_bytes()
        ElementTree.parse(one / name)


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


# The command
