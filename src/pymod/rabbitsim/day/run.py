# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""A day, from its first job to its last."""

from __future__ import annotations

import time
from functools import partial
from importlib import metadata
from typing import Callable

from flux_k8s.ports import WORKFLOW
from rabbitsim.day.failures import Failures
from rabbitsim.day.idle import NodeHours
from rabbitsim.day.jobs import PlannedJob, make_jobs
from rabbitsim.day.largest import Largest
from rabbitsim.day.samples import MINUTE, Sampler
from rabbitsim.day.site import HOUR, Site
from rabbitsim.day.starts import Starts
from rabbitsim.day.system import DaySystem
from rabbitsim.flux.events import Event, JobState
from rabbitsim.flux.job import Job

BIN = 15
"""Minutes of each part of the day in the plots."""

PATIENCE = 48 * HOUR
"""Seconds after the last submission in which all jobs must end."""

KEPT = 120.0
"""Seconds for which the records of a job are kept after its end."""

SETTLING = 60.0
"""Seconds until the module knows the machine."""


class Day:
    """One day of a site.

    Attributes:
        version: that of flux-dws.
        processor: seconds of processor time that the simulation took.
        largest: the largest objects in Kubernetes.
    """

    def __init__(self, site: Site, note: Callable[[str], None] = lambda line: None):
        begin = time.process_time()
        self.site = site
        self.version = metadata.version("flux-dws")
        self._note = note
        self.system = system = DaySystem(site)
        system.start()
        system.loop.run(timeout=SETTLING)
        self.begin = system.loop.now()
        end = self.begin + site.hours * HOUR
        self.failures = Failures(system, end)
        self.hours = NodeHours(system.loop, self.failures.outages, BIN * MINUTE)
        self.starts = Starts(system.planned.__getitem__, site.nodes // site.rabbits)
        listeners = system.instance.manager.listeners
        listeners += [self.hours.seen, self.failures.seen, self.starts.seen]
        listeners.append(self._seen)
        system.store.watch(WORKFLOW, None, self.hours.written)
        self.largest = Largest(system.store)
        self.sampler = Sampler(system, self.hours)
        self.sampler.start()
        self.jobs = make_jobs(site)
        for job in self.jobs:
            system.loop.call_later(job.at, partial(self._submit, job))
        self._end = end
        self._left = len(self.jobs)
        self.processor = time.process_time() - begin

    def run(self) -> None:
        """Run until all jobs have ended, and their storage is gone."""
        begin, loop = time.process_time(), self.system.loop
        loop.call_later(HOUR, self._tell)
        last = loop.now() + self.site.hours * HOUR + PATIENCE
        while not self._over() and loop.now() < last:
            loop.run(timeout=MINUTE)
        self.processor += time.process_time() - begin

    @property
    def seconds(self) -> float:
        """How long the day was."""
        return self.system.loop.now() - self.begin

    @property
    def stuck(self) -> list[str]:
        """Jobs that have not ended, and Workflows that are left."""
        jobs = [str(job) for job in self.system.instance.manager.active_jobs]
        return [*jobs, *(w["metadata"]["name"] for w in self.system.workflows())]

    def _over(self) -> bool:
        return self._left == 0 and not self.hours.workflows

    def _submit(self, job: PlannedJob) -> None:
        jobid = self.system.submit(job)
        self.failures.submitted(jobid)
        if job.cancel is not None:
            cancel = partial(self.system.instance.cancel, jobid, userid=job.user)
            self.system.loop.call_later(job.cancel, cancel)

    def _seen(self, job: Job, event: Event, before: JobState) -> None:
        if job.state is JobState.INACTIVE and before is not job.state:
            self._left -= 1
            self.system.loop.call_later(KEPT, partial(self.system.forget, job.id))

    def _tell(self) -> None:
        sample = self.sampler.samples[-1]
        self._note(
            f"{sample.hour:4.0f} h: {self._left} of {len(self.jobs)} jobs left,"
            f" {sample.queued} wait for nodes, {sum(sample.workflows.values())}"
            f" Workflows, {time.process_time():.0f} s of processor time"
        )
        self.system.loop.call_later(HOUR, self._tell)
