# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The reconciler of jobs.

It runs for the jobs in the queue of the :class:`~flux_k8s.jobs.jobtable.JobTable`:
:func:`flux_k8s.jobs.workflow.next_step` decides on the next step, and
:class:`flux_k8s.jobs.steps.Steps` carries it out.
"""

from __future__ import annotations

import syslog
from typing import Callable, Optional

from flux_k8s.config.context import Context
from flux_k8s.errors import NoEffect, StorageDenied
from flux_k8s.formats.jobid import f58
from flux_k8s.jobs.isolation import describe, left_behind
from flux_k8s.jobs.jobtable import Job, JobTable
from flux_k8s.jobs.losses import data_loss
from flux_k8s.jobs.outage import Outage
from flux_k8s.jobs.plugin import request_plugin
from flux_k8s.jobs.reports import WaitReports
from flux_k8s.jobs.step import Next, Step, is_final
from flux_k8s.jobs.steps import Steps
from flux_k8s.jobs.turns import UserTurns
from flux_k8s.jobs.workflow import next_step
from flux_k8s.jobs.workflowinfo import Goal
from flux_k8s.jobs.workflowrequests import FAILURES, StepError
from flux_k8s.ports import KubeError
from flux_k8s.reasons import DWS, FATAL, WARNING, Note, Reason
from flux_k8s.text import NOTE, printable


class Reconciler:
    """Does the next thing for a job, and reports how the job gets on."""

    def __init__(
        self,
        context: Context,
        jobs: JobTable,
        steps: Steps,
        outage: Outage,
        waits: WaitReports,
        jobs_changed: Callable[[], None],
    ) -> None:
        """
        Args:
            jobs_changed: is called when a job may be handled, and when it is over.
        """
        self._flux = context.flux
        self._jobs = jobs
        self._steps = steps
        self._staging = steps.staging
        self._turns = UserTurns(context.settings, jobs.ask)
        self._outage = outage
        self._waits = waits
        self._jobs_changed = jobs_changed

    async def reconcile(self, jobid: int) -> Optional[float]:
        """Do the next thing for a job: see
        :class:`~flux_k8s.control.controller.Controller`."""
        job = self._jobs.get(jobid)
        if job is not None and job.faults.given_up:
            await self._let_go(job)
            return None
        job = self._job_at_hand(jobid)
        if job is None:
            return None
        step = self._next_step(job)
        if step.step is Step.WAIT:
            return self._wait(job, step)
        await self._take(job, step)
        if job.info.jobid not in self._jobs:
            return None
        following = self._next_step(job)
        if following.step is not Step.WAIT:
            return 0.0
        self._note_state(job)
        return self._wait(job, following)

    def broke(self, jobid: int, error: Exception) -> None:
        """Something that was done for a job raised an exception."""
        text = f"{f58(jobid)}: internal error: {describe(error)}"
        self._flux.log(syslog.LOG_CRIT, text, Reason.SERVICE_FAULT)
        self._forget_turns(jobid)
        job = self._jobs.get(jobid)
        if job is not None and not self._jobs.stopped:
            self._jobs.broke(job, job.faults.handle(job.info, error, self._flux))
            self._jobs.note_change(jobid)

    def report_slow_step(self, jobid: int) -> None:
        """The step of a job takes long."""
        job = self._jobs.get(jobid)
        if job is not None and job.step is not None:
            self._waits.report_slow_step(job, job.step)

    def _job_at_hand(self, jobid: int) -> Optional[Job]:
        """A job for which something may be done now."""
        job = self._jobs.get(jobid)
        if job is None or self._jobs.is_left_alone(jobid):
            return None
        self._jobs.see_unseen(job)
        if not job.unknown:  # else an earlier service may have said that
            self._waits.report_outage(job)
        self._note_state(job)
        return job if self._outage.listed and not job.unknown else None

    def _note_state(self, job: Job) -> None:
        """Have the others look at the state of a job."""
        self._jobs_changed()
        self._jobs.note_change(job.info.jobid)

    def _next_step(self, job: Job) -> Next:
        """Decide on the next step. That asks nobody: an error of a step is none here,
        and does not have the job wait."""
        info = job.info
        try:
            step = next_step(info, self._jobs.moment(self._staging.lost(info)))
            step = self._turns.decide(info, step)
            return self._staging.queue.decide(info, step)
        except FAILURES as error:
            raise RuntimeError(f"{type(error).__name__}: {error}") from error

    def _forget_turns(self, jobid: int) -> None:
        """Have others not wait for a job that is over, or left alone."""
        self._turns.forget(jobid)
        self._staging.queue.forget(jobid)

    def _wait(self, job: Job, step: Next) -> Optional[float]:
        """Seconds until a step of the job, or a report about it, may be due; None if
        neither is."""
        job.failing_since = None
        why = "" if step.note is None else step.note.text
        dues = step.until, self._waits.report_state(job, why)
        due = min((due for due in dues if due is not None), default=None)
        return None if due is None else max(0.0, due - self._flux.now())

    def _forget(self, job: Job) -> None:
        """Forget a job whose Workflow is gone, or somebody else's."""
        self._jobs.remove(job)
        self._steps.forget(job.info)
        self._forget_turns(job.info.jobid)
        self._jobs_changed()

    async def _let_go(self, job: Job) -> None:
        """Release the epilog of a job that was given up, when the nodes that may still
        mount its storage are drained, and it is recorded what became of its data. Of
        these, what ends in an unexpected exception as well is left out: the job does
        not wait for it.

        Raises:
            StepError: it is to be tried again after a pause.
        """
        info = job.info
        if info.goal is not Goal.RELEASED or info.released:
            return
        for part in (self._drain, self._report_fault, self._record):
            try:
                await part(job)
            except FAILURES:
                raise
            except Exception as error:
                text = f"{info.f58}: internal error: {describe(error)}"
                self._flux.log(syslog.LOG_CRIT, text, Reason.SERVICE_FAULT)
        await request_plugin(self._flux, "epilog-remove", {"id": info.jobid})
        info.answered |= {Goal.RELEASED}

    async def _drain(self, job: Job) -> None:
        note = Note("the dws module failed", Reason.SERVICE_FAULT)
        await self._steps.in_use.drain_mounted(job.info, note)

    async def _report_fault(self, job: Job) -> None:
        """Raise an exception once, fatal if data is lost."""
        if job.faults.reported:
            return
        loss = data_loss(job.info) if job.info.ran else None
        severity = FATAL if loss is not None and not job.info.failed else WARNING
        lost = "" if loss is None else loss.text
        text = "; ".join(filter(None, (left_behind(job.info), lost, job.faults.note)))
        note, reason = printable(text, NOTE), Reason.SERVICE_FAULT
        self._flux.raise_exception(job.info.jobid, DWS, severity, note, reason)
        job.faults.reported = True

    async def _record(self, job: Job) -> None:
        loss = data_loss(job.info)
        if loss is not None:
            loss = Note(f"{job.faults.note}; {loss.text}", Reason.SERVICE_FAULT)
        await self._steps.outcomes.record(job.info, loss)
        job.info.data_reported = True

    async def _take(self, job: Job, step: Next) -> None:
        """Take a step.

        Raises:
            StepError: the step failed, and is to be repeated after a pause.
        """
        info, view = job.info, job.info.view
        self._begin(job, step)
        try:
            if is_final(step, info):
                confirmed = await self._confirmed(job, step)
                if confirmed is None:
                    return
                step = confirmed
            if step.step is Step.FORGET:
                self._forget(job)
                return
            await self._carry_out(job, step)
        except FAILURES as error:
            if not isinstance(error, KubeError):
                job.failing_since = None
            if self._is_repeated(job, error, news=info.view != view):
                raise
            return
        job.failing_since = None
        if step.step is not Step.LOOK_UP:
            self._waits.report_state(job)
        if info.view == view and self._next_step(job) == step:
            if self._is_repeated(job, NoEffect(step)):
                raise NoEffect(step)

    async def _carry_out(self, job: Job, step: Next) -> None:
        """Carry out a step. If the job cannot have its storage, it fails, unless what
        is there, which is read once more, calls for another step."""
        try:
            await self._steps.carry_out(job.info, step)
        except StorageDenied as error:
            if await self._confirmed(job, step) is not None:
                await self._steps.deny(job.info, step, error)

    async def _confirmed(self, job: Job, step: Next) -> Optional[Next]:
        """A step that cannot be undone, as it is to be taken when what is there was
        read once more; None if it is not to be taken any more. Its words may differ."""
        copied = await self._steps.look_again(job.info)
        following = self._next_step(job)
        if copied and following.is_like(step):
            await self._steps.note_copies(job.info, copied)
            following = self._next_step(job)
        return following if following.is_like(step) else None

    def _begin(self, job: Job, step: Next) -> None:
        decision = step, job.info.decisive
        looks = step.step is Step.LOOK_UP
        is_news = not (looks or decision == job.last_decision)
        if is_news or job.retry_now:
            job.backoff.reset()  # earlier failures do not count any more
        if is_news:
            job.logged.clear()
        if not looks:
            job.last_decision = decision
        job.retry_now = False
        if job.step is None or step.step is not job.step.step:
            job.failing_since = None
        job.step = step
        self._waits.step_begins(job, step)

    def _is_repeated(self, job: Job, error: StepError, news: bool = False) -> bool:
        """Report a failed step. Return whether it is to be repeated after a pause, and
        no other one comes next.

        Args:
            news: the Workflow has changed meanwhile. What the job needs now waits for
                no pause, unless the server asks for one, which lasts until the next
                news; to look for the Workflow does: it follows some requests that
                fail.
        """
        self._waits.step_failed(job, error)
        self._turns.failed(job.info.jobid)
        following = self._next_step(job)
        # A job that is passed over takes its place again when it is looked at next.
        self._staging.queue.failed(job.info, error)
        asks_for_time = getattr(error, "retry_after", None) is not None
        if news and not (following.step is Step.LOOK_UP or asks_for_time):
            return False
        gives_up = following.step in (Step.UNMOUNT, Step.FAIL)
        last = None if job.last_decision is None else job.last_decision[0].step
        again = last is following.step
        return not (job.retry_now or (gives_up and not again))
