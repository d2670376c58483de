# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Reports why jobs wait, to their users and to the administrator.

A job without progress has a memo with the reason. The log has one line
for a job whose step fails; :mod:`flux_k8s.jobs.outage` logs an outage of Kubernetes,
which concerns all jobs.
"""

from __future__ import annotations

import errno
import syslog
from dataclasses import dataclass
from typing import Optional

from flux_k8s.control.backoff import Backoff
from flux_k8s.errors import DWSError, NoEffect, NotReady, StorageUnavailable
from flux_k8s.formats.jobid import f58
from flux_k8s.jobs.outage import PATIENCE, SILENCE, Outage
from flux_k8s.jobs.step import Next, Step
from flux_k8s.jobs.workflowinfo import WorkflowInfo
from flux_k8s.jobs.workflowrequests import StepError
from flux_k8s.objects.workflowstate import State
from flux_k8s.objects.workflowview import WorkflowView
from flux_k8s.ports import Flux, KubeError, RpcError
from flux_k8s.reasons import Note, Reason
from flux_k8s.slots import slotted
from flux_k8s.text import NOTE, printable

DWS_PATIENCE = 60.0
"""Seconds that DWS may work on a state until the job's memo says so."""

TRIES = 3
"""Failures in a row until the job's memo names the reason."""

MEMO = "rabbit_waits_for"


@slotted
@dataclass
class Progress:
    """How one job gets on.

    Attributes:
        backoff: the pauses between tries of a step.
        logged: the log has a line about the step that fails.
        memo: the text of the job's memo; None when there is no memo, empty when
            somebody else has posted it, with a text that is not known.
        outage: the job waits for the end of an outage.
    """

    backoff: Backoff
    logged: bool = False
    memo: Optional[str] = None
    outage: bool = False

    def inherit(self, memo: str) -> None:
        """The job has a memo of an earlier service."""
        if self.memo is None:
            self.memo = memo

    def begin(self) -> None:
        """Another step begins: earlier failures do not count any more."""
        self.backoff.reset()
        self.logged = False


OF_FLUX = (Step.FAIL, Step.RELEASE_EPILOG, Step.REPORT_DATA, Step.WITHHOLD)
"""The steps that await nothing of Kubernetes."""


