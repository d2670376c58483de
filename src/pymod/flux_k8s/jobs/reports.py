# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Reports about jobs that are active, to their users and to the administrator: why they
fail, and why they wait.

A job that fails has an exception. A job without progress has a memo with the reason,
and the log has a line for each failure of a step; :mod:`flux_k8s.jobs.outage` logs an
outage of Kubernetes, which concerns all jobs. What became of a job's data is in
:mod:`flux_k8s.jobs.outcomes`.
"""

from __future__ import annotations

import errno
import syslog
from dataclasses import replace
from typing import Optional

from flux_k8s.errors import DWSError, NoEffect, NotReady, StorageUnavailable
from flux_k8s.formats.timestamps import format_timestamp
from flux_k8s.jobs.isolation import JobScope
from flux_k8s.jobs.jobtable import Job
from flux_k8s.jobs.losses import left_persistent
from flux_k8s.jobs.outage import MOST_REASONS, PATIENCE, SILENCE, Outage
from flux_k8s.jobs.plugin import request_plugin
from flux_k8s.jobs.step import Next, Step
from flux_k8s.jobs.workflowinfo import NOT_HERE, Goal, WorkflowInfo
from flux_k8s.jobs.workflowrequests import FAILURES, StepError, WorkflowRequests
from flux_k8s.objects.workflowmarks import WARNED
from flux_k8s.objects.workflowstate import State
from flux_k8s.objects.workflowview import WorkflowView
from flux_k8s.ports import Flux, Json, KubeError, RpcError
from flux_k8s.reasons import DWS, FATAL, WARNING, Note, Reason
from flux_k8s.text import NOTE, printable, with_next_step, without_next_step

DWS_PATIENCE = 60.0
"""Seconds that DWS may work on a state until the job's memo says so."""

TRIES = 3
"""Failures in a row until the job's memo names the reason."""

MEMO = "rabbit_waits_for"

OF_FLUX = (Step.FAIL, Step.RELEASE_EPILOG, Step.REPORT_DATA, Step.WITHHOLD)
"""The steps that await nothing of Kubernetes."""


class FailureReports:
    """Reports failures of jobs."""

    def __init__(
        self, flux: Flux, workflows: WorkflowRequests, scope: JobScope
    ) -> None:
        self._flux = flux
        self._workflows = workflows
        self._scope = scope

    async def fail(self, info: WorkflowInfo, why: Note) -> None:
        """Raise a fatal exception, and say where the job's owner learns more. The note
        about data that is kept says so by itself."""
        kept = info.view is not None and info.view.copy_failed
        note = why.text if kept else with_next_step(why.text, info.f58)
        await self.raise_failure(info, replace(why, text=note))
        if kept:
            info.failure = NOT_HERE

    async def raise_failure(self, info: WorkflowInfo, why: Note) -> None:
        """Raise a fatal exception, in the answer that the job's dependency
        waits for when there is one."""
        note = printable(why.text, NOTE)
        if info.view is not None and info.view.is_of(info.jobid):
            # The job does not wait for it.
            saved = self._workflows.save_failed(info)
            self._scope.spawn(info.jobid, saved, FAILURES)
        if info.goal is Goal.PLANNED and not info.planned and info.request is not None:
            payload: Json = {
                "id": info.jobid,
                "resources": info.request.resources,
                "exclude": None,
                "errmsg": note,
                "reason": why.reason.value,
            }
            await request_plugin(self._flux, "resource-update", payload)
        else:
            self._flux.raise_exception(info.jobid, DWS, FATAL, note, why.reason)
        info.failure = replace(why, text=without_next_step(note))

    def report_persistent(self, info: WorkflowInfo) -> None:
        """Report what outlives a job that did not run. Its epilog is released next."""
        note = printable(left_persistent(info), NOTE)
        if note:
            left = Reason.PERSISTENT_LEFT
            self._flux.raise_exception(info.jobid, DWS, WARNING, note, left)

    async def warn(self, info: WorkflowInfo, following: Next) -> None:
        """Report once that Teardown makes no progress. By the annotation the next
        module knows of the report. A job whose epilog was released accepts no
        exceptions."""
        reason = following.why.reason
        note = with_next_step(following.why.text, info.f58)
        self._flux.log(syslog.LOG_ERR, f"{info.f58}: {note}", reason)
        if not info.released:
            severity = FATAL if following.failed else WARNING
            self._flux.raise_exception(info.jobid, DWS, severity, note, reason)
        if following.failed:
            info.failure = Note(note, reason)
        info.warned = True
        now = format_timestamp(self._flux.now())
        await self._workflows.annotate(info, {WARNED: now})


