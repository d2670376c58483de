# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""One job, one Workflow: which step comes next.

:func:`next_step` is the heart of the integration (DESIGN section 4). It looks
at what Flux wants and at what Kubernetes shows, and names one step. It is level
triggered: whatever was missed, doubled, late or forgotten before, the answer is
right for what is known now.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, Optional, Union

from flux_k8s.config import Config
from flux_k8s.directives import Directive
from flux_k8s.jobid import f58, workflow_name
from flux_k8s.rset import ResourceSet
from flux_k8s.workflowview import FINALIZER, TRANSIENT, WLM_ID, State, WorkflowView


class Goal(enum.Enum):
    """What Flux wants for a job."""

    PLANNED = "storage planned"
    READY = "storage ready"
    RELEASED = "storage released"


@dataclass(frozen=True)
class StorageRequest:
    """What ``dws.create`` asked for: the job's directives and resources."""

    userid: int
    directives: tuple[Directive, ...]
    resources: list[Any]
    failure_tolerance: int = 0


@dataclass
class WorkflowInfo:
    """What is known of one job's storage.

    Attributes:
        goal: what Flux wants.
        request: what the job asked for; None for a job that was past that when
            the module was started.
        allocation: the job's R, once it is known.
        ran: the job's tasks were started (with goal RELEASED).
        abandoned: give up unmounting and data movement, go to Teardown.
        aborted: as abandoned, and do not wait for Teardown either.
        announced: the job's eventlog names the Workflow.
        planned, mounted, released: Flux was told of it: ``resource-update``,
            ``prolog-remove``, ``epilog-remove`` were answered.
        view: the Workflow, or None while there is none.
        existed: there has been a Workflow.
        gone: the ``uid`` of the one that was deleted last.
        uncertain: a request to create it got no answer.
        failure: the note of the job's fatal exception.
        failed: Flux was told of the failure.
        transient_since: when TransientCondition was first seen.
        looked: when Kubernetes was last asked for the Workflow itself (UNIX time).
        dismissed: it was us who asked for Teardown.
        taken: what somebody else did to the Workflow before the job's data was
            safe, or None.
        cut_off: nodes and Rabbits that were still in use at an abort were
            taken out of service.
    """

    jobid: int
    goal: Goal
    request: Optional[StorageRequest] = None
    allocation: Optional[ResourceSet] = None
    ran: bool = False
    abandoned: bool = False
    aborted: bool = False
    announced: bool = False
    planned: bool = False
    mounted: bool = False
    released: bool = False
    view: Optional[WorkflowView] = None
    existed: bool = False
    gone: Optional[str] = None
    uncertain: bool = False
    failure: Optional[str] = None
    failed: bool = False
    transient_since: Optional[float] = None
    looked: float = 0.0
    dismissed: bool = False
    taken: Optional[str] = None
    cut_off: bool = False

    @property
    def name(self) -> str:
        return workflow_name(self.jobid)

    def owns(self, view: WorkflowView) -> bool:
        """The Workflow was made for this job."""
        return view.wlm == WLM_ID and view.jobid == f58(self.jobid)

    def see(self, view: WorkflowView, now: float) -> None:
        """Take in what Kubernetes shows, unless it is older than what is known.

        The answer to a request may come after a watch event that is newer. A
        Workflow never goes back to an earlier state either, so a view that would
        have it do so is a late one; and so is one of a Workflow that is gone.
        """
        if view.deleting and not view.finalizers:
            self.see_gone(view.uid)
        elif view.uid != self.gone and not self._is_late(view):
            if view.deleting:
                self._is_taken(view.uid, "deleted")
            elif view.desired is State.Teardown:
                self._is_taken(view.uid, "moved to Teardown")
            self.view = view
            self.existed = True
            self.uncertain = False
            if view.status != TRANSIENT or view.state is not view.desired:
                self.transient_since = None
            elif self.transient_since is None:
                self.transient_since = now

    def see_gone(self, uid: str) -> None:
        """Take in that a Workflow does not exist any more."""
        self._is_taken(uid, "deleted")
        self.gone = uid
        self.existed = True
        if self.view is not None and self.view.uid == uid:
            self.view = None
            self.transient_since = None

    def _is_taken(self, uid: str, how: str) -> None:
        """Note that the Workflow is on its way out, unless that is our doing or
        all of the job's data was copied."""
        known = self.view
        if known is None or known.uid != uid or self.dismissed or known.deleting:
            return
        safe = known.desired is State.DataOut and known.complete
        if known.desired is not State.Teardown and not safe:
            self.taken = f"Workflow {self.name} was {how} under the job"

    def _is_late(self, view: WorkflowView) -> bool:
        known = self.view
        if known is None or known.uid != view.uid:
            return False
        age = known.newer_than(view)
        if age is not None:
            return age
        if known.desired is None or view.desired is None:
            return False
        return view.desired < known.desired or (
            view.desired is known.desired
            and known.complete
            and view.state is not None
            and known.state is not None
            and view.state < known.state
        )


