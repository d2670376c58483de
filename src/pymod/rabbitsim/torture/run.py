# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""One run of a plan."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, Optional

from flux_k8s.ports import STORAGE, WORKFLOW, Json
from rabbitsim.flux.job import Job
from rabbitsim.kube.store import Event as Change
from rabbitsim.torture.monitor import Breach, Excuses, Monitor
from rabbitsim.torture.plan import Plan
from rabbitsim.torture.troubles import Trouble
from rabbitsim.torture.world import World

PATIENCE = 3600.0
"""Seconds of virtual time that everything may take to end when all is well."""

RUSH = 20000
"""Steps at one and the same moment that are too many: something spins."""

FOREIGN = (("fluxjob-77", "slurm"), ("mine", "flux"))
"""Workflows that are not ours: names, and workload managers."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended. ``trace`` has all that happened, a line each."""

    plan: Plan
    breach: Optional[Breach]
    steps: int
    seconds: float
    ends: dict[str, int]
    trace: tuple[str, ...]


class PlannedExcuses(Excuses):
    """What a plan excuses."""

    def __init__(self, world: World) -> None:
        plan = world.plan
        self._world = world
        self._closing = False
        self.disabled: set[str] = set()
        self._jobs = {world.ids[job.number]: job for job in plan.jobs}
        self._about: dict[int, set[str]] = {}
        for trouble in plan.troubles:
            if trouble.job is None or _harmless(trouble):
                continue
            if trouble.kind in ("dws", "user", "admin"):
                mine = self._about.setdefault(world.ids[trouble.job], set())
                mine.add(f"{trouble.kind} {trouble.what}")
                mine.add(trouble.kind)
        self._kinds = {trouble.kind for trouble in plan.troubles}
        self._late = any(
            trouble.what in ("late", "late-crash") for trouble in plan.troubles
        )

    def closing(self) -> None:
        """From now on any job may be cancelled."""
        self._closing = True

    def fatal(self, job: Job, exception: Json) -> bool:
        planned, about = self._jobs[job.id], self._about.get(job.id, set())
        type, note = exception["type"], exception["note"]
        if type == "cancel":
            return "user cancel" in about or self._closing
        if type == "timeout":
            return planned.limited
        if type == "node-failure":
            return "node" in self._kinds
        if type == "dws-epilog-timeout":
            return self._world.plan.site.epilog_timeout is not None
        if type == "alloc":
            return planned.bad == "too large"
        if type != "dws":
            return False
        if "under the job" in note:
            return "admin" in about
        if "not loaded" in note:
            return self.unguarded(job)
        if self.disabled:  # an abort took Rabbits from under other jobs
            return True
        return bool(planned.bad) or "dws" in about or "rabbit" in self._kinds

    def early(self, job: Job) -> bool:
        about = self._about.get(job.id, set())
        if {"dws", "admin"} & about or "rabbit" in self._kinds or self.disabled:
            return True
        fatal: list[str] = []
        seen: set[str] = set()
        for event in job.events:
            context = event.context or {}
            if event.name == "exception" and context["severity"] == 0:
                fatal.append(context["type"])
                if "finish" in seen and context["type"] == "cancel":
                    return True
            elif event.name == "start" and fatal:
                return True  # it was over before it began
            seen.add(event.name)
        if len(fatal) > 1 or "dws-epilog-timeout" in fatal:
            return True
        return self.unguarded(job)

    def silent(self, job: Job) -> bool:
        config = self._world.plan.site.config
        limited = (
            config.postrun_timeout is not None or config.teardown_after is not None
        )
        return limited or self.unguarded(job)

    def twice(self, jobid: int) -> bool:
        return self._late or "admin" in self._about.get(jobid, set())

    def unguarded(self, job: Job) -> bool:
        """Something happened to the job while the plugin was away."""
        return any(
            begin <= event.timestamp <= end
            for begin, end in self._world.gaps
            for event in job.events
            if event.name != "memo"
        )


def run(plan: Plan) -> Outcome:
    """Let a plan happen, and check everything."""
    trace: list[tuple[float, str]] = []
    world: Optional[World] = None

    def note(line: str) -> None:
        trace.append((0.0 if world is None else world.now, line))

    world = World(plan, note)
    return _Run(world, trace, note).run()


