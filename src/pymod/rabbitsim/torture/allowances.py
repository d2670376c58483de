# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The failures of a job that the plan of a run, and its course, allow.

A trouble that was planned somewhere allows no exception by itself. The note of the
exception must be true (:mod:`rabbitsim.torture.record`), and must have a cause that was
planned for this job, or for the Rabbit that it names.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Callable, Collection, Mapping, Optional

from flux_k8s.config.table import Config
from flux_k8s.dws.workflowstate import STATES
from flux_k8s.jobs.datareports import KEY as DATA_OUT
from flux_k8s.reasons import Reason, read_reason
from flux_k8s.rfc import hostlist
from flux_k8s.rfc.jobid import jobid_of_workflow
from rabbitsim.flux.job import Job
from rabbitsim.kube.store import Event as Change
from rabbitsim.torture.api import CLIENT_TIMEOUT
from rabbitsim.torture.jobs import PlannedJob
from rabbitsim.torture.record import ABORT, NEVER, RESOLUTION, Record, Told, gave_up
from rabbitsim.torture.world import World

RABBIT = re.compile(r"\brabbit-\d+\b")

GIVEN_UP = (Reason.GIVEN_UP, Reason.UNMOUNT_FAILED)
"""The reasons by which data goes with the storage of a job that was cancelled."""

STALE = 150.0
"""Seconds by which the service's knowledge of a Rabbit may lag behind: a watch that is
silent, opened again, and slow."""

PROMPT = 1.0
"""Seconds as :data:`STALE`, while the service sees all events at once."""

OUTAGE = 3700.0
"""Seconds as :data:`STALE`, when there are outages."""


def tells_loss(job: Job, told: Told) -> bool:
    """Whether an exception only tells a job that ran, be it for a moment after it was
    cancelled, that its output is lost."""
    if told.reason not in GIVEN_UP or not job.was_posted("start"):
        return False
    dw = str(job.jobspec["attributes"]["system"]["dw"])
    return "copy_out" in dw or "persistentdw" in dw


class Allowances:
    """The failures that are allowed. Here: nothing is allowed."""

    config = Config()
    over = False
    """Whether jobs are cancelled only so that there is an end."""

    lateness = 100.0
    """Seconds by which an action that is due may be late."""

    delivery = 0.0
    """Seconds that a message within Flux takes, at most."""

    def fatal(self, job: Job, record: Record, told: Told, now: float) -> bool:
        """Whether a fatal exception has a cause."""
        return False

    def node(self, job: Job, host: str) -> bool:
        """Whether a job may go on without one of its nodes."""
        return False

    def lost(self, job: Job, record: Record) -> bool:
        """Whether the data of a job that ran may be lost."""
        return record.overdue or gave_up(job) is not None

    def broken(self, rabbit: str, now: float) -> bool:
        """Whether a Rabbit is broken, and the service must know it."""
        return False

    def crowded(self, now: float) -> bool:
        """Whether the service may not know yet of the storage that fills a Rabbit."""
        return False

    def unkept(self) -> bool:
        """Whether storage may go that should be kept for a rescue."""
        return False

    def left_alone(self, job: Job) -> bool:
        """Whether a job may be let go with its storage as it is."""
        return False

    def early(self, jobid: int) -> float:
        """The seconds by which a limit may be over too early."""
        return 0.0

    def twice(self, jobid: int) -> bool:
        """Whether a Workflow may be made more than once, deleted too early, or
        written by somebody else."""
        return False

    def unguarded(self, job: Job) -> bool:
        """Whether the plugin was away when it should have held the job."""
        return False

    def absent(self) -> bool:
        """Whether the module is away, as far as the plugin can know."""
        return False


