# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The ``dws`` service: one reconciler for all jobs.

Every input (an RPC, a watch event, a timer, a finished step) only updates what
is known of a job and marks the job dirty. A few moments later
:func:`flux_k8s.workflow.next_step` names what to do, and
:class:`flux_k8s.steps.Steps` does it, one step at a time for each job.

Everything here runs on one thread, and nothing in it waits.
"""

from __future__ import annotations

import errno
import json
import random
import syslog
from dataclasses import dataclass
from functools import partial
from typing import Any, Callable, Mapping, Optional, Union

from flux_k8s.config import Config
from flux_k8s.errors import BadObject, DWSError
from flux_k8s.hello import HeldJob, LoadedAs, Phase, hello_payload, read_hello
from flux_k8s.jobid import f58, jobid_of_workflow
from flux_k8s.policy import check_request
from flux_k8s.ports import (
    WORKFLOW,
    Flux,
    Json,
    Kube,
    KubeError,
    RpcError,
    Timer,
    Watch,
)
from flux_k8s.requests import read_create, read_jobid, read_post_run, read_setup
from flux_k8s.settings import Settings
from flux_k8s.steps import StepError, Steps
from flux_k8s.storage import RabbitManager
from flux_k8s.workflow import (
    Forget,
    Goal,
    Step,
    StorageRequest,
    Wait,
    WorkflowInfo,
    next_step,
)
from flux_k8s.workflowview import FINALIZER, WLM_ID, State, WorkflowView

Respond = Callable[[int, str, Optional[Json]], None]
"""Answers an RPC: errno (0 for success), what is wrong, the payload."""

BATCH = 64
"""Jobs reconciled in one go, so that the reactor is never held up for long."""

WAIT_MEMO = "rabbit_waits_for"


@dataclass
class Job:
    """A job's storage, and what the reconciler does about it.

    Attributes:
        busy: a step is under way.
        last: the last step and the Workflow that it was decided on. If it
            comes up again with nothing changed, it had no effect.
        failures: how many steps failed since one succeeded.
        timer: looks at the job again later.
        waits: why it waits, as its memo says; None when it does not.
    """

    info: WorkflowInfo
    busy: bool = False
    last: Optional[tuple[Step, Optional[WorkflowView]]] = None
    failures: int = 0
    timer: Optional[Timer] = None
    waits: Optional[str] = None
    recorded: frozenset[State] = frozenset()


class Service:
    """The service behind the ``dws.*`` RPCs."""

    def __init__(
        self,
        flux: Flux,
        kube: Kube,
        settings: Settings,
        rng: Optional[random.Random] = None,
        loaded_as: Optional[LoadedAs] = None,
    ) -> None:
        self.settings = settings
        self._hello_payload = hello_payload(loaded_as)
        self._flux = flux
        self._kube = kube
        self._rabbits = RabbitManager(
            kube, settings.namespace, flux.log, self._rabbits_changed
        )
        self._steps = Steps(flux, kube, settings, self._rabbits)
        self._rng = rng or random.Random()
        self._jobs: dict[int, Job] = {}
        self._strays: dict[int, tuple[WorkflowView, Json]] = {}
        self._dirty: dict[int, None] = {}
        self._pump_timer: Optional[Timer] = None
        self._hello_timer: Optional[Timer] = None
        self._watch: Optional[Watch] = None
        self._synced = False
        self._greeted = False
        self._trouble: Optional[str] = None
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

    def start(self) -> None:
        """Open the watches and ask the plugin which jobs there are."""
        self._rabbits.start()
        self._watch = self._kube.watch(WORKFLOW, self.settings.namespace, self)
        self._greet()

    def stop(self) -> None:
        """Stop. What is under way is taken up again by the next service."""
        self._stopped = True
        self._flux.rpc("job-manager.dws.bye", {}, lambda result: None)
        self._rabbits.stop()
        if self._watch is not None:
            self._watch.stop()
        timers = [self._pump_timer, self._hello_timer]
        for timer in timers + [job.timer for job in self._jobs.values()]:
            if timer is not None:
                timer.cancel()

    def reconfigure(self, config: Config) -> None:
        """Use another configuration from now on."""
        self.settings.config = config
        for jobid in self._jobs:
            self._mark(jobid)

    # RPCs

    def request(self, method: str, payload: Any, respond: Respond) -> None:
        """Handle ``dws.<method>``. Answers at once, whatever Kubernetes does;
        never to ``dws.alive``, which tells of the module's end by failing."""
        if method == "alive":
            return
        handler = self._methods.get(method)
        if handler is None:
            respond(errno.ENOSYS, f"dws.{method}: no such method", None)
            return
        try:
            respond(0, "", handler(payload))
        except BadObject as error:
            self._flux.log(syslog.LOG_ERR, f"{whose(payload)}{error}")
            respond(errno.EPROTO, str(error), None)
        except DWSError as error:
            self._flux.log(syslog.LOG_INFO, f"{whose(payload)}refused: {error}")
            respond(0, "", {"success": False, "errstr": str(error)})

    def _create(self, payload: Any) -> Json:
        jobid, request = read_create(payload, self.settings.config)
        check_request(request, self.settings.config, self.settings.owner)
        self._plan(jobid, request)
        return {"success": True}

    def _plan(self, jobid: int, request: StorageRequest) -> None:
        job = self._job(jobid, Goal.PLANNED)
        job.info.request = request
        job.info.planned = False
        self._asked(job)

    def _setup(self, payload: Any) -> Json:
        jobid, allocation = read_setup(payload)
        job = self._job(jobid, Goal.READY)
        if job.info.goal is not Goal.RELEASED:
            job.info.goal = Goal.READY
        job.info.allocation = allocation
        job.info.mounted = False
        self._asked(job)
        return {"success": True}

    def _post_run(self, payload: Any) -> Json:
        jobid, ran = read_post_run(payload)
        self._release(jobid, ran=ran)
        return {"success": True}

    def _teardown(self, payload: Any) -> Json:
        self._release(read_jobid(payload, "dws.teardown"), abandoned=True)
        return {"success": True}

    def _abort(self, payload: Any) -> Json:
        jobid = read_jobid(payload, "dws.abort")
        self._release(jobid, abandoned=True, aborted=True)
        return {"success": True}

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
        self._greet()
        return {"success": True}

    def _stats(self, payload: Any) -> Json:
        states: dict[str, int] = {}
        for job in self._jobs.values():
            view = job.info.view
            state = "none" if view is None or view.state is None else view.state.name
            states[state] = states.get(state, 0) + 1
        return {
            "jobs": len(self._jobs),
            "workflows": states,
            "busy": sum(job.busy for job in self._jobs.values()),
            "retrying": sum(job.failures > 0 for job in self._jobs.values()),
            "kubernetes": self._trouble or ("ok" if self._synced else "connecting"),
        }

    def _job(self, jobid: int, goal: Goal) -> Job:
        """The job's entry, made with ``goal`` when it is new."""
        job = self._jobs.get(jobid)
        if job is None:
            job = self._jobs[jobid] = Job(WorkflowInfo(jobid, goal))
            stray = self._strays.pop(jobid, None)
            if stray is not None:
                view, workflow = stray
                job.info.see(view, self._flux.now())
                self._record(job, workflow)
        return job

    def _asked(self, job: Job) -> None:
        """Flux asked for something: do not wait for an earlier failure's end."""
        job.last = None
        if not self._synced and self._trouble is not None:
            self._wait_memo(job, f"Kubernetes: {self._trouble}")
        self._mark(job.info.jobid)

    # Who is there: hello

    def _greet(self) -> None:
        """Ask the plugin for its jobs. It then repeats what is unanswered."""
        if self._hello_timer is not None:
            self._hello_timer.cancel()
            self._hello_timer = None
        self._flux.rpc("job-manager.dws.hello", self._hello_payload, self._greeted_by)

    def _greeted_by(self, result: Union[Json, RpcError]) -> None:
        if self._stopped:
            return
        if isinstance(result, RpcError):
            if result.errnum == errno.ENOSYS:
                self._flux.log(syslog.LOG_INFO, "dws-jobtap.so is not loaded (yet)")
                return  # the plugin says hello when it is loaded
            self._flux.log(syslog.LOG_ERR, f"job-manager.dws.hello: {result}")
            self._hello_timer = self._flux.call_later(1.0, self._greet)
            return
        try:
            entries = read_hello(result)
        except BadObject as error:
            self._flux.log(syslog.LOG_ERR, f"job-manager.dws.hello: {error}")
            return
        self._greeted = True
        for entry in entries:
            self._learn(entry)
        held = {entry.jobid for entry in entries}
        for jobid in [jobid for jobid in self._jobs if jobid not in held]:
            self._check_ended(jobid)
        self._check_strays()

    def _learn(self, entry: HeldJob) -> None:
        """Take in what the plugin says about a job. Where something is to be
        done for it now, the plugin's request with the details follows."""
        if entry.jobid in self._jobs:
            return
        info = self._job(entry.jobid, entry.phase.goal).info
        info.planned = entry.phase is not Phase.DEPEND
        info.existed = entry.phase is not Phase.DEPEND
        info.mounted = entry.phase is Phase.RUNNING
        info.ran = entry.ran
        info.abandoned = info.abandoned or entry.teardown
        self._mark(entry.jobid)

    def _check_strays(self) -> None:
        """Workflows in our naming scheme that no job claims."""
        if self._synced and self._greeted:
            for jobid, (view, _) in list(self._strays.items()):
                if not leaves(view):
                    self._check_ended(jobid)

    def _check_ended(self, jobid: int) -> None:
        self._flux.job_ended(jobid, partial(self._ended, jobid))

    def _ended(self, jobid: int, ended: Optional[bool]) -> None:
        """A job that the plugin does not hold: when it has ended, nobody waits
        for its storage any more, and what is left of it goes."""
        job = self._jobs.get(jobid)
        if self._stopped or not ended:
            return
        if job is None:
            stray = self._strays.get(jobid)
            if stray is None or leaves(stray[0]):
                return
            self._flux.log(
                syslog.LOG_NOTICE,
                f"{f58(jobid)}: tearing down a Workflow whose job has ended",
            )
        info = self._job(jobid, Goal.RELEASED).info
        info.goal = Goal.RELEASED
        info.abandoned = True
        info.released = True
        self._mark(jobid)

    def _rabbits_changed(self) -> None:
        """All Rabbits are known, or one has changed: look at what waits."""
        if self._dirty and self._pump_timer is None and not self._stopped:
            self._pump_timer = self._flux.call_later(0.0, self._pump)

    # What Kubernetes shows: the WatchHandler

    def event(self, type: str, object: Json) -> None:
        """A Workflow changed."""
        jobid = jobid_of_workflow(str(object.get("metadata", {}).get("name")))
        if self._stopped or jobid is None:
            return
        view = WorkflowView.parse(object)
        job = self._jobs.get(jobid)
        if job is None:
            self._see_stray(jobid, None if type == "DELETED" else view, object)
        elif type == "DELETED":
            job.info.see_gone(view.uid)
            self._mark(jobid)
        else:
            job.info.see(view, self._flux.now())
            self._record(job, object)
            self._mark(jobid)

    def _see_stray(
        self, jobid: int, view: Optional[WorkflowView], workflow: Json
    ) -> None:
        """A Workflow of no job that is known here (yet). One that is not ours is
        never touched."""
        if view is None:
            self._strays.pop(jobid, None)
        elif view.wlm == WLM_ID and view.jobid == f58(jobid):
            known = jobid in self._strays or leaves(view)
            self._strays[jobid] = view, workflow
            if not known and self._synced and self._greeted:
                self._check_ended(jobid)

    def synced(self) -> None:
        """The watch is (again) complete."""
        if self._stopped:
            return
        if self._trouble is not None:
            self._flux.log(syslog.LOG_NOTICE, "Kubernetes answers again")
        self._trouble = None
        self._synced = True
        for jobid, job in self._jobs.items():
            job.last = None
            self._mark(jobid)
        self._check_strays()

    def trouble(self, error: KubeError) -> None:
        """The watch is interrupted. One line says so, not one for each try."""
        if self._stopped:
            return
        if self._trouble is None:
            self._flux.log(syslog.LOG_ERR, f"Kubernetes: {error}; jobs wait")
        self._trouble = str(error)
        if not self._synced:
            for job in self._jobs.values():
                self._wait_memo(job, f"Kubernetes: {error}")

    def _record(self, job: Job, workflow: Json) -> None:
        """Keep in the job's KVS how long each state took, and the last
        Workflow."""
        view = job.info.view
        if view is None or not view.complete or view.state is None:
            return
        if view.state in job.recorded:
            return
        job.recorded |= {view.state}
        jobid = job.info.jobid
        if view.elapsed is not None:
            key = f"rabbit_{view.state.name.lower()}_timing"
            self._flux.kvs_put(jobid, key, json.dumps(round(view.elapsed, 6)))
        if view.state is State.Teardown:
            text = json.dumps(workflow)
            self._flux.kvs_put(jobid, "rabbit_workflow", text, last=True)

    # Reconciling

    def _mark(self, jobid: int) -> None:
        self._dirty[jobid] = None
        if self._pump_timer is None and not self._stopped:
            self._pump_timer = self._flux.call_later(0.0, self._pump)

    def _pump(self) -> None:
        self._pump_timer = None
        if not (self._synced and self._rabbits.complete):
            return  # what Kubernetes shows is not known yet
        for _ in range(min(BATCH, len(self._dirty))):
            jobid = next(iter(self._dirty))
            del self._dirty[jobid]
            job = self._jobs.get(jobid)
            if job is not None and not job.busy:
                self._reconcile(job)
        if self._dirty and self._pump_timer is None:
            self._pump_timer = self._flux.call_later(0.0, self._pump)

    def _reconcile(self, job: Job) -> None:
        info = job.info
        if job.timer is not None:
            job.timer.cancel()
            job.timer = None
        now = self._flux.now()
        step = next_step(info, now, self.settings.config)
        if isinstance(step, Wait):
            if step.until is not None:
                self._look_again(job, step.until - now)
        elif isinstance(step, Forget):
            self._steps.forget(info)
            del self._jobs[info.jobid]
        else:
            if (step, info.view) != job.last:
                job.failures = 0
            job.last = (step, info.view)
            job.busy = True
            self._steps.run(info, step, partial(self._stepped, job))

    def _look_again(self, job: Job, delay: float) -> None:
        job.timer = self._flux.call_later(delay, partial(self._mark, job.info.jobid))

    def _stepped(self, job: Job, error: Optional[StepError]) -> None:
        """A step has ended."""
        job.busy = False
        if self._stopped:
            return
        if error is None:
            self._wait_memo(job, None)
            step = next_step(job.info, self._flux.now(), self.settings.config)
            if (step, job.info.view) == job.last:
                self._failed(job, f"{step} had no effect")
            else:
                self._mark(job.info.jobid)
            return
        source = "Kubernetes" if isinstance(error, KubeError) else "Flux"
        retry_after = error.retry_after if isinstance(error, KubeError) else None
        self._failed(job, f"{source}: {error}", retry_after)

    def _failed(
        self, job: Job, reason: str, retry_after: Optional[float] = None
    ) -> None:
        """Try again later: soon at first, once a minute in the end, never less
        than the server asked for."""
        job.failures += 1
        if job.failures == 1:
            self._flux.log(
                syslog.LOG_WARNING, f"{f58(job.info.jobid)}: {reason}; trying again"
            )
        if job.failures >= 3:
            self._wait_memo(job, reason)
        delay = min(60.0, 0.05 * 2.0 ** min(job.failures, 12))
        delay *= 0.5 + self._rng.random() / 2
        self._look_again(job, max(delay, retry_after or 0.0))

    def _wait_memo(self, job: Job, reason: Optional[str]) -> None:
        if job.waits != reason and not job.info.released:
            job.waits = reason
            self._flux.post_memo(job.info.jobid, {WAIT_MEMO: reason})


def leaves(view: WorkflowView) -> bool:
    """A Workflow is on its way out and needs nothing from us for that. Its job,
    should one turn up, has to wait for its end all the same."""
    return view.deleting and FINALIZER not in view.finalizers


def whose(payload: Any) -> str:
    """The job that an RPC is about, to begin a line of the log with."""
    jobid = payload.get("jobid") if isinstance(payload, dict) else None
    return f"{f58(jobid)}: " if isinstance(jobid, int) and jobid >= 0 else ""
