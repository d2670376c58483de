# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The failures of a job that the plan of a run, and its course, allow.

A trouble that was planned somewhere allows no exception by itself. The note of the
exception must be true (:mod:`rabbitsim.torture.record`), and must have a cause that was
planned for this job, or for the Rabbit that it names.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Collection, Optional

from flux_k8s.config.table import Config
from flux_k8s.formats.jobid import jobid_of_workflow
from flux_k8s.jobs.outcomes import DATA_OUT
from flux_k8s.reasons import Reason, read_reason
from rabbitsim.flux.job import Job
from rabbitsim.kube.store import Event as Change
from rabbitsim.torture.api import CLIENT_TIMEOUT
from rabbitsim.torture.causes import RULES, Case, may_be_told, tells_loss
from rabbitsim.torture.interruptions import NOT_NOW, Interruption
from rabbitsim.torture.jobs import PlannedJob
from rabbitsim.torture.record import ABORT, NEVER, Record, Told, gave_up

if TYPE_CHECKING:
    from rabbitsim.torture.life import StorySystem
    from rabbitsim.torture.story import Story
    from rabbitsim.torture.world import World

STALE = 150.0
"""Seconds by which the service's knowledge of a Rabbit may lag behind: a watch that is
silent, opened again, and slow."""

PROMPT = 1.0
"""Seconds as :data:`STALE`, while the service sees all events at once."""

OUTAGE = 3700.0
"""Seconds as :data:`STALE`, when there are outages."""


class Allowances:
    """The failures that are allowed. Here: nothing is allowed."""

    config = Config()
    over = False
    """Whether jobs are cancelled only so that there is an end."""

    lateness = 100.0
    """Seconds by which an action that is due may be late."""

    delivery = 0.0
    """Seconds that a message within Flux takes, at most."""

    @property
    def loaded_at(self) -> float:
        """When the module was loaded last."""
        return float("-inf")

    def fatal(self, job: Job, record: Record, told: Told, now: float) -> bool:
        """Whether a fatal exception has a cause."""
        return False

    def may_tell(self, reason: Reason) -> bool:
        """Whether anything is told, or logged, for this reason."""
        return True

    def node(self, job: Job, host: str) -> bool:
        """Whether a job may go on without one of its nodes."""
        return False

    def lost(self, job: Job, record: Record) -> bool:
        """Whether the data of a job that ran may be lost."""
        ended = record.asked.get("PostRun", NEVER)
        return record.overdue or gave_up(job, ended) is not None

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
        unlinked: the nodes that could not reach their Rabbit, ever.
    """

    def __init__(self, world: World) -> None:
        plan = world.plan
        self._world = world
        self.config = plan.site.config
        self.delivery = plan.site.message_latency
        self.disabled: set[str] = set()
        self.unlinked: set[str] = set()
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
        self._kinds = kinds
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
        """A Storage was written: a Rabbit, or its nodes, may be fit for use, or not."""
        storage, name = change.object, change.object["metadata"]["name"]
        disabled = storage["spec"].get("state") == "Disabled"
        if disabled:
            self.disabled.add(name)
        found = storage.get("status") or {}
        status, links = found.get("status"), found.get("access") or {}
        computes = links.get("computes") or ()
        self.unlinked.update(c["name"] for c in computes if c["status"] != "Ready")
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
            # The nodes that it may get change while those near its storage are told.
            staged = "Setup" in record.reached and self.is_about(job, "queue")
            return planned.bad == "too large" or planned.uncertain or staged
        return type == "dws" and (bool(planned.bad) or self.unguarded(job))

    def may_tell(self, reason: Reason) -> bool:
        return may_be_told(reason, self._kinds)

    def _is_true(self, case: Case) -> bool:
        """Whether a job may have failed for the reason that is told. One that no rule
        knows may not be told."""
        rule = RULES.get(case.told.reason)
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

    def is_given_up(self, job: Job) -> bool:
        """Whether the job's user has given its data up."""
        return job.id in self._world.given_up

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

    @property
    def loaded_at(self) -> float:
        return self._world.system.loaded_at

    def absent(self) -> bool:
        system = self._world.system
        told = self.loaded_at + self.delivery
        return not system.instance.module_loaded or system.loop.now() <= told

    def unguarded(self, job: Job) -> bool:
        """Something happened to the job while the plugin was away."""
        return any(
            begin <= event.timestamp <= end
            for begin, end in self._world.plugin_outages
            for event in job.events
            if event.name != "memo"
        )


