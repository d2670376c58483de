# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Time limits of the states, and what is wrong with a job's storage: whether that is a
limit, or DWS says so (:func:`problem_of`), and what it costs (:func:`gives_up`,
:func:`may_be_kept`).

A limit counts from the request for a state, which writes the time down; as long as
Kubernetes refuses that, from the first refusal since which it has answered each GET of
the Workflow (:mod:`flux_k8s.jobs.workflowrequests`). Outages do not count, and for a
while after the start of the service no limit is over. A time that is yet to come is
none: the clock was set back, or another one is wrong.

The limits of the epilog, which cost a job its data, begin anew with another service,
which does not know of outages before it; but no limit is ever more than doubled.

A Workflow that is kept for a node that has not unmounted in time (``unmount_failure``)
has no limit in PostRun, and that of DataOut counts from DataOut.

The limits of a copy that is made again (``flux dws rescue``) count from then.

``stall_timeout`` counts from the last progress of the data.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Optional, Sequence

from flux_k8s.config.table import Config
from flux_k8s.jobs.outage import CLOCKS_DIFFER, Outages
from flux_k8s.jobs.workflowinfo import DELETED, MOVED, Goal, WorkflowInfo
from flux_k8s.objects.workflowstate import TRANSIENT, State
from flux_k8s.objects.workflowview import WorkflowView
from flux_k8s.reasons import Note, Reason
from flux_k8s.text import USER_ERROR

LATE = {
    "setup_timeout": Reason.SETUP_TIMEOUT,
    "prerun_timeout": Reason.PRERUN_TIMEOUT,
    "postrun_timeout": Reason.POSTRUN_TIMEOUT,
    "teardown_after": Reason.TEARDOWN_AFTER,
}
"""The reasons of limits of states, by their keys of the configuration."""


@dataclass(frozen=True)
class Moment:
    """When something is decided.

    Attributes:
        now: the UNIX time.
        config: the configuration.
        outages: those of Kubernetes until now.
        lost: the Rabbits that broke with the data of a job without nodes, and their
            states, or "".
    """

    now: float
    config: Config
    outages: Outages = field(default_factory=Outages)
    lost: str = ""

    def deadline(self, begin: float, limit: float) -> float:
        """When (UNIX time) a limit of some seconds is over that runs since a time."""
        return self.outages.deadline(begin, limit, self.now)

    def past(self, time: Optional[float]) -> Optional[float]:
        """A UNIX time that was written down; None if it is yet to come."""
        return None if time is None or time > self.now + CLOCKS_DIFFER else time

    def latest(self, begin: float, *times: Optional[float]) -> float:
        """The latest of UNIX times, without those that are yet to come."""
        return max(begin, *(self.past(time) or 0.0 for time in times))


@dataclass(frozen=True)
class Problem:
    """A reason for which a job's storage cannot make progress.

    Attributes:
        patience: the seconds that DWS may take for the state without the failed nodes
            that may be the cause; None if nodes cannot be the cause.
        limit: whether the problem is a time limit of the epilog, which alone is no
            reason for an exception.
        key: the key of the configuration that has the limit, or "".
    """

    note: Note
    patience: Optional[float] = None
    limit: bool = False
    key: str = ""


def may_lose_nodes(info: WorkflowInfo, view: WorkflowView) -> bool:
    """Nodes may fail at file system creation or mounting, if the job's owner has
    allowed for it."""
    making = view.state is view.desired and view.state in (State.Setup, State.PreRun)
    return info.goal is Goal.READY and info.failure_tolerance > 0 and making


Limit = tuple[float, Problem]
"""A limit that runs: when it has passed (UNIX time), and what problem it is then."""

Due = tuple[Optional[Problem], Optional[float]]
"""The present problem of a job's storage, and the UNIX time at which the next one may
arise; None for each that there is not."""


def due(limits: Sequence[Limit], at: Moment) -> Due:
    """Whether the first of the limits has passed, and when it has."""
    if not limits:
        return None, None
    deadline, problem = min(limits, key=lambda limit: limit[0])
    return (problem if at.now >= deadline else None), deadline


def running_limits(info: WorkflowInfo, view: WorkflowView, at: Moment) -> list[Limit]:
    """The time limits that run."""
    limits = _trouble_limit(info, view, at)
    if not view.complete and view.desired is not None:
        limits += _state_limits(info, view, view.desired, at)
        limits += _stall_limit(info, view, view.desired, at)
    refused = _refused_state(info)
    if refused is not None:
        # The next try, for which there is a pause, may be taken.
        limits += [
            limit
            for limit in _state_limits(info, view, refused, at)
            if info.refusal is not None and limit[0] <= info.refusal.at
        ]
    return limits + _stage_limit(info, view, at)


