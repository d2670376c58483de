# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The node hours of jobs: for what nodes that a job has wait.

A job has its nodes from ``alloc`` to ``free``. They work from ``start`` to ``finish``;
the rest of the time they are idle for storage. At each moment of that either DWS works
on the state that it was asked for, which is then the cause; or it is done, and
:data:`OURS` is the cause until it is asked for the next state, or the job goes on.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Iterable, Iterator, Optional, Sequence

from flux_k8s.formats import idset
from flux_k8s.formats.jobid import jobid_of_workflow
from flux_k8s.ports import Clock, Json
from rabbitsim.dws.directive import STATES
from rabbitsim.flux.events import Event, JobState
from rabbitsim.flux.job import Job
from rabbitsim.kube.watch import Event as Change

OURS = "flux-dws"
"""Neither DWS nor a failure: the plugin, the module, and messages on their way."""

OTHERS = "others' storage"
"""The job has nodes, but on their Rabbits the storage of others leaves no place for its
own: two Lustre file systems cannot have their management targets on one Rabbit."""

FAILURES = "failures"
"""A state in which DWS had an error, or a node or Rabbit failed; and all that follows
when that has ended the job."""

OUTAGES = "outages"
"""The API server, the controllers of DWS or the module were away."""

BY_DWS = tuple(state for state in STATES if state != "Proposal")
CAUSES = (*BY_DWS, OTHERS, OURS, FAILURES, OUTAGES)

RUN = "run"
"""The nodes work."""

BAD = ("Error", "TransientCondition")

WAITS = "rabbit_waits_for"
"""The memo in which the module tells what a job waits for."""

HARMFUL = ("dws", "node-failure")
"""How the types of the exceptions begin that are failures."""

Window = tuple[float, float]


@dataclass
class _Life:
    """A job on its way.

    Attributes:
        asked: the state that DWS was asked for last; None before the first.
        ready: whether DWS is done with it.
        blocked: the module says that the job waits for :data:`OTHERS`.
        trouble: something went wrong in this state.
        failed: something went wrong that ends the job.
        since: since when the nodes have waited for the cause of now, or have worked;
            None when there are none.
        works: whether they work.
        times: what there was so far, each with its begin and end.
        note: that of the first exception about what went wrong.
    """

    nodes: int = 0
    asked: Optional[str] = None
    ready: bool = False
    blocked: bool = False
    trouble: bool = False
    failed: bool = False
    since: Optional[float] = None
    works: bool = False
    times: list[tuple[str, float, float]] = field(default_factory=list)
    note: str = ""

    @property
    def cause(self) -> str:
        if self.works:
            return RUN
        if self.trouble or self.failed:
            return FAILURES
        if self.asked is None or self.asked == "Proposal" or self.ready:
            return OTHERS if self.blocked else OURS
        return self.asked

    def turn(self, now: float) -> None:
        """The cause is about to change."""
        if self.since is not None:
            if now > self.since:
                self.times.append((self.cause, self.since, now))
            self.since = now


