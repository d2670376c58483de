# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Decides on the next step of a job: one job, one Workflow.

:func:`next_step` is the heart of the integration. It names one step
from the goal of Flux and the view of the Workflow. It is level-triggered: after missed,
repeated, late or forgotten events the answer is still right for the present state.
"""

from __future__ import annotations

from typing import Optional

from flux_k8s.errors import show
from flux_k8s.jobs.losses import (
    UNKNOWN_LOSS,
    cause_of,
    kept_note,
    loss_of,
    loss_when_gone,
    losses,
    with_losses,
)
from flux_k8s.jobs.step import Next, Step
from flux_k8s.jobs.timelimits import (
    Moment,
    Problem,
    awaited_until,
    begin_of,
    dws_problem,
    gives_up,
    is_kept,
    may_be_kept,
    may_be_written,
    problem_of,
    unmade,
    unmounts_late,
)
from flux_k8s.jobs.workflowinfo import DELETED, Goal, WorkflowInfo
from flux_k8s.objects.workflowstate import State
from flux_k8s.objects.workflowview import FINALIZER, WorkflowView
from flux_k8s.reasons import Note, Reason

TEARDOWN_PATIENCE = 60.0
"""Seconds that DWS may take for Teardown before the job's owner gets a warning."""

FORCED_PATIENCE = 120.0
"""Seconds that DWS has to take a state for reached that is forced."""

WRITERS_VALID = 60.0
"""Seconds until it is found out again which nodes could write to storage that is kept,
or that DWS takes for unmounted, or cannot unmount."""


def _because(text: str) -> Note:
    """The note of a drain of nodes that have not unmounted."""
    return Note(text, Reason.UNMOUNT_FAILED)


def next_step(info: WorkflowInfo, at: Moment) -> Next:
    """The step that brings a job's storage closer to the goal of Flux.

    The function is pure and total: every combination of goal and view has an answer.
    """
    takes_exceptions = not (info.failed or info.released)
    if info.interference is not None and info.ran and takes_exceptions:
        return Step.FAIL(info.interference)
    if info.doubtful:
        return Step.LOOK_UP()
    if info.view is None:
        return _without_workflow(info, at)
    if not info.view.is_of(info.jobid):
        return _with_foreign_workflow(info, info.view)
    if info.goal is Goal.RELEASED:
        return _release(info, info.view, at)
    if info.failed:
        return Step.WAIT()
    if _is_withdrawn(info.view) and info.may_be_made_again:
        return _remove(info.view)
    problem, deadline = problem_of(info, info.view, at)
    if problem is not None and info.mounted:
        return Step.FAIL(with_losses(problem.note, info, info.view))
    if problem is not None:
        return _tolerate(info, info.view, problem, at)
    return _prepare(info, info.view, deadline)


def _without_workflow(info: WorkflowInfo, at: Moment) -> Next:
    note = info.interference_note(DELETED)
    if info.may_have_run:
        lost = info.interference_note(DELETED, f"; {UNKNOWN_LOSS}")
        note = info.interference or lost
    if info.goal is Goal.RELEASED:
        missed = info.ran and info.last is None  # a restart in its epilog
        if missed and not (info.released or info.failed):
            return Step.FAIL(note)
        if info.owes_report:
            return Step.REPORT_DATA(loss_when_gone(info))
        return Step.FORGET() if info.released else Step.RELEASE_EPILOG()
    if info.failed:
        return Step.WAIT()
    if info.existed or (info.goal is Goal.READY and info.again_at is None):
        return Step.FAIL(note)
    problem, _ = unmade(info, at)
    if problem is not None:
        return Step.FAIL(problem.note)
    if info.again_at is not None and at.now < info.again_at:
        return Step.WAIT(until=info.again_at)
    # Before the plan the plugin sends the request again.
    return Step.CREATE() if info.planned or info.request is not None else Step.WAIT()


def _is_withdrawn(view: WorkflowView) -> bool:
    """Whether another program has done away with a Workflow."""
    over = view.deleting or view.desired is State.Teardown
    return over and view.damage is None


