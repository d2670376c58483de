# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""How long DWS took for each state of a job's Workflow."""

from __future__ import annotations

from typing import Mapping, Optional, Sequence

from flux_k8s.dws.workflowstate import State
from flux_k8s.dws.workflowview import WorkflowView
from flux_k8s.jobs.workflowinfo import WorkflowInfo

IDLE_AFTER = (State.Proposal, State.PreRun)
"""The states after which a job waits for nodes, or runs, before the next one."""


def begun_of(view: WorkflowView) -> dict[State, float]:
    """The UNIX time of the request for each state, where it is known."""
    begun = {state: at for state, at in zip(State, view.begun) if at is not None}
    if view.desired is not None and view.since is not None:
        begun.setdefault(view.desired, view.since)
    return begun


def durations(info: WorkflowInfo) -> dict[State, float]:
    """The seconds of each state that is over, where they are known: as this module has
    recorded them, as DWS says, or by the times that the Workflow has."""
    found = dict(info.recording.durations)
    view = info.view
    if view is None:
        return found
    if view.complete and view.state is not None and view.elapsed is not None:
        found.setdefault(view.state, view.elapsed)
    begun = begun_of(view)
    for state in begun:
        if state not in found and view.desired is not None and state < view.desired:
            seconds = _duration(state, begun, view.ended)
            if seconds is not None:
                found[state] = seconds
    return found


def _duration(
    state: State, begun: Mapping[State, float], ended: Sequence[Optional[float]]
) -> Optional[float]:
    """The seconds of a state that is over, and that another service has recorded."""
    end = ended[state]
    following = min((later for later in begun if later > state), default=None)
    if end is None and following is not None:
        # A PreRun that is complete is followed by PostRun.
        given_up = (state, following) == (State.PreRun, State.Teardown)
        if given_up or state not in IDLE_AFTER:
            end = begun[following]
    return None if end is None else round(max(0.0, end - begun[state]), 6)
