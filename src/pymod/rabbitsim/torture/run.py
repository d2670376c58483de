# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""One run of a plan."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any, Optional

from flux_k8s.formats.jobid import f58, jobid_of_workflow
from flux_k8s.ports import STORAGE, SYSTEMSTATUS, Json
from flux_k8s.reasons import Reason, read_reason
from flux_k8s.rules.drainreason import LOST_CONNECTION
from rabbitsim.flux.events import Event, JobState
from rabbitsim.flux.job import Job
from rabbitsim.kube.store import Event as Change
from rabbitsim.torture.allowances import PlannedAllowances
from rabbitsim.torture.interruptions import FAULT
from rabbitsim.torture.monitor import Breach, Monitor
from rabbitsim.torture.plan import Plan
from rabbitsim.torture.record import ABORT
from rabbitsim.torture.storage import drained_nodes, withheld
from rabbitsim.torture.troubles.dws import switch_off_kept
from rabbitsim.torture.world import World

PATIENCE = 3600.0
"""Seconds of virtual time that everything may take to end when all is well."""

NODE_FAILURE = "dws-node-failure"
"""The exception that tells a job that it goes on without some nodes' storage."""

LOGGED = re.compile(r"dws: .* \[([a-z-]+)\]$", re.S)
"""A line of the service, and its reason."""


@dataclass(frozen=True)
class Outcome:
    """The end of a run. ``trace`` has a line for each event."""

    plan: Plan
    breach: Optional[Breach]
    steps: int
    seconds: float
    ends: dict[str, int]
    trace: tuple[str, ...]


def run(plan: Plan) -> Outcome:
    """Let a plan happen, and check everything."""
    trace: list[tuple[float, str]] = []
    world: Optional[World] = None

    def note(line: str) -> None:
        trace.append((0.0 if world is None else world.now, line))

    world = World(plan, note)
    return Run(world, trace, note).run()


