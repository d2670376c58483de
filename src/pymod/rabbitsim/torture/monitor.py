# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The rules that must hold after every step.

The monitor sees every event of a job, every change of a Workflow and every request of
the service as it happens. Each check looks only at the change.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Callable, Mapping, Optional, Sequence

from flux_k8s.dws.workflowmarks import CUT_OFF, requested_times
from flux_k8s.dws.workflowstate import STATES
from flux_k8s.dws.workflowview import FINALIZER, WLM_ID
from flux_k8s.jobs.datareports import KEY as DATA_OUT
from flux_k8s.jobs.jobexception import NODE_FAILURE
from flux_k8s.jobs.tokens import TOKEN_KEY
from flux_k8s.jobs.workflow import TEARDOWN_PATIENCE
from flux_k8s.ports import SERVERS, WORKFLOW, Json
from flux_k8s.reasons import Reason
from flux_k8s.rfc import hostlist
from flux_k8s.rfc.jobid import decode, f58, jobid_of_workflow, workflow_name
from rabbitsim.dws.options import Fault as DwsFault
from rabbitsim.flux.events import Event, JobState
from rabbitsim.flux.job import Job
from rabbitsim.kube.direct import Fault, Request
from rabbitsim.kube.patch import as_merge_patch
from rabbitsim.kube.store import Event as Change
from rabbitsim.kube.store import Store
from rabbitsim.torture.allowances import Allowances
from rabbitsim.torture.data import FileContents
from rabbitsim.torture.record import (
    ABORT,
    NEVER,
    RESOLUTION,
    Record,
    Told,
    cancelled_in_epilog,
    limit_of,
)
from rabbitsim.torture.storage import StorageMonitor

PAIRS = (
    ("dependency-add", "dependency-remove"),
    ("prolog-start", "prolog-finish"),
    ("epilog-start", "epilog-finish"),
)


_OF_JOB = re.compile(r"fluxjob-(\d+)(?:-\d+)?$")
"""The names of the objects of a job."""

COPY_FAILED = (Reason.DWS_FAILED, Reason.STALL_TIMEOUT, Reason.TEARDOWN_AFTER)
"""The reasons in DataOut for which data is kept, so that it can be rescued."""

_AWAITED = re.compile(r"dws-out(?:=|: )(\w+)")

AFTER_RUN = ("PostRun", "DataOut")
"""The states that save the data of a job."""

MOMENT = 1.0
"""Seconds that it takes to let a job go."""

OBEDIENCE = 100.0
"""Seconds after which a job that was cancelled in its epilog makes no more moves
to save its data: requests that were sent before have arrived."""


_NAME = re.compile(
    r"\u0192\w+|f[A-HJ-NP-Za-km-z1-9]{6,}\b|(fluxjob|compute|rabbit)-[\d\[\],-]+|\d[\d.]*"
)
"""A job, a Workflow, nodes, a Rabbit, or a number."""


@dataclass(frozen=True)
class Breach:
    """Something that must hold does not. ``rule`` is the rule's name."""

    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}"

    @property
    def kind(self) -> str:
        """What it says of whatever job, node or Rabbit."""
        return f"{self.rule}: {_NAME.sub('...', self.text)}"


