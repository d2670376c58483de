# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The ``dws`` service: one reconciler for all jobs.

Every input (an RPC, a watch event, a timer, a finished step) only updates the state of
a job, and adds the job to the queue of a
:class:`~flux_k8s.control.controller.Controller`. A moment later
:func:`flux_k8s.jobs.workflow.next_step` names the next step, and
:class:`flux_k8s.jobs.steps.Steps` carries it out, one step at a time for each job.

Everything here runs on one thread, and nothing in it waits. An unexpected exception in
work for a job fails that job (:mod:`flux_k8s.jobs.isolation`). One outside of such work
ends the service, and the next service reads the state again.
"""

from __future__ import annotations

import gc
import random
from functools import partial
from typing import AbstractSet, Any, Collection, Optional

from flux_k8s.config.context import Context
from flux_k8s.config.settings import Queues, Settings
from flux_k8s.config.table import Config
from flux_k8s.control.controller import Controller, Options
from flux_k8s.control.kubecalls import KubeCalls
from flux_k8s.jobs.hello import JobLister
from flux_k8s.jobs.isolation import JobScope
from flux_k8s.jobs.jobtable import Job, JobTable
from flux_k8s.jobs.optionalwatches import DataMovements
from flux_k8s.jobs.orphans import Orphans, WorkflowWatch
from flux_k8s.jobs.outage import PATIENCE, Outage
from flux_k8s.jobs.plugin import RequestHandler
from flux_k8s.jobs.queries import Queries
from flux_k8s.jobs.reconciler import Reconciler
from flux_k8s.jobs.records import Records
from flux_k8s.jobs.reports import WaitReports
from flux_k8s.jobs.steps import Steps
from flux_k8s.jobs.work import NoteWork, Work
from flux_k8s.jobs.workflowrequests import FAILURES
from flux_k8s.machine.manager import RabbitManager
from flux_k8s.ports import WORKFLOW, Flux, Kube, Respond, Sender

STATS = "stats-get"
"""The method of ``flux module stats``."""

GC_THRESHOLDS = (2_500, 1, 40_000)
"""The service's data has nearly no cycles, and a full collection over ten thousand
Workflows would hold up the reactor for too long. So would one of the second generation
over what many of the first have left: it comes with every second one."""


def collect_rarely() -> None:
    """Set the thresholds of Python's garbage collector for a process with a service."""
    gc.set_threshold(*GC_THRESHOLDS)