class _Run:
    def __init__(self, world: World, trace: list[tuple[float, str]], note: Any) -> None:
        self._world = world
        self._trace = trace
        system = world.system
        self._excuses = PlannedExcuses(world)
        jobs = system.instance.manager.jobs
        self.monitor = Monitor(system.store, lambda: jobs, self._excuses, note)
        system.instance.manager.listeners.append(self.monitor.job_event)
        system.weather.seen = self.monitor.requested
        version = str(system.store.version)
        system.store.watch(STORAGE, None, self._rabbit, resource_version=version)
        self._moment = (0.0, 0)

    def _rabbit(self, change: Change) -> None:
        """A Storage was written."""
        if change.object["spec"].get("state") == "Disabled":
            self._excuses.disabled.add(change.object["metadata"]["name"])

    def run(self) -> Outcome:
        world = self._world
        for name, wlm in FOREIGN:
            world.system.store.create(WORKFLOW, "default", _foreign(name, wlm))
        world.system.start()
        try:
            self._live()
        except Exception as error:  # whatever it is, it is a finding
            self.monitor.fail("crash", f"{type(error).__name__}: {error}")
        return self._outcome()

    def _live(self) -> None:
        world, plan = self._world, self._world.plan
        self._until(plan.minutes * 60.0)
        # Whoever had an outage of an hour is still there afterwards.
        self._until(world.now + 2 * PATIENCE, self._over)
        world.calm()
        if not self._until(world.now + PATIENCE, self._over):
            self._excuses.closing()
            world.cancel_all()
            self._until(world.now + PATIENCE, self._over)
        if self.monitor.breach is None:
            self._until(world.now + 120.0)  # and nothing comes after
            self.monitor.check_end()
            self._check_service()
            self._check_explained()

    def _over(self) -> bool:
        system = self._world.system
        return system.instance.idle() and len(system.workflows()) == len(FOREIGN)

    def _until(self, end: float, over: Any = None) -> bool:
        """Go on to a time, or until it is over (then True)."""
        world, loop = self._world, self._world.system.loop
        checked = -1
        while self.monitor.breach is None:
            version = world.system.store.version + len(self._trace)
            if over is not None and version != checked:
                checked = version
                if over():
                    return True
            due = loop.next_due()
            if due is None or due > loop.now() + end - world.now:
                loop.run(timeout=max(0.0, end - world.now))
                return False
            world.step()
            self._check_rush()
        return False

    def _check_rush(self) -> None:
        now, (moment, count) = self._world.now, self._moment
        self._moment = (now, count + 1 if now == moment else 0)
        if count > RUSH:
            self.monitor.fail("spin", f"{RUSH} steps at {now:.3f}s")

    def _check_service(self) -> None:
        service = self._world.system.service
        answers: list[Optional[Json]] = []
        if service is not None:
            service.request("stats-get", {}, lambda *answer: answers.append(answer[2]))
        for stats in answers:
            if stats is None or stats["jobs"] or stats["busy"]:
                self.monitor.fail("left", f"the service still has jobs: {stats}")

    def _check_explained(self) -> None:
        """Whoever finds a node drained or a Rabbit disabled can read why."""
        lines = [line for _, _, line in self._world.system.log]
        for rabbit in sorted(self._excuses.disabled):
            if not any(line.startswith("dws: ") and rabbit in line for line in lines):
                self.monitor.fail(
                    "unexplained", f"{rabbit} is disabled, nobody knows why"
                )
        for line in lines:
            if "there is no node" in line:
                self.monitor.fail("unexplained", line)

    def _outcome(self) -> Outcome:
        world = self._world
        ends = Counter(
            _end_of(job) for job in world.system.instance.manager.jobs.values()
        )
        refused = len(world.plan.jobs) - sum(ends.values())
        if refused:
            ends["refused"] = refused
        lines = tuple(f"{at:12.3f}  {line}" for at, line in self._trace)
        return Outcome(
            world.plan,
            self.monitor.breach,
            world.steps,
            world.now,
            dict(sorted(ends.items())),
            lines,
        )


def _harmless(trouble: Trouble) -> bool:
    """Trouble within DWS that is over before any time limit."""
    short = 0 < trouble.duration <= 5.0
    return trouble.kind == "dws" and trouble.what != "error" and short


def _end_of(job: Job) -> str:
    exception = job.fatal_exception
    if exception is not None:
        return str(exception["type"])
    return "completed" if job.wait_status == 0 else "failed"


def _foreign(name: str, wlm: str) -> Json:
    return {
        "metadata": {"name": name},
        "spec": {
            "desiredState": "Proposal",
            "dwDirectives": [],
            "forceReady": False,
            "groupID": 0,
            "jobID": "x",
            "userID": 0,
            "wlmID": wlm,
        },
    }