def _remove(view: WorkflowView) -> Next:
    """The step that removes a Workflow before it is made again."""
    begun = view.deleting or view.state is State.Teardown
    if begun and FINALIZER in view.finalizers:
        return Step.REMOVE_FINALIZER()
    return Step.DELETE() if view.complete and not view.deleting else Step.WAIT()


def _with_foreign_workflow(info: WorkflowInfo, view: WorkflowView) -> Next:
    text = (
        f"Workflow {info.name} exists and belongs to job {view.jobid} of "
        f"{view.wlm}, not to {info.f58}"
    )
    if not view.ours:
        text = (
            f"Workflow {info.name} exists and belongs to the Flux instance "
            f"{show(view.instance)}"
        )
    if info.owes_report:
        return Step.REPORT_DATA(Note(f"{text}; {UNKNOWN_LOSS}", Reason.NAME_TAKEN))
    if info.goal is Goal.RELEASED and (info.released or info.failed or not info.ran):
        return Step.FORGET() if info.released else Step.RELEASE_EPILOG()
    return Step.WAIT() if info.failed else Step.FAIL(Note(text, Reason.NAME_TAKEN))


def _prepare(info: WorkflowInfo, view: WorkflowView, deadline: Optional[float]) -> Next:
    """The way up, from Proposal to a job that runs."""
    if info.stages_ahead:
        return _prepare_ahead(info, view, deadline)
    if info.goal is Goal.PLANNED:
        if view.desired is State.Proposal and not view.complete:
            return Step.WAIT(until=deadline)
        if info.planned:
            return Step.PLAN() if view.remade and not info.fits else Step.WAIT()
        return Step.WAIT() if info.request is None else Step.PLAN()
    if not view.complete:
        return Step.WAIT(until=deadline)
    if info.allocation is None:
        return Step.WAIT()  # after a restart the plugin sends it again
    if view.state is State.Proposal:
        return Step.PLACE()
    if view.state is State.Setup:
        return Step.MOVE(to=State.DataIn)
    if view.state is State.DataIn:
        return Step.ADD_NODES() if info.is_staged else Step.MOVE(to=State.PreRun)
    return Step.WAIT() if info.mounted else Step.RELEASE_PROLOG()


def _prepare_ahead(
    info: WorkflowInfo, view: WorkflowView, deadline: Optional[float]
) -> Next:
    """The way up of a job without nodes, from Proposal to data that waits for them."""
    if not view.complete:
        return Step.WAIT(until=deadline)
    if view.state is State.Proposal:
        return Step.STAGE() if info.awaits_staging else Step.WAIT()
    if view.state is State.Setup:
        return Step.MOVE(to=State.DataIn)
    return (
        Step.WAIT(until=deadline)
        if info.planned or info.request is None
        else Step.PLAN()
    )


def _release(info: WorkflowInfo, view: WorkflowView, at: Moment) -> Next:
    """The way down, from a job that ended to nothing left."""
    if info.aborted and not view.cut_off:
        # The plugin lets the job go: its nodes are given to others then.
        return Step.CUT_OFF()
    if info.aborted and not info.released:
        return Step.RELEASE_EPILOG()
    if info.owes_report and (view.deleting or view.desired is State.Teardown):
        return Step.REPORT_DATA(info.interference or loss_of(info, view))
    if view.deleting:
        return Step.REMOVE_FINALIZER() if FINALIZER in view.finalizers else Step.WAIT()
    if view.desired is State.Teardown:
        return _release_nodes(info, view) or _tear_down(info, view, at)
    if is_kept(info, view, at):
        return _await_rescue(info, view, at)
    problem, deadline = problem_of(info, view, at)
    saves = info.ran and (view.copy_failed or not info.abandoned)
    awaited = awaited_until(info, view, at) if problem is not None and saves else None
    if awaited is not None:
        problem, deadline = None, awaited
    if may_be_written(info, view, at.config):
        # DWS does not keep a file system from a second mount, nor from deletion.
        trouble, deadline = dws_problem(info, view, at)
        step = _await_unmount(info, view, problem, trouble, at.now)
        if step is not None:
            return step
    elif problem is not None and may_be_kept(info, view, at.config):
        return Step.KEEP_FAILED(problem.note)
    elif gives_up(info, view, problem):
        return _give_up(info, view, problem)
    release = _release_nodes(info, view)
    if release is not None:
        return release
    if not view.complete:
        if view.awaits_unmount:
            # A node that could not write may be back before DWS does without it.
            deadline = _looks_again_at(info)
            if at.now >= deadline:
                return Step.UNMOUNT(_because("DWS waits for it"))
        return Step.WAIT(until=deadline)
    if view.state is State.PreRun:
        return Step.MOVE(to=State.PostRun)
    if view.state is State.PostRun:
        return Step.MOVE(to=State.DataOut)
    return _request_teardown(info, view)


