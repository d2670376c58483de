# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""A life of a story's jobs, in virtual time, in which something may be interrupted
(:mod:`rabbitsim.torture.interruptions`)."""

from __future__ import annotations

import json
import random
import re
import sys
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from typing import Callable, Collection, Iterable, Optional

from flux_k8s.config.settings import Settings
from flux_k8s.formats.jobid import f58, workflow_name
from flux_k8s.jobs.outcomes import DATA_OUT, EVENT, NODES_RELEASED
from flux_k8s.jobs.progress import MEMO as PROGRESS
from flux_k8s.jobs.reports import MEMO as WAITS_FOR
from flux_k8s.jobs.service import Service
from flux_k8s.jobs.work import Work
from flux_k8s.ports import STORAGE, WORKFLOW, Json, Kind, Request
from flux_k8s.reasons import Reason
from rabbitsim.dws.options import Fault as DwsFault
from rabbitsim.dws.options import Options, table
from rabbitsim.flux.broker import FluxPort
from rabbitsim.flux.events import Event
from rabbitsim.flux.job import Job as FluxJob
from rabbitsim.kube.direct import DirectKube, Fault, Faults
from rabbitsim.setups import Receiver
from rabbitsim.system import VirtualSystem
from rabbitsim.torture.allowances import StoryAllowances
from rabbitsim.torture.course import Course, told_of
from rabbitsim.torture.data import FileContents
from rabbitsim.torture.deeds import meddles
from rabbitsim.torture.interruptions import (
    DOWN,
    FAULT,
    Interrupter,
    Interruption,
    Point,
    interrupt_port,
    interrupt_steps,
    text_of,
)
from rabbitsim.torture.jobs import jobspec_of
from rabbitsim.torture.monitor import Breach, Monitor
from rabbitsim.torture.record import Told
from rabbitsim.torture.storage import drained_nodes, withheld
from rabbitsim.torture.story import Job, Story, When

PATIENCE = 7200.0
"""Seconds that a life may take, before and after an administrator has helped."""

LATENCY = {"Setup": 0.1, "PreRun": 0.2, "DataOut": 0.2, "Teardown": 0.1}

DEATHS = 5
"""After so many the supervisor has no service do what they died of."""

REASON = re.compile(r" \[([a-z-]+)\]$", re.M)
"""The reason at the end of a line of the log."""

_TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:]+Z")


class StorySystem(VirtualSystem):
    """The system of a story, with an interruption at a point, once.

    Attributes:
        jobids: the story's jobs, in the order in which they are submitted.
        first: the first of them.
        data: the contents of the file systems.
        dws_faults: those that DWS has.
        meddled: somebody has changed what only the service may change.
        blind: Flux does not tell what became of jobs.
        interrupted: there was the interruption.
        untrue: what queries were answered that is not so.
        put_back: when (UNIX time) somebody last undrained a node, by its host name.
        died: is called when the module dies by that.
        loaded_at: when the module was loaded last.
        port: that of the present module, with the clock of its machine.
        api_fault: the failures of requests to Kubernetes.
        large: R of each job is large.
        unreadable: why it cannot be read then.
    """

    def __init__(self, story: Story, interrupter: Interrupter) -> None:
        timeout = story.epilog_timeout
        self.data = FileContents(story.copied)
        self.dws_faults = list(story.faults)
        latency = table({**LATENCY, **story.latency})
        super().__init__(
            options=Options(latency=latency, faults=self.dws_faults, **story.dws),
            plugin_conf=None if timeout is None else {"epilog-timeout": timeout},
            config=story.config,
            files=self.data,
            **story.machine,
        )
        for fault in story.faults:
            self.check_fault(fault)
        self.jobids: list[int] = []
        self.first: FluxJob
        self.meddled = self.blind = self.interrupted = False
        self.untrue: list[str] = []
        self.port: Optional[FluxPort] = None
        self.died: Callable[[], None] = lambda: None
        self.interrupter = interrupter
        self.interrupter.interrupt = self._interrupt
        self.interrupter.die = self._die
        self.note_work = partial(setattr, self, "_work")
        self._work: Optional[Work] = None
        self._deaths: Counter[Optional[Work]] = Counter()
        self.requested: Callable[[Request, Optional[Fault]], None] = lambda *_: None
        self.sent: Callable[[Request], None] = lambda request: None
        self.api_fault: Faults = lambda request: None
        self.put_back: dict[str, float] = {}
        self.unreadable: Optional[OSError] = None
        self.large = story.large
        self._away = False
        self.loaded_at = float("-inf")

    def check_fault(self, fault: DwsFault) -> None:
        """Refuse a fault of a node that the machine does not have."""
        names = {*self.mapping.rabbits, *self.mapping.hosts}
        if not any(map(fault.matches_node, names)):
            text = f"a fault of {fault.node!r}, expected one of {', '.join(names)}"
            raise ValueError(text)

    def has_large_R(self, jobid: int) -> bool:
        return self.large

    def submit(self, job: Job) -> None:
        """Submit a job of the story."""
        attributes: Json = {
            "duration": 0,
            "exec": {"test": {"run_duration": f"{job.seconds}s"}},
        }
        if job.directives:
            said = {"dw_release": job.release, "dw_stage": job.stage}
            attributes.update({key: value for key, value in said.items() if value})
            attributes["dw"] = list(job.directives)
            attributes["dw_failure_tolerance"] = job.tolerance
        if job.awaits:
            value = f58(self.jobids[job.awaits - 1])
            attributes["dependencies"] = [{"scheme": "dws-out", "value": value}]
        spec = jobspec_of(job.nodes, {**attributes, **job.attributes})
        spec["resources"][0]["exclusive"] = job.exclusive
        jobid = self.instance.submit(spec, userid=job.user, urgency=job.urgency)
        if not self.jobids:
            self.first = self.instance.job(jobid)
        self.jobids.append(jobid)

    @property
    def workflow(self) -> Optional[Json]:
        """The Workflow of the first job; None if it has none."""
        return self.store.find(WORKFLOW, "default", workflow_name(self.first.id))

    def undrain(self, host: str) -> None:
        """Somebody puts a node back."""
        self.put_back[host] = self.loop.now()
        self.instance.undrain(host)

    def unload_for(self, seconds: float) -> None:
        """Unload the module, if it is there, and have none for some seconds."""
        self._away = True
        if self.instance.module_loaded:
            self.kill_module()
        self.loop.call_later(seconds, self._come_back)

    def _come_back(self) -> None:
        self._away = False
        self.load_module()

    def load_module(self) -> None:
        if self._away or self.instance.module_loaded:
            return
        interrupter = self.interrupter

        def make(port: FluxPort) -> Receiver:
            def arrives(request: Request) -> Optional[Fault]:
                fault = self.api_fault(request)
                reached = interrupter.reached(text_of(request), answered=True)
                if reached:
                    fault = fault or interrupter.fault(request)
                self.requested(request, fault)
                if reached:
                    port.call_later(0.0, interrupter.interrupt)
                return fault

            port.ahead = self.clock_ahead
            port.reader.failure = self.unreadable
            self.port = port
            latency = self._kube_latency
            self.service_kube = DirectKube(self.store, port, latency, arrives)
            self.service_kube.sent = self.sent
            settings = Settings(
                self.config,
                self.mapping,
                self._scheduler,
                self.instance.broker.owner,
                identity=self.identity,
            )
            flux = interrupt_port(port, interrupter)
            rng = random.Random(0)
            service = Service(
                flux,
                self.service_kube,
                settings,
                rng=rng,
                note_work=self.note_work,
                barred=self.barred,
            )
            interrupt_steps(service, interrupter)
            self.service = service
            return Receiver(port, service, self.has_large_R)

        self.instance.load_module(make)
        self.loaded_at = self.loop.now()

    def _interrupt(self) -> None:
        interruption, self.interrupted = self.interrupter.interruption, True
        if interruption is Interruption.CANCEL:
            for job in self.instance.manager.active_jobs:
                self.instance.cancel(job.id)
        elif interruption is Interruption.PLUGIN and self.instance.plugin_loaded:
            self.instance.unload_plugin()
            self.load_plugin()
        elif interruption is Interruption.CRASH and self.instance.module_loaded:
            self._crash()

    def _crash(self) -> None:
        self.kill_module()
        self.died()
        self.loop.call_later(DOWN, self.load_module)

    def _die(self) -> None:
        """The module dies of its work, which the supervisor counts."""
        work = self._work
        self._deaths[work] += 1
        if work is not None and self._deaths[work] >= DEATHS:
            self.barred.add(work)
        self._crash()

    def disturb(
        self,
        how: Fault,
        verbs: Collection[str],
        kind: Optional[Kind],
        seconds: float = float("inf"),
        count: int = sys.maxsize,
    ) -> None:
        """Let requests of some verbs, about a kind if there is one, have a fault: for
        some seconds, and no more than so many."""
        until, left = self.loop.now() + seconds, iter(range(count))

        def fault(request: Request) -> Optional[Fault]:
            meant = request.verb in verbs and kind in (None, request.kind)
            lasts = meant and self.loop.now() < until and next(left, None) is not None
            return how if lasts else None

        self.api_fault = fault

    def free(self) -> None:
        """Let jobs go whose Teardown does not end, as an administrator does: nothing
        else lets a job go that is cancelled before a node of it has failed to
        unmount."""
        manager = self.instance.manager
        for job in manager.active_jobs:
            manager.raise_exception(job.id, "dws-epilog-timeout", 0, "", manager.owner)

    def enable_rabbits(self) -> None:
        """Have Rabbits serve that an abort has disabled, as an administrator does."""
        for storage in self.store.list(STORAGE, None)["items"]:
            body: Json = {"spec": {"state": "Enabled"}}
            name = storage["metadata"]["name"]
            self.store.merge_patch(STORAGE, "default", name, body)


@dataclass(frozen=True)
class Life:
    """How a story went.

    Attributes:
        points: those at which it could have been interrupted.
        course: the words, with the UNIX times.
        data: what became of the first job's data, as :class:`Story` has it.
        log: the reasons of the lines of the log.
        lines: these lines.
        events, exceptions: of the first job.
        left: what it left: memos, keys in the KVS, drained nodes.
        breach: of a rule.
        missed: the words at which something was to be done, and was not, and the steps
            that were to be broken, and were not taken.
        waits: what its jobs said that they wait for.
        untrue: what queries were answered that is not so.
    """

    points: tuple[Point, ...]
    course: tuple[tuple[str, float], ...]
    data: str
    log: tuple[str, ...]
    lines: tuple[str, ...]
    events: tuple[str, ...]
    exceptions: tuple[Told, ...]
    left: tuple[str, ...]
    breach: Optional[Breach]
    missed: tuple[str, ...]
    waits: tuple[str, ...]
    untrue: tuple[str, ...]


def live(
    story: Story,
    target: Optional[int] = None,
    interruption: Interruption = Interruption.CRASH,
) -> Life:
    """One life of a story's jobs, with an interruption at a point."""
    system = StorySystem(story, Interrupter(target, interruption))
    jobs = system.instance.manager.jobs
    pool = system.instance.scheduler.pool
    monitor = Monitor(
        system.store,
        system.loop.now,
        lambda: jobs,
        system.data,
        StoryAllowances(system, story, interruption),
        pool,
        lambda host: host in drained_nodes(pool),
        lambda jobid: jobid in system.instance.execution.jobs,
        sizes={name: r.capacity for name, r in system.topology.rabbits.items()},
        faults=story.faults,
    )
    course = Course(system)
    system.requested, system.sent = monitor.requested, monitor.sent

    def died() -> None:
        """Of what it has seen of a Workflow that others change nobody knows now."""
        if meddles(story):
            monitor.record(system.first.id).unseen = True

    system.died = died
    system.instance.manager.listeners.append(monitor.job_event)
    system.instance.watch_nodes(
        lambda: monitor.nodes_changed(drained_nodes(pool), system.put_back)
    )
    waiting = list(story.deeds)
    coming: list[When] = []
    late: list[When] = []

    def heard(word: str) -> None:
        for when in [when for when in waiting if when.word == word]:
            waiting.remove(when)
            coming.append(when)
            system.loop.call_later(when.after, partial(done, when))

    def done(when: When) -> None:
        coming.remove(when)
        act: Callable[[StorySystem], object] = when.deed
        try:
            result = act(system)
        except OSError:
            late.append(when)
        else:
            if callable(result):
                text = f"{story.name}: at {when.word!r} stands what makes a deed"
                raise TypeError(f"{text}: call it, as in unload(30.0)")

    course.heard = heard
    system.start()
    for job in (story.job, *story.others):
        system.submit(job)
    heard("")

    def spins() -> bool:
        return monitor.spins(system.loop.rush)

    def ended() -> bool:
        idle = system.instance.idle() and not system.workflows()
        return spins() or monitor.breach is not None or (idle and not coming)

    helps = [system.free] if story.freed else []
    for help in (*helps, system.enable_rabbits):
        if not system.loop.run(ended, PATIENCE):
            help()
    system.loop.run(ended, PATIENCE)
    system.loop.run(spins, 100.0)
    monitor.check_end()
    _check_end(system, monitor)
    if system.controllers.harm and not story.harm:
        monitor.fail("harm", str(system.controllers.harm))
    missed = tuple(when.word for when in (*waiting, *coming, *late))
    missed += tuple(step for _, step in system.interrupter.unmet)
    return _life(system, course, monitor.breach, missed)


