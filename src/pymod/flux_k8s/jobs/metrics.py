# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""How long DWS takes for the states of Workflows, as histograms."""

from __future__ import annotations

from bisect import bisect_left

from flux_k8s.dws.workflowview import State
from flux_k8s.jobs.workflowinfo import WorkflowInfo
from flux_k8s.ports import Json

BOUNDS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0, 10000.0)
"""The upper bounds of the histogram's buckets, in seconds. One more bucket has what is
longer."""


class StateDurations:
    """Counts the states that Workflows have reached since the service was started."""

    def __init__(self) -> None:
        self._counts = {state: [0] * (len(BOUNDS) + 1) for state in State}
        self._sums = dict.fromkeys(State, 0.0)
        self._noted: dict[int, State] = {}

    def note(self, info: WorkflowInfo) -> None:
        """Count the state that a Workflow has reached, once."""
        view = info.view
        if view is None or not view.complete or view.state is None:
            return
        if view.elapsed is None or self._noted.get(info.jobid, -1) >= view.state:
            return
        self._noted[info.jobid] = view.state
        self._counts[view.state][bisect_left(BOUNDS, view.elapsed)] += 1
        self._sums[view.state] += view.elapsed

    def forget(self, jobid: int) -> None:
        self._noted.pop(jobid, None)

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
