# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The rules that must hold after every step.

The monitor sees every event of a job, every change of a Workflow and every request of
the service as it happens. It keeps what is true of each job, and applies the rules of
:mod:`rabbitsim.torture.jobrules` and :mod:`rabbitsim.torture.workflowrules`, each of
which is a function of the change and of what is true.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Callable, Collection, Mapping, Optional, Sequence

from flux_k8s.formats.jobid import jobid_of_workflow, workflow_name
from flux_k8s.jobs.workflowrequests import TOKEN_KEY
from flux_k8s.ports import SERVERS, WORKFLOW, Json, Request
from rabbitsim.dws.options import Fault as DwsFault
from rabbitsim.flux.events import Event, JobState
from rabbitsim.flux.job import Job
from rabbitsim.flux.pool import Pool
from rabbitsim.kube.direct import Fault
from rabbitsim.kube.store import Event as Change
from rabbitsim.kube.store import Store
from rabbitsim.torture import jobrules, workflowrules
from rabbitsim.torture.allowances import PROMPT, Allowances
from rabbitsim.torture.data import FileContents
from rabbitsim.torture.record import ABORT, Record, Told
from rabbitsim.torture.storage import StorageMonitor
from rabbitsim.torture.workflowrules import is_complete, is_ours, waits, wanted

RUSH = 20000
"""Steps at one and the same moment that are too many: something spins."""