def begin_of(
    info: WorkflowInfo, view: WorkflowView, state: State, at: Moment
) -> Optional[float]:
    """When (UNIX time) a state was requested first, as far as is known. Until DWS
    begins with the state, its own time is about the state before."""
    noted = at.past(view.begun[state])
    if noted is None and view.state is state:
        noted = at.past(view.changed)
    seen = info.begun.get(state)
    times = [time for time in (noted, seen) if time is not None]
    return min(times, default=None)


def _trouble_limit(info: WorkflowInfo, view: WorkflowView, at: Moment) -> list[Limit]:
    """The time limit of a TransientCondition, if it runs."""
    config, since = at.config, info.troubled_since
    kept = bool(view.kept_for) and view.desired is State.PostRun
    if since is None or view.trouble is None or view.status != TRANSIENT or kept:
        return []
    text = (
        f"DWS reports a TransientCondition in {view.trouble[0].name} for more than "
        f"tc_timeout={config.tc_timeout:g}s: {view.message or 'no message'}"
    )
    note = Note(text, Reason.TRANSIENT_CONDITION)
    deadline = at.deadline(at.latest(since, view.rescued), config.tc_timeout)
    patience = config.tc_timeout if _may_be_nodes(info, view) else None
    return [(deadline, Problem(note, patience, key="tc_timeout"))]


def _may_be_nodes(info: WorkflowInfo, view: WorkflowView) -> bool:
    """Nodes that have not mounted are to be named, also to a job that tolerates none:
    DWS says nothing about them."""
    mounting = view.desired is State.PreRun and view.state is view.desired
    return mounting or may_lose_nodes(info, view)


def _state_limits(
    info: WorkflowInfo, view: WorkflowView, state: State, at: Moment
) -> list[Limit]:
    """The time limits of a state that the service has requested, whether or not DWS has
    begun with it, or Kubernetes has taken the request."""
    limits: list[Limit] = []
    setup, prerun = at.config.setup_timeout, at.config.prerun_timeout
    begin = begin_of(info, view, state, at)
    begun = view.state is state
    proposed = state in (State.Proposal, State.Setup)
    if begin is None:
        return []
    # Copying has no limit, but the time until DWS begins with a state has.
    if setup is not None and (proposed or state is State.DataIn and not begun):
        deadline = at.deadline(begin, setup)
        limits.append((deadline, _late(info, view, state, "setup_timeout", setup)))
    if state is State.PreRun and prerun is not None:
        deadline = at.deadline(begin, prerun)
        problem = _late(info, view, state, "prerun_timeout", prerun)
        if begun:
            problem = replace(problem, patience=prerun)
        limits.append((deadline, problem))
    return limits + _epilog_limits(info, view, state, at)


def _epilog_limits(
    info: WorkflowInfo, view: WorkflowView, state: State, at: Moment
) -> list[Limit]:
    """The time limits of PostRun, and of PostRun and DataOut together."""
    kept, config = bool(view.kept_for), at.config
    if state not in (State.PostRun, State.DataOut) or (kept and state is State.PostRun):
        return []
    first = State.DataOut if kept else State.PostRun
    epilog = [("teardown_after", config.teardown_after, first)]
    if state is State.PostRun:
        epilog.insert(0, ("postrun_timeout", config.postrun_timeout, State.PostRun))
    limits: list[Limit] = []
    for key, limit, since in epilog:
        noted = begin_of(info, view, since, at) or begin_of(info, view, state, at)
        # This service may have come when PostRun was over.
        seen = info.begun.get(since, info.begun.get(state, noted))
        if limit is None or noted is None or seen is None:
            continue
        rescued = view.rescued if key == "teardown_after" else None
        deadline = min(
            at.deadline(at.latest(seen, rescued), limit),
            at.deadline(at.latest(noted, rescued), 2 * limit),
        )
        problem = replace(_late(info, view, state, key, limit), limit=True)
        limits.append((deadline, problem))
    return limits


def _stall_limit(
    info: WorkflowInfo, view: WorkflowView, state: State, at: Moment
) -> list[Limit]:
    """The time limit of data that does not move, if it runs. Where Kubernetes refuses
    the list of data movements, it is not over before the list is tried again."""
    limit = at.config.stall_timeout
    if limit is None or (info.failed and not view.copy_failed):
        return []
    unmoved = unmoved_since(info, at)
    if unmoved is None:
        return []
    deadline = at.deadline(unmoved, limit)
    if info.data.refused is not None:
        deadline = max(deadline, info.data.refused + REOPEN_DELAY)
    text = f"no data moved in {state.name} for stall_timeout={limit:g}s"
    problem = Problem(
        Note(text, Reason.STALL_TIMEOUT),
        limit=info.goal is Goal.RELEASED,
        key="stall_timeout",
    )
    return [(deadline, problem)]


