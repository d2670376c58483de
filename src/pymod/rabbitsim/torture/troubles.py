# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Random trouble."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Callable, Mapping, Optional, Sequence

from rabbitsim.dws.directive import STATES
from rabbitsim.dws.options import COPYING

KINDS = (
    "module",
    "plugin",
    "watch",
    "api",
    "outage",
    "dws",
    "controllers",
    "unready",
    "part",
    "rabbit",
    "storage",
    "node",
    "user",
    "queue",
    "admin",
    "abort",
    "operator",
    "latency",
    "hostile",
    "exec",
    "fault",
    "unmount",
)
"""The kinds of trouble for ``--faults``."""


PARTS = ("part", "unmount")
"""The kinds in which one node or Rabbit of a job does not do its part."""


@dataclass(frozen=True)
class Trouble:
    """Something that goes wrong.

    Attributes:
        kind: one of :data:`KINDS`.
        what: which of that kind; see :mod:`rabbitsim.torture.world`.
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
        words = [self.kind, self.what]
        if self.name:
            words.append(self.name)
        if self.copy is not None:
            words.append(f"of copy_out {self.copy}")
        if self.job is not None:
            words.append(f"job {self.job}")
        if self.at is not None:
            words.append(f"at {self.at:.3f}s")
        elif self.events:
            words.append(f"after its event {self.events}")
        if self.skip:
            words.append(f"and {self.skip} steps")
        if self.duration:
            words.append(f"for {self.duration:g}s")
        if self.chance < 1.0:
            words.append(f"with chance {self.chance:g}")
        return " ".join(words)


def part_state(trouble: Trouble) -> str:
    """The Workflow state in which a node or Rabbit does not do its part."""
    if trouble.kind == "unmount":
        return "PostRun"
    return "Setup" if trouble.name.startswith("rabbit") else "PreRun"


Make = Callable[[random.Random, "Moment"], list[Trouble]]


@dataclass(frozen=True)
class Moment:
    """The times and the jobs that a trouble may have."""

    seconds: float
    jobs: int

    def any(self, rng: random.Random) -> dict[str, object]:
        """A time, or a moment of some job's life."""
        if rng.random() < 0.3:
            return {"at": self.time(rng)}
        return {
            "job": rng.randrange(self.jobs),
            "events": rng.randint(1, 22),
            "skip": rng.randint(0, 20),
        }

    def time(self, rng: random.Random) -> float:
        return round(rng.random() * self.seconds, 3)


def make_trouble(
    rng: random.Random, kinds: Sequence[str], seconds: float, jobs: int
) -> list[Trouble]:
    """One trouble, or a few that belong together."""
    makers = [kind for kind in kinds for _ in range(_WEIGHT.get(kind, 1))]
    make = _MAKERS.get(rng.choice(makers)) if makers else None
    return [] if make is None else make(rng, Moment(seconds, jobs))


def make_queue_trouble(rng: random.Random, seconds: float, jobs: int) -> list[Trouble]:
    """A job's place in the queue changes, or the nodes that it may get."""
    when = {"job": rng.randrange(jobs), "events": rng.randint(1, 8)}
    what = rng.choice(["urgency", "hold", "requires"])
    skip, pause = rng.randint(0, 60), rng.choice([0.1, 5.0, 60.0])
    return [_trouble("queue", what, {**when, "skip": skip}, duration=pause)]


def _pause(rng: random.Random) -> float:
    return rng.choice([0.0, 0.0, 0.1, 2.0, 30.0])


def _module(rng: random.Random, moment: Moment) -> list[Trouble]:
    what = rng.choice(["crash", "crash", "late-crash", "remove"])
    return [_trouble("module", what, moment.any(rng), duration=_pause(rng))]


def _plugin(rng: random.Random, moment: Moment) -> list[Trouble]:
    seconds = rng.choice([0.0, 0.0, 0.0, 0.001, 0.5, 5.0])
    return [_trouble("plugin", "reload", moment.any(rng), duration=seconds)]


WATCH = (
    "drop",
    "end",
    "expire",
    "silence",
    "miss",
    "delay",
    "duplicate",
    "stale",
    "replay",
)