class NodeHours:
    """Adds up the node seconds of all jobs that have ended.

    Args:
        outages: when the API server, the controllers of DWS or the module were away,
            without overlaps.
        bin: the seconds of each of the ``bins``.

    Attributes:
        seconds: node seconds by cause, and of :data:`RUN`.
        bins: the same for each part of the time, by its number.
        delays: how often nodes waited for :data:`OURS` for so many milliseconds, when
            nothing was away.
        workflows: the state that DWS was asked for, by the IDs of jobs.
        ends: how many jobs ended in which way.
        failed: the node seconds of :data:`FAILURES` of each job that had some, its
            nodes, and the note of its first exception.
    """

    def __init__(self, clock: Clock, outages: Sequence[Window], bin: float) -> None:
        self._clock = clock
        self._outages = outages
        self._begin = clock.now()
        self._bin = bin
        self._lives: dict[int, _Life] = {}
        self.seconds: dict[str, float] = dict.fromkeys((*CAUSES, RUN), 0.0)
        self.bins: dict[int, dict[str, float]] = {}
        self.delays: Counter[int] = Counter()
        self.workflows: dict[int, str] = {}
        self.ends: Counter[str] = Counter()
        self.failed: list[tuple[float, int, str]] = []

    def seen(self, job: Job, event: Event, before: JobState) -> None:
        """An event of a job, after it was processed."""
        life = self._lives.setdefault(job.id, _Life())
        now, name = self._clock.now(), event.name
        if name == "alloc" and job.R is not None:
            life.nodes, life.since = _nodes(job), now
        elif name == "start":
            life.turn(now)
            life.works = True
        elif name == "exception":
            _see_exception(life, event.context or {})
        elif name == "memo" and event.context and WAITS in event.context:
            life.turn(now)
            life.blocked = str(event.context[WAITS]).startswith(OTHERS)
        elif name == "free":
            life.turn(now)
            life.since = None
        if before is JobState.RUN and job.state is JobState.CLEANUP:
            life.turn(now)
            life.works = False
        if job.state is JobState.INACTIVE and before is not job.state:
            self._end(job, self._lives.pop(job.id))

    def written(self, change: Change) -> None:
        """A Workflow was written."""
        workflow = change.object
        jobid = jobid_of_workflow(workflow["metadata"]["name"]) or 0
        if change.type == "DELETED":
            self.workflows.pop(jobid, None)
            return
        asked, status = workflow["spec"]["desiredState"], workflow.get("status") or {}
        ready = status.get("state") == asked and bool(status.get("ready"))
        self.workflows[jobid] = asked
        life = self._lives.get(jobid)
        if life is None:
            return
        if status.get("status") in BAD:
            life.trouble = True
        if (asked, ready) != (life.asked, life.ready):
            life.turn(self._clock.now())
            life.asked, life.ready = asked, ready
            life.blocked = life.trouble = False

    def _end(self, job: Job, life: _Life) -> None:
        self.ends[_end_of(job)] += 1
        for cause, begin, end in life.times:
            parts = [(cause, begin, end)]
            if cause != RUN:
                parts = list(_without(cause, begin, end, self._outages))
            if parts == [(OURS, begin, end)]:
                self.delays[round((end - begin) * 1e3)] += 1
            for part in parts:
                self._add(life.nodes, *part)
        lost = sum(e - b for cause, b, e in life.times if cause == FAILURES)
        if lost:
            self.failed.append((life.nodes * lost, life.nodes, life.note))

    def _add(self, nodes: int, cause: str, begin: float, end: float) -> None:
        self.seconds[cause] += nodes * (end - begin)
        while begin < end:
            number = int((begin - self._begin) // self._bin)
            till = min(end, self._begin + (number + 1) * self._bin)
            counts = self.bins.setdefault(number, {})
            counts[cause] = counts.get(cause, 0.0) + nodes * (till - begin)
            begin = till


def _see_exception(life: _Life, context: Json) -> None:
    if str(context.get("type")).startswith(HARMFUL):
        life.trouble = True
        life.note = life.note or str(context.get("note"))
        life.failed = life.failed or context.get("severity") == 0


def _without(
    cause: str, begin: float, end: float, windows: Iterable[Window]
) -> Iterator[tuple[str, float, float]]:
    """A time with its cause, but :data:`OUTAGES` where there was one."""
    for since, till in windows:
        if since < end and till > begin:
            if since > begin:
                yield cause, begin, since
            yield OUTAGES, max(begin, since), min(end, till)
            begin = min(end, till)
    if begin < end:
        yield cause, begin, end


def _nodes(job: Job) -> int:
    ranks = (job.R or {})["execution"]["R_lite"]
    return sum(len(idset.decode(str(entry["rank"]))) for entry in ranks)


def _end_of(job: Job) -> str:
    exception = job.fatal_exception
    if exception is not None:
        return str(exception["type"])
    return "completed" if job.wait_status == 0 else "failed"