class PlannedAllowances(Allowances):
    """The failures that a plan allows.

    Attributes:
        disabled: the Rabbits that an abort took out of service, ever.
    """

    def __init__(self, world: World) -> None:
        plan = world.plan
        self._world = world
        self.config = plan.site.config
        self.delivery = plan.site.message_latency
        self.disabled: set[str] = set()
        self._unfit: dict[str, list[tuple[float, float]]] = {}
        self._jobs = {world.ids[job.number]: job for job in plan.jobs}
        self._cancelled = {
            world.ids[trouble.job]
            for trouble in plan.troubles
            if trouble.kind == "user" or trouble.what == "cancel"
            if trouble.job is not None
        }
        self._dws: dict[int, set[tuple[str, str]]] = {}
        self._parts: dict[int, set[str]] = {}
        for fault in world.faults:
            jobid = jobid_of_workflow(fault.match) or 0
            self._dws.setdefault(jobid, set()).add((fault.kind, fault.state))
            if fault.node and fault.state != "PostRun":
                self._parts.setdefault(jobid, set()).add(fault.node)
        kinds = {trouble.kind for trouble in plan.troubles}
        self._stale = OUTAGE if "outage" in kinds else STALE
        outages = sum(trouble.kind == "outage" for trouble in plan.troubles)
        self.lateness = Allowances.lateness + self._stale * max(1, outages)
        late = {"module", "plugin", "watch", "api", "outage"} & kinds
        self._lag = self._stale if late else PROMPT
        # A limit counts from when the service asks, a state from when the request
        # arrives. Those about one Workflow wait for each other.
        self.on_its_way = 4 * plan.site.kube_latency
        self._rabbits = "rabbit" in kinds
        self._down = "controllers" in kinds
        self._exec = "exec" in kinds
        self.delays = any(trouble.what == "delay" for trouble in plan.troubles)
        self._faulted = {
            (world.ids[trouble.job], trouble.kind)
            for trouble in plan.troubles
            if trouble.job is not None
        }
        self._epilog_timeout = plan.site.epilog_timeout is not None

    def planned(self, job: Job) -> PlannedJob:
        return self._jobs[job.id]

    def closing(self) -> None:
        """From now on any job may be cancelled."""
        self.over = True

    def storage_changed(self, change: Change, now: float) -> None:
        """A Storage was written: a Rabbit may be fit for use, or not."""
        storage, name = change.object, change.object["metadata"]["name"]
        disabled = storage["spec"].get("state") == "Disabled"
        if disabled:
            self.disabled.add(name)
        status = (storage.get("status") or {}).get("status")
        unfit = disabled or status not in ("Ready", "Degraded")
        times = self._unfit.setdefault(name, [])
        if unfit and not (times and times[-1][1] == NEVER):
            times.append((now, NEVER))
        elif not unfit and times and times[-1][1] == NEVER:
            times[-1] = (times[-1][0], now)

    def fatal(self, job: Job, record: Record, told: Told, now: float) -> bool:
        if told.reason is not None:
            return self._is_true(Case(job, record, told, now))
        planned, type = self._jobs[job.id], told.type
        if type == "cancel":
            return job.id in self._cancelled or self.over
        if type == "hostile":
            return (job.id, type) in self._faulted
        if type == "timeout":
            return planned.limited
        if type == "dependency":
            return planned.after is not None
        if type == "node-failure":
            return any(name in told.note for name in self._world.lost_nodes)
        if type == ABORT:
            return self._epilog_timeout or job.id in self._world.aborted
        if type == "exec":
            return self._exec or self.unguarded(job)
        if type == "alloc":
            return planned.bad == "too large" or planned.uncertain
        return type == "dws" and (bool(planned.bad) or self.unguarded(job))

    def _is_true(self, case: Case) -> bool:
        """Whether a job may have failed for the reason that is told. One that no rule
        knows may not be told."""
        rule = _RULES.get(case.told.reason)
        bad = bool(self._jobs[case.job.id].bad)
        return rule is not None and (bad or rule(self, case))

    # What rules ask

    def dws_troubles(self, job: Job) -> Collection[tuple[str, str]]:
        """The kinds of trouble that DWS has with a job, each with its state."""
        return self._dws.get(job.id, ())

    def holds_up(self, job: Job, state: str, *kinds: str) -> bool:
        """Whether a state may take long. (A Rabbit whose storage somebody holds
        on to after an abort keeps others from getting theirs.)"""
        planned = any((kind, state) in self.dws_troubles(job) for kind in kinds)
        return planned or self._rabbits or self._down or bool(self.disabled)

    def is_about(self, job: Job, kind: str) -> bool:
        """Whether a trouble of a kind is about a job."""
        return (job.id, kind) in self._faulted

    def is_meddled(self, job: Job) -> bool:
        """Whether somebody else has written to the job's Workflow."""
        return job.id in self._world.meddled_jobs

    def is_name_taken(self, job: Job) -> bool:
        """Whether the name of the job's Workflow was taken."""
        return self._jobs[job.id].number in self._world.taken_names

    @property
    def passed_over(self) -> bool:
        """Whether DWS passes over nodes, or has done so."""
        return bool(self._world.disabled)

    def rabbit_of(self, host: str) -> Optional[str]:
        return self._world.system.topology.rabbit_of.get(host)

    def node(self, job: Job, host: str) -> bool:
        rabbit = self._world.system.topology.rabbit_of[host]
        if host in self._world.disabled or rabbit in self.disabled:
            return True
        return self._rabbits or bool({host, rabbit} & self._parts.get(job.id, set()))

    def was_unfit(self, rabbit: str, now: float) -> bool:
        times = self._unfit.get(rabbit, ())
        return any(end >= now - self._stale for _, end in times)

    def broken(self, rabbit: str, now: float) -> bool:
        times = self._unfit.get(rabbit)
        return bool(times and times[-1][1] == NEVER and now > times[-1][0] + self._lag)

    def crowded(self, now: float) -> bool:
        return now <= self._world.filled + self._lag

    def waited(self, job: Job, now: float) -> bool:
        """The job waited as long for others' storage to go as it may."""
        began = [e.timestamp for e in job.events if e.name == "prolog-start"]
        limit = self.config.prolog_timeout
        return bool(began) and limit is not None and now - began[0] >= limit / 2

    def lost(self, job: Job, record: Record) -> bool:
        if super().lost(job, record) or self.unguarded(job):
            return True
        found = json.loads(job.kvs.get(DATA_OUT, "{}"))
        if not record.nodes_released or "errstr" not in found:
            return False
        told = Told("", found["errstr"], read_reason(found.get("reason")))
        return self._is_true(Case(job, record, told, self._world.system.loop.now()))

    def early(self, jobid: int) -> float:
        # A request that arrives late has the time at which it was made.
        late = jobid in self._world.system.api_troubles.late
        return 2 * CLIENT_TIMEOUT if late else 0.0

    def twice(self, jobid: int) -> bool:
        late = self._world.system.api_troubles.late
        return jobid in late or jobid in self._world.meddled_jobs

    def absent(self) -> bool:
        system = self._world.system
        told = system.loaded_at + self.delivery
        return not system.instance.module_loaded or system.loop.now() <= told

    def unguarded(self, job: Job) -> bool:
        """Something happened to the job while the plugin was away."""
        return any(
            begin <= event.timestamp <= end
            for begin, end in self._world.plugin_outages
            for event in job.events
            if event.name != "memo"
        )


