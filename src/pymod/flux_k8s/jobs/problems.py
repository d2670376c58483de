# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The reasons for which a job's storage cannot make progress, or must not."""

from __future__ import annotations

from typing import Optional

from flux_k8s.config.table import Config
from flux_k8s.jobs.timelimits import Moment, Problem, may_lose_nodes, overdue
from flux_k8s.jobs.workflowinfo import DELETED, MOVED, WorkflowInfo
from flux_k8s.objects.workflowstate import State
from flux_k8s.objects.workflowview import WorkflowView
from flux_k8s.reasons import Note, Reason
from flux_k8s.rules.nextstep import USER_ERROR

GRACE = 30.0
"""Seconds within which DWS shows that a copy is made again."""


def problem_of(
    info: WorkflowInfo, view: WorkflowView, at: Moment
) -> tuple[Optional[Problem], Optional[float]]:
    """The present problem of the storage, and the UNIX time at which the next one may
    arise; None for each that there is not."""
    if info.failure is not None:
        return Problem(info.failure), None
    if at.lost:
        note = f"its data is lost before it had nodes: {at.lost}"
        return Problem(Note(note, Reason.RABBIT_BROKEN)), None
    if view.damage is None and view.deleting:
        return Problem(info.interference_note(DELETED)), None
    if view.damage is None and view.desired is State.Teardown:
        return Problem(info.interference_note(MOVED)), None
    return dws_problem(info, view, at)


def dws_problem(
    info: WorkflowInfo, view: WorkflowView, at: Moment
) -> tuple[Optional[Problem], Optional[float]]:
    """The same for the problems that DWS has, or shows."""
    if view.damage is not None:
        return Problem(Note(view.damage, Reason.BAD_OBJECT)), None
    state = view.state.name if view.state is not None else "Proposal"
    if view.in_error:
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
        problem = Problem(note, deadline, patience)
        return (problem if at.now >= deadline else None), deadline
    return overdue(info, view, state, at)


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
    return (info.abandoned or info.failed) and not view.has_failed


def gives_up(
    info: WorkflowInfo, view: WorkflowView, problem: Optional[Problem]
) -> bool:
    """Whether the storage of a job goes without all of its data."""
    if info.aborted:
        return True
    if view.has_failed and view.complete:
        return False  # it was copied after all
    over = view.given_up or view.failed_until is not None
    return problem is not None or has_ended_badly(info, view) or not info.ran or over


def may_be_kept(info: WorkflowInfo, view: WorkflowView, config: Config) -> bool:
    """Whether the storage of a job is kept so that its data can be rescued, when
    copying it out has failed."""
    if config.keep_failed is None or view.failed_until is not None:
        return False
    copying = view.desired is State.DataOut and bool(view.unsaved) and info.ran
    broken = info.failure is not None or view.damage is not None
    given_up = view.given_up or info.aborted or has_ended_badly(info, view)
    return copying and not (broken or given_up or info.not_kept is not None)


def copies_unknown(info: WorkflowInfo, view: WorkflowView) -> bool:
    """Whether there are copies out of which it is not known what became of them. DWS
    reports on one after the other, and on none after an Error, although it has begun
    them all."""
    copying = view.state is view.desired is State.DataOut and not view.deleting
    if not copying or view.complete or view.copies_noted:
        return False
    over = view.given_up or info.aborted or has_ended_badly(info, view)
    if over or info.data_reported or info.failure is not None:
        return False
    return len(view.unsaved) > 1 or view.in_error and bool(view.unsaved)


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
    return view.desired is State.PostRun and info.mounts.writers != ()