class StoryAllowances(Allowances):
    """The failures that a story allows, with an interruption."""

    def __init__(
        self, system: StorySystem, story: Story, interruption: Interruption
    ) -> None:
        self._system = system
        self._story = story
        self._cancel = interruption is Interruption.CANCEL
        self._fails = interruption.fails
        self.config = story.config
        self.lateness += story.away + max(0.0, -story.ahead)

    def fatal(self, job: Job, record: Record, told: Told, now: float) -> bool:
        if told.cause in self._story.fatal:
            return True
        if told.reason is Reason.USE_UNKNOWN and ABORT in self._story.fatal:
            return self._failed(step="CUT_OFF")  # which asks once what is in use
        if NOT_NOW in told.note:
            return self._refused_for_long(record, told)
        if told.reason is Reason.UNMOUNT_FAILED and self.config.keeps_mounted:
            # DWS goes on without the node before the limit is over.
            return self._fails
        aborted = told.type == ABORT or told.reason is Reason.EPILOG_GIVEN_UP
        freed = self._story.freed and aborted
        return self._cancel and (
            told.type in ("cancel", "dependency") or tells_loss(job, told) or freed
        )

    def _refused_for_long(self, record: Record, told: Told) -> bool:
        """Whether the interruption was one refusal more, at the end of a limit."""
        limits = {
            Reason.SETUP_TIMEOUT: self.config.setup_timeout,
            Reason.PRERUN_TIMEOUT: self.config.prerun_timeout,
        }
        limit = limits.get(told.reason) if told.reason else None
        return limit is not None and record.was_refused(limit)

    def lost(self, job: Job, record: Record) -> bool:
        expected = self._story.data not in ("", "out")
        given_up = record.failed and self._story.data != "out"
        unguarded = self.unguarded(job)
        return super().lost(job, record) or expected or given_up or unguarded

    def unguarded(self, job: Job) -> bool:
        """The job has ended without an epilog: no plugin has held it."""
        names = {event.name for event in job.events}
        return "finish" in names and "epilog-start" not in names

    def twice(self, jobid: int) -> bool:
        return self._system.meddled

    def crowded(self, now: float) -> bool:
        return self._failed(request="watch servers")  # which would have told

    def _failed(self, step: str = "", request: str = "") -> bool:
        """Whether Kubernetes has not answered as it should, in a step or to a request
        ("" for any)."""
        hit = self._system.interrupter.hit
        if hit is None or not self._fails:
            return False
        return step in ("", hit.step) and request in ("", hit.request)

    @property
    def loaded_at(self) -> float:
        return self._system.loaded_at

    def absent(self) -> bool:
        return self._system.blind or not self._system.instance.module_loaded

    def unkept(self) -> bool:
        """The story has a job whose storage is not kept."""
        words = self._story.course.split()
        copied = (word for word in words if word.endswith("DataOut"))
        return any(word.replace("DataOut", "kept") not in words for word in copied)

    def left_alone(self, job: Job) -> bool:
        told = {"service-fault", "service-fault!", "barred"}
        return job is self._system.first and bool(told & {*self._story.course.split()})

    def early(self, jobid: int) -> float:
        return max(0.0, self._story.ahead)

    def node(self, job: Job, host: str) -> bool:
        return self._story.job.tolerance > 0