class Run:
    def __init__(self, world: World, trace: list[tuple[float, str]], note: Any) -> None:
        self._world = world
        self._trace = trace
        system = world.system
        self._allowances = PlannedAllowances(world)
        jobs = system.instance.manager.jobs
        self.monitor = Monitor(
            system.store,
            system.loop.now,
            lambda: jobs,
            system.data,
            self._allowances,
            system.instance.scheduler.pool,
            world.is_kept_out,
            lambda jobid: jobid in system.instance.execution.jobs,
            note,
            {name: r.capacity for name, r in system.topology.rabbits.items()},
            world.faults,
        )
        system.instance.manager.listeners.append(self.monitor.job_event)
        system.instance.manager.listeners.append(self._bad_job_starts)
        system.api_troubles.seen = self.monitor.requested
        system.api_troubles.sent = self.monitor.sent
        system.died = self.monitor.module_died
        version = str(system.store.version)
        system.store.watch(STORAGE, None, self._rabbit, resource_version=version)
        system.store.watch(SYSTEMSTATUS, None, self._node, resource_version=version)
        system.instance.watch_nodes(self._nodes_changed)

    def _nodes_changed(self) -> None:
        """Nodes were drained, or put back by the service or an administrator."""
        world = self._world
        drained = drained_nodes(world.system.instance.scheduler.pool)
        self.monitor.nodes_changed(drained, world.put_back)

    def _node(self, change: Change) -> None:
        """The SystemStatus was written."""
        nodes = (change.object.get("data") or {}).get("nodes") or {}
        for host in self._world.disabled_now:
            if nodes.get(host, "Enabled") == "Enabled":
                self.monitor.fail("undone", f"who enabled {host}?")

    def _rabbit(self, change: Change) -> None:
        """A Storage was written."""
        self._allowances.storage_changed(change, self._world.system.loop.now())

    def _drains(self) -> list[tuple[str, str]]:
        """The nodes that were drained, and why."""
        begin = "resource: drained "
        lines = (line for _, _, line in self._world.system.log)
        found = (line[len(begin) :] for line in lines if line.startswith(begin))
        return [
            (host, reason) for host, _, reason in (f.partition(": ") for f in found)
        ]

    def _bad_job_starts(self, job: Job, event: Event, before: JobState) -> None:
        if event.name == "start" and not self._allowances.unguarded(job):
            bad = self._allowances.planned(job).bad
            if bad:
                self.monitor.fail("start", f"{job} ran: {bad}")

    def _check_withheld(self) -> None:
        """No ``ssd`` of a Rabbit without storage stays out of service. There is a
        request for each of them, one after the other."""
        self._until(self._world.now + PATIENCE, lambda: not self._withheld())
        for rabbit in self._withheld():
            self.monitor.fail("left", f"ssd of {rabbit} are out of service")

    def _withheld(self) -> list[str]:
        system = self._world.system
        return withheld(system.instance.scheduler.pool, system.store)

    def run(self) -> Outcome:
        world = self._world
        world.settle()
        world.system.start()
        try:
            self._live()
        except Exception as error:  # whatever it is, it is a finding
            self.monitor.fail("crash", f"{type(error).__name__}: {error}")
        return self._outcome()

    def _live(self) -> None:
        world, plan = self._world, self._world.plan
        self._until(plan.minutes * 60.0)
        # The service is still there after an outage of an hour.
        self._until(world.now + 2 * PATIENCE, self._over)
        world.calm()
        if not self._until(world.now + PATIENCE, self._over):
            self._allowances.closing()
            world.cancel_all()
            self._until(world.now + PATIENCE, self._over)
        if not self._over():
            switch_off_kept(world)
            self._until(world.now + PATIENCE, self._over)
        if self.monitor.breach is None:
            self._until(world.now + 120.0)  # and nothing comes after
            self.monitor.check_end()
            self._check_service()
            self._check_withheld()
            self._check_explained()

    def _over(self) -> bool:
        system = self._world.system
        return system.instance.idle() and system.workflow_names() == self._world.foreign

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
            self.monitor.spins(loop.rush)
            self._check_harm()
        return False

    def _check_harm(self) -> None:
        """Where storage is kept for nodes that have not unmounted, no file system is
        mounted a second time, or deleted, while a node could write to it."""
        keeps = self._world.plan.site.config.keeps_mounted
        for (name, host), what in self._world.system.controllers.harm.items():
            jobid = jobid_of_workflow(name) or 0
            if keeps and not self._allowances.twice(jobid):
                text = f"{name} was {what} while {host} could write to it"
                self.monitor.fail("written", text)

    def _check_service(self) -> None:
        service = self._world.system.service
        answers: list[Optional[Json]] = []
        if service is not None:
            service.request("stats-get", {}, lambda *answer: answers.append(answer[2]))
        for stats in answers:
            if stats is None or stats["jobs"] or stats["busy"]:
                self.monitor.fail("left", f"the service still has jobs: {stats}")

    def _check_explained(self) -> None:
        """Check that each drained node and each disabled Rabbit has a reason."""
        lines = [line for _, _, line in self._world.system.log]
        jobs = self._world.system.instance.manager.jobs
        if not any(self.monitor.record(jobid).aborted for jobid in jobs):
            for rabbit in sorted(self._allowances.disabled):
                self.monitor.fail("unexplained", f"{rabbit} is disabled by no abort")
        for line in lines:
            match = LOGGED.match(line)
            said = None if match is None else read_reason(match[1])
            if said is Reason.SERVICE_FAULT and not self._is_planned(line):
                self.monitor.fail("internal error", line)
            if match is not None and (
                said is None or not self._allowances.may_tell(said)
            ):
                self.monitor.fail("unexplained", line)
            if "there is no node" in line:  # Flux says so
                self.monitor.fail("unexplained", line)
        for host, reason in self._drains():
            if not self._is_explained(host, reason):
                self.monitor.fail("unexplained", f"{host} is drained: {reason}")

    def _is_planned(self, line: str) -> bool:
        """Whether a line is about a fault that was planned, or a job that has one."""
        jobs = self._world.system.instance.manager.jobs.values()
        faulty = (job for job in jobs if self._allowances.is_about(job, "fault"))
        return FAULT in line or any(f58(job.id) in line for job in faulty)

    def _is_explained(self, host: str, reason: str) -> bool:
        """The reason names the node's Rabbit, which it could not reach, or a job, which
        was told, if it had not ended while the plugin was away."""
        rabbit = self._world.system.mapping.rabbit_of(host)
        if reason.startswith(f"{LOST_CONNECTION}{rabbit} "):
            return host in self._allowances.unlinked
        name, _, _ = reason.partition(": ")
        everyone = self._world.system.instance.manager.jobs.values()
        jobs = [job for job in everyone if f58(job.id) == name]
        if any(map(self._allowances.unguarded, jobs)):
            return True
        told = (event.context or {} for job in jobs for event in job.events)
        return any(context.get("type") in (ABORT, NODE_FAILURE) for context in told)

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


def _end_of(job: Job) -> str:
    exception = job.fatal_exception
    if exception is not None:
        return str(exception["type"])
    return "completed" if job.wait_status == 0 else "failed"
