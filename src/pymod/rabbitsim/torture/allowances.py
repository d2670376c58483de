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

from flux_k8s.config.table import Config
from flux_k8s.jobs.datareports import KEY as DATA_OUT
from flux_k8s.ports import Json
from flux_k8s.rfc import hostlist
from rabbitsim.flux.job import Job
from rabbitsim.kube.store import Event as Change
from rabbitsim.torture.api import CLIENT_TIMEOUT
from rabbitsim.torture.jobs import PlannedJob
from rabbitsim.torture.record import ABORT, NEVER, RESOLUTION, Record, gave_up
from rabbitsim.torture.troubles import PARTS, part_state
from rabbitsim.torture.world import World

UNFIT = re.compile(r"(rabbit-\d+)(?: is not fit for use|, which [^,]*, is not fit)")
NEEDED = re.compile(r"which (\d+) of the job's nodes need, is not fit for use")
DOWN = re.compile(r"Rabbit (rabbit-\d+) is \w+[,;]")
LOST = re.compile(r"Rabbit (rabbit-\d+) is \w+")
STAGED = re.compile(r"its data has waited for nodes for stage_timeout=(\d+)s")
STALE = 150.0
"""Seconds by which the service's knowledge of a Rabbit may lag behind: a watch that is
silent, opened again, and slow."""

PROMPT = 1.0
"""Seconds as :data:`STALE`, while the service sees all events at once."""

OUTAGE = 3700.0
"""Seconds as :data:`STALE`, when there are outages."""


LOSS = re.compile(
    r"(?:given up in \w+|the storage is gone); "
    r"(not copied: |\S+ may not have written|\S+ has not unmounted)"
)


def tells_loss(job: Job, note: str) -> bool:
    """Whether an exception only tells a job that ran, be it for a moment after it was
    cancelled, that its output is lost."""
    match = LOSS.match(note)
    if match is None or not job.was_posted("start"):
        return False
    command = "persistentdw" if "may not" in match[1] else "copy_out"
    return command in str(job.jobspec["attributes"]["system"]["dw"])


def tolerable(job: Job, note: str) -> bool:
    """Whether a job was failed for a Rabbit, and may do without the nodes below it."""
    match = NEEDED.search(note)
    if match is None or job.R is None:
        return False
    lost, nodes = int(match[1]), hostlist.decode_all(job.R["execution"]["nodelist"])
    tolerance = job.jobspec["attributes"]["system"].get("dw_failure_tolerance", 0)
    return bool(lost <= tolerance and lost < len(nodes))