class Reporter:
    """Posts memos and logs lines about jobs that wait."""

    def __init__(self, flux: Flux, outage: Outage) -> None:
        self._flux = flux
        self._outage = outage

    def step_begins(self, info: WorkflowInfo, progress: Progress, step: Next) -> None:
        """A step begins. A job whose epilog is released waits for nothing more."""
        if step.step is Step.RELEASE_EPILOG:
            self._memo(info, progress, None)

    def report_slow_step(
        self, info: WorkflowInfo, progress: Progress, step: Next, since: float
    ) -> None:
        """A step is under way since a time, which was ``PATIENCE`` ago: post a memo."""
        source = awaited(info, step)
        if source == "Kubernetes":
            self._outage.note_silence(since)
        if self._outage.reason is None and not progress.memo:
            self._memo(info, progress, f"{source}: {SILENCE}")

    def step_ended(self, step: Next, error: Optional[StepError]) -> None:
        """A step has ended. Most steps end with an answer of Kubernetes, be it one that
        is malformed."""
        if isinstance(error, KubeError):
            answered = error.answered
        else:
            answered = error is None and step.step not in (
                *OF_FLUX,
                Step.RELEASE_PROLOG,
            )
        if answered:
            self._outage.note_answer()

    def step_failed(
        self, info: WorkflowInfo, progress: Progress, error: StepError
    ) -> None:
        """A step has failed: log it once, post a memo after ``TRIES`` failures, or at
        once if the next try is ``PATIENCE`` away, by the server's wish."""
        failures, why = progress.backoff.failures + 1, why_waits(error)
        if self._outage.reason is not None:
            self.report_outage(info, progress)
            return
        unanswered = isinstance(error, KubeError) and error.status == 0
        # Without any answer it may be an outage, and a watch is about to tell.
        early = unanswered and failures == 1
        # Of those who wait for a turn there may be thousands: their memos say so.
        awaits_turn = why.reason is Reason.LIMIT_REACHED
        if not (progress.logged or early or awaits_turn or is_not_ready(error)):
            progress.logged = True
            text = f"{f58(info.jobid)}: {why.text}; trying again"
            self._flux.log(syslog.LOG_WARNING, text, why.reason)
        waits = isinstance(error, KubeError) and (error.retry_after or 0.0) >= PATIENCE
        if failures >= TRIES or waits or isinstance(error, StorageUnavailable):
            self._memo(info, progress, why.text)

    def report_outage(self, info: WorkflowInfo, progress: Progress) -> None:
        """Post a memo while a job waits for the end of an outage, remove it then."""
        if self._outage.reason is None and progress.outage:
            self._memo(info, progress, None)
        elif self._outage.reason is not None and not info.satisfied:
            self._memo(info, progress, f"Kubernetes: {self._outage.reason}")
        progress.outage = self._outage.reason is not None

    def report_state(
        self, info: WorkflowInfo, progress: Progress, why: str = ""
    ) -> Optional[float]:
        """Remove a job's memo, or post one with the message of DWS about a state that
        takes long: copying much data may take long, and so may a state that never ends.

        Args:
            why: what a job without a Workflow waits for, or "".

        Returns:
            When (UNIX time) the state will have taken long; None if no memo is due.
        """
        view, now = info.view, self._flux.now()
        if self._outage.reason is not None:
            return None
        if view is None or view.complete or view.desired is None:
            self._memo(info, progress, why or None)
            return None
        seen = info.begun.get(view.desired, now)
        due = DWS_PATIENCE + min(seen if view.since is None else view.since, seen)
        text = _progress(view.desired, view) if now >= due else None
        self._memo(info, progress, text)
        return due if now < due else None

    def _memo(
        self, info: WorkflowInfo, progress: Progress, reason: Optional[str]
    ) -> None:
        """Post a memo. A job whose epilog was released has ended, and takes none."""
        if progress.memo != reason and not info.released:
            progress.memo = reason
            text = None if reason is None else printable(reason, NOTE)
            self._flux.post_memo(info.jobid, {MEMO: text})


def _progress(state: State, view: WorkflowView) -> str:
    """The message of DWS about the state that was requested."""
    if view.state is not state:
        return f"DWS, to begin with {state.name}"
    return f"DWS in {state.name}: {view.message or view.status or 'no message'}"


def awaited(info: WorkflowInfo, step: Next) -> str:
    """The party whose answer a step waits for, for a memo."""
    if step.step in OF_FLUX:
        return "Flux"
    if step.step is Step.CREATE and info.group is None:
        return "the user database"
    return "Kubernetes"


def is_not_ready(error: object) -> bool:
    """Whether the error is that of a plugin that still reads its jobs' eventlogs."""
    return isinstance(error, RpcError) and error.errnum == errno.EAGAIN


def why_waits(error: StepError) -> Note:
    """The reason why a job waits after this error of its step, for a memo."""
    if isinstance(error, StorageUnavailable):
        return error.note
    if isinstance(error, NoEffect):
        return Note(str(error), Reason.KUBERNETES_ERROR)
    if isinstance(error, RpcError) and error.errnum == errno.ENOSYS:
        return Note("Flux: dws-jobtap.so is not loaded", Reason.PLUGIN_MISSING)
    if isinstance(error, NotReady):
        return Note(f"DWS: {error}", error.reason)
    if isinstance(error, KubeError):
        return Note(f"Kubernetes: {error}", Reason.KUBERNETES_ERROR)
    reason = error.reason if isinstance(error, DWSError) else Reason.FLUX_ERROR
    return Note(f"Flux: {error}", reason)
