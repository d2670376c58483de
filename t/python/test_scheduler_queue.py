# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Which jobs sched-rabbit starts, and which wait: flux-core's scheduler class runs
without a broker (with one: t1045-sched-rabbit.t)."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
from pathlib import Path
from typing import Optional

import pytest

import flux_k8s
from flux_k8s.ports import Json
from support.effort import seeds
from support.schedpool import NODES, SSD_SIZE, core, node, rabbit, slot

HERE = Path(__file__).parent
PACKAGES = Path(flux_k8s.__file__).parents[1]

pytestmark = pytest.mark.skipif(shutil.which("flux") is None, reason="no flux on PATH")


def run(scripts: list[list[Json]]) -> list[Json]:
    """When the jobs of each list have started, and where: as :mod:`support.schedqueue`
    says."""
    done = subprocess.run(
        ["flux", "python", "-m", "support.schedqueue"],
        input=json.dumps(scripts),
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "PYTHONPATH": f"{PACKAGES}:{HERE}"},
    )
    assert done.returncode == 0, done.stderr
    found: list[Json] = json.loads(done.stdout)
    return found


def nodes(count: int) -> Json:
    return node(slot(core()), count=count, exclusive=True)


def job(
    id: int,
    resources: Json,
    lasts: float,
    limit: float = 0.0,
    time: Optional[float] = None,
    priority: int = 16,
    hosts: Optional[str] = None,
    user: int = 0,
) -> Json:
    """A job that is submitted at the time of its ID. ``limit`` is its time limit, 0 for
    none."""
    system: Json = {"duration": limit}
    if hosts is not None:
        system["constraints"] = {"hostlist": [hosts]}
    return {
        "id": id,
        "time": float(id) if time is None else time,
        "priority": priority,
        "user": user,
        "lasts": lasts,
        "jobspec": {"resources": [resources], "attributes": {"system": system}},
    }


HALF = NODES // 2
COURSES: dict[str, tuple[list[Json], list[float]]] = {
    "jobs on other nodes go past one that waits, however long they take": (
        [
            job(1, nodes(1), lasts=1000.0, hosts="node2"),
            job(2, nodes(1), lasts=1.0, hosts="node2"),
            job(3, nodes(3), lasts=5000.0, limit=7200.0),
            job(4, nodes(2), lasts=5000.0),
        ],
        [1.0, 1001.0, 3.0, 4.0],
    ),
    # The third has no limit, the fourth too long a one.
    "a job behind one that waits starts on its nodes if it ends in time": (
        [
            job(1, nodes(HALF), lasts=600.0, limit=600.0),
            job(2, nodes(NODES), lasts=60.0, limit=60.0),
            job(3, nodes(1), lasts=1.0),
            job(4, nodes(1), lasts=1.0, limit=600.0),
            job(5, nodes(1), lasts=1.0, limit=590.0),
        ],
        [1.0, 601.0, 661.0, 661.0, 5.0],
    ),
    "storage that a job waits for goes to none whose end is not known": (
        [
            job(1, rabbit(1, 3 * SSD_SIZE), lasts=600.0, limit=600.0, hosts="node0"),
            job(2, rabbit(1, 4 * SSD_SIZE), lasts=60.0, limit=60.0, hosts="node0"),
            job(3, rabbit(1, SSD_SIZE), lasts=1000.0, hosts="node1"),
        ],
        [1.0, 601.0, 661.0],
    ),
    # The first ends long before its limit.
    "a job that can start earlier now is not held up by others": (
        [
            job(1, nodes(HALF), lasts=3.0, limit=3600.0),
            job(2, nodes(HALF), lasts=600.0, limit=600.0),
            job(3, nodes(NODES), lasts=60.0, limit=60.0),
            job(5, nodes(HALF), lasts=1800.0, limit=1800.0),
            job(6, nodes(HALF), lasts=300.0, limit=300.0),
        ],
        [1.0, 2.0, 602.0, 662.0, 6.0],
    ),
    "however many jobs a user has waiting, those of others go past them": (
        [
            *(job(id, nodes(1), 100.0, 0.0, 1.0, hosts="node2") for id in range(1, 67)),
            job(67, nodes(1), lasts=5.0, user=1),
        ],
        [*(1.0 + 100.0 * number for number in range(66)), 67.0],
    ),
    "of jobs that wait the one of the highest priority starts first": (
        [
            job(1, nodes(NODES), lasts=100.0),
            job(2, nodes(NODES), lasts=10.0, priority=5),
            job(3, nodes(NODES), lasts=10.0, priority=20),
            job(4, nodes(NODES), lasts=10.0, priority=16),
            job(5, nodes(NODES), lasts=10.0, priority=20),
        ],
        [1.0, 131.0, 101.0, 121.0, 111.0],
    ),
}
"""Jobs, and when each starts."""


@pytest.fixture(scope="module")
def courses() -> dict[str, Json]:
    """What was seen of each, by one Flux Python."""
    return dict(zip(COURSES, run([jobs for jobs, _ in COURSES.values()])))


@pytest.mark.parametrize("name", COURSES)
def test_jobs_start_in_their_turns(courses: dict[str, Json], name: str) -> None:
    jobs, times = COURSES[name]
    started = courses[name]["started"]
    assert [started[str(job["id"])][0] for job in jobs] == times


def random_jobs(seed: int) -> list[Json]:
    rng = random.Random(seed)
    jobs = []
    for id in range(1, 41):
        storage = rabbit(rng.randint(1, 4), rng.randint(1, 2) * SSD_SIZE)
        resources = rng.choice([nodes(rng.randint(1, NODES)), storage])
        hosts = rng.choice([None, None, "node[0-1]", "node3"])
        if hosts is not None:
            resources = rng.choice([nodes(1), rabbit(1, SSD_SIZE)])
        limit = rng.choice([0.0, 10.0, 60.0, 300.0])
        lasts = (limit or 100.0) * rng.choice([0.1, 0.9, 1.0])
        time = 5.0 * (id // 3)
        jobs.append(job(id, resources, lasts, limit, time, rng.randint(10, 12), hosts))
    return jobs


def test_the_first_job_that_waits_starts_no_later_than_it_was_promised() -> None:
    """Unless one of a higher priority comes."""
    scripts = [random_jobs(seed) for seed in seeds(4, 1000)]
    kept = 0
    for jobs, found in zip(scripts, run(scripts)):
        assert len(found["started"]) == len(jobs)
        priority_of = {each["id"]: each["priority"] for each in jobs}
        for time, jobid, latest in found["promised"]:
            began, _ = found["started"][str(jobid)]
            if not any(
                each["priority"] > priority_of[jobid] and time <= each["time"] <= began
                for each in jobs
            ):
                assert began <= latest
                kept += 1
    assert kept > len(scripts)