_OF_JOB = re.compile(r"fluxjob-(\d+)(?:-\d+)?$")
"""The names of the objects of a job."""

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

    Attributes:
        now: returns the UNIX time.
        jobs: returns the jobs, by their IDs.
        allowances: what a plan or a story allows.
        drained: whether a node is out of service, or was put back by another program.
        running: whether a job has tasks.
        storage: the rules about storage and data.
        unrecorded: the jobs that failed for the data of others of which nothing was
            recorded, and these.
    """

    def __init__(
        self,
        store: Store,
        now: Callable[[], float],
        jobs: Callable[[], dict[int, Job]],
        data: FileContents,
        allowances: Allowances,
        pool: Pool,
        drained: Callable[[str], bool] = lambda host: True,
        running: Callable[[int], bool] = lambda jobid: False,
        note: Callable[[str], None] = lambda line: None,
        sizes: Optional[Mapping[str, int]] = None,
        faults: Sequence[DwsFault] = (),
    ) -> None:
        """
        Args:
            data: the contents of the file systems.
            pool: what the scheduler has.
            note: takes a line for the trace.
            sizes: the bytes of each Rabbit.
            faults: those of DWS that are planned.
        """
        self.now = now
        self.jobs = jobs
        self.allowances = allowances
        self.drained = drained
        self.running = running
        self.storage = StorageMonitor(store, data, self.fail, sizes or {}, pool, faults)
        self.unrecorded: list[tuple[Job, Job]] = []
        self.breach: Optional[Breach] = None
        self._store = store
        self._note = note
        self._records: dict[int, Record] = {}
        self._drained: frozenset[str] = frozenset()
        version = str(store.version)
        store.watch(WORKFLOW, None, self.workflow_changed, resource_version=version)

    def record(self, jobid: int) -> Record:
        """What is true of a job."""
        return self._records.setdefault(jobid, Record())

    def workflow(self, jobid: int) -> Optional[Json]:
        """The Workflow of a job; None if there is none."""
        return self._store.find(WORKFLOW, "default", workflow_name(jobid))

    def fail(self, rule: str, text: str) -> None:
        if self.breach is None:
            self.breach = Breach(rule, text)

    def job_event(self, job: Job, event: Event, before: JobState) -> None:
        """An event was posted (a listener of the job manager)."""
        context = event.context or {}
        if event.name not in ("memo", "annotations"):
            shown = context.get("description") or context.get("note") or ""
            self._note(f"{job}: {event.name} {shown}".rstrip())
        rules: Sequence[jobrules.Rule] = (jobrules.check_plain,)
        if "dw" in job.jobspec["attributes"]["system"]:
            rules = jobrules.OF_STORAGE.get(event.name, ())
            if event.name == "prolog-start":  # what was read before was for a plan
                self.record(job.id).worked.pop("Setup", None)
            if event.name == "epilog-finish":
                self.record(job.id).unattended = self.allowances.absent()
                self.record(job.id).bereft = self.workflow(job.id) is None
        for rule in (*rules, *jobrules.OF_ALL.get(event.name, ())):
            rule(self, job, event)
        told = jobrules.told_by(self, job, event)
        if told is not None:
            self._told(self.record(job.id), told)

    def _told(self, record: Record, told: Told) -> None:
        """A job has a fatal exception."""
        if told.type != "dependency" and not self.allowances.over:
            record.withdrawn = True
        if told.type == ABORT and not record.aborted:
            record.aborted_at = self.now()
        record.fatal.append(told)

    def nodes_changed(
        self, drained: Collection[str], put_back: Mapping[str, float]
    ) -> None:
        """Nodes were drained, or put back by the service or an administrator.

        Args:
            drained: those that are out of service now.
            put_back: when an administrator last put a node back, by its host name.
        """
        for host in sorted(self._drained.difference(drained)):
            by_hand = put_back.get(host, 0.0)
            if by_hand != self.now():
                self._put_back(host, by_hand)
        self._drained = frozenset(drained)

    def _put_back(self, host: str, by_hand: float) -> None:
        """The service undrained a node. An administrator answers for the mounts of the
        jobs that had ended when one last did."""
        jobs = [job for job in self.jobs().values() if job.state is JobState.INACTIVE]
        since = [job for job in jobs if job.events[-1].timestamp > by_hand]
        for job in since:
            if not (self.allowances.unguarded(job) or self.record(job.id).bereft):
                self.storage.put_back(host, job, waits(self.workflow(job.id)))

    def workflow_changed(self, change: Change) -> None:
        """A Workflow was written, by whomever (a callback of the store)."""
        workflow = change.object
        jobid = jobid_of_workflow(workflow["metadata"]["name"])
        if jobid is None or not is_ours(workflow):
            return
        status = workflow.get("status") or {}
        desired = workflow["spec"]["desiredState"]
        self._note(
            f"{workflow['metadata']['name']} {change.type.lower()}: {desired},"
            f" is {status.get('state')} {status.get('status')}"
            f" {'ready' if status.get('ready') else ''}".rstrip()
        )
        record = self.record(jobid)
        if change.type == "DELETED":
            self._gone(jobid, record, workflow)
            return
        if change.type == "ADDED":
            self._apply("made", jobid, workflow)
            record.made += 1
            record.begin()
            record.ask("Proposal")
            self.storage.made(workflow)
        if desired != record.desired:
            self._apply("moved", jobid, workflow)
            if desired == "Teardown":
                self._leaves(jobid, record)
            record.ask(desired)
        record.see(workflow, self.now())
        self._apply("written", jobid, workflow)

    def _apply(self, what: str, jobid: int, workflow: Json) -> None:
        for rule in workflowrules.OF_CHANGES[what]:
            rule(self, jobid, workflow)

    def _leaves(self, jobid: int, record: Record) -> None:
        """A Workflow is on its way out: the data that the job wrote must be safe, or
        else its owner must get an exception before the job ends."""
        job = self.jobs().get(jobid)
        if job is None or not job.was_posted("start") or record.lost:
            return
        if "DataOut" not in record.reached:
            early = self.allowances.early(jobid)
            record.leaves(self.now() + early, self.allowances.config)

    def module_died(self) -> None:
        """Of a Workflow that was deleted just before, nobody has heard."""
        for record in self._records.values():
            heard = record.deleted + PROMPT
            record.unseen = record.unseen or self.now() <= heard

    def _gone(self, jobid: int, record: Record, workflow: Json) -> None:
        torn_down, job = is_complete(workflow, "Teardown"), self.jobs().get(jobid)
        if not torn_down:
            record.deleted = self.now()
            record.unseen = record.unseen or self.allowances.absent()
            self._leaves(jobid, record)
        self._apply("gone", jobid, workflow)
        record.desired = "Proposal"
        record.tried.pop("Proposal", None)
        if not torn_down and self.allowances.twice(jobid):
            return  # the service is still to report what somebody else has done
        if job is not None and record.outlives and not job.active:
            record.outlives = False
            jobrules.check_data(self, job)

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
        if fault is not None and fault.error is not None:
            self._refused(request)
        if request.kind == SERVERS and request.verb == "patch":
            self.storage.fills(request, self.allowances.crowded(self.now()))
        if request.kind == SERVERS and request.verb in ("get", "patch"):
            name = request.name or ""
            if self._store.find(SERVERS, request.namespace or "", name) is None:
                self._destroyed(request)
        if request.kind != WORKFLOW or request.verb in ("get", "list", "watch"):
            return
        if request.name is None:
            return
        found = self._store.find(WORKFLOW, request.namespace or "", request.name)
        if found is None or _meant(request) not in ("", found["metadata"]["uid"]):
            return  # Kubernetes refuses it
        if not is_ours(found):
            self.fail("foreign", f"{request.verb} of {request.name}, which is not ours")
        else:
            for rule in workflowrules.OF_REQUESTS:
                rule(self, request, found)

    def sent(self, request: Request) -> None:
        """The service sends a request. It may ask for a state, or read before it
        does."""
        body: Any = request.body
        made = body["metadata"].get("name") if request.verb == "create" else None
        match = _OF_JOB.match(str(request.name or made))
        if match is None:
            return
        record, now = self.record(int(match[1])), self.now()
        record.work(now)
        if request.kind == WORKFLOW and request.verb in ("create", "patch"):
            state = wanted(request)
            if state is not None:
                record.tried.setdefault(state, []).append(now)

    def _refused(self, request: Request) -> None:
        """Kubernetes does not carry out what a job needs to go on, or does not say."""
        body: Any = request.body
        made = body["metadata"].get("name") if request.verb == "create" else None
        match = _OF_JOB.match(str(request.name or made))
        planning = request.verb == "get" and request.kind != WORKFLOW
        if match is not None and (planning or request.verb in ("create", "patch")):
            self.record(int(match[1])).refused.append(self.now())

    def _destroyed(self, request: Request) -> None:
        """Another job has destroyed the persistent storage that one is to have."""
        named = f"name={request.name}"
        for jobid, job in self.jobs().items():
            system = job.jobspec["attributes"]["system"]
            if named in re.findall(r"[\w=-]+", str(system.get("dw"))):
                self.record(jobid).refused.append(self.now())

    def spins(self, steps: int) -> bool:
        """Whether so many steps at one and the same moment are too many."""
        if steps > RUSH:
            self.fail("spin", f"{steps} steps at {self.now():.3f}s")
        return steps > RUSH

    def check_end(self) -> None:
        """Everything is over."""
        for jobid, job in self.jobs().items():
            if job.active:
                self.fail("stuck", f"{job} is in {job.state.name}")
            record = self._records.get(jobid)
            # The Secret went with the Workflow, and no module was there to see it.
            unseen = record is not None and record.unattended and record.unseen
            if TOKEN_KEY in job.kvs and not unseen:
                self.fail("secret", f"{job} has ended, and its token is there")
            if record is not None:
                jobrules.check_log(self, job)
                if record.outlives:
                    record.outlives = False
                    jobrules.check_data(self, job)
        for workflow in self._store.list(WORKFLOW, None)["items"]:
            if is_ours(workflow):
                self.fail("left", f"{workflow['metadata']['name']} is left")
        for job, awaited in self.unrecorded:
            # The data of a job that was aborted may be found to be out afterwards.
            if jobrules.is_out(awaited) and not self.record(awaited.id).aborted:
                self.fail("awaited", f"{job} failed, and the data of {awaited} is out")


def _meant(request: Request) -> str:
    """The uid of the only object that a request is to change; "" for whichever."""
    body: Any = request.body or {}
    if isinstance(body, list):
        tests = {each["path"]: each["value"] for each in body if each["op"] == "test"}
        return str(tests.get("/metadata/uid", ""))
    return request.uid or str((body.get("metadata") or {}).get("uid", ""))
