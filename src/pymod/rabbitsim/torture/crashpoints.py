# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""A crash, a lost request or a cancel after each step, and each request, of the module.

A job is run once to list its points: the steps of :class:`flux_k8s.jobs.steps.Steps`,
and in each the requests to Kubernetes and to Flux. Then it is run once for each of
these points. The module dies when the step or request has been carried out, before its
answer is seen, and another is loaded; or a request is lost, or its answer. The job must
not be able to tell. Or the job is cancelled there, an answer is late, or the plugin is
loaded anew, and the job must end well.
"""

from __future__ import annotations

import enum
import random
import re
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any, Callable, Collection, Iterable, Mapping, Optional, Sequence

from flux_k8s.broker.assembly import make_service
from flux_k8s.config.settings import Settings
from flux_k8s.control.coroutines import Call
from flux_k8s.dws.workflowmarks import REQUESTED, requested_note
from flux_k8s.dws.workflowstate import State
from flux_k8s.jobs.datareports import NODES_RELEASED
from flux_k8s.jobs.service import Service
from flux_k8s.jobs.step import Advance, Step
from flux_k8s.jobs.steps import Steps
from flux_k8s.jobs.workflowinfo import WorkflowInfo
from flux_k8s.jobs.workflowrequests import FAILURES
from flux_k8s.ports import (
    STORAGE,
    WORKFLOW,
    CommitDone,
    Json,
    Kube,
    KubeError,
    ProgramDone,
    ReadOutput,
    RpcDone,
    Timer,
    Watch,
)
from rabbitsim.dws.options import Options, table
from rabbitsim.flux.broker import FluxPort
from rabbitsim.flux.events import Event
from rabbitsim.flux.job import Job
from rabbitsim.kube.direct import DirectKube, Fault, Request
from rabbitsim.kube.patch import as_merge_patch
from rabbitsim.system import VirtualSystem
from rabbitsim.torture.allowances import Allowances, tells_loss
from rabbitsim.torture.data import FileContents
from rabbitsim.torture.jobs import jobspec_of
from rabbitsim.torture.monitor import Breach, Monitor
from rabbitsim.torture.plan import FENCE
from rabbitsim.torture.record import Record
from rabbitsim.torture.scenarios import NODE, SCENARIOS, Scenario

PATIENCE = 7200.0
REFUSED = ": DWS refuses: "
"""What stands between a directive and DWS's own words about it."""

DOWN = 1.0
"""Seconds from the module's death to its return."""

AWAY = 300.0
"""Seconds for which the module is unloaded."""

UNLINKED = 30.0
"""Seconds for which a node has lost its Rabbit."""

RESCUED = 100.0
"""Seconds until data that could not be copied out is copied again."""

_TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:]+Z")


class Interruption(enum.Enum):
    """The kind of interruption at a point."""

    CRASH = "the module dies, and is back 1 s later"
    CANCEL = "the job is cancelled"
    REFUSED = "the request is refused"
    LOST = "the answer is lost"
    LATE = "the answer comes 10 s late"
    PLUGIN = "the plugin is loaded anew"


UNSEEN = (Interruption.CRASH, Interruption.REFUSED, Interruption.LOST)
"""Those after which a job lives as without. After the others no rule is broken, but
something else may come first: a copy is done, or a node has unmounted, before it is
noticed that the job was cancelled, or that DWS has failed."""

LOST = {
    "Advance to Teardown": ("KVS rabbit_allocations", "KVS rabbit_hostlist"),
    "Delete": ("KVS rabbit_teardown_timing",),
}
"""What a module that is killed in a step may take along. A job may be cancelled just
when its storage is being made; a Workflow is deleted while its last records are
written."""

TELLS = "CutOff"
"""The step that asks once: an exception tells what was refused there."""

UNDATED = ("KVS rabbit_postrun_timing",)
"""The same for a Workflow that has lost its annotations, and with them its times."""

_LOST = KubeError(0, "ConnectionLost", "the connection was lost")
_FAULTS = {
    Interruption.REFUSED: Fault(error=KubeError(503, "ServiceUnavailable", "not now")),
    Interruption.LOST: Fault(error=_LOST, carried_out=True),
    Interruption.LATE: Fault(delay=10.0),
}


@dataclass(frozen=True)
class Point:
    """A moment at which the module may die: after a request within a step, or
    (``request`` is "") after the step."""

    step: str
    request: str

    def __str__(self) -> str:
        return f"{self.step}, after {self.request or 'all of it'}"


