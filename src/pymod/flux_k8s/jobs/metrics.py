# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The metrics of ``dws.metrics`` and ``dws.stats-get``: the number of
jobs in each state, the time that DWS took for the states of Workflows, and failures."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter

from flux_k8s.config.context import Context
from flux_k8s.control.coroutines import Turns
from flux_k8s.jobs.jobrows import NONE
from flux_k8s.jobs.jobtable import Job, JobTable
from flux_k8s.objects.workflowstate import State
from flux_k8s.ports import Json
from flux_k8s.version import PROTOCOL, version

BOUNDS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0, 10000.0)
"""The upper bounds of the histogram's buckets, in seconds. One more bucket has the
longer times."""

LOOKS = 1000
"""Jobs that are looked at in one turn of the reactor."""


def count_states(jobs: JobTable) -> dict[str, int]:
    """The number of jobs in each state. (A millisecond, for ten thousand.)"""
    states = Counter(job.shown.state for job in jobs)
    return {state: count for state, count in states.items() if state is not None}


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
    """The metrics of the service since it was started."""

    def __init__(self, context: Context, jobs: JobTable, turns: Turns) -> None:
        self._clock = context.clock
        self._jobs = jobs
        self._turns = turns
        self._kube = context.kube
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
        failing = info.failed or job.faults.given_up
        if failing:
            # One that has failed when it is seen first has done so in another service.
            self._failed += shown.counted is not None or info.told is not None
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
        async for job in self._turns.each(self._jobs, LOOKS):
            info = job.info
            state = None if info.view is None else info.view.state
            workflows[NONE if state is None else state.name] += 1
            done = info.satisfied if info.view is None else info.view.complete
            if not done and info.since is not None:
                oldest = max(oldest, now - info.since)
        return {
            "version": self._version,
            "plugin_version": self._jobs.plugin_version,
            "protocol": PROTOCOL,
            "started": self._started,
            "jobs": len(self._jobs),
            "states": count_states(self._jobs),
            "workflows": dict(workflows),
            "ended": self._ended,
            "failed": self._failed,
            **self._jobs.load(),
            "oldest": oldest,
            "seconds": self._durations.to_json(),
            **self._kube.metrics(),
        }
