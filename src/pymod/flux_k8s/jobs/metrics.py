# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The metrics of ``dws.metrics`` and ``dws.stats-get``: the number of
jobs in each state, the time that DWS took for the states of Workflows, and failures.

A :class:`JobIndex` has the numbers, and the jobs in their order, so that a query does
not have to look at all jobs."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from typing import Callable, Optional, Sequence

from flux_k8s.config.context import Context
from flux_k8s.control.coroutines import Turns
from flux_k8s.jobs.jobrows import NONE, state_of
from flux_k8s.jobs.jobtable import Job, JobTable
from flux_k8s.jobs.workflowinfo import WorkflowInfo
from flux_k8s.objects.workflowstate import State
from flux_k8s.ports import Json
from flux_k8s.version import PROTOCOL, version

BOUNDS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0, 10000.0)
"""The upper bounds of the histogram's buckets, in seconds. One more bucket has the
longer times."""

LOOKS = 1000
"""Jobs that are looked at in one turn of the reactor."""

EVERYBODY = -1
"""Stands for all users."""


class JobIndex:
    """The IDs of the jobs in their order, by user.

    Attributes:
        states: the number of jobs in each state.
    """

    def __init__(self) -> None:
        self._entries: dict[int, tuple[Optional[int], str]] = {}
        self._ids: dict[Optional[int], list[int]] = {}
        self.states: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._entries)

    def state(self, jobid: int) -> Optional[str]:
        """The state of a job; None for one that is not in the index."""
        _, state = self._entries.get(jobid, (None, None))
        return state

    def update(self, info: WorkflowInfo) -> None:
        """A job is there, or may have changed."""
        entry = info.userid, state_of(info)
        if self._entries.get(info.jobid) == entry:
            return
        self.forget(info.jobid)
        self._entries[info.jobid] = userid, state = entry
        self.states[state] += 1
        for user in (EVERYBODY, userid):
            insort(self._ids.setdefault(user, []), info.jobid)

    def forget(self, jobid: int) -> None:
        """A job is there no more."""
        userid, state = self._entries.pop(jobid, (None, None))
        if state is None:
            return
        self.states[state] -= 1
        if not self.states[state]:
            del self.states[state]
        for user in (EVERYBODY, userid):
            ids = self._ids[user]
            del ids[bisect_left(ids, jobid)]
            if not ids:
                del self._ids[user]

    def after(self, jobid: int, userid: Optional[int] = None) -> Sequence[int]:
        """The jobs after ``jobid``, in order.

        Args:
            userid: only jobs of this user; None for all.
        """
        ids = self._ids.get(EVERYBODY if userid is None else userid, [])
        return ids[bisect_right(ids, jobid) :]


class StateDurations:
    """Counts the states that Workflows have reached since the service was started.

    Args:
        started: when that was (UNIX time).
    """

    def __init__(self, started: float) -> None:
        self._started = started
        self._counts = {state: [0] * (len(BOUNDS) + 1) for state in State}
        self._sums = dict.fromkeys(State, 0.0)

    def note(self, job: Job) -> None:
        """Count the state that a Workflow has reached, once."""
        view, timed = job.info.view, job.shown.timed
        if view is None or not view.complete or view.state is None:
            return
        if view.elapsed is None or (timed is not None and timed >= view.state):
            return
        job.shown.timed = view.state
        if view.since is not None and view.since + view.elapsed < self._started:
            return  # the service before has counted it
        self._counts[view.state][bisect_left(BOUNDS, view.elapsed)] += 1
        self._sums[view.state] += view.elapsed

    def to_json(self) -> Json:
        """For each state: the upper bounds of the buckets, the counts in them, and the
        sum of the seconds."""
        return {
            state.name: {
                "bounds": list(BOUNDS),
                "counts": list(self._counts[state]),
                "sum": round(self._sums[state], 6),
            }
            for state in State
        }


class Metrics:
    """The metrics of the service since it was started.

    Args:
        kube_metrics: returns those about Kubernetes.
    """

    def __init__(
        self,
        context: Context,
        jobs: JobTable,
        index: JobIndex,
        turns: Turns,
        kube_metrics: Callable[[], Json],
    ) -> None:
        self._clock = context.clock
        self._jobs = jobs
        self._index = index
        self._turns = turns
        self._kube_metrics = kube_metrics
        self._version = version()
        self._started = self._clock.now()
        self._durations = StateDurations(self._started)
        self._failed = 0
        self._ended = 0

    def note(self, job: Job) -> None:
        """A job is there, or may have changed."""
        self._durations.note(job)
        info, shown = job.info, job.shown
        if job.unknown or shown.counted:
            return
        failing = info.failure is not None or info.failed or job.faults.given_up
        if failing:
            # One that has failed when it is seen first has done so in another service.
            self._failed += shown.counted is not None or info.failure is not None
        shown.counted = failing

    def note_end(self) -> None:
        """A job is over."""
        self._ended += 1

    async def measure(self) -> Json:
        """The metrics. ``workflows`` has the number of jobs by the state that their
        Workflow is in, and ``oldest`` is for how long the oldest state, or Workflow,
        has been awaited, in seconds: each job is looked at."""
        now, oldest = self._clock.now(), 0.0
        workflows: Counter[str] = Counter()
        async for jobid in self._turns.each(self._index.after(-1), LOOKS):
            job = self._jobs.get(jobid)
            if job is None:
                continue
            info = job.info
            state = None if info.view is None else info.view.state
            workflows[NONE if state is None else state.name] += 1
            if info.waits and info.since is not None:
                oldest = max(oldest, now - info.since)
        return {
            "version": self._version,
            "plugin_version": self._jobs.plugin_version,
            "protocol": PROTOCOL,
            "started": self._started,
            "jobs": len(self._index),
            "states": dict(self._index.states),
            "workflows": dict(workflows),
            "ended": self._ended,
            "failed": self._failed,
            **self._jobs.load(),
            "oldest": oldest,
            "seconds": self._durations.to_json(),
            **self._kube_metrics(),
        }