class _Crasher:
    """Counts points, and lets the interruption happen at one of them."""

    def __init__(self, target: Optional[int], interruption: Interruption) -> None:
        self.points: list[Point] = []
        self.interruption = interruption
        self.interrupt: Callable[[], None] = lambda: None
        self._target = target
        self._step = "at the start"

    def begins(self, step: str) -> None:
        self._step = step

    def reached(self, request: str) -> bool:
        """Note a point; whether the module is to die there."""
        self.points.append(Point(self._step, request))
        if not request:
            self._step = "between two steps"
        return len(self.points) - 1 == self._target


class _CrashingSteps(Steps):
    """Steps that tell when they begin and end."""

    def __init__(self, steps: Steps, crasher: _Crasher) -> None:
        self.__dict__.update(steps.__dict__)
        self._crasher = crasher

    async def carry_out(self, info: WorkflowInfo, step: Step) -> None:
        name = type(step).__name__
        if isinstance(step, Advance):
            name += f" to {step.state.name}"
        self._crasher.begins(name)
        try:
            await super().carry_out(info, step)
        except FAILURES:
            await self._ended()
            raise
        await self._ended()

    async def _ended(self) -> None:
        if self._crasher.reached(""):
            self._crasher.interrupt()
            if self._crasher.interruption is Interruption.CRASH:
                await Call[None](lambda answer: None)  # there is no service any more


class _CrashingPort:
    """Flux; the interruption may happen after each call that sends something."""

    def __init__(self, port: FluxPort, crasher: _Crasher) -> None:
        self._port = port
        self._crasher = crasher

    def _sent(self, what: str) -> None:
        if self._crasher.reached(what):
            # The message is on its way; it arrives before this does.
            self._port.call_later(0.0, self._crasher.interrupt)

    def now(self) -> float:
        return self._port.now()

    def call_later(self, delay: float, function: Callable[[], None]) -> Timer:
        return self._port.call_later(delay, function)

    def log(self, level: int, message: str) -> None:
        self._port.log(level, message)

    def rpc(self, topic: str, payload: Json, done: RpcDone) -> None:
        self._port.rpc(topic, payload, done)
        self._sent(topic)

    def raise_exception(self, jobid: int, type: str, severity: int, note: str) -> None:
        self._port.raise_exception(jobid, type, severity, note)
        self._sent("the job exception")

    def post_memo(
        self, jobid: int, memo: Mapping[str, Any], *, volatile: bool = False
    ) -> None:
        self._port.post_memo(jobid, memo, volatile=volatile)
        self._sent(f"the memo {', '.join(memo)}")

    def kvs_put(
        self, jobid: int, key: str, value: Optional[str], *, last: bool = False
    ) -> None:
        self._port.kvs_put(jobid, key, value, last=last)
        self._sent(f"the KVS key {key}")

    def kvs_commit(self, jobid: int, key: str, value: str, done: CommitDone) -> None:
        self._port.kvs_commit(jobid, key, value, done)
        self._sent(f"the KVS key {key}")

    def drain(
        self, hosts: str, reason: str, done: CommitDone, *, overwrite: bool = False
    ) -> None:
        self._port.drain(hosts, reason, done, overwrite=overwrite)
        self._sent(f"draining {hosts}")

    def undrain(self, hosts: str) -> None:
        self._port.undrain(hosts)
        self._sent(f"undraining {hosts}")

    def watch_nodes(self, changed: Callable[[], None]) -> Watch:
        return self._port.watch_nodes(changed)

    def watch_module(self, name: str, loaded: Callable[[], None]) -> Watch:
        return self._port.watch_module(name, loaded)

    def primary_group(self, userid: int, done: Callable[[Optional[int]], None]) -> None:
        self._port.primary_group(userid, done)

    def run_program(
        self,
        argv: Sequence[str],
        timeout: float,
        done: ProgramDone,
        *,
        read: ReadOutput,
    ) -> None:
        self._port.run_program(argv, timeout, done, read=read)
        self._sent(f"the program {argv[0]}")

    def job_ended(self, jobid: int, done: Callable[[Optional[bool]], None]) -> None:
        self._port.job_ended(jobid, done)
        self._sent("whether the job has ended")