@dataclass(frozen=True)
class Create:
    """Create the Workflow, in Proposal."""


@dataclass(frozen=True)
class Lookup:
    """Ask for the Workflow: whether a create that got no answer was carried out,
    or whether a time limit was kept while the watch was interrupted."""


@dataclass(frozen=True)
class Plan:
    """Read the DirectiveBreakdowns and tell Flux the resources."""


@dataclass(frozen=True)
class Allocate:
    """Fill in Servers and Computes, then move to Setup."""


@dataclass(frozen=True)
class Advance:
    """Move to another state; ``hurry`` goes with a Teardown after an abort."""

    state: State
    hurry: bool = False


@dataclass(frozen=True)
class ReleaseProlog:
    """Give the environment to Flux: the job may start."""


@dataclass(frozen=True)
class CutOff:
    """Take nodes and Rabbits that the job still uses out of service."""


@dataclass(frozen=True)
class ReleaseEpilog:
    """Tell Flux that the job may end."""


@dataclass(frozen=True)
class RemoveFinalizer:
    """Remove our finalizer, so that the Workflow can be deleted."""


@dataclass(frozen=True)
class Delete:
    """Delete the Workflow."""


@dataclass(frozen=True)
class Fail:
    """Raise a fatal exception on the job."""

    note: str


@dataclass(frozen=True)
class Forget:
    """The job and its Workflow are gone."""


@dataclass(frozen=True)
class Wait:
    """Nothing to do until something changes, or until a time (UNIX)."""

    until: Optional[float] = None


Step = Union[
    Create,
    Lookup,
    Plan,
    Allocate,
    Advance,
    ReleaseProlog,
    CutOff,
    ReleaseEpilog,
    RemoveFinalizer,
    Delete,
    Fail,
    Forget,
    Wait,
]


def next_step(info: WorkflowInfo, now: float, config: Config) -> Step:
    """The step that brings a job's storage closer to what Flux wants.

    Pure, and total: every combination of wants and views has an answer.
    """
    if info.taken is not None and info.ran and not (info.failed or info.abandoned):
        return Fail(info.taken)
    if info.view is None:
        return _without_workflow(info)
    if not info.owns(info.view):
        return _with_foreign_workflow(info, info.view)
    if info.goal is Goal.RELEASED:
        return _release(info, info.view, now, config)
    if info.failed:
        return Wait()
    problem, deadline = _problem(info, info.view, now, config)
    if _in_doubt(info, deadline, now):
        return Lookup()
    if problem is not None:
        return Fail(problem)
    return _prepare(info, info.view, deadline)


def _without_workflow(info: WorkflowInfo) -> Step:
    if info.uncertain:
        return Lookup()
    if info.goal is Goal.RELEASED:
        return Forget() if info.released else ReleaseEpilog()
    if info.failed:
        return Wait()
    if info.failure is not None:
        return Fail(info.failure)
    if info.existed or info.goal is Goal.READY:
        return Fail(f"Workflow {info.name} was deleted under the job")
    return Wait() if info.request is None else Create()


def _with_foreign_workflow(info: WorkflowInfo, view: WorkflowView) -> Step:
    if info.goal is Goal.RELEASED:
        return Forget() if info.released else ReleaseEpilog()
    if info.failed:
        return Wait()
    return Fail(
        f"Workflow {info.name} exists and belongs to job {view.jobid} of "
        f"{view.wlm}, not to {f58(info.jobid)}"
    )


def _prepare(info: WorkflowInfo, view: WorkflowView, deadline: Optional[float]) -> Step:
    """The way up, from Proposal to a job that runs."""
    if info.goal is Goal.PLANNED:
        if view.desired is State.Proposal and not view.complete:
            return Wait(deadline)
        return Wait() if info.planned or info.request is None else Plan()
    if not view.complete:
        return Wait(deadline)
    if view.state is State.Proposal:
        return Wait() if info.allocation is None else Allocate()
    if view.state is State.Setup:
        return Advance(State.DataIn)
    if view.state is State.DataIn:
        return Advance(State.PreRun)
    return Wait() if info.mounted else ReleaseProlog()


