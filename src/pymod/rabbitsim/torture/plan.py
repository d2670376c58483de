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

from flux_k8s.config.table import Config
from flux_k8s.formats.directives import GIB
from rabbitsim.dws.topology import TIB
from rabbitsim.torture.jobs import (
    PRESETS,
    PlannedJob,
    make_job,
    with_dependency,
    with_release,
    with_stage,
)
from rabbitsim.torture.trouble import Moment, Trouble
from rabbitsim.torture.troubles import KINDS, draw_trouble


@dataclass(frozen=True)
class Site:
    """The setup of the system.

    Attributes:
        capacity: the bytes of each Rabbit.
        config: the ``[rabbit]`` table.
        epilog_timeout: of the plugin, seconds; None is off.
        states: seconds that each Workflow state takes.
        message_latency, kube_latency: the most seconds that one way takes.
    """

    nodes: int
    rabbits: int
    capacity: int
    config: Config
    epilog_timeout: Optional[float]
    states: Mapping[str, float]
    message_latency: float = 0.0
    kube_latency: float = 0.0


@dataclass(frozen=True)
class Plan:
    """One run.

    Attributes:
        minutes: how long jobs are submitted and trouble is made, in virtual time.
        kinds: those of trouble that there may be.
    """

    seed: int
    minutes: float
    kinds: tuple[str, ...]
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

    def with_troubles(self, troubles: Sequence[Trouble]) -> Plan:
        """The plan with more troubles."""
        return replace(self, troubles=(*self.troubles, *troubles))

    def with_config(self, **keys: Any) -> Plan:
        """The plan with other values of ``[rabbit]``."""
        config = replace(self.site.config, **keys)
        return replace(self, site=replace(self.site, config=config))


def make_plan(
    seed: int,
    jobs: int,
    minutes: Optional[float],
    faults: Sequence[str] = tuple(KINDS),
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
            troubles += draw_trouble(rng, faults, Moment(length * 60.0, jobs))
    site = _with_modes(random.Random(f"modes {seed}"), _make_site(rng))
    plan = Plan(seed, length, tuple(faults), site, tuple(planned), tuple(troubles))
    for name, kind in KINDS.items():
        if name in faults:
            plan = kind.add(plan, rng)
    return plan


def _make_site(rng: random.Random) -> Site:
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
    return Site(
        nodes=rng.choice([4, 8, 16]),
        rabbits=rng.choice([2, 4]),
        capacity=TIB,
        config=Config.parse(table),
        epilog_timeout=rng.choice([None, None, 120.0, 900.0]),
        states={state: seconds * slow for state, seconds in states.items()},
    )


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