class _CrashSystem(VirtualSystem):
    """A system to which an interruption happens at a point, once."""

    def __init__(
        self, scenario: Scenario, target: Optional[int], interruption: Interruption
    ) -> None:
        timeout = scenario.epilog_timeout
        conf = None if timeout is None else {"epilog-timeout": timeout}
        self.data = FileContents()
        states = {"Setup": 0.1, "PreRun": 0.2, "DataOut": 0.2, "Teardown": 0.1}
        super().__init__(
            options=Options(latency=table(states), faults=scenario.faults),
            plugin_conf=conf,
            config=scenario.config,
            files=self.data,
        )
        self.crasher = _Crasher(target, interruption)
        self.crasher.interrupt = self._interrupt
        self.requested: Callable[[Request, Optional[Fault]], None] = lambda *_: None
        self._away = False

    def unload_for_long(self) -> None:
        """Unload the module, if it is there, and have none before ``AWAY`` is over."""
        self._away = True
        if self.instance.module_loaded:
            self.kill_module()
        self.loop.call_later(AWAY, self._come_back)

    def _come_back(self) -> None:
        self._away = False
        self.load_module()

    def load_module(self) -> None:
        if self._away:
            return
        crasher = self.crasher

        def make(port: FluxPort) -> Service:
            def arrives(request: Request) -> Optional[Fault]:
                reached = crasher.reached(_text(request))
                fault = _FAULTS.get(crasher.interruption) if reached else None
                self.requested(request, fault)
                if reached:
                    port.call_later(0.0, crasher.interrupt)
                return fault

            self.service_kube = DirectKube(self.store, port, faults=arrives)
            kube: Kube = self.service_kube
            settings = Settings(
                self.config, self.mapping, owner=self.instance.broker.owner
            )
            flux = _CrashingPort(port, crasher)
            service = make_service(flux, kube, settings, rng=random.Random(0))
            # There is no other way to learn where a step ends.
            reconciler = service._reconciler
            reconciler._steps = _CrashingSteps(reconciler._steps, crasher)
            self.service = service
            return service

        self.instance.load_module(make)

    def _interrupt(self) -> None:
        if self.crasher.interruption is Interruption.CANCEL:
            for job in self.instance.manager.active_jobs:
                self.instance.cancel(job.id)
        elif self.crasher.interruption is Interruption.PLUGIN:
            self.instance.unload_plugin()
            self.load_plugin()
        elif (
            self.crasher.interruption is Interruption.CRASH
            and self.instance.module_loaded
        ):
            self.kill_module()
            self.loop.call_later(DOWN, self.load_module)


def _text(request: Request) -> str:
    what = f"{request.verb} {request.kind.plural}"
    if request.kind == WORKFLOW and request.verb == "patch":
        body = as_merge_patch(request.body)
        state = (body.get("spec") or {}).get("desiredState")
        what += f" {state}" if state else ""
    return what


class _Allowances(Allowances):
    def __init__(self, scenario: Scenario, interruption: Interruption) -> None:
        self._scenario = scenario
        self._rescues = scenario.rescue
        self._cancel = interruption is Interruption.CANCEL
        self.config = scenario.config

    def fatal(self, job: Job, record: Record, exception: Json, now: float) -> bool:
        starts = (exception["note"], exception["type"])
        of_cancel = starts[1] == "cancel" or tells_loss(job, starts[0])
        freed = self._scenario.freed and "epilog-timeout" in " ".join(starts)
        if self._cancel and (of_cancel or freed):
            return True
        errors = self._scenario.errors
        return any(text.startswith(error) for text in starts for error in errors)

    def lost(self, job: Job, record: Record) -> bool:
        return super().lost(job, record) or (record.failed and not self._rescues)

    def node(self, job: Job, host: str) -> bool:
        return self._scenario.tolerance > 0


@dataclass(frozen=True)
class Life:
    """How a job's life went: its events, its exceptions, the traces that it leaves
    (memos, keys in the KVS, drained nodes), the breach of a rule."""

    points: tuple[Point, ...]
    events: tuple[str, ...]
    exceptions: tuple[tuple[str, str], ...]
    left: tuple[str, ...]
    breach: Optional[Breach]