def _release(
    info: WorkflowInfo, view: WorkflowView, now: float, config: Config
) -> Step:
    """The way down, from a job that ended to nothing left."""
    if info.aborted and not info.released:
        # The plugin has let the job go: its nodes may be given to others now.
        return ReleaseEpilog() if info.cut_off else CutOff()
    if view.deleting:
        return RemoveFinalizer() if FINALIZER in view.finalizers else Wait()
    if view.desired is State.Teardown:
        return _tear_down(info, view)
    problem, deadline = _problem(info, view, now, config)
    if _in_doubt(info, deadline, now) and info.ran and not info.abandoned:
        return Lookup()
    if problem is not None and not info.failed and info.ran and not info.abandoned:
        return Fail(problem)
    if problem is not None or info.abandoned or info.failed or not info.ran:
        return Advance(State.Teardown, hurry=info.aborted)
    if deadline is not None and now >= deadline:
        return Advance(State.Teardown)
    if not view.complete:
        return Wait(deadline)
    if view.state is State.PreRun:
        return Advance(State.PostRun)
    if view.state is State.PostRun:
        return Advance(State.DataOut)
    return Advance(State.Teardown)


def _tear_down(info: WorkflowInfo, view: WorkflowView) -> Step:
    if view.complete and not info.released:
        return ReleaseEpilog()
    if FINALIZER in view.finalizers and view.state is State.Teardown:
        return RemoveFinalizer()
    return Delete() if view.complete else Wait()


def _problem(
    info: WorkflowInfo, view: WorkflowView, now: float, config: Config
) -> tuple[Optional[str], Optional[float]]:
    """What makes it impossible to go on, and when something will."""
    if info.failure is not None:
        return info.failure, None
    if view.damage is not None:
        return view.damage, None
    if view.deleting:
        return f"Workflow {info.name} was deleted under the job", None
    if view.desired is State.Teardown:
        return f"Workflow {info.name} was moved to Teardown under the job", None
    state = view.state.name if view.state is not None else "Proposal"
    if view.in_error:
        return f"DWS failed in {state}: {view.message or 'no message'}", None
    return _overdue(info, view, state, now, config)


def _in_doubt(info: WorkflowInfo, deadline: Optional[float], now: float) -> bool:
    """A time limit has passed by what is known. A watch that was interrupted, or
    hangs, may have kept from us that the state was reached in time: so Kubernetes
    is asked before it costs a job its life or its data."""
    return deadline is not None and info.looked < deadline <= now


def _overdue(
    info: WorkflowInfo, view: WorkflowView, state: str, now: float, config: Config
) -> tuple[Optional[str], Optional[float]]:
    """Time limits: a note when one has passed, else the next deadline."""
    limits: list[tuple[float, Optional[str]]] = []
    if info.transient_since is not None:
        limits.append(
            (
                info.transient_since + config.tc_timeout,
                f"DWS reports a TransientCondition in {state} for more than "
                f"tc_timeout={config.tc_timeout:g}s: {view.message or 'no message'}",
            )
        )
    # Until DWS has taken up a state, ``changed`` is about the one before.
    if not view.complete and view.state is view.desired and view.changed is not None:
        limits += _state_limits(view, view.changed, config)
    if not limits:
        return None, None
    deadline, note = min(limits, key=lambda limit: limit[0])
    return (note if now >= deadline else None), deadline


def _state_limits(
    view: WorkflowView, changed: float, config: Config
) -> list[tuple[float, Optional[str]]]:
    """The time limits of the state that is under way. One whose note is None
    leads to Teardown, without an exception on the job."""
    seconds = {
        State.Setup: ("setup_timeout", config.setup_timeout),
        State.PreRun: ("prerun_timeout", config.prerun_timeout),
    }
    limits: list[tuple[float, Optional[str]]] = []
    if view.desired in seconds:
        key, limit = seconds[view.desired]
        if limit is not None:
            note = f"{view.desired.name} took more than {key}={limit:g}s"
            limits.append((changed + limit, note))
    if view.desired is State.PostRun and config.postrun_timeout is not None:
        limits.append((changed + config.postrun_timeout, None))
    if view.desired in (State.PostRun, State.DataOut):
        if config.teardown_after is not None:
            limits.append((changed + config.teardown_after, None))
    return limits