def unmoved_since(info: WorkflowInfo, at: Moment) -> Optional[float]:
    """The UNIX time since which no data of the copies that DWS works on has moved, as
    far as that was seen; None if DWS works on none."""
    view = info.view
    if view is None or view.desired is None or not view.copying:
        return None
    begin = begin_of(info, view, view.desired, at)
    if begin is None:
        return None
    return at.latest(begin, view.changed, view.rescued, info.data.moved)


def _stage_limit(info: WorkflowInfo, view: WorkflowView, at: Moment) -> list[Limit]:
    """The time limit of data that waits for nodes, if it runs."""
    limit = at.config.stage_timeout
    waits = info.goal is Goal.PLANNED and info.is_staged
    copied = view.complete and view.state is State.DataIn
    begin = begin_of(info, view, State.DataIn, at)
    if limit is None or begin is None or not (waits and copied):
        return []
    text = (
        f"its data has waited for nodes for stage_timeout={limit:g}s, and its storage"
        " is given back; please submit it again"
    )
    note = Note(text, Reason.STAGE_TIMEOUT)
    # DWS may have begun late.
    begin = at.latest(begin + (view.elapsed or 0.0), view.ended[State.DataIn])
    return [(at.deadline(begin, limit), Problem(note, key="stage_timeout"))]


def unmade(info: WorkflowInfo, at: Moment) -> Due:
    """The limit of a Workflow that Kubernetes does not let us create."""
    limit, begin = at.config.setup_timeout, info.begun.get(State.Proposal)
    if info.refusal is None or limit is None or begin is None:
        return None, None
    deadline = at.deadline(begin, limit)
    if info.refusal.at < deadline:
        return None, None
    text = f"Proposal took more than setup_timeout={limit:g}s; {info.refusal.error}"
    note = Note(text, Reason.SETUP_TIMEOUT)
    return due([(deadline, Problem(note))], at)


def unmounts_late(info: WorkflowInfo, view: WorkflowView, at: Moment) -> Due:
    """The limit of nodes that are to unmount in Teardown, since the job had not got to
    PostRun. With ``unmount_failure`` they do not hold up the others."""
    limit = at.config.postrun_timeout if at.config.keeps_mounted else None
    over = view.nodes_released or info.released or not view.may_be_mounted
    begin = begin_of(info, view, State.Teardown, at)
    if limit is None or begin is None or over or view.runs_containers:
        return None, None
    if view.ended[State.PostRun] is not None:
        return None, None
    problem = _late(info, view, State.Teardown, "postrun_timeout", limit)
    deadline = at.deadline(begin, limit)
    return due([(deadline, problem)], at)


def _late(
    info: WorkflowInfo, view: WorkflowView, state: State, key: str, limit: float
) -> Problem:
    """A state was not reached in time."""
    both = key == "teardown_after" and state is State.DataOut
    both = both and not (view.kept_for or view.rescued)
    what = "PostRun and DataOut" if both else state.name
    text = f"{what} took more than {key}={limit:g}s"
    if info.refusal is not None and _refused_state(info) is state:
        text += f"; {info.refusal.error}"
    elif view.state is not state:
        text += "; DWS has not begun with it"
    return Problem(Note(text, LATE[key]), key=key)


# What is wrong with a job's storage, beside its limits


def _refused_state(info: WorkflowInfo) -> Optional[State]:
    """The state whose request Kubernetes refuses; None if there is none."""
    view, asked = info.view, max(info.begun, default=None)
    if info.refusal is None or asked is None or view is None:
        return None
    return asked if view.desired is None or asked > view.desired else None


REOPEN_DELAY = 3600.0
"""Seconds until a list of data movements that Kubernetes refuses is tried again."""

GRACE = 30.0
"""Seconds within which DWS shows that a copy is made again."""


LIST_VALID = 60.0
"""Seconds until data movements that go on are listed again: the watch of them may have
been interrupted, or hang."""


def problem_of(info: WorkflowInfo, view: WorkflowView, at: Moment) -> Due:
    """What is wrong with the storage of a job, or will be."""
    if at.lost:
        note = f"its data is lost before it had nodes: {at.lost}"
        return Problem(Note(note, Reason.RABBIT_BROKEN)), None
    if view.damage is None and view.deleting:
        return Problem(info.interference_note(DELETED)), None
    if view.damage is None and view.desired is State.Teardown:
        return Problem(info.interference_note(MOVED)), None
    return dws_problem(info, view, at)