def live(
    scenario: Scenario,
    target: Optional[int] = None,
    interruption: Interruption = Interruption.CRASH,
) -> Life:
    """One life of the scenario's job, with an interruption at a point."""
    system = _CrashSystem(scenario, target, interruption)
    jobs = system.instance.manager.jobs
    nodes = {node.host: node for node in system.instance.scheduler.pool.nodes}
    monitor = Monitor(
        system.store,
        system.loop.now,
        lambda: jobs,
        system.data,
        _Allowances(scenario, interruption),
        lambda host: nodes[host].drained is not None,
        faults=scenario.faults,
    )
    system.requested = monitor.requested
    system.instance.manager.listeners.append(monitor.job_event)
    system.start()
    attributes: Json = {"duration": 0, "dw": list(scenario.directives)}
    attributes["dw_failure_tolerance"] = scenario.tolerance
    attributes["dw_release"] = scenario.release
    attributes["dw_stage"] = scenario.stage
    jobid = system.instance.submit(jobspec_of(scenario.nodes, attributes))

    awaited = (
        *(scenario.cancelled_in, scenario.outage_in),
        *(scenario.stripped_in, scenario.postdated_in),
        *(scenario.unlinked_in, scenario.fenced_in, scenario.away_in),
    )

    def there() -> bool:
        return any(w["spec"]["desiredState"] in awaited for w in system.workflows())

    if scenario.rescue:
        system.loop.call_later(RESCUED, partial(_rescue, system, jobid))
    if scenario.cancelled_in:
        system.loop.run(there, PATIENCE)
        system.loop.run(timeout=scenario.cancelled_after)
        system.instance.cancel(jobid)
    if scenario.outage_in:
        system.loop.run(there, PATIENCE)
        if system.service_kube is not None:
            system.service_kube.drop_watches()
    if scenario.stripped_in:
        system.loop.run(there, PATIENCE)
        for workflow in system.workflows():
            name, none = workflow["metadata"]["name"], {"annotations": None}
            system.store.merge_patch(WORKFLOW, "default", name, {"metadata": none})

    if scenario.postdated_in:
        system.loop.run(there, PATIENCE)
        late = dict.fromkeys(State, system.loop.now() + 3600.0)
        metadata = {"annotations": {REQUESTED: requested_note(late)}}
        for workflow in system.workflows():
            name = workflow["metadata"]["name"]
            system.store.merge_patch(WORKFLOW, "default", name, {"metadata": metadata})

    rabbits = system.controllers.rabbits
    if scenario.unlinked_in:
        system.loop.run(there, PATIENCE)
        rabbits.set_link(NODE, False)
        system.loop.call_later(UNLINKED, partial(rabbits.set_link, NODE, True))
    if scenario.fenced_in:
        system.loop.run(there, PATIENCE)
        system.instance.programs[FENCE] = lambda arguments: NODE
        rabbits.fence(NODE)
    if scenario.away_in:
        system.loop.run(there, PATIENCE)
        system.unload_for_long()

    def over() -> bool:
        return system.instance.idle() and not system.workflows()

    def ended() -> bool:
        return monitor.breach is not None or over()

    helps = (_free, _enable_rabbits) if scenario.freed else (_enable_rabbits,)
    for help in helps:
        if not system.loop.run(ended, PATIENCE):
            help(system)
    system.loop.run(ended, PATIENCE)
    system.loop.run(timeout=10.0)
    monitor.check_end()
    return _life(system, jobid, monitor.breach)


def _rescue(system: VirtualSystem, jobid: int) -> None:
    """Have data copied again that could not be copied out, until it is out."""
    if system.workflows():
        system.instance.request("dws.rescue", {"id": jobid}, lambda *answer: None)
        system.loop.call_later(RESCUED, partial(_rescue, system, jobid))


def _free(system: VirtualSystem) -> None:
    """Let jobs go whose Teardown does not end, as an administrator does: nothing
    else lets a job go that is cancelled before a node of it has failed to unmount."""
    manager = system.instance.manager
    for job in manager.active_jobs:
        manager.raise_exception(job.id, "dws-epilog-timeout", 0, "", manager.owner)


def _enable_rabbits(system: VirtualSystem) -> None:
    """Have Rabbits serve that an abort has disabled, as an administrator does."""
    for storage in system.store.list(STORAGE, None)["items"]:
        body: Json = {"spec": {"state": "Enabled"}}
        name = storage["metadata"]["name"]
        system.store.merge_patch(STORAGE, "default", name, body)


def _life(system: _CrashSystem, jobid: int, breach: Optional[Breach]) -> Life:
    events = _told_once(system.instance.eventlog(jobid))
    contexts = [e.context or {} for e in events if e.name == "exception"]
    job = system.instance.job(jobid)
    left = [f"memo {k}={v}" for k, v in job.annotations.get("user", {}).items()]
    # (While the module is away, the data may go out: the job ends after that.)
    left += [f"KVS {key}" for key in job.kvs if key != NODES_RELEASED]
    nodes = system.instance.scheduler.pool.nodes
    left += [f"drained {node.host}" for node in nodes if node.drained]
    return Life(
        points=tuple(system.crasher.points),
        events=tuple(event.name for event in events),
        exceptions=tuple((c["type"], _TIME.sub("", c["note"])) for c in contexts),
        left=tuple(left),
        breach=breach,
    )


