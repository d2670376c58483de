# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""One batch job on the stand-in Flux, with all that it needs around it."""

from __future__ import annotations

import os
import pathlib
import syslog
from typing import Optional

from flux_k8s.config.submission import Site, check_submission
from flux_k8s.config.table import Config
from flux_k8s.errors import DirectiveError
from flux_k8s.formats.jobid import f58
from flux_k8s.ports import WORKFLOW, Json
from flux_k8s.rules.directiverules import read_rules
from flux_k8s.rules.underline import message
from rabbitsim.cli.errors import UsageError
from rabbitsim.cli.outcome import Outcome
from rabbitsim.cli.report import JobProgress, Report, WorkflowProgress
from rabbitsim.cli.save import MOVEMENTS, kvs_of
from rabbitsim.clusters import SystemKube
from rabbitsim.dws.directive import read_data
from rabbitsim.flux.broker import ALL_WRITTEN
from rabbitsim.flux.events import Event, JobState
from rabbitsim.flux.fluid import encode
from rabbitsim.flux.job import Job
from rabbitsim.flux.manager import SubmitError
from rabbitsim.system import LocalFlux, mapping_of

PATIENCE = 30.0
"""Seconds to wait for what should come at once."""


class SimSession:
    """Runs a job on the stand-in."""

    name = "stand-in Flux, with the shipped plugins and service"

    def __init__(
        self,
        kube: SystemKube,
        scratch: pathlib.Path,
        seed: int,
        report: Report,
        save: bool,
    ) -> None:
        """
        Args:
            save: the job is to be saved, with its data movements.
        """
        self._report = report
        self._progress = JobProgress(report)
        self._flux = LocalFlux(
            kube.topology,
            kube.kubeconfig,
            scratch,
            output=lambda rank, stream, data: report.output(data, stream),
            config=Config(save_datamovements=MOVEMENTS if save else 0),
            seed=seed,
            log=self._log,
        )
        self._mapping = mapping_of(kube.topology)
        self._workflows = WorkflowProgress(report)
        kube.watch(WORKFLOW, self._changed)
        self._flux.instance.manager.listeners.append(self._listen)

    def run(self, jobspec: Json, urgency: int) -> Outcome:
        """Run a job until it is inactive and its storage is gone."""
        loop, instance = self._flux.loop, self._flux.instance
        if not self._flux.wait_until_ready(PATIENCE):
            raise UsageError("Kubernetes does not answer")
        self._report.begin(loop.now())
        try:
            self._validate(jobspec)
            jobid = instance.submit(jobspec, urgency=urgency)
        except (DirectiveError, SubmitError) as error:
            why = message(error) if isinstance(error, DirectiveError) else str(error)
            for line in f"the job was refused: {why}".split("\n"):
                self._report.line(line)
            return Outcome(1, [], None)
        job = instance.job(jobid)
        self._wait(job)
        loop.run(lambda: self._workflows.count == 0, PATIENCE)
        loop.run(timeout=ALL_WRITTEN)
        events = [event.as_json() for event in job.events]
        return Outcome(
            job.exit_code, events, self._workflows.count, f58(jobid), kvs_of(job)
        )

    def _validate(self, jobspec: Json) -> None:
        """Check the job as the validator of flux-dws does.

        Raises:
            DirectiveError: a directive is wrong.
        """
        rules = read_rules(read_data("ruleset.yaml")["spec"])
        site = Site({}, rules, self._mapping, os.getuid())
        check_submission(jobspec["attributes"]["system"], jobspec["resources"], site)

    def _wait(self, job: Job) -> None:
        """Wait for the end of a job; an interrupt cancels it."""
        loop = self._flux.loop
        if not loop.run_interruptible(lambda: job.state is JobState.INACTIVE):
            self._report.line(f"cancelling {encode(job.id)}")
            self._flux.instance.cancel(job.id, "interrupted")
            loop.run(lambda: job.state is JobState.INACTIVE)

    def close(self) -> None:
        self._flux.stop()

    def _changed(self, type: str, workflow: Json) -> None:
        """On Kubernetes' thread: a Workflow changed."""
        loop = self._flux.loop
        now = loop.now()
        loop.call_soon_threadsafe(lambda: self._workflows.event(now, type, workflow))

    def _listen(self, job: Job, event: Event, before: JobState) -> None:
        self._progress.event(event.as_json(), before.name, job.state.name)

    def _log(self, level: int, message: str) -> None:
        loop: Optional[LocalFlux] = getattr(self, "_flux", None)
        if loop is None:
            return
        if level <= syslog.LOG_WARNING:
            self._report.line(f"log: {message}")
        else:
            self._report.detail(loop.loop.now(), "log", message)
