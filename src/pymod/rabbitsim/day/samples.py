# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The state of the system at each minute of a day."""

from __future__ import annotations

from dataclasses import dataclass, field

from flux_k8s.formats.directives import GIB
from flux_k8s.ports import Json
from rabbitsim.day.idle import NodeHours
from rabbitsim.day.memory import held_bytes
from rabbitsim.day.reactor import RECEIVE
from rabbitsim.day.site import HOUR
from rabbitsim.day.system import DaySystem
from rabbitsim.flux.events import JobState

MINUTE = 60.0


@dataclass
class Sample:
    """One moment.

    Attributes:
        hour: since the beginning.
        out: nodes without a job that are drained or down.
        workflows: by the state that DWS was asked for.
        depend, queued: jobs that wait for DWS's Proposal, and for nodes.
        waiting: the most things that waited for the reactor within the last minute.
        requests, events, writes: of the module, to it, and of all to the API server,
            within the last minute.
        copies: copies under way; ``flow`` their bytes per second.
        used: bytes of storage that there are on all Rabbits.
        kept: bytes of the ``ssd`` of Rabbits that serve which are not for other jobs.
    """

    hour: float
    out: int
    workflows: dict[str, int]
    depend: int
    queued: int
    waiting: int
    requests: int
    events: int
    writes: int
    copies: int
    flow: float
    used: int
    kept: int


@dataclass
class Sampler:
    """Takes a sample each minute, and looks at the memory of the service each hour.

    Attributes:
        memory: MiB of the data of the service, at most.
    """

    system: DaySystem
    hours: NodeHours
    samples: list[Sample] = field(default_factory=list)
    memory: float = 0.0
    _before: tuple[int, int, int] = (0, 0, 0)

    def start(self) -> None:
        self._begin = self.system.loop.now()
        self._before = self._counts()
        self.system.loop.call_later(MINUTE, self._sample)

    def _counts(self) -> tuple[int, int, int]:
        system = self.system
        calls = system.meter.calls
        return sum(system.requests.values()), calls[RECEIVE], system.store.version

    def _sample(self) -> None:
        system, hours = self.system, self.hours
        system.loop.call_later(MINUTE, self._sample)
        system.files.advance()
        pool = system.instance.scheduler.pool
        away = [node for node in pool.nodes if node.closed or not node.up]
        out = sum(map(pool.is_open, away))
        states = [job.state for job in system.instance.manager.active_jobs]
        workflows: dict[str, int] = {}
        for state in hours.workflows.values():
            workflows[state] = workflows.get(state, 0) + 1
        before, self._before = self._before, self._counts()
        requests, events, writes = (b - a for a, b in zip(before, self._before))
        self.samples.append(
            Sample(
                hour=(system.loop.now() - self._begin) / HOUR,
                out=out,
                workflows=workflows,
                depend=states.count(JobState.DEPEND),
                queued=states.count(JobState.SCHED),
                waiting=system.meter.longest,
                requests=requests,
                events=events,
                writes=writes,
                copies=len(system.files.moving),
                flow=system.files.flow,
                used=system.controllers.rabbits.used,
                kept=self._kept(),
            )
        )
        system.meter.longest = 0
        if len(self.samples) % 60 == 0 and system.service is not None:
            held = held_bytes(system.service, "rabbitsim") / (1 << 20)
            self.memory = max(self.memory, held)

    def _kept(self) -> int:
        pool, rabbits = (
            self.system.instance.scheduler.pool,
            self.system.controllers.rabbits,
        )
        return sum(
            (chassis.ssds - pool.free("ssd", chassis.index)) * chassis.ssd_size * GIB
            for chassis in pool.chassis
            if not rabbits.down(chassis.rabbit)
        )

    def to_json(self) -> list[Json]:
        return [vars(sample) for sample in self.samples]
