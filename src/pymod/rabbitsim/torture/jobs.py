# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Random jobs."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any, Optional, Sequence

from flux_k8s.ports import Json

OWNER = 500
USER = 4711
"""The instance's owner, and a user."""

PRESET = "scratch"
PRESETS = {PRESET: "#DW jobdw type=xfs capacity=2GiB name=scratch"}
"""The presets of ``-S dw=NAME``."""


@dataclass(frozen=True)
class PlannedJob:
    """A job to be submitted.

    Attributes:
        at: seconds after the beginning, whole milliseconds that no other job
            has: so its ID is known beforehand.
        bad: the reason why the job must not run; "" for a good one.
        limited: the job has a time limit that its tasks exceed.
        uncertain: it is about persistent storage which may be there or not, or be
            somebody else's, or where the job has no nodes.
        after: the number of the job whose data it waits for, or None.
    """

    number: int
    at: float
    userid: int
    jobspec: Json = field(compare=False)
    bad: str
    limited: bool
    uncertain: bool
    after: Optional[int] = None

    def __str__(self) -> str:
        system = self.jobspec["attributes"]["system"]
        dw = system.get("dw", "no directives")
        nodes = self.jobspec["resources"][0]["count"]
        kind = f", bad: {self.bad}" if self.bad else ""
        kind += "" if self.after is None else f", after the data of job {self.after}"
        limit = f", at most {system['duration']:g}s" if system["duration"] else ""
        seconds = system["exec"]["test"]["run_duration"]
        return (
            f"job {self.number}: at {self.at:.3f}s, {nodes} nodes for {seconds}{limit},"
            f" user {self.userid}{kind}: {dw!r}"
        )


def make_job(rng: random.Random, number: int, jobs: int, seconds: float) -> PlannedJob:
    """Job ``number`` of ``jobs``, to be submitted within the first ``seconds``."""
    bad = rng.choice(list(_BAD)) if rng.random() < 0.1 else ""
    dw = _BAD[bad] if bad else _good(rng)
    limited = rng.random() < 0.1
    run = rng.choice([0.0, 0.5, 3.0, 20.0])
    test = {
        "run_duration": f"{run + 100.0 * limited:g}s",
        "wait_status": rng.choice([0, 0, 0, 256]),
        "deaf": rng.random() < 0.1,
    }
    system: Json = {
        "duration": rng.choice([1.0, 10.0]) if limited else 0.0,
        "exec": {"test": test},
    }
    if dw:
        system["dw"] = dw
    if bad == "tolerance":
        system["dw_failure_tolerance"] = -1
    elif rng.random() < 0.3:
        system["dw_failure_tolerance"] = rng.randint(0, 2)
    return PlannedJob(
        number=number,
        at=_moment(rng.random() ** 2 * seconds, number, jobs),
        userid=OWNER if rng.random() < 0.7 else USER,
        jobspec=jobspec_of(rng.choice([1, 1, 2, 3, 4]), system),
        bad=bad,
        limited=limited,
        uncertain=not bad and "persistent" in str(dw),
    )


def with_release(rng: random.Random, job: PlannedJob) -> PlannedJob:
    """The job, or the same job that ends before its data is out."""
    system = job.jobspec["attributes"]["system"]
    text = str(system.get("dw", ""))
    if rng.random() < 0.7 or not text or "requires" in text or "container" in text:
        return job
    attributes = {"system": {**system, "dw_release": "unmounted"}}
    return replace(job, jobspec={**job.jobspec, "attributes": attributes})


def with_stage(rng: random.Random, job: PlannedJob) -> PlannedJob:
    """The job, or the same job whose data is copied in before it has nodes."""
    system = job.jobspec["attributes"]["system"]
    text = str(system.get("dw", ""))
    others = ("requires", "container", "persistent")
    if rng.random() < 0.5 or "copy_in" not in text or any(o in text for o in others):
        return job
    attributes = {"system": {**system, "dw_stage": "ahead"}}
    return replace(job, jobspec={**job.jobspec, "attributes": attributes})


