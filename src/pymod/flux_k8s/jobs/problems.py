# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The reasons for which a job's storage cannot make progress, or must not."""

from __future__ import annotations

from typing import Optional

from flux_k8s.config.table import Config
from flux_k8s.dws.workflowview import State, WorkflowView
from flux_k8s.jobs.timelimits import Problem, may_lose_nodes, overdue
from flux_k8s.jobs.workflowinfo import WorkflowInfo


def problem_of(
    info: WorkflowInfo, view: WorkflowView, now: float, config: Config
) -> tuple[Optional[Problem], Optional[float]]:
    """The present problem of the storage, and the UNIX time at which the next one may
    arise; None for each that there is not."""
    if info.failure is not None:
        return Problem(info.failure), None
    if info.lost_storage:
        note = f"its data is lost before it had nodes: {info.lost_storage}"
        return Problem(note), None
    if view.damage is None and view.deleting:
        return Problem(f"Workflow {info.name} was deleted under the job"), None
    if view.damage is None and view.desired is State.Teardown:
        note = f"Workflow {info.name} was moved to Teardown under the job"
        return Problem(note), None
    return dws_problem(info, view, now, config)


def dws_problem(
    info: WorkflowInfo, view: WorkflowView, now: float, config: Config
) -> tuple[Optional[Problem], Optional[float]]:
    """The same for the problems that DWS has, or shows."""
    if view.damage is not None:
        return Problem(view.damage), None
    state = view.state.name if view.state is not None else "Proposal"
    if view.in_error:
        note = f"DWS failed in {state}: {view.message or 'no message'}"
        if not may_lose_nodes(info, view):
            return Problem(note), None
        # Nodes that are only slower than the one that failed have their time.
        deadline = (info.troubled_since or now) + config.tc_timeout
        problem = Problem(note, deadline, config.tc_timeout)
        return (problem if now >= deadline else None), deadline
    return overdue(info, view, state, now, config)


def in_doubt(info: WorkflowInfo, deadline: Optional[float], now: float) -> bool:
    """Whether a time limit has passed by the last view, and the Workflow must be read
    again. The state may have been reached in time while the watch was interrupted or
    hung: the look-up comes before it costs a job its life or its data."""
    return deadline is not None and info.looked_up < deadline <= now


def may_be_written(info: WorkflowInfo, view: WorkflowView, config: Config) -> bool:
    """Whether the storage is kept as long as a node that has it mounted could write to
    it, and nobody knows yet that none can."""
    if not (config.keeps_mounted or view.kept_for):
        return False
    if view.desired is State.PreRun:
        return view.complete
    return view.desired is State.PostRun and info.writers != ()