class Allowances:
    """The failures that are allowed. Here: nothing is allowed."""

    config = Config()
    lateness = 100.0
    """Seconds by which an action that is due may be late."""

    delivery = 0.0
    """Seconds that a message within Flux takes, at most."""

    def fatal(self, job: Job, record: Record, exception: Json, now: float) -> bool:
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
        self._closing = False
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
        for trouble in plan.troubles:
            if trouble.kind in ("dws", *PARTS) and trouble.job is not None:
                jobid, state = world.ids[trouble.job], trouble.name
                if trouble.kind in PARTS:
                    state = part_state(trouble)
                if trouble.kind == "part":
                    self._parts.setdefault(jobid, set()).add(trouble.name)
                self._dws.setdefault(jobid, set()).add((trouble.what, state))
        kinds = {trouble.kind for trouble in plan.troubles}
        self._stale = OUTAGE if "outage" in kinds else STALE
        outages = sum(trouble.kind == "outage" for trouble in plan.troubles)
        self.lateness = Allowances.lateness + self._stale * max(1, outages)
        late = {"module", "plugin", "watch", "api", "outage"} & kinds
        self._lag = self._stale if late else PROMPT
        # A limit counts from when the service asks, a state from when the request
        # arrives. Those about one Workflow wait for each other.
        self._on_its_way = 4 * plan.site.kube_latency
        self._rabbits = "rabbit" in kinds
        self._down = "controllers" in kinds
        self._exec = "exec" in kinds
        self._delays = any(trouble.what == "delay" for trouble in plan.troubles)
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
        self._closing = True

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

    def fatal(self, job: Job, record: Record, exception: Json, now: float) -> bool:
        planned, type = self._jobs[job.id], exception["type"]
        if type == "cancel":
            return job.id in self._cancelled or self._closing
        if type == "hostile":
            return (job.id, type) in self._faulted
        if type == "exec" and "reattach" in exception["note"]:
            return self._exec
        if type == "timeout":
            return planned.limited
        if type == "dependency":
            return planned.after is not None
        if type == "node-failure":
            return any(name in exception["note"] for name in self._world.lost_nodes)
        if type == ABORT:
            return self._epilog_timeout or job.id in self._world.aborted
        if type == "exec":
            return "dws-jobtap.so" in exception["note"] and self.unguarded(job)
        if type == "alloc":
            return planned.bad == "too large" or planned.uncertain
        return type == "dws" and self._failed(job, record, exception["note"], now)

    def _failed(self, job: Job, record: Record, note: str, now: float) -> bool:
        """Whether the note of a job's exception is true, and has a cause."""
        planned = self._jobs[job.id]
        if tells_loss(job, note):
            return True
        if re.match("given up in|the storage is gone; not copied: ", note):
            return bool(record.outputs or record.fatal)  # or before it started
        if note.startswith("epilog-timeout"):
            return record.aborted
        if "Disabled in SystemStatus" in note:
            return any(host in note for host in self._world.disabled) or (
                "[" in note and bool(self._world.disabled)
            )
        if match := STAGED.match(note):
            limit, copied = float(match[1]), record.reached.get("DataIn", NEVER)
            return now + self._on_its_way - copied >= limit - RESOLUTION
        if "where its data is" in note or "before it had nodes; " in note:
            return (job.id, "queue") in self._faulted
        if lost := LOST.findall(note):
            return all(self._was_unfit(name, now) for name in lost)
        if "a fault that was planned" in note:
            return (job.id, "fault") in self._faulted
        if "under the job" in note:
            return job.id in self._world.meddled_jobs
        if "not loaded" in note:
            return self.unguarded(job)
        if "belongs to job" in note:
            return planned.number in self._world.taken_names
        if planned.bad:
            return True
        if planned.uncertain and not note.startswith("DWS "):
            return True
        if down := DOWN.findall(note):
            return all(self._was_unfit(name, now) for name in down)
        if tolerable(job, note):
            return False
        if "is not fit for use" in note:
            return all(self._was_unfit(name, now) for name in UNFIT.findall(note))
        if " left, and " in note or "the Rabbits that it needs" in note:
            return self._waited(job, now)
        if "has another allocation with the colocation key" in note:
            return self._waited(job, now)
        return self._reported(job, record, note, now)

    def _reported(self, job: Job, record: Record, note: str, now: float) -> bool:
        """Whether a report of DWS about a failure, or about no progress, is allowed."""
        about = self._dws.get(job.id, set())
        if match := re.match(r"DWS failed in (\w+): ", note):
            state = match[1]
            cause = bool({("error", state), ("copy", state)} & about)
            cause = cause or self._jobs[job.id].uncertain
            return record.failed_in(state) and cause
        if match := re.match(r"DWS reports a TransientCondition in (\w+) for", note):
            state, limit = match[1], self.config.tc_timeout
            true = record.was_transient(state, limit, now)
            return true and self._held_up(about, state, "transient", "mount")
        if match := re.match(r"PostRun and DataOut took more than \w+=(\d+)s", note):
            # Whatever held them up, an outage as well: together they took that long.
            limit, now = float(match[1]), now + self._on_its_way
            return record.exceeded("DataOut", limit, now, first="PostRun")
        if match := re.match(r"no data moved in (\w+) for \w+=(\d+)s", note):
            # In torture a copy takes one step, or is held up as a whole.
            state, limit = match[1], float(match[2])
            return record.exceeded(state, limit, now + self._on_its_way) and (
                self._held_up(about, state, "stall", "slow", "never", "transient")
            )
        if match := re.match(r"(\w+) took more than \w+=(\d+)s(;|$)", note):
            state, limit = match[1], float(match[2])
            if "; Kubernetes: " in note:
                return state != record.desired and record.was_refused(limit)
            delayed = self._delays and record.began_late(state, limit)
            return record.exceeded(state, limit, now + self._on_its_way) and (
                delayed
                or self._held_up(
                    about, state, "never", "slow", "transient", "mount", "error"
                )
            )
        return False

    def _held_up(self, about: set[tuple[str, str]], state: str, *kinds: str) -> bool:
        """Whether a state may take long. (A Rabbit whose storage somebody holds
        on to after an abort keeps others from getting theirs.)"""
        planned = any((kind, state) in about for kind in kinds)
        return planned or self._rabbits or self._down or bool(self.disabled)

    def node(self, job: Job, host: str) -> bool:
        rabbit = self._world.system.topology.rabbit_of[host]
        if host in self._world.disabled or rabbit in self.disabled:
            return True
        return self._rabbits or bool({host, rabbit} & self._parts.get(job.id, set()))

    def _was_unfit(self, rabbit: str, now: float) -> bool:
        times = self._unfit.get(rabbit, ())
        return any(end >= now - self._stale for _, end in times)

    def broken(self, rabbit: str, now: float) -> bool:
        times = self._unfit.get(rabbit)
        return bool(times and times[-1][1] == NEVER and now > times[-1][0] + self._lag)

    def crowded(self, now: float) -> bool:
        return now <= self._world.filled + self._lag

    def _waited(self, job: Job, now: float) -> bool:
        """The job waited as long for others' storage to go as it may."""
        began = [e.timestamp for e in job.events if e.name == "prolog-start"]
        limit = self.config.prolog_timeout
        return bool(began) and limit is not None and now - began[0] >= limit / 2

    def lost(self, job: Job, record: Record) -> bool:
        if super().lost(job, record) or self.unguarded(job):
            return True
        loss = json.loads(job.kvs.get(DATA_OUT, "{}")).get("errstr", "")
        now = self._world.system.loop.now()
        return record.nodes_released and self._failed(job, record, loss, now)

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