# Why a job may fail


@dataclass(frozen=True)
class Case:
    """What a job, or the record of its data, is told at a time."""

    job: Job
    record: Record
    told: Told
    now: float

    @property
    def rabbits(self) -> list[str]:
        """The Rabbits that are named."""
        return RABBIT.findall(self.told.note)


Rule = Callable[[PlannedAllowances, Case], bool]


def _asked_for_too_much(allowed: PlannedAllowances, case: Case) -> bool:
    return allowed.planned(case.job).uncertain


def _no_room(allowed: PlannedAllowances, case: Case) -> bool:
    """Others' storage fills the Rabbits for too long, or one does not serve, without
    whose nodes the job cannot do."""
    if _asked_for_too_much(allowed, case) or allowed.waited(case.job, case.now):
        return True
    return _rabbit_broken(allowed, case) and not _tolerable(allowed, case)


def _tolerable(allowed: PlannedAllowances, case: Case) -> bool:
    """Whether a job may do without the nodes below the Rabbits that are named."""
    if case.job.R is None:
        return False
    nodes = hostlist.decode_all(case.job.R["execution"]["nodelist"])
    lost = [host for host in nodes if allowed.rabbit_of(host) in case.rabbits]
    tolerance = case.job.jobspec["attributes"]["system"].get("dw_failure_tolerance", 0)
    return bool(lost) and len(lost) <= tolerance and len(lost) < len(nodes)


def _rabbit_broken(allowed: PlannedAllowances, case: Case) -> bool:
    if allowed.planned(case.job).uncertain:
        return True
    named = case.rabbits
    return bool(named) and all(allowed.was_unfit(name, case.now) for name in named)


def _waited(allowed: PlannedAllowances, case: Case) -> bool:
    uncertain = allowed.planned(case.job).uncertain
    return uncertain or allowed.waited(case.job, case.now)


def _other_nodes(allowed: PlannedAllowances, case: Case) -> bool:
    planned = allowed.planned(case.job)
    return planned.uncertain or allowed.is_about(case.job, "queue")


def _staged_for_long(allowed: PlannedAllowances, case: Case) -> bool:
    limit, copied = allowed.config.stage_timeout, case.record.reached.get("DataIn")
    if limit is None or copied is None:
        return False
    return case.now + allowed.on_its_way - copied >= limit - RESOLUTION


def _dws_failed(allowed: PlannedAllowances, case: Case) -> bool:
    planned = allowed.dws_troubles(case.job)
    return any(
        ("error", state) in planned
        or ("copy", state) in planned
        or allowed.planned(case.job).uncertain
        for state in case.record.errors
    )