def _watch(rng: random.Random, moment: Moment) -> list[Trouble]:
    what = rng.choice(WATCH)
    return [
        _trouble(
            "watch",
            what,
            moment.any(rng),
            duration=rng.choice([0.5, 5.0, 60.0]),
            chance=rng.choice([0.2, 1.0]),
        )
    ]


API = (
    "refused",
    "hang",
    "tls",
    "malformed",
    "truncated",
    "lost",
    "late",
    "no-kind",
    "401",
    "403",
    "409",
    "410",
    "429",
    "500",
    "502",
    "503",
    "504",
)
"""The faults of a request: a status, or trouble on the way."""


def _api(rng: random.Random, moment: Moment) -> list[Trouble]:
    return [
        _trouble(
            "api",
            rng.choice(API),
            moment.any(rng),
            duration=rng.choice([0.5, 5.0, 60.0]),
            chance=rng.choice([0.1, 0.5, 1.0]),
        )
    ]


def _outage(rng: random.Random, moment: Moment) -> list[Trouble]:
    what = rng.choice(["refused", "hang", "503", "401", "no-kind"])
    seconds = rng.choice([60.0, 600.0, 3600.0])
    return [_trouble("outage", what, moment.any(rng), duration=seconds)]


def _dws(rng: random.Random, moment: Moment) -> list[Trouble]:
    state = rng.choice(STATES)
    kinds = ["error", "transient", "never", "slow", "stall", "mount", "brief"]
    what = rng.choice(kinds)
    if what == "mount":
        state = rng.choice(["PreRun", "PostRun"])
    if what == "stall":
        return _stalls(rng, moment)
    seconds = rng.choice([0.0, 5.0, 30.0, 400.0])
    if what == "slow" or state in ("PostRun", "DataOut", "Teardown"):
        seconds = rng.choice([5.0, 30.0, 400.0])  # who would end it otherwise?
    if what == "error" and state == "Teardown":
        what = "transient"  # only an administrator can clear an error there
    if what == "brief":
        what, seconds = "transient", rng.choice([0.5, 3.0])
    job = rng.randrange(moment.jobs)
    return [Trouble("dws", what, job=job, duration=seconds, name=state)]


def _stalls(rng: random.Random, moment: Moment) -> list[Trouble]:
    """A global file system hangs, and with it the data of some jobs."""
    state, seconds = rng.choice(COPYING), rng.choice([30.0, 100.0, 400.0])
    jobs = [job for job in range(moment.jobs) if rng.random() < 0.3]
    return [Trouble("dws", "stall", job=j, duration=seconds, name=state) for j in jobs]


def _controllers(rng: random.Random, moment: Moment) -> list[Trouble]:
    """DWS does nothing at all for a while."""
    seconds = rng.choice([30.0, 600.0, 1800.0])
    return [_trouble("controllers", "down", moment.any(rng), duration=seconds)]


def _unready(rng: random.Random, moment: Moment) -> list[Trouble]:
    """DirectiveBreakdowns and Servers are not ready, although the Workflow is."""
    seconds = rng.choice([0.5, 5.0, 60.0])
    what = rng.choice(["false", "missing"])
    return [_trouble("unready", what, moment.any(rng), duration=seconds)]


def _part(rng: random.Random, moment: Moment) -> list[Trouble]:
    """One compute node does not mount, or one Rabbit makes no storage."""
    if rng.random() < 0.7:
        name = f"compute-{rng.randint(1, 4):02d}"
        what = rng.choice(["mount", "mount", "error", "never"])
    else:
        name = f"rabbit-{rng.randint(1, 2):02d}"
        what = rng.choice(["error", "transient", "never"])
    seconds = rng.choice([0.0, 0.0, 5.0, 30.0, 400.0])
    if what == "never":
        seconds = seconds or 400.0  # who would end it where there is no time limit?
    job = rng.randrange(moment.jobs)
    return [Trouble("part", what, job=job, duration=seconds, name=name)]