class WaitReports:
    """Posts memos and logs lines about jobs that wait."""

    def __init__(self, flux: Flux, outage: Outage) -> None:
        self._flux = flux
        self._outage = outage

    def step_begins(self, job: Job, step: Next) -> None:
        """A step begins. A job whose epilog is released waits for nothing more."""
        if step.step is Step.RELEASE_EPILOG:
            self._memo(job, None)

    def report_slow_step(self, job: Job, step: Next) -> None:
        """A step is under way, and began ``PATIENCE`` ago: post a memo, which would
        stay if the job ends by this step."""
        if step.step is Step.RELEASE_EPILOG:
            return
        if self._outage.reason is None and not job.memo:
            self._memo(job, f"{awaited(job.info, step)}: {SILENCE}")

    def step_failed(self, job: Job, error: StepError) -> None:
        """A step has failed: log each failure once, of the first few. Post a memo after
        ``TRIES`` failures, or at once if the next try is ``PATIENCE`` away, by the
        server's wish."""
        failures, why = job.backoff.failures + 1, why_waits(error)
        if self._outage.reason is not None:
            self.report_outage(job)
            return
        unanswered = isinstance(error, KubeError) and error.status == 0
        # Without any answer it may be an outage, and a watch is about to tell.
        early = unanswered and failures == 1
        limited = why.reason is Reason.LIMIT_REACHED  # that is no trouble
        # The other nodes of a job that goes on without some have their time.
        has_time = isinstance(error, NotReady) and error.retry_after is not None
        waits_only = limited or has_time or is_not_ready(error)
        known = why.text in job.logged or len(job.logged) == MOST_REASONS
        if not (known or early or waits_only):
            job.logged.add(why.text)
            text = f"{job.info.f58}: {why.text}; trying again"
            self._flux.log(syslog.LOG_WARNING, text, why.reason)
        waits = isinstance(error, KubeError) and (error.retry_after or 0.0) >= PATIENCE
        if failures >= TRIES or waits or isinstance(error, StorageUnavailable):
            self._memo(job, why.text)

    def report_outage(self, job: Job) -> None:
        """Post a memo while a job waits for the end of an outage, remove it then."""
        if self._outage.reason is None and job.in_outage:
            self._memo(job, None)
        elif self._outage.reason is not None and not job.info.satisfied:
            self._memo(job, f"Kubernetes: {self._outage.reason}")
        job.in_outage = self._outage.reason is not None

    def report_state(self, job: Job, why: str = "") -> Optional[float]:
        """Remove a job's memo, or post one with the message of DWS about a state that
        takes long: copying much data may take long, and so may a state that never ends.

        Args:
            why: what a job without a Workflow waits for, or "".

        Returns:
            When (UNIX time) the state will have taken long; None if no memo is due.
        """
        view, now = job.info.view, self._flux.now()
        if self._outage.reason is not None:
            return None
        if view is None or view.complete or view.desired is None:
            self._memo(job, why or None)
            return None
        seen = job.info.begun.get(view.desired, now)
        due = DWS_PATIENCE + min(seen if view.since is None else view.since, seen)
        text = _state_text(view.desired, view) if now >= due else None
        self._memo(job, text)
        return due if now < due else None

    def _memo(self, job: Job, reason: Optional[str]) -> None:
        """Post a memo. A job whose epilog was released has ended, and takes none."""
        if job.memo != reason and not job.info.released:
            job.memo = reason
            text = None if reason is None else printable(reason, NOTE)
            self._flux.post_memo(job.info.jobid, {MEMO: text})


def _state_text(state: State, view: WorkflowView) -> str:
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
    if isinstance(error, (StorageUnavailable, NoEffect)):
        return error.note
    if isinstance(error, RpcError) and error.errnum == errno.ENOSYS:
        return Note("Flux: dws-jobtap.so is not loaded", Reason.PLUGIN_MISSING)
    if isinstance(error, NotReady):
        return Note(f"DWS: {error}", error.reason)
    if isinstance(error, KubeError):
        return Note(f"Kubernetes: {error}", Reason.KUBERNETES_ERROR)
    reason = error.reason if isinstance(error, DWSError) else Reason.FLUX_ERROR
    return Note(f"Flux: {error}", reason)