def _transient(allowed: PlannedAllowances, case: Case) -> bool:
    limit = allowed.config.tc_timeout
    return any(
        case.record.was_transient(state, limit, case.now)
        and allowed.holds_up(case.job, state, "transient", "mount")
        for state in STATES
    )


def _limit(key: str, *states: str) -> Rule:
    """One of the states took longer than a limit: DWS was held up, or Kubernetes took
    no request for the next one."""

    def rule(allowed: PlannedAllowances, case: Case) -> bool:
        limit: Optional[float] = getattr(allowed.config, key)
        if limit is None:
            return False
        record, now = case.record, case.now + allowed.on_its_way
        if record.was_refused(limit):
            return True
        late = [state for state in states if record.exceeded(state, limit, now)]
        return any(
            allowed.holds_up(
                case.job, state, "never", "slow", "transient", "mount", "error", "stall"
            )
            or (allowed.delays and record.began_late(state, limit))
            for state in late
        )

    return rule


def _torn_down_after(allowed: PlannedAllowances, case: Case) -> bool:
    """Whatever held PostRun and DataOut up, an outage as well: they took that long."""
    limit, now = allowed.config.teardown_after, case.now + allowed.on_its_way
    if limit is None:
        return False
    together = case.record.exceeded("DataOut", limit, now, first="PostRun")
    return together or _limit("teardown_after", "PostRun", "DataOut")(allowed, case)


def _nodes_failed(allowed: PlannedAllowances, case: Case) -> bool:
    """Nodes lack their storage: they are passed over, or were held up."""
    if allowed.passed_over:
        return True
    return (
        _limit("setup_timeout", "Setup")(allowed, case)
        or _limit("prerun_timeout", "PreRun")(allowed, case)
        or _dws_failed(allowed, case)
        or _transient(allowed, case)
        or _rabbit_broken(allowed, case)
    )


def _given_up(allowed: PlannedAllowances, case: Case) -> bool:
    """The job's user, or somebody else, has given up its data, if there is some."""
    record = case.record
    if tells_loss(case.job, case.told):
        return True
    return bool(record.outputs or record.fatal)  # or before it started


def _aborted(allowed: PlannedAllowances, case: Case) -> bool:
    return case.record.aborted


def _use_unknown(allowed: PlannedAllowances, case: Case) -> bool:
    return case.record.aborted or _nodes_failed(allowed, case)


def _meddled(allowed: PlannedAllowances, case: Case) -> bool:
    return allowed.is_meddled(case.job)


def _name_taken(allowed: PlannedAllowances, case: Case) -> bool:
    return allowed.is_name_taken(case.job)


def _planned_fault(allowed: PlannedAllowances, case: Case) -> bool:
    return allowed.is_about(case.job, "fault")


def _unguarded(allowed: PlannedAllowances, case: Case) -> bool:
    return allowed.unguarded(case.job)


_RULES: Mapping[Optional[Reason], Rule] = {
    Reason.BAD_REQUEST: _asked_for_too_much,
    Reason.UNSATISFIABLE: _asked_for_too_much,
    Reason.DWS_REFUSED: _asked_for_too_much,
    Reason.NO_ROOM: _no_room,
    Reason.RABBIT_BROKEN: _rabbit_broken,
    Reason.PROLOG_TIMEOUT: _waited,
    Reason.OTHER_NODES: _other_nodes,
    Reason.STAGE_TIMEOUT: _staged_for_long,
    Reason.DWS_FAILED: _dws_failed,
    Reason.TRANSIENT_CONDITION: _transient,
    Reason.SETUP_TIMEOUT: _limit("setup_timeout", "Proposal", "Setup", "DataIn"),
    Reason.PRERUN_TIMEOUT: _limit("prerun_timeout", "PreRun"),
    Reason.POSTRUN_TIMEOUT: _limit("postrun_timeout", "PostRun", "Teardown"),
    Reason.TEARDOWN_AFTER: _torn_down_after,
    # In torture a copy takes one step, or is held up as a whole.
    Reason.STALL_TIMEOUT: _limit("stall_timeout", "DataIn", "DataOut"),
    Reason.NODES_FAILED: _nodes_failed,
    Reason.GIVEN_UP: _given_up,
    Reason.UNMOUNT_FAILED: _given_up,
    Reason.EPILOG_GIVEN_UP: _aborted,
    Reason.USE_UNKNOWN: _use_unknown,
    Reason.WORKFLOW_DELETED: _meddled,
    Reason.WORKFLOW_MOVED: _meddled,
    Reason.NAME_TAKEN: _name_taken,
    Reason.SERVICE_FAULT: _planned_fault,
    Reason.PLUGIN_MISSING: _unguarded,
}
"""For each reason for which a job of a plan may fail, or lose its data, the rule."""