def _rabbit(rng: random.Random, moment: Moment) -> list[Trouble]:
    what = rng.choice(["offline", "link"])
    index = rng.randint(1, 4)
    name = f"rabbit-{index:02d}" if what == "offline" else f"compute-{index:02d}"
    seconds = rng.choice([1.0, 20.0, 200.0])
    return [_trouble("rabbit", what, moment.any(rng), duration=seconds, name=name)]


def _storage(rng: random.Random, moment: Moment) -> list[Trouble]:
    """Others than jobs fill a Rabbit, but for a little."""
    name = f"rabbit-{rng.randint(1, 2):02d}"
    seconds = rng.choice([20.0, 200.0])
    return [_trouble("storage", "full", moment.any(rng), duration=seconds, name=name)]


def _node(rng: random.Random, moment: Moment) -> list[Trouble]:
    name = f"compute-{rng.randint(1, 4):02d}"
    seconds = rng.choice([1.0, 60.0])
    return [_trouble("node", "lost", moment.any(rng), duration=seconds, name=name)]


def _user(rng: random.Random, moment: Moment) -> list[Trouble]:
    job = rng.randrange(moment.jobs)
    when = {"job": job, "events": rng.randint(1, 20), "skip": rng.randint(0, 30)}
    what = rng.choice(["cancel", "cancel", "note"])
    troubles = [_trouble("user", what, when)]
    if rng.random() < 0.3:
        again = {**when, "skip": rng.randint(0, 60)}
        troubles.append(_trouble("user", "cancel", again))
    return troubles


def _admin(rng: random.Random, moment: Moment) -> list[Trouble]:
    when: dict[str, object] = {
        "job": rng.randrange(moment.jobs),
        "events": rng.randint(4, 20),
        "skip": rng.randint(0, 20),
    }
    if rng.random() < 0.2:
        when = {"job": when["job"], "at": 0.0}
        return [_trouble("admin", "squat", when)]
    what = rng.choice(["delete", "purge", "teardown"])
    if rng.random() < 0.7:
        return [_trouble("admin", what, when)]
    # At the same moment its user cancels it in its epilog.
    when["events"] = rng.randint(15, 18)
    cancel = {**when, "skip": rng.randint(0, 20)}
    return [_trouble("admin", "cancel", cancel), _trouble("admin", what, when)]


def _abort(rng: random.Random, moment: Moment) -> list[Trouble]:
    """An epilog is given up during an outage, and who knows of it dies."""
    job = rng.randrange(moment.jobs)
    when: dict[str, object] = {"job": job, "events": rng.randint(15, 18), "skip": 4}
    dark = rng.choice([60.0, 600.0])
    troubles = [
        _trouble("outage", rng.choice(["refused", "hang", "503"]), when, duration=dark),
        _trouble("user", "abort", {**when, "skip": rng.randint(4, 12)}),
    ]
    for kind, what in (("module", "crash"), ("plugin", "reload")):
        if rng.random() < 0.7:
            later = {**when, "skip": rng.randint(12, 60)}
            troubles.append(_trouble(kind, what, later, duration=_pause(rng)))
    return troubles


def _operator(rng: random.Random, moment: Moment) -> list[Trouble]:
    """Somebody disables a node in SystemStatus, for a while."""
    name = f"compute-{rng.randint(1, 4):02d}"
    seconds = rng.choice([5.0, 60.0, 400.0])
    when = moment.any(rng)
    return [_trouble("operator", "disable", when, duration=seconds, name=name)]


EVENTS = (
    "dependency-add",
    "jobspec-update",
    "dependency-remove",
    "alloc",
    "prolog-start",
    "dws_environment",
    "prolog-finish",
    "start",
    "finish",
    "epilog-start",
    "memo",
)
"""In whose callbacks another plugin may act."""


def _hostile(rng: random.Random, moment: Moment) -> list[Trouble]:
    """Another jobtap plugin raises a fatal exception when an event is posted."""
    job, name = rng.randrange(moment.jobs), rng.choice(EVENTS)
    return [Trouble("hostile", "raise", job=job, name=name)]


