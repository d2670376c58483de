# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""How long jobs wait, from their submission until their tasks start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Sequence

from flux_k8s.ports import Json
from rabbitsim.day.jobs import PlannedJob
from rabbitsim.flux.events import Event, JobState
from rabbitsim.flux.job import Job

ALL, OTHERS, LUSTRE = "all", "others", "lustre"
ONE_RABBIT, SEVERAL = "one_rabbit", "several"
"""Groups of jobs: all of them; those that copy nothing in; those that copy data in to
Lustre, which all nodes reach; and those that copy it to storage that their nodes must
be near: as many as one Rabbit has at most, or more."""

PHASES = {"depend": "depend", "nodes": "alloc", "prolog": "start"}
"""The parts of the time until the start, each with the event that ends it: until the
dependency on storage goes, until the job has nodes, and until its tasks start."""


@dataclass(frozen=True)
class Start:
    """The start of a job.

    Attributes:
        phases: the seconds of each of :data:`PHASES`.
    """

    job: PlannedJob
    phases: Sequence[float]

    @property
    def seconds(self) -> float:
        """From the submission."""
        return sum(self.phases)


class Starts:
    """Notes the starts of jobs.

    Args:
        planned: returns the plan of a job, by its ID.
        below: the number of nodes below each Rabbit.
    """

    def __init__(self, planned: Callable[[int], PlannedJob], below: int) -> None:
        self._planned = planned
        self._below = below
        self._starts: list[Start] = []

    def seen(self, job: Job, event: Event, before: JobState) -> None:
        """An event of a job, after it was processed."""
        if event.name == "start":
            at = {entry.name: entry.timestamp for entry in job.events}
            ends = [job.t_submit, *(at[name] for name in PHASES.values())]
            phases = [end - begin for begin, end in zip(ends, ends[1:])]
            self._starts.append(Start(self._planned(job.id), phases))

    def to_json(self) -> Json:
        """Seconds, for each group of which a job started."""
        groups: dict[str, list[Start]] = {ALL: self._starts}
        for start in self._starts:
            groups.setdefault(self._group_of(start.job), []).append(start)
        return {name: _summary(group) for name, group in groups.items() if group}

    def _group_of(self, job: PlannedJob) -> str:
        if not job.copy_in:
            return OTHERS
        if job.kind == "lustre":
            return LUSTRE
        return ONE_RABBIT if job.nodes <= self._below else SEVERAL


def _summary(starts: Sequence[Start]) -> Json:
    seconds = sorted(start.seconds for start in starts)
    sums = map(sum, zip(*(start.phases for start in starts)))
    count = len(starts)
    return {
        "jobs": count,
        "mean": round(sum(seconds) / count, 1),
        **{f"p{n}": round(seconds[count * n // 100], 1) for n in (50, 90, 99)},
        "mean_of": {name: round(s / count, 1) for name, s in zip(PHASES, sums)},
    }