def _release_nodes(info: WorkflowInfo, view: WorkflowView) -> Optional[Next]:
    """The step by which a job whose nodes have unmounted, or are drained, ends before
    its storage is gone; None if it does not, or not yet. The storage is kept from
    others first."""
    ended = bool(view.kept_for) or view.copy_failed or view.desired is State.Teardown
    if not view.nodes_released or info.released or (info.failed and not ended):
        return None
    if info.withheld is None:
        return Step.WITHHOLD()
    return Step.RELEASE_EPILOG() if info.withheld else None


def _await_rescue(info: WorkflowInfo, view: WorkflowView, at: Moment) -> Next:
    """The step for storage that is kept so that data can be rescued: its job ends."""
    if not (info.failed or info.released):
        return Step.FAIL(kept_note(info, view))
    until = None if info.rescuing else view.failed_until
    deadline = None if until is None else max(until, at.outages.quiet_until)
    return _release_nodes(info, view) or Step.WAIT(until=deadline)


def _await_unmount(
    info: WorkflowInfo,
    view: WorkflowView,
    problem: Optional[Problem],
    trouble: Optional[Problem],
    now: float,
) -> Optional[Next]:
    """The step for storage that nodes may still write to, in PostRun; None if DWS has
    time, or is to go there.

    Args:
        trouble: the problem that DWS has, if there is one.
    """
    if view.desired is not State.PostRun:
        return None
    over = view.complete or trouble is not None or info.aborted or bool(view.kept_for)
    if over and now >= _looks_again_at(info):
        if trouble is not None:
            return Step.UNMOUNT(trouble.note, failed=not trouble.limit)
        if view.complete:
            return Step.UNMOUNT(_because("DWS did not wait for it"))
        waits = "its epilog was given up" if info.aborted else "DWS waits for it"
        return Step.UNMOUNT(_because(waits))
    if view.kept_for and not info.released:
        failure = problem is not None and not (problem.limit or info.abandoned)
        lost = info.abandoned and losses(info, view)
        if info.ran and not info.failed and (failure or lost):
            return Step.FAIL(
                with_losses(_why_given_up(info, view, problem), info, view)
            )
        release = _release_nodes(info, view)
        if release is not None:
            return release
    return Step.WAIT(until=_looks_again_at(info)) if over else None


def _looks_again_at(info: WorkflowInfo) -> float:
    """The UNIX time from which it is not known any more which nodes could write."""
    found_at = info.mounts.found_at
    return 0.0 if found_at is None else found_at + WRITERS_VALID


def _give_up(
    info: WorkflowInfo, view: WorkflowView, problem: Optional[Problem]
) -> Next:
    """Give up PostRun and DataOut. The job's owner learns of each loss of data and of
    each node. A node that may still unmount in Teardown is not drained before Teardown
    is complete."""
    if info.owes_report:
        if view.copies_noted and not losses(info, view):
            return Step.REPORT_DATA()
        given_up = Note("given up", cause_of(info))
        note = given_up if problem is None else problem.note
        note = view.failure if view.failure.text else note
        return Step.REPORT_DATA(info.told or with_losses(note, info, view))
    if not info.ran or info.released:
        return _request_teardown(info, view)
    if problem is not None and not info.abandoned and view.desired is State.PostRun:
        if info.mounts.found_at is None:
            return Step.UNMOUNT(problem.note)
    fatal = problem is not None and not (problem.limit or info.abandoned)
    if not info.failed and (fatal or losses(info, view)):
        return Step.FAIL(with_losses(_why_given_up(info, view, problem), info, view))
    return _request_teardown(info, view)


