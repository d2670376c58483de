# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Time limits of the states (seed 001, "State timeouts").

A limit counts from when a state is requested. A request that Kubernetes answers and
does not take counts from when it was first made, and is tried once more when the time
is over. While Kubernetes is out of reach the
limits of the epilog stand still: they cost a job its data, which an outage must not.

A Workflow that is kept for a node that has not unmounted in time (``unmount_failure``)
has no limit in PostRun, and that of DataOut counts from DataOut.

The limits of a copy that is made again (``flux dws rescue``) count from then.

For a while after the start of the service none is over. A time that is yet to come
counts as that at which it was seen first, and is written again.

``stall_timeout`` counts from the last progress of the data, and stands still likewise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Optional

from flux_k8s.config.table import Config
from flux_k8s.control.kubecalls import REOPEN_DELAY
from flux_k8s.dws.workflowstate import TRANSIENT, State
from flux_k8s.dws.workflowview import WorkflowView
from flux_k8s.jobs.workflowinfo import Goal, WorkflowInfo
from flux_k8s.reasons import Note, Reason

LATE = {
    "setup_timeout": Reason.SETUP_TIMEOUT,
    "prerun_timeout": Reason.PRERUN_TIMEOUT,
    "postrun_timeout": Reason.POSTRUN_TIMEOUT,
    "teardown_after": Reason.TEARDOWN_AFTER,
}
"""The reasons of limits of states, by their keys of the configuration."""


@dataclass(frozen=True)
class Problem:
    """A reason for which a job's storage cannot make progress.

    Attributes:
        since: the UNIX time from which a few failed nodes may be the cause; None if
            nodes cannot be the cause.
        patience: the seconds that DWS may take for the state without these nodes.
        limit: whether the problem is a time limit of the epilog, which alone is no
            reason for an exception.
        key: the key of the configuration that has the limit, or "".
        in_doubt: the data movements are to be listed before: the watch of them may
            have been interrupted, or hang.
    """

    note: Note
    since: Optional[float] = None
    patience: float = 0.0
    limit: bool = False
    key: str = ""
    in_doubt: bool = False


def may_lose_nodes(info: WorkflowInfo, view: WorkflowView) -> bool:
    """Nodes may fail at file system creation or mounting, if the job's owner has
    allowed for it."""
    making = view.state is view.desired and view.state in (State.Setup, State.PreRun)
    return info.goal is Goal.READY and info.failure_tolerance > 0 and making


def overdue(
    info: WorkflowInfo, view: WorkflowView, state: str, now: float, config: Config
) -> tuple[Optional[Problem], Optional[float]]:
    """Time limits: a problem when one has passed, else the next deadline."""
    limits = running_limits(info, view, state, config)
    if not limits:
        return None, None
    # A limit in doubt, which a failing request may keep so, holds up no other one.
    deadline, problem = min(
        limits, key=lambda limit: (now < limit[0], limit[1].in_doubt, limit[0])
    )
    return (problem if now >= deadline else None), deadline


def running_limits(
    info: WorkflowInfo, view: WorkflowView, state: str, config: Config
) -> list[tuple[float, Problem]]:
    """The time limits that run: when each has passed (UNIX time), and the problem that
    it is then."""
    limits: list[tuple[float, Problem]] = []
    # Nodes that have not mounted are to be named, also to a job that tolerates none:
    # DWS says nothing about them.
    mounting = view.desired is State.PreRun and view.state is view.desired
    nodes = mounting or may_lose_nodes(info, view)
    kept = bool(view.kept_for) and view.desired is State.PostRun
    if info.troubled_since is not None and view.status == TRANSIENT and not kept:
        text = (
            f"DWS reports a TransientCondition in {state} for more than "
            f"tc_timeout={config.tc_timeout:g}s: {view.message or 'no message'}"
        )
        note = Note(text, Reason.TRANSIENT_CONDITION)
        begun = max(info.troubled_since, view.rescued or 0.0)
        deadline = begun + config.tc_timeout
        since = deadline if nodes else None
        problem = Problem(note, since, config.tc_timeout, key="tc_timeout")
        limits.append((deadline, problem))
    if not view.complete and view.since is not None:
        limits += _state_limits(info, view, view.since, config)
        limits += _stall_limit(info, state, config)
    if info.rejected is not None:
        awaited = replace(view, desired=info.rejected.state)
        rejected = _state_limits(info, awaited, info.rejected.since, config)
        # The next try, for which there is a pause, may be taken.
        limits += [limit for limit in rejected if limit[0] <= info.rejected.tried]
    limits += _stage_limit(info, view, config)
    return [(info.due(deadline), limit) for deadline, limit in limits]


