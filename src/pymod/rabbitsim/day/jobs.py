# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The jobs of a day: many small ones, few large ones, at random times."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
from typing import Optional

from flux_k8s.ports import Json
from rabbitsim.day.site import HOUR, Site
from rabbitsim.flux.instance import OWNER

GIB = 1 << 30

MEDIAN_NODES, SIGMA_NODES = 5.0, 1.7
"""Sizes are log-normal. Of 10,000 jobs, about three have more than 2,000 nodes."""

LARGEST = 0.5
"""The part of the machine that a job may have."""

SIGMA_SECONDS = 1.0
LONGEST = 8 * HOUR
"""Run times are log-normal; their median follows from the load of the site."""

KINDS = {"xfs": 0.45, "lustre": 0.3, "gfs2": 0.1, "raw": 0.05, "persistent": 0.1}
COPIED = ("xfs", "lustre", "gfs2")
"""The types of storage that data is copied to and from; half of all jobs do that."""

COPIES = 0.5 / sum(KINDS[kind] for kind in COPIED)

MEDIAN_GIB, SIGMA_GIB, MOST_GIB = 150.0, 0.8, 1500
"""Log-normal as well: the storage of a job for each of its nodes. Copies move between
a tenth and nine tenths of it."""

CANCELLED, FAILED = 0.02, 0.04
"""The parts of jobs that their users cancel, and whose tasks fail."""

TOLERANT = 0.2
"""The part of jobs that tolerate the failure of some nodes."""

USERS = 50
FIRST_USER = 5000

SETTLED = 900.0
"""Seconds after which persistent storage is used."""


@dataclass(frozen=True)
class PlannedJob:
    """A job to be submitted.

    Attributes:
        at: seconds after the beginning.
        seconds: how long its tasks run.
        kind: the type of its storage, or ``persistent``.
        gib: storage for each node.
        copy_in, copy_out: bytes to copy.
        cancel: seconds after its submission when its user cancels it.
        directives: its directives, where they are none of the usual ones.
    """

    number: int
    at: float
    user: int
    nodes: int
    seconds: float
    kind: str
    gib: int
    copy_in: int = 0
    copy_out: int = 0
    fails: bool = False
    tolerance: int = 0
    cancel: Optional[float] = None
    directives: str = ""

    def jobspec(self) -> Json:
        core = {"type": "core", "count": 1}
        slot = {"type": "slot", "count": 1, "label": "task", "with": [core]}
        node = {"type": "node", "count": self.nodes, "exclusive": True, "with": [slot]}
        task = {"command": ["work"], "slot": "task", "count": {"per_slot": 1}}
        test = {
            "run_duration": f"{self.seconds:.1f}s",
            "wait_status": 256 if self.fails else 0,
        }
        system: Json = {
            "duration": math.ceil(self.seconds * 1.5) + 60.0,
            "exec": {"test": test},
            "dw": self.directives or self._directives(),
        }
        if self.tolerance:
            system["dw_failure_tolerance"] = self.tolerance
        return {
            "version": 1,
            "resources": [node],
            "tasks": [task],
            "attributes": {"system": system},
        }

    def _directives(self) -> str:
        total = self.gib * (self.nodes if self.kind == "lustre" else 1)
        lines = [f"#DW jobdw type={self.kind} capacity={total}GiB name=work"]
        place = f"/lustre/{self.number}"
        if self.copy_in:
            lines.append(f"#DW copy_in source={place}/in destination=$DW_JOB_work/in")
        if self.copy_out:
            lines.append(
                f"#DW copy_out source=$DW_JOB_work/out destination={place}/out"
            )
        return "\n".join(lines)


def make_jobs(site: Site) -> list[PlannedJob]:
    """The jobs of a site, by the time of their submission."""
    rng = random.Random(f"jobs {site.seed}")
    shared = _shared(site)
    times = sorted(rng.uniform(0.0, site.hours * HOUR) for _ in range(site.jobs))
    jobs = [_job(site, rng, number, at, shared) for number, at in enumerate(times)]
    wanted = site.load * site.nodes * site.hours * HOUR
    scale = wanted / (sum(job.nodes * job.seconds for job in jobs) or 1.0)
    jobs = [replace(job, seconds=min(job.seconds * scale, LONGEST)) for job in jobs]
    return [*_makers(site, shared), *jobs]


def _shared(site: Site) -> list[str]:
    """The names of persistent file systems."""
    return [f"shared{index}" for index in range(max(1, site.rabbits // 100))]


def _makers(site: Site, shared: list[str]) -> list[PlannedJob]:
    """The jobs that make persistent file systems."""
    return [
        PlannedJob(
            number=site.jobs + index,
            at=0.0,
            user=OWNER,
            nodes=1,
            seconds=1.0,
            kind="persistent",
            gib=0,
            directives=f"#DW create_persistent type=lustre capacity=10TiB name={name}",
        )
        for index, name in enumerate(shared)
    ]


def _job(
    site: Site, rng: random.Random, number: int, at: float, shared: list[str]
) -> PlannedJob:
    kind = rng.choices(list(KINDS), list(KINDS.values()))[0]
    if kind == "persistent" and at < SETTLED:
        kind = "xfs"
    nodes = round(rng.lognormvariate(math.log(MEDIAN_NODES), SIGMA_NODES))
    nodes = max(1, min(nodes, int(site.nodes * LARGEST)))
    gib = round(rng.lognormvariate(math.log(MEDIAN_GIB), SIGMA_GIB))
    gib = max(1, min(gib, MOST_GIB))
    job = PlannedJob(
        number=number,
        at=at,
        user=FIRST_USER + rng.randrange(USERS),
        nodes=nodes,
        seconds=rng.lognormvariate(0.0, SIGMA_SECONDS),
        kind=kind,
        gib=gib,
        fails=rng.random() < FAILED,
        tolerance=max(1, nodes // 16) if rng.random() < TOLERANT else 0,
        cancel=rng.uniform(0.0, 2 * HOUR) if rng.random() < CANCELLED else None,
    )
    if kind == "persistent":
        text = f"#DW persistentdw name={rng.choice(shared)}"
        return replace(job, directives=text)
    if kind not in COPIED or rng.random() >= COPIES:
        return job
    data = nodes * gib * GIB
    way = rng.choice(["in", "out", "both"])
    return replace(
        job,
        copy_in=0 if way == "out" else int(data * rng.uniform(0.1, 0.9)),
        copy_out=0 if way == "in" else int(data * rng.uniform(0.1, 0.9)),
    )