def _record_of(job: FluxJob) -> Json:
    """The record of what became of a job's data; empty if it cannot be read."""
    try:
        record = json.loads(job.kvs.get(DATA_OUT, "{}"))
    except (ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def _check_end(system: StorySystem, monitor: Monitor) -> None:
    """What became of the data of a job that ended before it was out is told to all, as
    it is recorded, unless nobody saw its Workflow go; no ``ssd`` stays out of service;
    and the service knows no job whose R, which was large, came after its end."""
    for job in system.instance.manager.jobs.values():
        told = {
            data["success"]
            for topic, data in system.instance.published
            if topic == EVENT and data["id"] == job.id
        }
        recorded = _record_of(job).get("success")
        owed = NODES_RELEASED in job.kvs and recorded is not None
        left = monitor.record(job.id).unseen or system.meddled and system.interrupted
        untold = owed and not (told or left)
        if untold or told - {recorded}:
            monitor.fail("told", f"{job}: {told}, and {recorded} is recorded")
        waits_for = job.annotations.get("user", {}).get(WAITS_FOR)
        record = monitor.record(job.id)
        if waits_for is not None and not (record.unattended or record.aborted):
            monitor.fail("memo", f"{job} has ended, and waits for {waits_for}")
    lines = [line for _, _, line in system.log]
    for line in lines if FAULT not in "".join(lines) else ():
        if line.endswith(f"[{Reason.SERVICE_FAULT.value}]"):
            monitor.fail("internal error", line)
    pool, store = system.instance.scheduler.pool, system.store
    system.loop.run(lambda: not withheld(pool, store), PATIENCE)
    for rabbit in withheld(pool, store):
        monitor.fail("left", f"ssd of {rabbit} are out of service")
    for jobid, keys in system.instance.kvs_left.items():
        if keys:
            monitor.fail("left", f"{f58(jobid)} is purged, and has {', '.join(keys)}")
    known: list[int] = []

    def answered(errnum: int, text: str, answer: Optional[Json]) -> None:
        known.append((answer or {}).get("jobs", -1))

    if system.large:
        system.instance.request("dws.stats-get", {}, answered)
        system.loop.run(lambda: bool(known), PATIENCE)
        if known != [0]:
            monitor.fail("left", f"the service knows {known} jobs that have ended")
    for job in system.instance.manager.jobs.values():
        said = _said(job)
        if any(text and text == after for text, after in zip(said, said[1:])):
            monitor.fail("repeat", f"{job} says twice what it waits for: {said}")


def _life(
    system: StorySystem,
    course: Course,
    breach: Optional[Breach],
    missed: tuple[str, ...],
) -> Life:
    job = system.first
    events = _told_once(job.events)
    exceptions = [event for event in events if event.name == "exception"]
    memos = job.annotations.get("user", {})
    left = [
        f"memo {key}={memos[key]}" for key in memos if key not in (PROGRESS, WAITS_FOR)
    ]
    left += [f"KVS {key}" for key in job.kvs if key != NODES_RELEASED]
    drained = drained_nodes(system.instance.scheduler.pool)
    left += [f"drained {host}" for host in sorted(drained)]
    record = _record_of(job)
    lines = tuple(line for _, _, line in system.log)
    return Life(
        points=tuple(system.interrupter.points),
        course=tuple(course.words),
        data="out" if record.get("success") else str(record.get("reason", "")),
        log=tuple(REASON.findall("\n".join(lines))),
        lines=lines,
        events=tuple(event.name for event in events),
        exceptions=tuple(map(_without_times, exceptions)),
        left=tuple(left),
        breach=breach,
        missed=missed,
        waits=_waits(system),
        untrue=tuple(system.untrue),
    )


def _waits(system: StorySystem) -> tuple[str, ...]:
    jobs = system.instance.manager.jobs
    said = [_said(jobs[jobid]) for jobid in system.jobids if jobid in jobs]
    return tuple(text for texts in said for text in texts if text is not None)


def _said(job: FluxJob) -> list[Optional[str]]:
    """What a job has said that it waits for, or that it waits no more."""
    contexts = [event.context or {} for event in job.events if event.name == "memo"]
    return [context[WAITS_FOR] for context in contexts if WAITS_FOR in context]


def _without_times(event: Event) -> Told:
    told = told_of(event)
    return replace(told, note=_TIME.sub("", told.note))


def _told_once(eventlog: Iterable[Event]) -> list[Event]:
    """The events of a job, but memos. An exception that changes nothing may be
    raised again by who cannot know that it was; this counts as once, also when it
    was fatal the first time."""
    events: list[Event] = []
    for event in eventlog:
        context = event.context or {}
        harmless = event.name == "exception" and context["severity"] > 0
        told = [e for e in events if e.name == "exception"] if harmless else []
        # (While the module is away, the data may go out: the job ends after that.)
        passing = event.name in ("memo", "dws_released")
        if not passing and not any(_same(e, event) for e in told):
            events.append(event)
    return events


def _same(one: Event, other: Event) -> bool:
    """Whether two exceptions tell the same."""
    contexts = [event.context or {} for event in (one, other)]
    first, second = ((c["type"], c["note"]) for c in contexts)
    return bool(first == second)