def _state_limits(
    info: WorkflowInfo, view: WorkflowView, since: float, config: Config
) -> list[tuple[float, Problem]]:
    """The time limits of the state that the service has requested, whether or not DWS
    has begun with it."""
    limits: list[tuple[float, Problem]] = []
    setup, prerun = config.setup_timeout, config.prerun_timeout
    begun = view.state is view.desired
    proposed = view.desired in (State.Proposal, State.Setup)
    # Copying has no limit, but the time until DWS begins with a state has.
    if setup is not None and (proposed or view.desired is State.DataIn and not begun):
        limits.append((since + setup, _late(info, view, "setup_timeout", setup)))
    if view.desired is State.PreRun and prerun is not None:
        deadline, problem = since + prerun, _late(info, view, "prerun_timeout", prerun)
        if begun:
            problem = replace(problem, since=deadline, patience=prerun)
        limits.append((deadline, problem))
    kept = bool(view.kept_for)
    if info.out_since is not None or (kept and view.desired is State.PostRun):
        return limits
    first = since if kept or view.unmounting is None else view.unmounting
    unmounting = max(first, view.rescued or 0.0)
    epilog: list[tuple[str, Optional[float], float]] = []
    if view.desired is State.PostRun:
        epilog.append(("postrun_timeout", config.postrun_timeout, since))
    if view.desired in (State.PostRun, State.DataOut):
        epilog.append(("teardown_after", config.teardown_after, unmounting))
    for key, limit, begin in epilog:
        if limit is not None:
            problem = replace(_late(info, view, key, limit), limit=True)
            limits.append((begin + limit + info.out_of_reach, problem))
    return limits


def _stall_limit(
    info: WorkflowInfo, state: str, config: Config
) -> list[tuple[float, Problem]]:
    """The time limit of data that does not move, if it runs. Where Kubernetes refuses
    the list of data movements, it is not over before the list is tried again."""
    limit, view = config.stall_timeout, info.view
    failed = info.failed and not (view is not None and view.has_failed)
    if limit is None or failed or info.out_since is not None:
        return []
    unmoved = info.unmoved_since
    if unmoved is None:
        return []
    deadline = unmoved + limit
    if info.data.refused is not None:
        deadline = max(deadline, info.data.refused + REOPEN_DELAY)
    text = f"no data moved in {state} for stall_timeout={limit:g}s"
    problem = Problem(
        Note(text, Reason.STALL_TIMEOUT),
        limit=info.goal is Goal.RELEASED,
        key="stall_timeout",
        in_doubt=info.data.listed < deadline,
    )
    return [(deadline, problem)]


def _stage_limit(
    info: WorkflowInfo, view: WorkflowView, config: Config
) -> list[tuple[float, Problem]]:
    """The time limit of data that waits for nodes, if it runs."""
    limit = config.stage_timeout
    waits = info.goal is Goal.PLANNED and info.is_staged
    copied = view.complete and view.state is State.DataIn
    if limit is None or view.since is None or not (waits and copied):
        return []
    text = (
        f"its data has waited for nodes for stage_timeout={limit:g}s, and its storage"
        " is given back; please submit it again"
    )
    note = Note(text, Reason.STAGE_TIMEOUT)
    # DWS may have begun late.
    ended = view.ended[State.DataIn] or 0.0
    begin = max(ended, view.since + (view.elapsed or 0.0))
    return [(begin + limit, Problem(note, key="stage_timeout"))]


def unmade(
    info: WorkflowInfo, now: float, config: Config
) -> tuple[Optional[Problem], Optional[float]]:
    """The same for a Workflow that Kubernetes does not let us create."""
    limit = config.setup_timeout
    if info.rejected is None or limit is None:
        return None, None
    deadline = info.due(info.rejected.since + limit)
    if info.rejected.tried < deadline:
        return None, None
    text = f"Proposal took more than setup_timeout={limit:g}s; {info.rejected.reason}"
    note = Note(text, Reason.SETUP_TIMEOUT)
    return (Problem(note) if now >= deadline else None), deadline


def unmounts_late(
    info: WorkflowInfo, view: WorkflowView, now: float, config: Config
) -> tuple[Optional[Problem], Optional[float]]:
    """The same for nodes that are to unmount in Teardown, since the job had not got to
    PostRun. With ``unmount_failure`` they do not hold up the others."""
    limit = config.postrun_timeout if config.keeps_mounted else None
    over = info.unmounted or view.nodes_released or info.released
    over = over or info.out_since is not None
    if limit is None or view.since is None or over or view.runs_containers:
        return None, None
    if view.ended[State.PostRun] is not None:
        return None, None
    problem = _late(info, view, "postrun_timeout", limit)
    deadline = info.due(view.since + limit)
    return (problem if now >= deadline else None), deadline


def _late(info: WorkflowInfo, view: WorkflowView, key: str, limit: float) -> Problem:
    """A state was not reached in time."""
    assert view.desired is not None
    both = key == "teardown_after" and view.desired is State.DataOut
    both = both and not (view.kept_for or view.rescued)
    what = "PostRun and DataOut" if both else view.desired.name
    text = f"{what} took more than {key}={limit:g}s"
    if info.rejected is not None and info.rejected.state is view.desired:
        text += f"; {info.rejected.reason}"
    elif view.state is not view.desired:
        text += "; DWS has not begun with it"
    return Problem(Note(text, LATE[key]), key=key)