def _told_once(eventlog: Iterable[Event]) -> list[Event]:
    """The events of a job, but memos. An exception that changes nothing may be
    raised again by who cannot know that it was; this counts as once, also when it
    was fatal the first time."""
    events: list[Event] = []
    for event in eventlog:
        context = event.context or {}
        harmless = event.name == "exception" and context["severity"] > 0
        again = any(e.name == event.name and _same(e, event) for e in events)
        if event.name != "memo" and not (harmless and again):
            events.append(event)
    return events


def _same(one: Event, other: Event) -> bool:
    """Whether two exceptions tell the same."""
    contexts = [event.context or {} for event in (one, other)]
    first, second = ((c["type"], c["note"]) for c in contexts)
    return bool(first == second)


def check(
    scenario: Scenario,
    interruption: Interruption = Interruption.CRASH,
    first: int = 0,
    every: int = 1,
) -> list[tuple[Point, str]]:
    """Each point, or some, with the problem after an interruption there; "" if none."""
    whole = live(scenario)
    if whole.breach is not None:
        raise AssertionError(f"{scenario.name}: {whole.breach}")
    results: list[tuple[Point, str]] = []
    for number in range(first, len(whole.points), every):
        life = live(scenario, number, interruption)
        point = whole.points[number]
        cancelled = interruption is Interruption.CANCEL
        if life.breach is not None:
            wrong = "" if cancelled and _ends_now(point, life) else str(life.breach)
        elif interruption not in UNSEEN:
            wrong = ""
        else:
            undated = scenario.stripped_in or scenario.postdated_in
            lost = UNDATED if undated else LOST.get(point.step, ())
            expected = _without(whole, life, scenario.spared)
            if interruption is not Interruption.CRASH and point.step == TELLS:
                expected = replace(expected, exceptions=life.exceptions)
            wrong = _difference(expected, life, lost)
        results.append((point, wrong))
    return results


def _ends_now(point: Point, life: Life) -> bool:
    """Whether a job that is cancelled is told that data is not copied out of which
    the service is about to learn that it is. After an Error DWS does not say so."""
    told = life.breach is not None and life.breach.rule == "untrue"
    return told and point.step == "ListMovements"


def _without(whole: Life, life: Life, spared: str) -> Life:
    """The life that the other one is to be like: ``whole``, without the exception that
    the job was spared."""

    def kept(exception: tuple[str, str]) -> bool:
        return not (spared and exception[1].startswith(spared))

    exceptions = tuple(filter(kept, whole.exceptions))
    if exceptions == whole.exceptions or not all(map(kept, life.exceptions)):
        return whole
    events = list(whole.events)
    events.remove("exception")
    return replace(whole, events=tuple(events), exceptions=exceptions)


def _difference(whole: Life, life: Life, lost: Collection[str] = ()) -> str:
    """The difference between two lives of a job; "" for none. ``lost``: what the second
    may lack of what the first one left."""
    if sorted(life.events) != sorted(whole.events):
        return f"other events: {' '.join(life.events)}"
    if not _tells_as_much(whole.exceptions, life.exceptions):
        return f"other exceptions: {life.exceptions}"
    # (While the module is away, more states may come to their end.)
    missing = sorted(set(whole.left) - {*life.left, *lost})
    return f"missing: {', '.join(missing)}" if missing else ""


def _tells_as_much(
    whole: Sequence[tuple[str, str]], life: Sequence[tuple[str, str]]
) -> bool:
    """Whether a job's exceptions tell what they are to. The rules of the cluster
    explain what DWS refuses; while these are not known, its own words stand there."""
    if len(whole) != len(life):
        return False
    return all(
        found == wanted
        or (found[0] == wanted[0] and _own_words(found[1], about=wanted[1]))
        for wanted, found in zip(whole, life)
    )


def _own_words(note: str, *, about: str) -> bool:
    """Whether a note has what DWS says of the directive that another one explains."""
    directive, refused, _ = note.partition(REFUSED)
    return bool(refused) and about.startswith(directive)


def print_tables() -> int:
    """Print a table for each scenario; 1 when something was wrong."""
    failed = 0
    for scenario, interruption in product(SCENARIOS, Interruption):
        print(f"{scenario.name}: {interruption.value}")
        print(f"  {'':3}  {'step':22}  {'after':40}  the job")
        for number, (point, wrong) in enumerate(check(scenario, interruption), 1):
            failed += bool(wrong)
            after = point.request or "the step"
            print(f"  {number:3}  {point.step:22}  {after:40}  {wrong or 'ok'}")
        print()
    print(f"{failed} failed" if failed else "all passed")
    return 1 if failed else 0