def with_dependency(
    rng: random.Random, job: PlannedJob, jobs: Sequence[PlannedJob]
) -> PlannedJob:
    """The job, or the same job that waits for the data of another."""
    earlier = [
        other.number
        for other in jobs
        if other.at < job.at
        and other.userid == job.userid
        and not other.bad
        and "dw" in other.jobspec["attributes"]["system"]
    ]
    if rng.random() < 0.8 or not earlier:
        return job
    return replace(job, after=rng.choice(earlier))


def _moment(seconds: float, number: int, jobs: int) -> float:
    """About ``seconds``, in a millisecond that is this job's alone."""
    return (int(seconds * 1000) // jobs * jobs + number) / 1000


def jobspec_of(nodes: int, system: Json) -> Json:
    """A jobspec with attributes."""
    core = {"type": "core", "count": 1}
    slot = {"type": "slot", "count": 1, "label": "task", "with": [core]}
    task = {"command": ["true"], "slot": "task", "count": {"per_slot": 1}}
    return {
        "version": 1,
        "resources": [{"type": "node", "count": nodes, "with": [slot]}],
        "tasks": [task],
        "attributes": {"system": system},
    }


_BAD: dict[str, Any] = {
    "no prefix": "jobdw type=xfs capacity=1GiB name=p1",
    "unknown command": "#DW jobwd type=xfs",
    "no capacity": "#DW jobdw type=xfs name=p1",
    "unknown type": "#DW jobdw type=foo capacity=1GiB name=p1",
    "unknown profile": "#DW jobdw type=xfs capacity=1GiB name=p1 profile=nosuch",
    "unknown storage": "#DW persistentdw name=nosuch",
    "unknown daemon": "#DW jobdw type=xfs capacity=1GiB name=p1 requires=nosuch",
    "too much": "#DW jobdw type=raw capacity=60GiB name=p1",
    "too large": "#DW jobdw type=xfs capacity=900TiB name=p1",
    "not text": [7],
    "same name": ["#DW jobdw type=xfs capacity=1GiB name=p1"] * 2,
    "tolerance": "#DW jobdw type=xfs capacity=1GiB name=p1",
}


def _good(rng: random.Random) -> Any:
    kind = rng.random()
    if kind < 0.05:
        return None
    if kind < 0.1:
        return PRESET
    if kind < 0.2:
        return _persistent(rng)
    type = rng.choice(["xfs", "xfs", "xfs", "raw", "gfs2", "lustre"])
    size = rng.choice(["1GiB", "10GiB", "40GiB"])
    texts = [f"#DW jobdw type={type} capacity={size} name=p1"]
    if rng.random() < 0.1:
        texts[0] += " requires=copy-offload"
    if rng.random() < 0.4 and type != "raw":  # nothing moves data to and from raw
        texts.append("#DW copy_in source=/lustre/in destination=$DW_JOB_p1/")
    if rng.random() < 0.6 and type != "raw":
        texts.append("#DW copy_out source=$DW_JOB_p1/ destination=/lustre/out")
        if size == "40GiB":
            texts.append("#DW copy_out source=$DW_JOB_p1/ destination=/lustre/more")
    if rng.random() < 0.1:
        texts.append("#DW jobdw type=xfs capacity=1GiB name=p2")
        texts.append("#DW copy_out source=$DW_JOB_p2 destination=/lustre/out2")
    return rng.choice([texts, "\n".join(texts)])


def _persistent(rng: random.Random) -> Any:
    """Persistent storage is made, used and destroyed, in any order: there are few
    names."""
    name = f"keep{rng.randrange(3)}"
    type = rng.choice(["xfs", "raw", "gfs2"])  # an MGT would keep others off
    return rng.choice(
        [
            f"#DW create_persistent type={type} capacity=1GiB name={name}",
            f"#DW destroy_persistent name={name}",
            f"#DW persistentdw name={name}",
            [
                "#DW jobdw type=xfs capacity=1GiB name=p1",
                f"#DW persistentdw name={name}",
            ],
        ]
    )