class Service:
    """The parts of the service, and how they are connected.

    Args:
        rng: for the pauses after failures.
        note_work: is called with the work that is being done.
        barred: the work that is not to be done, since services have died of it.

    Attributes:
        context: what all parts have.
        workflows: the watch of Workflows.
    """

    def __init__(
        self,
        flux: Flux,
        kube: Kube,
        settings: Settings,
        rng: Optional[random.Random] = None,
        note_work: NoteWork = lambda work: None,
        barred: Collection[Work] = (),
    ) -> None:
        self.context = context = Context(flux, KubeCalls(kube), settings)
        self._scope = scope = JobScope(self._broke, self._releases, note_work, barred)
        records = Records(context.flux, scope)
        self._outage = outage = Outage(context, self._outage_changed)
        self._waits = WaitReports(flux, outage)
        self._queue = self._make_queue()
        context.kube.recovered = self._queue.end_wish
        self._jobs = jobs = JobTable(
            context,
            self._queue,
            outage,
            records,
            rng or random.Random(),
            scope,
        )
        jobs.note_busy = self._report_busy
        self._machine = machine = RabbitManager(
            context,
            jobs.awaited_nodes,
            jobs.has_mounts,
            jobs.may_hold,
            self._rabbits_changed,
        )
        jobs.note_nodes_released = partial(machine.ledger.return_share, torn_down=False)
        movements = DataMovements(context, jobs)
        steps = Steps(context, machine, jobs, records, movements.of)
        movements.moved = steps.copies.see
        self._reconciler = Reconciler(
            context, jobs, steps, outage, self._waits, machine.jobs_changed
        )
        self._staging = steps.staging
        give_back = steps.return_share
        self._orphans = Orphans(context, jobs, outage, give_back, machine.ledger)
        self.workflows = WorkflowWatch(context, jobs, self._orphans, outage)
        self._lister = JobLister(flux, jobs, self._jobs_are_known)
        self._requests = RequestHandler(
            context,
            jobs,
            steps.in_use,
            self._lister.relist,
            self._orphans.ask,
        )
        self._queries = Queries(
            context,
            jobs,
            steps.keeping,
            machine,
            movements,
        )
        steps.workflows.explain = self._queries.rules.explain

    def _make_queue(self) -> Controller[int]:
        return Controller(
            self.context.flux,
            lambda jobid: self._reconciler.reconcile(jobid),
            options=Options(
                backoff=lambda jobid: self._jobs.backoff(jobid),
                forgets=False,
                news_end_pauses=True,
                expected=FAILURES,
                patience=PATIENCE,
                slow=lambda jobid: self._reconciler.report_slow_step(jobid),
                scope=self._scope.run,
            ),
        )

    def start(self) -> None:
        """Open the watches and ask the plugin which jobs there are."""
        self._outage.start()
        self._machine.start()
        self.workflows.open(self.context.settings.namespace)
        self._lister.relist()
        self._queries.start()

    def stop(self) -> None:
        """Stop. The next service goes on with the steps that are under way."""
        self._jobs.stop()
        self._queries.stop()
        self._outage.stop()
        self._machine.stop()
        self._lister.stop()
        self._orphans.stop()
        self.workflows.close()

    def reconfigure(self, config: Config, queues: Queues = None) -> None:
        """Use another configuration, and other queues, from now on."""
        settings = self.context.settings
        settings.config, settings.queues = config, queues
        self._machine.config_changed()
        self._jobs.visit_all(self._jobs.changed)

    def request(self, method: str, payload: Any, respond: Respond) -> None:
        """Handle ``dws.<method>``."""
        if method == STATS:
            self._queries.stats(respond)
        else:
            self._requests.handle(method, payload, respond)

    def query(
        self, method: str, payload: Any, respond: Respond, sender: Sender
    ) -> None:
        """Handle ``dws.<method>``, one of those that users call."""
        self._queries.request(method, payload, sender, respond)

    # Calls from one part to the others

    def _broke(self, jobid: int, error: Exception) -> None:
        """Something that was done for a job raised an exception."""
        self._reconciler.broke(jobid, error)

    def _releases(self, jobid: int) -> bool:
        """Whether a job's storage is to be released."""
        return self._jobs.releases(jobid)

    def _outage_changed(self) -> None:
        """Look at all jobs: Kubernetes is out of reach, or has come back."""
        if self._outage.has_listed(WORKFLOW):
            self._machine.workflows_listed()
        self._jobs.visit_all(self._jobs.asked)

    def _rabbits_changed(self) -> None:
        """Look at the jobs that may have waited for a Rabbit, and those whose data may
        be lost before they had nodes."""
        self._jobs.visit_all(self._see_rabbits)

    def _see_rabbits(self, job: Job) -> None:
        if self._jobs.fails(job):
            self._jobs.asked(job)
        elif job.info.is_staged:
            self._jobs.changed(job)

    def _jobs_are_known(self, held: AbstractSet[int]) -> None:
        """All jobs that the plugin holds are known."""
        for job in self._jobs:
            if job.info.jobid not in held:
                self._orphans.check_ended(job.info.jobid)
        self.workflows.see_unclaimed()
        self._orphans.check()
        self._machine.jobs_changed()

    def _report_busy(self, job: Job) -> None:
        """Report a change of a job while a step of it is under way."""
        self._scope.run(job.info.jobid, self._waits.report_outage, job)
        self._staging.queue.update(job.info)
        self._machine.jobs_changed()
