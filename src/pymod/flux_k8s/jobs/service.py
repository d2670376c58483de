# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The ``dws`` service: one reconciler for all jobs.

Every input (an RPC, a watch event, a timer, a finished step) only updates what
is known of a job and adds the job to the queue of a
:class:`~flux_k8s.control.controller.Controller`. A few moments later
:func:`flux_k8s.jobs.workflow.next_step` names what to do, and
:class:`flux_k8s.jobs.steps.Steps` does it, one step at a time for each job.

Everything here runs on one thread, and nothing in it waits. An exception that nobody
expected fails the job for which something was done (:mod:`flux_k8s.jobs.isolation`);
one that is no job's ends the module, and the next one begins with what is true.
"""

from __future__ import annotations

import errno
import random
import syslog
from functools import partial
from typing import AbstractSet, Any, Callable, Collection, Mapping, Optional

from flux_k8s.config.policy import check_request
from flux_k8s.config.settings import Queues, Settings
from flux_k8s.config.table import Config
from flux_k8s.control.backoff import Backoff
from flux_k8s.control.controller import Controller, Options, TryAgain
from flux_k8s.control.coroutines import call, drive
from flux_k8s.dws.workflowview import State, WorkflowView
from flux_k8s.errors import BadObject, DWSError
from flux_k8s.jobs.hello import Greeter, HeldJob, Phase
from flux_k8s.jobs.isolation import (
    Barred,
    JobScope,
    NoteWork,
    Work,
    describe,
    summary,
)
from flux_k8s.jobs.machine import MakeMachine
from flux_k8s.jobs.orphans import Orphans, given_up
from flux_k8s.jobs.outage import PATIENCE, Outage
from flux_k8s.jobs.reconciler import Job, Reconciler
from flux_k8s.jobs.reporter import Progress, Reporter
from flux_k8s.jobs.requests import (
    LargeSetup,
    log_prefix,
    read_create,
    read_jobid,
    read_post_run,
    read_setup,
    work_of,
)
from flux_k8s.jobs.setupreader import Result, SetupReader
from flux_k8s.jobs.steps import Steps
from flux_k8s.jobs.workflow import Forget, Wait
from flux_k8s.jobs.workflowinfo import Goal, WorkflowInfo, awaited_nodes
from flux_k8s.ports import (
    WORKFLOW,
    Flux,
    Json,
    Kube,
    KubeError,
    RpcError,
    Watch,
)
from flux_k8s.rfc.jobid import f58, jobid_of_workflow
from flux_k8s.rfc.rset import Allocated, UnreadableR

Respond = Callable[[int, str, Optional[Json]], None]
"""Answers an RPC: errno (0 for success), what is wrong, the payload."""

SUCCESS: Json = {"success": True}

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 60.0
"""Seconds after a step of a job has failed."""


class Service:
    """The service behind the ``dws.*`` RPCs."""

    def __init__(
        self,
        flux: Flux,
        kube: Kube,
        settings: Settings,
        make_machine: MakeMachine,
        rng: Optional[random.Random] = None,
        setup_reader: Optional[SetupReader] = None,
        note_work: NoteWork = lambda work: None,
        barred: Collection[Work] = (),
    ) -> None:
        """
        Args:
            make_machine: makes what is known of Rabbits and nodes.
            rng: for the pauses after failures.
            setup_reader: reads R where requests may be
                :class:`~flux_k8s.jobs.requests.LargeSetup`.
            note_work: is called with the work that is being done.
            barred: the work that is not to be done, since services have died of it.
        """
        self._setup_reader = setup_reader
        self.settings = settings
        self._flux = flux
        self._kube = kube
        self._outage = Outage(flux, self._look_at_outage)
        self._reporter = Reporter(flux, self._outage)
        self._machine = make_machine(
            self._outage.note_watch,
            self._awaited_nodes,
            self._may_mount,
            self._retry_all,
        )
        self._rabbits = self._machine.rabbits
        self._scope = JobScope(self._broke, self._releases, note_work)
        self._barred = frozenset(barred)
        self._unseen: dict[int, tuple[str, Json]] = {}
        self._greeter = Greeter(
            flux, self._learn_safely, self._greeted_by, self._greeting_ends
        )
        self._steps = Steps(
            self._scope.port(flux),
            self._scope.port(kube),
            settings,
            self._machine,
            self._scope.bind,
        )
        self._reconciler = Reconciler(flux, settings, self._steps, self._reporter)
        self._controller = self._make_controller()
        self._rng = rng or random.Random()
        self._jobs: dict[int, Job] = {}
        self._orphans = Orphans(self._check_ended)
        self._watch: Optional[Watch] = None
        self._greeted = False
        self._stopped = False
        self._methods: Mapping[str, Callable[[Any], Json]] = {
            "create": self._create,
            "setup": self._setup,
            "post_run": self._post_run,
            "teardown": self._teardown,
            "abort": self._abort,
            "hello": self._hello,
            "stats-get": self._stats,
        }

    def _make_controller(self) -> Controller[int]:
        def slow(jobid: int) -> None:
            self._reconciler.report_slow_step(self._jobs[jobid])

        return Controller(
            self._flux,
            self._reconcile,
            options=Options(
                backoff=lambda jobid: self._jobs[jobid].progress.backoff,
                forgets=False,
                expected=(TryAgain,),
                patience=PATIENCE,
                slow=slow,
                scope=self._scope.run,
                bind=self._scope.bind,
            ),
        )

    def start(self) -> None:
        """Open the watches and ask the plugin which jobs there are."""
        self._outage.start()
        self._machine.start()
        self._watch = self._kube.watch(WORKFLOW, self.settings.namespace, self)
        self._greeter.greet()

    def stop(self) -> None:
        """Stop. What is under way is taken up again by the next service."""
        self._stopped = True
        self._outage.stop()
        self._machine.stop()
        self._greeter.stop()
        self._controller.stop()
        if self._watch is not None:
            self._watch.stop()

    def reconfigure(self, config: Config, queues: Queues = None) -> None:
        """Use another configuration, and other queues, from now on."""
        self.settings.config = config
        self.settings.queues = queues
        self._machine.config_changed()
        for jobid in self._jobs:
            self._changed(jobid)

    # RPCs

    def request(self, method: str, payload: Any, respond: Respond) -> None:
        """Handle ``dws.<method>``. Answers at once, whatever Kubernetes does."""
        handler = self._methods.get(method)
        if handler is None:
            respond(errno.ENOSYS, f"dws.{method}: no such method", None)
            return
        work = work_of(method, payload)
        with self._scope.doing(work):
            if work is not None and work in self._barred:
                self._answer(method, payload, partial(_refuse, work), respond)
            elif isinstance(payload, LargeSetup):
                self._read_setup(payload, respond)
            else:
                self._answer(method, payload, partial(handler, payload), respond)

    def _answer(
        self, method: str, payload: Any, act: Callable[[], Json], respond: Respond
    ) -> None:
        """Respond with what ``act`` gives, or with its error."""
        try:
            respond(0, "", act())
        except (BadObject, UnreadableR) as error:
            # What dws.create has in it is the guest's own.
            level = syslog.LOG_INFO if method == "create" else syslog.LOG_ERR
            self._flux.log(level, f"{log_prefix(payload)}{error}")
            respond(errno.EPROTO, str(error), None)
        except DWSError as error:
            self._flux.log(syslog.LOG_INFO, f"{log_prefix(payload)}refused: {error}")
            respond(0, "", {"success": False, "errstr": str(error)})
        except Exception as error:
            text = f"internal error in dws.{method}"
            self._flux.log(
                syslog.LOG_CRIT, f"{log_prefix(payload)}{text}: {describe(error)}"
            )
            respond(errno.EINVAL, f"{text}, the log has more: {summary(error)}", None)

    def _create(self, payload: Any) -> Json:
        jobid, request, tolerance = read_create(payload, self.settings.config)
        check_request(request, self.settings.config, self.settings.owner)
        job = self._job(jobid, Goal.PLANNED)
        job.info.request = request
        job.info.failure_tolerance = tolerance
        job.info.planned = False
        self._asked(job)
        return SUCCESS

    def _setup(self, payload: Any) -> Json:
        return self._set_up(*read_setup(payload))

    def _read_setup(self, setup: LargeSetup, respond: Respond) -> None:
        """Have R read. Its job is known from now on: when it ends meanwhile, R
        comes too late."""
        jobid = setup.jobid
        self._job(jobid, Goal.READY)

        def act(result: Result) -> Json:
            if isinstance(result, UnreadableR):
                raise result
            return self._set_up(jobid, result) if jobid in self._jobs else SUCCESS

        def done(result: Result) -> None:
            if not self._stopped:
                self._answer("setup", setup, partial(act, result), respond)

        assert self._setup_reader is not None
        self._setup_reader.read(setup.text, self._scope.bind(done))

    def _set_up(self, jobid: int, allocation: Allocated) -> Json:
        job = self._job(jobid, Goal.READY)
        if job.info.goal is not Goal.RELEASED:
            job.info.goal = Goal.READY
        job.info.allocation = allocation
        job.info.mounted = False
        self._asked(job)
        return SUCCESS

    def _post_run(self, payload: Any) -> Json:
        jobid, ran = read_post_run(payload)
        self._release(jobid, ran=ran)
        return SUCCESS

    def _teardown(self, payload: Any) -> Json:
        self._release(read_jobid(payload, "dws.teardown"), abandoned=True)
        return SUCCESS

    def _abort(self, payload: Any) -> Json:
        jobid = read_jobid(payload, "dws.abort")
        self._release(jobid, abandoned=True, aborted=True)
        self._steps.in_use.await_verdict(self._jobs[jobid].info)
        return SUCCESS

    def _release(
        self,
        jobid: int,
        ran: bool = False,
        abandoned: bool = False,
        aborted: bool = False,
    ) -> None:
        job = self._job(jobid, Goal.RELEASED)
        info = job.info
        info.goal = Goal.RELEASED
        info.ran = info.ran or ran
        info.abandoned = info.abandoned or abandoned
        info.aborted = info.aborted or aborted
        info.released = False
        self._asked(job)

    def _hello(self, payload: Any) -> Json:
        self._greeter.greet()
        return SUCCESS

    def _stats(self, payload: Any) -> Json:
        states: dict[str, int] = {}
        for job in self._jobs.values():
            view = job.info.view
            state = "none" if view is None or view.state is None else view.state.name
            states[state] = states.get(state, 0) + 1
        return {
            "jobs": len(self._jobs),
            "workflows": states,
            "busy": sum(map(self._controller.busy, self._jobs)),
            "retrying": sum(
                self._controller.failures(jobid) > 0 for jobid in self._jobs
            ),
            "kubernetes": self._outage.reason
            or ("ok" if self._outage.listed else "connecting"),
            "rabbits": self._machine.stats(),
        }

    def _job(self, jobid: int, goal: Goal) -> Job:
        """The job's entry, made with ``goal`` when it is new."""
        job = self._jobs.get(jobid)
        if job is None:
            info = WorkflowInfo(jobid, goal, out_since=self._outage.since)
            backoff = Backoff(FIRST_PAUSE, LONGEST_PAUSE, self._rng)
            job = Job(info, Progress(backoff), unknown=self._greeter.asking)
            self._jobs[jobid] = job
            orphan = self._orphans.claim(jobid)
            if orphan is not None:
                view, workflow = orphan
                job.info.watched_uid = view.uid
                job.info.see(view, self._flux.now())
                self._steps.records.note(job.info, workflow)
        return job

    def _asked(self, job: Job) -> None:
        """Flux has sent a request for the job, or something that it may have waited for
        has come: do not wait for the end of a pause."""
        job.asked = True
        self._changed(job.info.jobid)

    def _changed(self, jobid: int) -> None:
        """Something that matters to a job has changed: have the job handled. A step
        that is under way may take long, so what others wait for is told now."""
        job = self._jobs.get(jobid)
        if job is not None and self._controller.busy(jobid):
            report = self._reporter.report_outage
            self._scope.run(jobid, report, job.info, job.progress)
            self._machine.jobs_changed()
        self._controller.add(jobid)

    # Who is there: hello

    def _learn_safely(self, held: HeldJob) -> None:
        self._scope.run(held.jobid, self._learn, held)

    def _greeted_by(self, held: AbstractSet[int]) -> None:
        """All jobs that the plugin holds are known."""
        self._greeted = True
        self._greeting_ends()
        for jobid in [jobid for jobid in self._jobs if jobid not in held]:
            self._check_ended(jobid)
        for jobid in [jobid for jobid in self._unseen if jobid not in self._jobs]:
            self.event(*self._unseen.pop(jobid))
        self._check_orphans()
        self._machine.jobs_changed()

    def _greeting_ends(self) -> None:
        for jobid, job in self._jobs.items():
            if job.unknown:
                job.unknown = False
                self._changed(jobid)

    def _learn(self, entry: HeldJob) -> None:
        """Take note of a job that the plugin holds. If the plugin waits for something,
        its request follows."""
        job = self._jobs.get(entry.jobid)
        known = job is not None and not job.unknown
        job = self._job(entry.jobid, entry.phase.goal)
        job.unknown = False
        info = job.info
        if entry.has_memo:
            job.progress.inherit()
        info.failure_tolerance = entry.failure_tolerance
        info.failed = info.failed or entry.failed
        if known:
            return
        planned = entry.phase is not Phase.DEPEND
        info.planned = info.planned or planned
        info.existed = info.existed or planned
        info.mounted = info.mounted or entry.phase is Phase.RUNNING
        info.ran = info.ran or entry.ran
        info.abandoned = info.abandoned or entry.teardown_requested
        self._changed(entry.jobid)

    def _check_orphans(self) -> None:
        """Workflows in our naming scheme that no job claims."""
        if self._outage.has_listed(WORKFLOW) and self._greeted:
            self._orphans.check()

    def _check_ended(self, jobid: int) -> None:
        """Find out whether a job that the plugin does not hold has ended."""
        self._scope.run(jobid, self._begin_check, jobid)

    def _begin_check(self, jobid: int) -> None:
        drive(self._leave_if_ended(jobid), lambda result: None, (), self._scope.bind)

    async def _leave_if_ended(self, jobid: int) -> None:
        """Release what is left of a job that has ended, or whose epilog was given up,
        as its eventlog tells."""
        ended = await call(self._flux.job_ended, jobid)
        if self._stopped or ended is None:
            return
        payload = {"id": jobid, "keys": ["eventlog"], "flags": 0}
        try:
            answer = await call(self._flux.rpc, "job-info.lookup", payload)
            log = str(answer.get("eventlog"))
        except RpcError:
            log = ""  # a job that was purged has no eventlog
        aborted = given_up(log, self.settings.owner)
        if not self._stopped and (ended or aborted):
            self._leave(jobid, aborted)

    def _leave(self, jobid: int, aborted: bool) -> None:
        """Release the storage of a job that waits for nothing any more."""
        if jobid not in self._jobs:
            if not self._orphans.stuck(jobid):
                return
            self._flux.log(
                syslog.LOG_NOTICE,
                f"{f58(jobid)}: tearing down a Workflow log_prefix job has ended",
            )
        info = self._job(jobid, Goal.RELEASED).info
        info.goal = Goal.RELEASED
        info.abandoned = True
        info.aborted = info.aborted or aborted
        info.released = True
        self._steps.let_go(info)
        self._changed(jobid)

    # What Kubernetes shows: the WatchHandler

    def event(self, type: str, object: Json) -> None:
        """A Workflow changed."""
        jobid = jobid_of_workflow(str(object.get("metadata", {}).get("name")))
        if self._stopped or jobid is None:
            return
        self._outage.note_answer()
        if self._is_left_alone(jobid):
            self._unseen[jobid] = type, object
        else:
            self._scope.run(jobid, self._seen, jobid, type, object)

    def _seen(self, jobid: int, type: str, object: Json) -> None:
        view = WorkflowView.parse(object)
        job = self._jobs.get(jobid)
        if job is None:
            self._orphans.see(jobid, None if type == "DELETED" else view, object)
        elif type == "DELETED":
            job.info.see_gone(view.uid)
            self._changed(jobid)
        else:
            job.info.watched_uid = view.uid
            job.info.see(view, self._flux.now())
            self._steps.records.note(job.info, object)
            self._changed(jobid)

    def synced(self) -> None:
        """The watch is (again) complete."""
        if self._stopped:
            return
        for jobid, job in self._jobs.items():
            if job.info.view is not None and job.info.view.uid != job.info.watched_uid:
                job.info.unlisted = True
                self._changed(jobid)
        self._outage.note_watch(WORKFLOW, None)
        self._check_orphans()

    def trouble(self, error: KubeError) -> None:
        """The watch is interrupted."""
        self._outage.note_watch(WORKFLOW, error)

    def _awaited_nodes(self) -> Optional[frozenset[str]]:
        """The nodes that wait for mounts; None as long as that is not known."""
        if not self._greeted:
            return None
        return awaited_nodes(job.info for job in self._jobs.values())

    def _may_mount(self, jobid: int) -> bool:
        """Whether a job's storage may be mounted yet, by what is known."""
        if not (self._outage.listed and self._greeted):
            return True
        job = self._jobs.get(jobid)
        view = self._orphans.view(jobid) if job is None else job.info.view
        return view is not None and (
            view.desired is None or view.desired <= State.PreRun
        )

    # Reconciling

    def _look_at_outage(self) -> None:
        """Look at all jobs: Kubernetes is out of reach, or has come back."""
        now = self._flux.now()
        for job in self._jobs.values():
            if self._outage.since is None:
                job.info.end_outage(now)
            elif job.info.out_since is None:
                job.info.out_since = now
            self._asked(job)

    def _retry_all(self) -> None:
        """A Rabbit serves again, which jobs may wait for."""
        for jobid, job in self._jobs.items():
            if self._controller.failures(jobid):
                self._asked(job)

    def _releases(self, jobid: int) -> bool:
        """Whether a job's storage is to be released: also when nobody claims it."""
        job = self._jobs.get(jobid)
        return self._greeted if job is None else job.info.goal is Goal.RELEASED

    def _is_left_alone(self, jobid: int) -> bool:
        """Nothing is done for a job, at least until its storage is to be released."""
        job = self._jobs.get(jobid)
        if job is not None and job.faults.given_up:
            return True
        return Work(jobid, self._releases(jobid)) in self._barred

    def _broke(self, jobid: int, error: Exception) -> None:
        """Something that was done for a job raised an exception."""
        self._flux.log(
            syslog.LOG_CRIT, f"{f58(jobid)}: internal error: {describe(error)}"
        )
        job = self._jobs.get(jobid)
        if job is None or self._stopped:
            return
        self._controller.abandon(jobid)
        self._steps.broke(job.info)
        if job.faults.handle(job.info, error, self._flux):
            self._controller.retry(jobid)

    async def _reconcile(self, jobid: int) -> Optional[float]:
        """Do the next thing for a job."""
        job = self._job_at_hand(jobid)
        if job is None:
            return None
        step = self._reconciler.next_step(job)
        if isinstance(step, Wait):
            return self._reconciler.wait(job, step)
        if isinstance(step, Forget):
            self._forget(job)
            return None
        await self._reconciler.take(job, step)
        return 0.0

    def _job_at_hand(self, jobid: int) -> Optional[Job]:
        """A job for which something may be done now."""
        job = self._jobs.get(jobid)
        if job is None or self._is_left_alone(jobid):
            return None
        unseen = self._unseen.pop(jobid, None)
        if unseen is not None:
            self._seen(jobid, *unseen)
        self._reporter.report_outage(job.info, job.progress)
        self._machine.jobs_changed()
        return job if self._outage.listed and not job.unknown else None

    def _forget(self, job: Job) -> None:
        self._steps.forget(job.info)
        self._controller.forget(job.info.jobid)
        del self._jobs[job.info.jobid]
        self._machine.jobs_changed()


def _refuse(work: Work) -> Json:
    raise Barred(work)