class Monitor:
    """Checks everything, and remembers the first breach.

    Args:
        now: returns the UNIX time.
        data: the contents of the file systems.
        drained: whether a node is out of service, or was put back by another program.
        running: whether a job has tasks.
        note: takes a line for the trace.
        sizes: the bytes of each Rabbit.
        faults: those of DWS that are planned.
    """

    def __init__(
        self,
        store: Store,
        now: Callable[[], float],
        jobs: Callable[[], dict[int, Job]],
        data: FileContents,
        allowances: Allowances,
        drained: Callable[[str], bool] = lambda host: True,
        running: Callable[[int], bool] = lambda jobid: False,
        note: Callable[[str], None] = lambda line: None,
        sizes: Optional[Mapping[str, int]] = None,
        faults: Sequence[DwsFault] = (),
    ) -> None:
        self._store = store
        self._now = now
        self._jobs = jobs
        self._allowances = allowances
        self._drained = drained
        self._running = running
        self._note = note
        self._records: dict[int, Record] = {}
        self._unrecorded: list[tuple[Job, Job]] = []
        self._storage = StorageMonitor(store, data, self.fail, sizes or {}, faults)
        self.breach: Optional[Breach] = None
        version = str(store.version)
        store.watch(WORKFLOW, None, self.workflow_changed, resource_version=version)

    def record(self, jobid: int) -> Record:
        return self._records.setdefault(jobid, Record())

    def fail(self, rule: str, text: str) -> None:
        if self.breach is None:
            self.breach = Breach(rule, text)

    # Jobs

    def job_event(self, job: Job, event: Event, before: JobState) -> None:
        """An event was posted (a listener of the job manager)."""
        context = event.context or {}
        if event.name not in ("memo", "annotations"):
            shown = context.get("description") or context.get("note") or ""
            self._note(f"{job}: {event.name} {shown}".rstrip())
        if "dw" not in job.jobspec["attributes"]["system"]:
            self._check_plain(job, event)
        elif event.name == "start":
            self._job_starts(job)
        elif event.name == "epilog-finish":
            self._epilog_ends(job)
        elif event.name == "clean":
            self._job_ends(job)
        elif event.name == "exception" and context["type"] == NODE_FAILURE:
            self._nodes_fail(job, event)
        if event.name == "exception" and context["severity"] == 0:
            self._job_fails(job, event)
        if event.name == "dependency-remove":
            self._check_awaited(job, context["description"], out=True)

    def _check_plain(self, job: Job, event: Event) -> None:
        """A job without directives is not our business."""
        if "dws" in str(event.context).replace("dws-out", ""):
            self.fail("plain", f"{job} has no directives, but {event}")
        if event.name == "clean":
            self.check_log(job)

    def _job_starts(self, job: Job) -> None:
        record = self.record(job.id)
        if self._allowances.unguarded(job):
            return
        if "PreRun" not in record.reached:
            self.fail("start", f"{job} ran before its PreRun was complete")
        elif not job.was_posted("dws_environment"):
            self.fail("start", f"{job} ran without its environment")
        elif not (record.fatal or self._allowances.twice(job.id)):
            self._storage.starts(job, record)

    def _job_fails(self, job: Job, event: Event) -> None:
        record, context = self.record(job.id), event.context or {}
        told = Told(context["type"], context["note"], event.reason, record.desired)
        if not self._allowances.fatal(job, record, told, self._now()):
            text = f"{told.type}: {told.note} [{told.cause}]"
            self.fail("exception", f"{job} failed without a cause: {text}")
        if told.type == "dws":
            for other in record.fatal:
                if other.type == "dws" and other.note == told.note:
                    self.fail("exception twice", f"{job} was told twice: {told.note}")
        if told.type == "cancel" and not self._allowances.over:
            record.withdrawn = True
        if told.type == ABORT and not record.aborted:
            record.aborted_at = self._now()
        record.fatal.append(told)
        if told.type == "dependency":
            self._check_awaited(job, told.note, out=False)

    def _check_awaited(self, job: Job, text: str, out: bool) -> None:
        """A job that waited for the data of another goes on if that is out, and fails
        if it is not, and will not be."""
        match = _AWAITED.match(text)
        if match is None:
            return
        awaited = self._jobs().get(decode(match[1]))
        if awaited is None:
            if out:
                self.fail("awaited", f"{job} goes on, and {match[1]} is purged")
            return
        if _is_out(awaited) is not out:
            what = "goes on" if out else "fails"
            recorded = awaited.kvs.get(DATA_OUT)
            self.fail("awaited", f"{job} {what}, and the data of {awaited}: {recorded}")
        elif DATA_OUT not in awaited.kvs:
            self._unrecorded.append((job, awaited))

    def _nodes_fail(self, job: Job, event: Event) -> None:
        """A job goes on without some of its nodes, or has left some mounted."""
        exception = event.context or {}
        hosts = hostlist.decode(exception["note"].partition(": ")[0])
        if event.reason is not Reason.NODES_EXCLUDED:
            for host in hosts:
                if not self._drained(host):
                    self.fail("nodes", f"{host} was left mounted and is not drained")
            return
        record, system = self.record(job.id), job.jobspec["attributes"]["system"]
        record.failed_nodes.update(hosts)
        for host in hosts:
            if not self._allowances.node(job, host):
                self.fail("nodes", f"{job} goes on without {host} for no reason")
            if not self._drained(host):
                self.fail("nodes", f"{host} failed {job} and is not drained")
        tolerance = system.get("dw_failure_tolerance", 0)
        if exception["severity"] == 0 or len(record.failed_nodes) > tolerance:
            self.fail("nodes", f"{job} tolerates {tolerance}: {exception['note']}")

    def put_back(self, host: str, by_hand: float) -> None:
        """The service undrained a node.

        Args:
            by_hand: when an administrator last did, who answers for the mounts of the
                jobs that had ended then.
        """
        jobs = [job for job in self._jobs().values() if job.state is JobState.INACTIVE]
        since = [job for job in jobs if job.events[-1].timestamp > by_hand]
        for job in since:
            if not (self._allowances.unguarded(job) or self.record(job.id).bereft):
                workflow = self._store.find(WORKFLOW, "default", workflow_name(job.id))
                self._storage.put_back(host, job, _waits(workflow))

    def _epilog_ends(self, job: Job) -> None:
        self.record(job.id).unattended = self._allowances.absent()
        workflow = self._store.find(WORKFLOW, "default", workflow_name(job.id))
        self.record(job.id).bereft = workflow is None
        if workflow is None or not _ours(workflow) or self._allowances.unguarded(job):
            return
        record = self.record(job.id)
        record.outlives = record.nodes_released and not record.aborted
        if record.outlives:
            unmounted = "PostRun" in record.reached or self._is_late(record)
            if not (unmounted or record.kept):
                self.fail("epilog", f"{job} was let go before its PostRun was complete")
            self._storage.let_go(job, self._drained, _waits(workflow))
            return
        self._check_told(job, record)
        if not self._allowances.absent():
            self._storage.let_go(job, self._drained)
        alone = record.aborted or self._allowances.left_alone(job)
        if not alone and not _complete(workflow, "Teardown"):
            self.fail("epilog", f"{job} was let go before its storage was torn down")

    def _is_late(self, record: Record) -> bool:
        """Whether nodes that are to unmount in Teardown, which somebody else may have
        asked for, do not hold up others."""
        config = self._allowances.config
        limit = config.postrun_timeout if config.keeps_mounted else None
        if limit is None:
            return False
        return self._now() >= record.asked.get("Teardown", NEVER) + limit - RESOLUTION

    def _job_ends(self, job: Job) -> None:
        """A job's data is safe, or its owner is told, unless the data is still to go
        out."""
        self.check_log(job)
        if not self.record(job.id).outlives:
            self._check_data(job)

    def _check_data(self, job: Job) -> None:
        record, allowed = (
            self.record(job.id),
            self._allowances.lost(job, self.record(job.id)),
        )
        out = record.lost == "DataOut" and self._storage.is_out(job, record)
        unseen = record.unseen and record.nodes_released and not self._is_awaited(job)
        allowed = allowed or unseen
        if record.lost and not (allowed or out):
            self.fail("data", f"{job} ran, and its data was given up in {record.lost}")
        untold = self._allowances.unguarded(job) or record.unattended or unseen
        self._storage.ends(job, record, allowed, untold)

    def _is_awaited(self, job: Job) -> bool:
        """Whether another job waits for the data of a job that has ended, or did."""
        what = "dependency-add", f"dws-out={f58(job.id)}"
        return any(
            (event.name, (event.context or {}).get("description")) == what
            for other in self._jobs().values()
            if other.events[-1].timestamp > job.events[-1].timestamp
            and not self.record(other.id).withdrawn
            for event in other.events
        )

    def check_log(self, job: Job) -> None:
        """The eventlog of a job that has ended."""
        names = [event.name for event in job.events]
        if names.count("clean") != 1 or names[-1] != "clean":
            self.fail("inactive", f"{job} ended {names.count('clean')} times: {names}")
        for begin, end in PAIRS:
            given_up = begin == "dependency-add" and "exception" in names
            if names.count(begin) != names.count(end) and not given_up:
                self.fail("action", f"{job} has {begin} without {end}: {names}")

    # Workflows

    def workflow_changed(self, change: Change) -> None:
        """A Workflow was written, by whomever (a callback of the store)."""
        workflow = change.object
        jobid = jobid_of_workflow(workflow["metadata"]["name"])
        if jobid is None or not _ours(workflow):
            return
        status = workflow.get("status") or {}
        desired = workflow["spec"]["desiredState"]
        self._note(
            f"{workflow['metadata']['name']} {change.type.lower()}: {desired},"
            f" is {status.get('state')} {status.get('status')}"
            f" {'ready' if status.get('ready') else ''}".rstrip()
        )
        record = self.record(jobid)
        if change.type == "ADDED":
            self._made(jobid, record, workflow)
        elif change.type == "DELETED":
            record.unseen = self._allowances.absent()
            self._gone(jobid, record, workflow)
            return
        if desired != record.desired:
            self._moved(jobid, record, desired)
        record.see(workflow, self._now())
        free = desired == "Teardown" or self._allowances.twice(jobid)
        if not (free or _deleting(workflow)):
            if FINALIZER not in workflow["metadata"].get("finalizers", ()):
                self.fail("finalizer", f"{f58(jobid)} lost its finalizer in {desired}")

    def _made(self, jobid: int, record: Record, workflow: Json) -> None:
        record.made += 1
        record.desired = "Proposal"
        record.asked.pop("Teardown", None)  # of one that was lost before
        self._storage.made(workflow)
        if record.made > 1 and not self._allowances.twice(jobid):
            self.fail("made twice", f"{f58(jobid)} got another Workflow")

    def _moved(self, jobid: int, record: Record, desired: str) -> None:
        before = record.desired
        released = STATES[desired] >= STATES["PostRun"]
        # A request may be on its way when somebody else deletes and moves the Workflow.
        meddled = self._allowances.twice(jobid)
        spared = record.aborted or meddled
        if released and self._running(jobid) and not spared:
            self.fail("tasks", f"{f58(jobid)} went to {desired}, and its tasks run")
        if STATES[desired] < STATES[before] and not meddled:
            self.fail("order", f"{f58(jobid)} went back from {before} to {desired}")
        if desired == "Teardown":
            self._check_kept(jobid, record)
            self._leaves(jobid, record)
        self._check_limit(jobid, record, before)
        if desired != "Teardown" and STATES[desired] > STATES[before] + 1:
            self.fail("order", f"{f58(jobid)} skipped from {before} to {desired}")
        record.desired = desired
        record.refused.clear()

    def _check_kept(self, jobid: int, record: Record) -> None:
        """Storage that is kept so that data can be rescued does not go before its time,
        and no storage goes that should have been kept."""
        free = record.given_up or record.aborted or self._allowances.twice(jobid)
        if free or "DataOut" in record.reached:
            return
        until, now = record.failed_until, self._now()
        if until is not None and now < until - self._allowances.early(jobid):
            text = f"{f58(jobid)} was torn down {until - now:.3f}s before its time"
            self.fail("kept", text)
        job = self._jobs().get(jobid)
        unkept = self._allowances.config.keep_failed is None
        if job is None or unkept or self._allowances.unkept():
            return
        if cancelled_in_epilog(job) is not None:
            return  # its data is not waited for
        # A container runs on, so its job cannot end before its storage is gone.
        keeps = "requires=" not in str(job.jobspec["attributes"]["system"]["dw"])
        for told in record.fatal:
            failed = told.state == "DataOut" and told.reason in COPY_FAILED
            lost = any(place in told.note for place in record.outputs)
            if keeps and failed and lost and not record.failed:
                self.fail("kept", f"{f58(jobid)} was not kept: {told.note}")

    def _check_limit(self, jobid: int, record: Record, state: str) -> None:
        """A state that was not reached in time is not waited for any longer."""
        limit = limit_of(state, self._allowances.config)
        asked, now = record.asked.get(state), self._now()
        if limit is None or asked is None or self._allowances.twice(jobid):
            return
        if record.kept and state in ("PostRun", "DataOut"):
            return
        if record.failed and state == "DataOut":
            return
        due = asked + limit + self._allowances.lateness
        told = state in ("Proposal", "Setup") and bool(record.fatal)
        if now > due and record.reached.get(state, NEVER) > due and not told:
            waited = now - asked
            text = f"{f58(jobid)} waited {waited:.0f}s for {state}, at most {limit:g}"
            self.fail("overdue", text)

    def _check_told(self, job: Job, record: Record) -> None:
        """A Teardown that does not get on is told."""
        asked = record.asked.get("Teardown")
        if asked is None or self._allowances.unguarded(job):
            return
        ended = min(record.reached.get("Teardown", NEVER), self._now())
        late = ended - asked > TEARDOWN_PATIENCE + self._allowances.lateness
        told = any(
            "Teardown" in (event.context or {}).get("note", "") for event in job.events
        )
        if late and not told:
            self.fail("silence", f"{job} waited {ended - asked:.0f}s for Teardown")

    def _leaves(self, jobid: int, record: Record) -> None:
        """A Workflow is on its way out: the data that the job wrote must be safe, or
        else its owner must get an exception before the job ends."""
        job = self._jobs().get(jobid)
        if job is None or not job.was_posted("start") or record.lost:
            return
        if "DataOut" not in record.reached:
            early = self._allowances.early(jobid)
            record.leaves(self._now() + early, self._allowances.config)

    def _gone(self, jobid: int, record: Record, workflow: Json) -> None:
        if not _complete(workflow, "Teardown"):
            self._leaves(jobid, record)
            if not self._allowances.twice(jobid):
                state = workflow["spec"]["desiredState"]
                self.fail("deleted", f"{f58(jobid)} lost its Workflow in {state}")
        record.desired = "Proposal"
        job = self._jobs().get(jobid)
        if not _complete(workflow, "Teardown") and self._allowances.twice(jobid):
            return  # the service is still to report what somebody else has done
        if job is not None and record.outlives and not job.active:
            record.outlives = False
            self._check_data(job)

    # Requests of the service

    def requested(self, request: Request, fault: Optional[Fault]) -> None:
        """A request of the service arrives."""
        what = f"{request.verb} {request.kind.plural} {request.name or ''}".rstrip()
        body: Any = request.body
        if request.verb == "patch" and isinstance(body, dict):
            what += f" {body.get('spec', '')}"
        if fault is not None and fault.error is not None:
            what += f" -> {fault.error.status or fault.error.reason}"
            what += ", carried out" if fault.carried_out else ""
        self._note(f"service: {what}")
        if fault is not None and fault.error is not None and fault.error.status:
            self._refused(request)
        if request.kind == SERVERS and request.verb == "patch":
            self._storage.fills(request, self._allowances.crowded(self._now()))
        if request.kind != WORKFLOW or request.name is None:
            return
        if request.verb in ("get", "list", "watch"):
            return
        found = self._store.find(WORKFLOW, request.namespace or "", request.name)
        if found is None:
            return
        if _meant(request) not in ("", found["metadata"]["uid"]):
            return  # Kubernetes refuses it
        if not _ours(found):
            self.fail("foreign", f"{request.verb} of {request.name}, which is not ours")
        elif request.verb == "delete":
            self._asks_deletion(request.name, found)
        elif body is not None:
            self._asks_for(request.name, found, as_merge_patch(body))

    def _refused(self, request: Request) -> None:
        """Kubernetes does not carry out what a job needs to go on."""
        body: Any = request.body
        made = body["metadata"].get("name") if request.verb == "create" else None
        match = _OF_JOB.match(str(request.name or made))
        planning = request.verb == "get" and request.kind != WORKFLOW
        if match is not None and (planning or request.verb in ("create", "patch")):
            self.record(int(match[1])).refused.append(self._now())

    def _asks_deletion(self, name: str, workflow: Json) -> None:
        if not _complete(workflow, "Teardown") and not _deleting(workflow):
            self.fail("deleted", f"delete of {name} before Teardown is complete")

    def _asks_for(self, name: str, workflow: Json, body: Json) -> None:
        spec = body.get("spec") or {}
        wanted, current = spec.get("desiredState"), workflow["spec"]["desiredState"]
        known = self._records.get(jobid_of_workflow(name) or 0)
        if known is not None and known.aborted and self._goes_on(known, body):
            self._storage.cut_off(name, self._drained)
        if wanted is None or wanted == "Teardown":
            return
        steps = STATES[wanted] - STATES[current]
        jobid = jobid_of_workflow(name) or 0
        if (steps < 0 or steps > 1) and not self._allowances.twice(jobid):
            self.fail("order", f"{name} in {current} was asked to go to {wanted}")
        job = self._jobs().get(jobid)
        if job is not None and wanted == "Setup":
            now = self._now()
            self._storage.sets_up(
                job, workflow, lambda r: self._allowances.broken(r, now)
            )
        keeps = self._allowances.config.keeps_mounted
        if job is not None and wanted in (("DataOut",) if keeps else AFTER_RUN):
            since = cancelled_in_epilog(job)
            # One in the moment in which the job is let go comes too late.
            in_time = job.active or job.events[-1].timestamp > (since or 0.0) + MOMENT
            if since is not None and in_time and self._now() > since + OBEDIENCE:
                self.fail("obedience", f"{name} goes to {wanted}, {job} was cancelled")

    def _goes_on(self, record: Record, body: Json) -> bool:
        """Whether an abort was carried out, as a request says, or Teardown was asked
        for by a service that has been told of the abort."""
        annotations = (body.get("metadata") or {}).get("annotations") or {}
        decided = requested_times(annotations)[STATES["Teardown"]]
        told = record.aborted_at + self._allowances.delivery + RESOLUTION
        return CUT_OFF in annotations or (decided is not None and decided > told)

    # The end

    def check_end(self) -> None:
        """Everything is over."""
        for jobid, job in self._jobs().items():
            if job.active:
                self.fail("stuck", f"{job} is in {job.state.name}")
            if TOKEN_KEY in job.kvs:
                self.fail("secret", f"{job} has ended, and its token is there")
            if jobid in self._records:
                self.check_log(job)
                if self._records[jobid].outlives:
                    self._check_data(job)
        for workflow in self._store.list(WORKFLOW, None)["items"]:
            if _ours(workflow):
                self.fail("left", f"{workflow['metadata']['name']} is left")
        for job, awaited in self._unrecorded:
            # The data of a job that was aborted may be found to be out afterwards.
            if _is_out(awaited) and not self.record(awaited.id).aborted:
                self.fail("awaited", f"{job} failed, and the data of {awaited} is out")


