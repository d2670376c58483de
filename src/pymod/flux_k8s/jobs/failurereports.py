# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Reports to Flux, and to the user, that a job fails, or that its storage makes no
progress (seed 001)."""

from __future__ import annotations

import syslog
from dataclasses import replace

from flux_k8s.control.coroutines import Bind, drive
from flux_k8s.dws.nextstep import with_next_step, without_next_step
from flux_k8s.dws.workflowmarks import WARNED
from flux_k8s.jobs.jobexception import DWS, FATAL, WARNING
from flux_k8s.jobs.losses import left_persistent
from flux_k8s.jobs.plugin import request_plugin
from flux_k8s.jobs.step import Warn
from flux_k8s.jobs.workflowinfo import Goal, WorkflowInfo
from flux_k8s.jobs.workflowrequests import FAILURES, WorkflowRequests
from flux_k8s.ports import Flux, Json
from flux_k8s.reasons import Note, Reason
from flux_k8s.rfc.jobid import f58
from flux_k8s.rfc.timestamps import format_timestamp
from flux_k8s.text import NOTE, printable


class FailureReports:
    """Reports failures of jobs.

    Args:
        bind: as for :class:`~flux_k8s.jobs.steps.Steps`.
    """

    def __init__(self, flux: Flux, workflows: WorkflowRequests, bind: Bind) -> None:
        self._flux = flux
        self._workflows = workflows
        self._bind = bind

    async def fail(self, info: WorkflowInfo, why: Note) -> None:
        """Raise a fatal exception, in the answer that the job's dependency
        waits for when there is one."""
        kept, note = info.view is not None and info.view.has_failed, why.text
        if info.failure is None and not kept:
            note = with_next_step(note, info.jobid)
        note = printable(note, NOTE)
        info.failure = None if kept else replace(why, text=without_next_step(note))
        info.cause = why.reason
        if info.view is not None and info.owns(info.view):
            # The job does not wait for it.
            saved = self._workflows.save_failed(info)
            drive(saved, lambda result: None, FAILURES, self._bind)
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
        info.failed = True

    def report_persistent(self, info: WorkflowInfo) -> None:
        """Report what outlives a job that did not run. Its epilog is released next."""
        note = printable(left_persistent(info), NOTE)
        if note:
            left = Reason.PERSISTENT_LEFT
            self._flux.raise_exception(info.jobid, DWS, WARNING, note, left)

    async def warn(self, info: WorkflowInfo, step: Warn) -> None:
        """Report once that Teardown makes no progress. By the annotation the next
        module knows of the report. A job whose epilog was released accepts no
        exceptions."""
        note, reason = with_next_step(step.note.text, info.jobid), step.note.reason
        self._flux.log(syslog.LOG_ERR, f"{f58(info.jobid)}: {note}", reason)
        if not info.released:
            severity = FATAL if step.fatal else WARNING
            self._flux.raise_exception(info.jobid, DWS, severity, note, reason)
        if step.fatal:
            info.failed, info.cause = True, reason
        info.warned = True
        now = format_timestamp(self._flux.now())
        await self._workflows.annotate(info, {WARNED: now})
