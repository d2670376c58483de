# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The plan of a run. All of it is decided beforehand.

A plan is data: leaving out a job or a trouble changes nothing about the others.
So :mod:`rabbitsim.torture.shrink` can look for the smallest plan that fails.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any, Mapping, Optional, Sequence

from flux_k8s.config.table import KEEP, Config
from flux_k8s.dws.directives import GIB
from rabbitsim.dws.topology import TIB
from rabbitsim.torture.jobs import (
    PRESETS,
    PlannedJob,
    make_job,
    with_dependency,
    with_release,
    with_stage,
)
from rabbitsim.torture.troubles import (
    KINDS,
    Trouble,
    make_bad_nodes,
    make_failing_copies,
    make_fences,
    make_queue_trouble,
    make_trouble,
    make_unseen,
)


@dataclass(frozen=True)
class Site:
    """The setup of the system.

    Attributes:
        capacity: the bytes of each Rabbit.
        config: the ``[rabbit]`` table.
        epilog_timeout: of the plugin, seconds; None is off.
        message_latency, kube_latency: the most seconds that one way takes.
        states: seconds that each Workflow state takes.
    """

    nodes: int
    rabbits: int
    capacity: int
    config: Config
    epilog_timeout: Optional[float]
    message_latency: float
    kube_latency: float
    states: Mapping[str, float]


@dataclass(frozen=True)
class Plan:
    """One run: ``minutes`` is how long jobs are submitted and trouble is made,
    in virtual time."""

    seed: int
    minutes: float
    site: Site
    jobs: tuple[PlannedJob, ...]
    troubles: tuple[Trouble, ...]

    def without(self, jobs: Sequence[PlannedJob], troubles: Sequence[Trouble]) -> Plan:
        """The plan with some jobs and troubles left out."""
        kept = tuple(job for job in self.jobs if job not in jobs)
        numbers = {job.number for job in kept}
        return replace(
            self,
            jobs=kept,
            troubles=tuple(
                trouble
                for trouble in self.troubles
                if trouble not in troubles
                and (trouble.job is None or trouble.job in numbers)
            ),
        )


def make_plan(
    seed: int, jobs: int, minutes: Optional[float], faults: Sequence[str] = KINDS
) -> Plan:
    """The plan of a seed.

    Args:
        minutes: None for a time that suits the number of jobs.
        faults: the kinds of trouble that there may be.
    """
    rng = random.Random(f"plan {seed}")
    length = minutes if minutes is not None else max(1.0, jobs / 10.0)
    made = [make_job(rng, number, jobs, length * 60.0) for number in range(jobs)]
    releases = random.Random(f"releases {seed}")
    stages = random.Random(f"stages {seed}")
    planned = [with_stage(stages, with_release(releases, job)) for job in made]
    after = random.Random(f"after {seed}")
    planned = [with_dependency(after, job, planned) for job in planned]
    troubles: list[Trouble] = []
    if faults:
        for _ in range(rng.randint(1, max(2, jobs))):
            troubles += make_trouble(rng, faults, length * 60.0, jobs)
    site = _with_modes(random.Random(f"modes {seed}"), _make_site(rng, faults))
    if "unmount" in faults:
        bad = random.Random(f"bad nodes {seed}")
        keeps = bad.random() < 0.5
        site = replace(site, config=_with_bad_nodes(bad, site.config, keeps))
        if bad.random() < (0.9 if keeps else 0.1):
            troubles += make_bad_nodes(bad, jobs)
        if keeps and bad.random() < 0.5:
            site = replace(site, config=replace(site.config, fence_command=(FENCE,)))
            troubles += make_fences(random.Random(f"fences {seed}"), troubles)
    if "queue" in faults:
        queue = random.Random(f"queue {seed}")
        for _ in range(queue.randint(0, jobs // 2)):
            troubles += make_queue_trouble(queue, length * 60.0, jobs)
    awaited = sorted({job.after for job in planned if job.after is not None})
    if {"admin", "module"} <= set(faults) and awaited:
        unseen = random.Random(f"unseen {seed}")
        for _ in range(unseen.randint(0, 3)):
            troubles += make_unseen(unseen, awaited)
    if "dws" in faults:
        copies = random.Random(f"copies {seed}")
        keeps = copies.random() < 0.5
        if keeps:
            keep = copies.choice([60.0, 600.0, 3000.0])
            site = replace(
                site,
                config=replace(site.config, keep_failed=keep, keep_failed_limit=100.0),
            )
        if copies.random() < (0.9 if keeps else 0.1):
            troubles += make_failing_copies(copies, jobs)
    return Plan(seed, length, site, tuple(planned), tuple(troubles))


FENCE = "/site/is-fenced"
"""The program that says which nodes the administrator has fenced."""


def _with_bad_nodes(rng: random.Random, config: Config, keeps: bool) -> Config:
    """The configuration of a site that keeps the storage of nodes that do not unmount,
    if it does."""
    if not keeps:
        return config
    limit = config.postrun_timeout or rng.choice([None, 20.0, 60.0, 300.0])
    return replace(config, unmount_failure=KEEP, postrun_timeout=limit)


def _with_modes(rng: random.Random, site: Site) -> Site:
    """The site, or the same site that has other modes, bounds and Rabbits."""
    small = rng.random() < 0.5
    modes: dict[str, Any] = {
        "stage": rng.choice(["prolog", "prolog", "ahead"]),
        "release": rng.choice(["teardown", "teardown", "unmounted"]),
        # Any job alone may have that much.
        "stage_limit": rng.choice([100.0, 50.0, 50.0 if small else 10.0]),
        "stage_user_limit": rng.choice([100.0, 50.0, 50.0 if small else 10.0]),
        "stage_timeout": rng.choice([86400.0, 300.0, 30.0]),
    }
    capacity = 200 * GIB if small else site.capacity
    return replace(site, capacity=capacity, config=replace(site.config, **modes))


def _make_site(rng: random.Random, faults: Sequence[str]) -> Site:
    table: dict[str, Any] = {
        "restrict_persistent_creation": rng.random() < 0.5,
        "daemons": {"copy-offload": {}},
        "policy": {"maximums": {"raw": 50}},
        "presets": PRESETS,
    }
    # Shorter than any outage, longer than any state takes by itself.
    for key in ("setup_timeout", "prerun_timeout", "postrun_timeout"):
        if rng.random() < 0.4:
            table[key] = rng.choice([20.0, 60.0, 300.0])
    if rng.random() < 0.3:
        table["teardown_after"] = rng.choice([60.0, 600.0])
    if rng.random() < 0.4:
        table["stall_timeout"] = rng.choice([20.0, 60.0, 300.0])
    slow = rng.choice([0.01, 0.3, 2.0])
    states = {
        "Proposal": 0.1,
        "Setup": 0.2,
        "DataIn": 0.3,
        "PreRun": 2.0,
        "PostRun": 1.0,
        "DataOut": 0.5,
        "Teardown": 0.3,
    }
    latency = "latency" in faults
    return Site(
        nodes=rng.choice([4, 8, 16]),
        rabbits=rng.choice([2, 4]),
        capacity=TIB,
        config=Config.parse(table),
        epilog_timeout=rng.choice([None, None, 120.0, 900.0]),
        message_latency=rng.choice([0.0, 0.001, 0.05]) if latency else 0.0,
        kube_latency=rng.choice([0.0, 0.005, 0.2]) if latency else 0.0,
        states={state: seconds * slow for state, seconds in states.items()},
    )