def _is_out(job: Job) -> bool:
    """Whether it is recorded that the data of a job is out."""
    return bool(json.loads(job.kvs.get(DATA_OUT, "{}")).get("success", False))


def _ours(workflow: Json) -> bool:
    jobid = jobid_of_workflow(workflow["metadata"]["name"])
    spec = workflow["spec"]
    return jobid is not None and spec["wlmID"] == WLM_ID and spec["jobID"] == f58(jobid)


def _meant(request: Request) -> str:
    """The uid of the only object that a request is to change; "" for whichever."""
    body: Any = request.body or {}
    if isinstance(body, list):
        tests = {each["path"]: each["value"] for each in body if each["op"] == "test"}
        return str(tests.get("/metadata/uid", ""))
    return request.uid or str((body.get("metadata") or {}).get("uid", ""))


def _deleting(workflow: Json) -> bool:
    return "deletionTimestamp" in workflow["metadata"]


def _waits(workflow: Optional[Json]) -> bool:
    """Whether a Workflow is there, and has not reached the state that it is to."""
    return workflow is not None and not _complete(
        workflow, workflow["spec"]["desiredState"]
    )


def _complete(workflow: Json, state: str) -> bool:
    status = workflow.get("status") or {}
    return (
        workflow["spec"]["desiredState"] == state
        and status.get("state") == state
        and status.get("ready") is True
    )
