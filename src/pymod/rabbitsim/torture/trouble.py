# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""One trouble, and what a kind of trouble is."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Optional

if TYPE_CHECKING:
    from rabbitsim.torture.plan import Plan
    from rabbitsim.torture.world import World


@dataclass(frozen=True)
class Trouble:
    """Something that goes wrong.

    Attributes:
        kind: one of :data:`rabbitsim.torture.troubles.KINDS`.
        what: which of that kind.
        at: seconds after the beginning; None for a moment of a job's life.
        job: the number of the job that it is about, or None.
        events: it happens when the job's eventlog has this many entries.
        skip: and then this many steps later.
        duration: how long it lasts, seconds.
        chance: the chance of each request or event to get the trouble.
        name: of a node, a Rabbit, a Workflow state...
        copy: the number of the copy_out of which data movements fail; None for all.
    """

    kind: str
    what: str
    at: Optional[float] = None
    job: Optional[int] = None
    events: int = 0
    skip: int = 0
    duration: float = 0.0
    chance: float = 1.0
    name: str = ""
    copy: Optional[int] = None

    def __str__(self) -> str:
        copy, job, at, events = self.copy, self.job, self.at, self.events
        moment = f"after its event {events}" if events else ""
        words = (
            self.kind,
            self.what,
            self.name,
            "" if copy is None else f"of copy_out {copy}",
            "" if job is None else f"job {job}",
            moment if at is None else f"at {at:.3f}s",
            f"and {self.skip} steps" if self.skip else "",
            f"for {self.duration:g}s" if self.duration else "",
            f"with chance {self.chance:g}" if self.chance < 1.0 else "",
        )
        return " ".join(filter(None, words))


@dataclass(frozen=True)
class Moment:
    """The times and the jobs that a trouble may have."""

    seconds: float
    jobs: int

    def any(self, rng: random.Random) -> dict[str, Any]:
        """A time, or a moment of some job's life."""
        if rng.random() < 0.3:
            return {"at": round(rng.random() * self.seconds, 3)}
        return {
            "job": rng.randrange(self.jobs),
            "events": rng.randint(1, 22),
            "skip": rng.randint(0, 20),
        }


Draw = Callable[[random.Random, Moment], list[Trouble]]
Add = Callable[["Plan", random.Random], "Plan"]
Deed = Callable[["World", Trouble], None]


@dataclass(frozen=True)
class Kind:
    """A kind of trouble.

    Attributes:
        draw: what a plan has of it by lot: one, or a few that belong together.
        deed: what happens when one begins.
        weight: how often one is drawn; 0 for a kind that only ``add`` makes.
        add: a plan with more of them, or with a site that is in trouble. (The random
            numbers are those that the plan was made from. Who takes others leaves the
            kinds that follow as they are.)
        arm: how one comes about, at the beginning of a run; by default at its time, or
            at its moment of a job's life.
    """

    draw: Draw = lambda rng, moment: []
    deed: Deed = lambda world, trouble: None
    weight: int = 1
    add: Add = lambda plan, rng: plan
    arm: Deed = lambda world, trouble: world.arm(trouble)


PAUSES = (0.0, 0.0, 0.1, 2.0, 30.0)
"""Seconds for which the module is away."""

NODES = tuple(f"compute-{number:02d}" for number in range(1, 5))
RABBITS = ("rabbit-01", "rabbit-02")
"""Those that every site has."""
