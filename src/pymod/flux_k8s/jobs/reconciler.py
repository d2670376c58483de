# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Carries out the next step of a job, and reports how the job gets on.

:func:`flux_k8s.jobs.workflow.next_step` decides which step that is,
:class:`flux_k8s.jobs.steps.Steps` carries it out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Optional

from flux_k8s.config.settings import Settings
from flux_k8s.control.controller import TryAgain
from flux_k8s.dws.workflowview import WorkflowView
from flux_k8s.errors import NoEffect
from flux_k8s.jobs.isolation import Faults
from flux_k8s.jobs.reporter import Progress, Reporter
from flux_k8s.jobs.steps import Steps
from flux_k8s.jobs.workflow import DrainMounted, Fail, Lookup, Step, Wait, next_step
from flux_k8s.jobs.workflowinfo import WorkflowInfo
from flux_k8s.jobs.workflowrequests import FAILURES, StepError
from flux_k8s.ports import Clock

Decision = tuple[Step, Optional[WorkflowView]]
"""A step, and the Workflow that it was decided on."""


@dataclass
class Job:
    """A job that has storage, or asks for some.

    Attributes:
        progress: how the job gets on, as its user and the log are told.
        step: the step that was begun last, and ``since`` when (UNIX time).
        last: the last decision, look-ups aside. When it comes up again, it is another
            try.
        asked: the job is to be handled again without a pause.
        faults: exceptions that nobody expected.
        unknown: the plugin has sent a request about the job, and its answer to hello
            is still to come: only that answer has all that is known of the job.
    """

    info: WorkflowInfo
    progress: Progress
    step: Optional[Step] = None
    since: float = 0.0
    last: Optional[Decision] = None
    asked: bool = False
    faults: Faults = field(default_factory=Faults)
    unknown: bool = False


class Reconciler:
    """Does the next thing for a job."""

    def __init__(
        self, clock: Clock, settings: Settings, steps: Steps, reporter: Reporter
    ) -> None:
        self._clock = clock
        self._settings = settings
        self._steps = steps
        self._reporter = reporter

    def next_step(self, job: Job) -> Step:
        return next_step(job.info, self._clock.now(), self._settings.config)

    def wait(self, job: Job, step: Wait) -> Optional[float]:
        """Seconds until there may be something to do for a job, or to tell."""
        dues = step.until, self._reporter.report_state(job.info, job.progress)
        due = min((due for due in dues if due is not None), default=None)
        return None if due is None else max(0.0, due - self._clock.now())

    async def take(self, job: Job, step: Step) -> None:
        """Take a step.

        Raises:
            TryAgain: it failed, and is to be tried again after a pause.
        """
        info = job.info
        decision = step, info.view
        self._begin(job, decision)
        try:
            await self._steps.carry_out(info, step)
        except FAILURES as error:
            self._reporter.step_ended(step, error)
            self._failed(job, error)
            return
        self._reporter.step_ended(step, None)
        if not isinstance(step, Lookup):
            self._reporter.report_state(info, job.progress)
        if (self.next_step(job), info.view) == decision:
            self._failed(job, NoEffect(step))

    def report_slow_step(self, job: Job) -> None:
        """The step of a job takes long."""
        if job.step is not None:
            self._reporter.report_slow_step(job.info, job.progress, job.step, job.since)

    def _begin(self, job: Job, decision: Decision) -> None:
        step, _ = decision
        looks = isinstance(step, Lookup)
        if job.asked or not (looks or decision == job.last):
            job.progress.begin()
        if not looks:
            job.last = decision
        job.asked = False
        job.step, job.since = step, self._clock.now()
        self._reporter.step_begins(job.info, job.progress, step)

    def _failed(self, job: Job, error: StepError) -> None:
        """Have a step tried again, unless something else is to be done at once."""
        self._reporter.step_failed(job.info, job.progress, error)
        following = self.next_step(job)
        gives_up = isinstance(following, (DrainMounted, Fail))
        again = job.last is not None and type(following) is type(job.last[0])
        if not (job.asked or (gives_up and not again)):
            raise TryAgain(error) from error