def _exec(rng: random.Random, moment: Moment) -> list[Trouble]:
    """job-exec is loaded again; or the job manager is, and job-exec only later. Jobs
    are cancelled meanwhile."""
    what = rng.choice(["reload", "unheard"])
    when = {"job": rng.randrange(moment.jobs), "events": rng.randint(12, 20)}
    seconds = rng.choice([5.0, 60.0]) if what == "unheard" else 0.0
    troubles = [_trouble("exec", what, when, duration=seconds)]
    if rng.random() < 0.7:
        later = {**when, "skip": rng.randint(1, 10)}
        troubles.append(_trouble("exec", "cancel", later))
    return troubles


def _fault(rng: random.Random, moment: Moment) -> list[Trouble]:
    """A step for a job raises an unexpected exception, once."""
    job = rng.randrange(moment.jobs)
    return [Trouble("fault", "step", job=job, skip=rng.randint(0, 12))]


def make_bad_nodes(rng: random.Random, jobs: int) -> list[Trouble]:
    """Nodes that do not unmount for long. Some are switched off then, for a while."""
    troubles: list[Trouble] = []
    for _ in range(rng.randint(1, max(1, jobs // 8))):
        job, name = rng.randrange(jobs), f"compute-{rng.randint(1, 4):02d}"
        stuck = rng.choice([30.0, 400.0, 3000.0])
        troubles.append(Trouble("unmount", "mount", job=job, duration=stuck, name=name))
        if rng.random() < 0.5:
            when = {"job": job, "events": rng.randint(15, 18)}
            when["skip"] = rng.randint(0, 40)
            off = rng.choice([5.0, 60.0, 600.0])
            kinds = [("node", "lost"), ("rabbit", "link")]
            troubles += [_trouble(*k, when, duration=off, name=name) for k in kinds]
    return troubles


def make_fences(rng: random.Random, bad_nodes: Sequence[Trouble]) -> list[Trouble]:
    """Some of the nodes that do not unmount are fenced, for a while."""
    return [
        replace(
            trouble,
            kind="node",
            what="fenced",
            events=rng.randint(15, 18),
            skip=rng.randint(0, 60),
            duration=rng.choice([5.0, 60.0, 600.0]),
        )
        for trouble in bad_nodes
        if trouble.kind == "unmount" and rng.random() < 0.7
    ]


def make_failing_copies(rng: random.Random, jobs: int) -> list[Trouble]:
    """Data movements of some jobs fail in DataOut for a while."""
    return [
        Trouble(
            "dws",
            "copy",
            job=rng.randrange(jobs),
            duration=rng.choice([30.0, 400.0, 3000.0]),
            name="DataOut",
            copy=rng.choice([None, 0, 1]),
        )
        for _ in range(rng.randint(1, max(1, jobs // 4)))
    ]


def make_unseen(rng: random.Random, awaited: Sequence[int]) -> list[Trouble]:
    """While no module is loaded, somebody deletes the Workflow of a job whose data
    others wait for, with its finalizers."""
    when = {"job": rng.choice(awaited), "events": rng.randint(16, 26)}
    when["skip"] = rng.randint(0, 30)
    later = {**when, "skip": when["skip"] + rng.randint(1, 10)}
    return [
        _trouble("module", "crash", when, duration=_pause(rng)),
        _trouble("admin", "purge", later),
    ]


def _trouble(
    kind: str, what: str, when: Mapping[str, object], **more: object
) -> Trouble:
    return Trouble(kind, what, **when, **more)  # type: ignore[arg-type]


_MAKERS: Mapping[str, Make] = {
    "module": _module,
    "plugin": _plugin,
    "watch": _watch,
    "api": _api,
    "outage": _outage,
    "dws": _dws,
    "controllers": _controllers,
    "unready": _unready,
    "part": _part,
    "rabbit": _rabbit,
    "storage": _storage,
    "node": _node,
    "user": _user,
    "admin": _admin,
    "abort": _abort,
    "operator": _operator,
    "hostile": _hostile,
    "exec": _exec,
    "fault": _fault,
}

_WEIGHT = {"module": 4, "watch": 3, "api": 3, "dws": 4, "part": 3, "user": 3}
# These have their own numbers.
_WEIGHT.update(queue=0, unmount=0)