def dws_problem(info: WorkflowInfo, view: WorkflowView, at: Moment) -> Due:
    """What DWS has, or shows, that is wrong with it, or will be."""
    if view.damage is not None:
        return Problem(Note(view.damage, Reason.BAD_OBJECT)), None
    if view.in_error:
        state = view.state.name if view.state is not None else "Proposal"
        text = f"DWS failed in {state}: {view.message or 'no message'}"
        theirs = USER_ERROR in view.message
        note = Note(text, Reason.DWS_REFUSED if theirs else Reason.DWS_FAILED)
        again = copies_again_until(info, view, at)
        if again is not None and at.now < again:
            return None, again
        if not may_lose_nodes(info, view):
            return Problem(note), None
        # Nodes that are only slower than the one that failed have their time.
        patience = at.config.tc_timeout
        deadline = at.deadline(info.troubled_since or at.now, patience)
        return due([(deadline, Problem(note, patience))], at)
    return due(running_limits(info, view, at), at)


def copies_again_until(
    info: WorkflowInfo, view: WorkflowView, at: Moment
) -> Optional[float]:
    """The UNIX time until which DWS may still show the failure of a copy that is made
    again; None if this service has seen the Error come after that."""
    begun, since = at.past(view.rescued), info.troubled_since
    if begun is None or since is None or since > max(begun, info.learned or 0.0):
        return None
    return begun + GRACE


def has_ended_badly(info: WorkflowInfo, view: WorkflowView) -> bool:
    """Whether the data of a job that was cancelled in its epilog, or that has failed,
    is not waited for. A failure after which the storage was kept has failed the job,
    and no more."""
    return (info.abandoned or info.failed) and not view.copy_failed


def gives_up(
    info: WorkflowInfo, view: WorkflowView, problem: Optional[Problem]
) -> bool:
    """Whether the storage of a job goes without all of its data."""
    if info.aborted:
        return True
    if view.copy_failed and view.complete:
        return False  # it was copied after all
    over = view.given_up or view.failed_until is not None
    return problem is not None or has_ended_badly(info, view) or not info.ran or over


def may_be_kept(info: WorkflowInfo, view: WorkflowView, config: Config) -> bool:
    """Whether the storage of a job is kept so that its data can be rescued, when
    copying it out has failed."""
    if config.keep_failed is None or view.failed_until is not None:
        return False
    copying = view.desired is State.DataOut and bool(view.unsaved) and info.ran
    given_up = view.given_up or info.aborted or has_ended_badly(info, view)
    return copying and not (view.damage or given_up or view.is_not_kept)


def copies_unknown(info: WorkflowInfo, view: WorkflowView) -> bool:
    """Whether there are copies out of which it is not known what became of them. DWS
    reports on one after the other, and on none after an Error, although it has begun
    them all."""
    copying = view.state is view.desired is State.DataOut and not view.deleting
    if not copying or view.complete or view.copies_noted:
        return False
    over = view.given_up or info.aborted or has_ended_badly(info, view)
    if over or info.data_reported:
        return False
    return len(view.unsaved) > 1 or view.in_error and bool(view.unsaved)


def awaited_until(
    info: WorkflowInfo, view: WorkflowView, at: Moment
) -> Optional[float]:
    """The UNIX time until which a job whose data is about to be given up waits for
    copies that go on; None if it does not."""
    if not (copies_unknown(info, view) and info.data.going):
        return None
    limit, deadline = due(running_limits(info, view, at), at)
    again = info.data.listed + LIST_VALID
    if limit is not None or at.now >= again:
        return None
    return again if deadline is None else min(again, deadline)


def is_kept(info: WorkflowInfo, view: WorkflowView, at: Moment) -> bool:
    """Whether the storage is kept now, so that data can be rescued that could not be
    copied out. (DWS may have copied it after all.)"""
    if view.failed_until is None or view.complete or view.given_up or info.aborted:
        return False
    return info.rescuing or at.now < max(view.failed_until, at.outages.quiet_until)


def may_be_written(info: WorkflowInfo, view: WorkflowView, config: Config) -> bool:
    """Whether the storage is kept as long as a node that has it mounted could write to
    it, and nobody knows yet that none can."""
    if not (config.keeps_mounted or view.kept_for):
        return False
    if view.desired is State.PreRun:
        return view.complete
    return view.desired is State.PostRun and not info.mounts.none_writes