def _why_given_up(
    info: WorkflowInfo, view: WorkflowView, problem: Optional[Problem]
) -> Note:
    """Why the storage of a job goes without all of its data."""
    if view.failure.text:
        return view.failure
    if problem is not None:
        return problem.note
    state = "its epilog" if view.desired is None else view.desired.name
    return Note(f"given up in {state}", cause_of(info))


def _request_teardown(info: WorkflowInfo, view: WorkflowView) -> Next:
    if info.owes_report:
        return Step.REPORT_DATA(loss_of(info, view))
    return Step.MOVE(to=State.Teardown)


def _tear_down(info: WorkflowInfo, view: WorkflowView, at: Moment) -> Next:
    if view.complete and not info.released:
        return Step.RELEASE_EPILOG()
    if FINALIZER in view.finalizers and view.state is State.Teardown:
        return Step.REMOVE_FINALIZER()
    if view.complete:
        return Step.DELETE()
    overdue, deadline = unmounts_late(info, view, at)
    if view.awaits_unmount or view.left_mounted or overdue is not None:
        # A node that cannot write any more is to be Disabled: DWS does without it then.
        deadline = _looks_again_at(info)
        if at.now >= deadline:
            if overdue is not None:
                return Step.UNMOUNT(overdue.note, ends=True)
            return Step.UNMOUNT(_because("Teardown is not complete"))
    return _await_teardown(info, view, at, deadline)


def _await_teardown(
    info: WorkflowInfo, view: WorkflowView, at: Moment, deadline: Optional[float]
) -> Next:
    """Wait for Teardown, which has no time limit, at most until ``deadline``. Warn the
    owner when it takes long."""
    if info.warned or view.warned:
        return Step.WAIT(until=deadline)
    message = view.message or "no message"
    if view.in_error:
        fatal = not (info.failed or info.released)
        failed = Note(f"DWS failed in Teardown: {message}", Reason.TEARDOWN_FAILED)
        return Step.WARN(failed, failed=fatal)
    begin = begin_of(info, view, State.Teardown, at)
    if begin is None:
        return Step.WAIT()
    due = begin + TEARDOWN_PATIENCE
    if at.now < due:
        return Step.WAIT(until=due if deadline is None else min(due, deadline))
    begun = view.state is State.Teardown
    what = f"says: {message}" if begun else "has not begun with it"
    text = f"Teardown takes more than {TEARDOWN_PATIENCE:g}s, DWS {what}"
    return Step.WARN(Note(text, Reason.TEARDOWN_LATE))


def _tolerate(
    info: WorkflowInfo, view: WorkflowView, problem: Problem, at: Moment
) -> Next:
    """The step for a problem that a few nodes may be the cause of."""
    if problem.patience is None:
        return Step.FAIL(problem.note)
    # A job that tolerates no failure would only have had the nodes named.
    if not info.failure_tolerance and (info.allocation is None or view.forced):
        return Step.FAIL(problem.note)
    if view.forced:
        return _await_forced(info, view, problem, at)
    if info.allocation is None:
        return Step.WAIT()
    return Step.TOLERATE(problem.note, patience=problem.patience)


def _await_forced(
    info: WorkflowInfo, view: WorkflowView, problem: Problem, at: Moment
) -> Next:
    """The step for a state that DWS is to take for reached. Who else has forced it sees
    to that."""
    begin = begin_of(info, view, view.desired, at) if view.desired is not None else None
    if begin is None or view.forced_at is None or view.forced_at < begin:
        return Step.WAIT()
    deadline = at.deadline(view.forced_at, FORCED_PATIENCE)
    if at.now < deadline:
        return Step.WAIT(until=deadline)
    text = f"{problem.note.text}; DWS does not go on without the nodes that failed"
    return Step.FAIL(Note(text, problem.note.reason))
