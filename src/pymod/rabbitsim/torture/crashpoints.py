# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The module dies after each step, and after each request, that it makes.

A job is run once to learn what the service does for it: the steps of
:class:`flux_k8s.steps.Steps`, and in each the requests to Kubernetes and to Flux.
Then it is run once for each of these points. The module dies when what the point
names has been carried out, before its answer is seen, and another is loaded. The
job must not be able to tell.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any, Callable, Mapping, Optional

from flux_k8s.config import Config
from flux_k8s.ports import STORAGE, Json, Kube, RpcDone, Timer
from flux_k8s.service import Service
from flux_k8s.settings import Settings
from flux_k8s.steps import StepDone, StepError, Steps
from flux_k8s.workflow import Advance, Step, WorkflowInfo
from rabbitsim.dws.options import Fault as DwsFault
from rabbitsim.dws.options import Options, table
from rabbitsim.flux.broker import FluxPort
from rabbitsim.flux.job import Job
from rabbitsim.kube.direct import DirectKube, Fault, Request
from rabbitsim.system import VirtualSystem
from rabbitsim.torture.jobs import jobspec_of
from rabbitsim.torture.monitor import Breach, Excuses, Monitor

PATIENCE = 7200.0
DOWN = 1.0
"""Seconds from the module's death to its return."""

DIRECTIVES = [
    "#DW jobdw type=xfs capacity=10GiB name=p1",
    "#DW copy_in source=/lustre/in destination=$DW_JOB_p1/",
    "#DW copy_out source=$DW_JOB_p1/ destination=/lustre/out",
]


@dataclass(frozen=True)
class Scenario:
    """A job whose life is gone through.

    Attributes:
        cancelled_in: the Workflow state in which it is cancelled, or "".
        errors: how its fatal exceptions begin.
    """

    name: str
    directives: tuple[str, ...] = tuple(DIRECTIVES)
    faults: tuple[DwsFault, ...] = ()
    config: Config = field(default_factory=Config)
    epilog_timeout: Optional[float] = None
    cancelled_in: str = ""
    errors: tuple[str, ...] = ()


SCENARIOS = (
    Scenario("the standard job"),
    Scenario(
        "a job that DWS refuses",
        directives=("#DW jobdw type=xfs capacity=1GiB name=p1 nosuch=1",),
        errors=("#DW jobdw",),
    ),
    Scenario(
        "a job that is cancelled in its prolog",
        cancelled_in="Setup",
        errors=("",),
    ),
    Scenario(
        "a job that DWS fails in Setup",
        faults=(DwsFault("Setup", "error", message="it broke"),),
        errors=("DWS failed in Setup",),
    ),
    Scenario(
        "a job whose Setup takes too long",
        faults=(DwsFault("Setup", "never"),),
        config=Config(setup_timeout=60.0),
        errors=("Setup took more than setup_timeout=60s",),
    ),
    Scenario(
        "a job that DWS fails in DataOut",
        faults=(DwsFault("DataOut", "error", message="it broke"),),
        errors=("DWS failed in DataOut",),
    ),
    Scenario(
        "a job that is cancelled in its epilog",
        cancelled_in="DataOut",
        errors=("",),
    ),
    Scenario(
        "a job whose epilog is given up",
        faults=(DwsFault("PostRun", "never", duration=600.0),),
        epilog_timeout=60.0,
        errors=("dws-epilog",),
    ),
)


@dataclass(frozen=True)
class Point:
    """A moment at which the module may die: after a request within a step, or
    (``request`` is "") after the step."""

    step: str
    request: str

    def __str__(self) -> str:
        return f"{self.step}, after {self.request or 'all of it'}"


class _Crasher:
    """Counts points, and lets the module die at one of them."""

    def __init__(self, target: Optional[int]) -> None:
        self.points: list[Point] = []
        self.kill: Callable[[], None] = lambda: None
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

    def run(self, info: WorkflowInfo, step: Step, done: StepDone) -> None:
        def ended(error: Optional[StepError]) -> None:
            if self._crasher.reached(""):
                self._crasher.kill()
            else:
                done(error)

        name = type(step).__name__
        if isinstance(step, Advance):
            name += f" to {step.state.name}"
        self._crasher.begins(name)
        super().run(info, step, ended)


class _CrashingPort:
    """Flux; the module may die after each call that sends something."""

    def __init__(self, port: FluxPort, crasher: _Crasher) -> None:
        self._port = port
        self._crasher = crasher

    def _sent(self, what: str) -> None:
        if self._crasher.reached(what):
            # The message is on its way; it arrives before this does.
            self._port.call_later(0.0, self._crasher.kill)

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

    def post_memo(self, jobid: int, memo: Mapping[str, Any]) -> None:
        self._port.post_memo(jobid, memo)
        self._sent(f"the memo {', '.join(memo)}")

    def kvs_put(self, jobid: int, key: str, value: str, *, last: bool = False) -> None:
        self._port.kvs_put(jobid, key, value, last=last)
        self._sent(f"the KVS key {key}")

    def drain(self, hosts: str, reason: str) -> None:
        self._port.drain(hosts, reason)
        self._sent(f"draining {hosts}")

    def primary_group(self, userid: int, done: Callable[[Optional[int]], None]) -> None:
        self._port.primary_group(userid, done)

    def job_ended(self, jobid: int, done: Callable[[Optional[bool]], None]) -> None:
        self._port.job_ended(jobid, done)


class _CrashSystem(VirtualSystem):
    """A system whose module dies at a point, once, and comes back."""

    def __init__(self, scenario: Scenario, target: Optional[int]) -> None:
        timeout = scenario.epilog_timeout
        conf = None if timeout is None else {"epilog-timeout": timeout}
        states = {"Setup": 0.1, "PreRun": 0.2, "DataOut": 0.2, "Teardown": 0.1}
        super().__init__(
            options=Options(latency=table(states), faults=scenario.faults),
            plugin_conf=conf,
            config=scenario.config,
        )
        self.crasher = _Crasher(target)
        self.crasher.kill = self._die
        self.requested: Callable[[Request, Optional[Fault]], None] = lambda *_: None

    def load_module(self) -> None:
        crasher = self.crasher

        def make(port: FluxPort) -> Service:
            def arrives(request: Request) -> None:
                self.requested(request, None)
                if crasher.reached(_text(request)):
                    port.call_later(0.0, crasher.kill)

            self.service_kube = DirectKube(self.store, port, faults=arrives)
            kube: Kube = self.service_kube
            settings = Settings(
                self.config, self.mapping, owner=self.instance.broker.owner
            )
            flux = _CrashingPort(port, crasher)
            service = Service(flux, kube, settings, random.Random(0))
            # There is no other way to learn where a step ends.
            steps: Steps = service._steps
            service._steps = _CrashingSteps(steps, crasher)
            self.service = service
            return service

        self.instance.load_module(make)

    def _die(self) -> None:
        if self.instance.module_loaded:
            self.kill_module()
            self.loop.call_later(DOWN, self.load_module)


def _text(request: Request) -> str:
    what = f"{request.verb} {request.kind.plural}"
    if request.kind.name == "Workflow" and isinstance(request.body, dict):
        state = (request.body.get("spec") or {}).get("desiredState")
        what += f" {state}" if state and request.verb == "patch" else ""
    return what


class _Excuses(Excuses):
    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario

    def fatal(self, job: Job, exception: Json) -> bool:
        starts = (exception["note"], exception["type"])
        errors = self._scenario.errors
        return any(text.startswith(error) for text in starts for error in errors)

    def early(self, job: Job) -> bool:
        return bool(self._scenario.errors)


@dataclass(frozen=True)
class Life:
    """How a job's life went: its events, its exceptions, what it leaves behind
    (memos, keys in the KVS, drained nodes), what was breached."""

    points: tuple[Point, ...]
    events: tuple[str, ...]
    exceptions: tuple[tuple[str, str], ...]
    left: tuple[str, ...]
    breach: Optional[Breach]


def live(scenario: Scenario, target: Optional[int] = None) -> Life:
    """One life of the scenario's job, with the module dying at a point."""
    system = _CrashSystem(scenario, target)
    jobs = system.instance.manager.jobs
    monitor = Monitor(system.store, lambda: jobs, _Excuses(scenario))
    system.requested = monitor.requested
    system.instance.manager.listeners.append(monitor.job_event)
    system.start()
    spec = jobspec_of(2, {"duration": 0, "dw": list(scenario.directives)})
    jobid = system.instance.submit(spec)
    if scenario.cancelled_in:

        def there() -> bool:
            return any(
                w["spec"]["desiredState"] == scenario.cancelled_in
                for w in system.workflows()
            )

        system.loop.run(there, PATIENCE)
        system.instance.cancel(jobid)

    def over() -> bool:
        return system.instance.idle() and not system.workflows()

    def ended() -> bool:
        return monitor.breach is not None or over()

    if not system.loop.run(ended, PATIENCE):
        _enable_rabbits(system)  # as an administrator does after an abort
        system.loop.run(ended, PATIENCE)
    system.loop.run(timeout=10.0)
    monitor.check_end()
    return _life(system, jobid, monitor.breach)


def _enable_rabbits(system: VirtualSystem) -> None:
    for storage in system.store.list(STORAGE, None)["items"]:
        body: Json = {"spec": {"state": "Enabled"}}
        name = storage["metadata"]["name"]
        system.store.merge_patch(STORAGE, "default", name, body)


def _life(system: _CrashSystem, jobid: int, breach: Optional[Breach]) -> Life:
    events = [e for e in system.instance.eventlog(jobid) if e.name != "memo"]
    contexts = [e.context or {} for e in events if e.name == "exception"]
    job = system.instance.job(jobid)
    left = [f"memo {k}={v}" for k, v in job.annotations.get("user", {}).items()]
    left += [f"KVS {key}" for key in job.kvs]
    nodes = system.instance.scheduler.pool.nodes
    left += [f"drained {node.host}" for node in nodes if node.drained]
    return Life(
        points=tuple(system.crasher.points),
        events=tuple(event.name for event in events),
        exceptions=tuple((c["type"], c["note"]) for c in contexts),
        left=tuple(left),
        breach=breach,
    )


def check(scenario: Scenario) -> list[tuple[Point, str]]:
    """Each point, and what was wrong when the module died there ("": nothing)."""
    whole = live(scenario)
    if whole.breach is not None:
        raise AssertionError(f"{scenario.name}: {whole.breach}")
    results: list[tuple[Point, str]] = []
    for number, point in enumerate(whole.points):
        life = live(scenario, number)
        wrong = ""
        if life.breach is not None:
            wrong = str(life.breach)
        elif sorted(life.events) != sorted(whole.events):
            wrong = f"other events: {' '.join(life.events)}"
        elif life.exceptions != whole.exceptions:
            wrong = f"other exceptions: {life.exceptions}"
        elif set(whole.left) - set(life.left):
            # (While the module is away, more states may come to their end.)
            missing = sorted(set(whole.left) - set(life.left))
            wrong = f"missing: {', '.join(missing)}"
        results.append((point, wrong))
    return results


def print_tables() -> int:
    """Print a table for each scenario; 1 when something was wrong."""
    failed = 0
    for scenario in SCENARIOS:
        print(f"{scenario.name}: the module dies, and is back {DOWN:g} s later")
        print(f"  {'':3}  {'step':22}  {'it dies after':40}  the job")
        for number, (point, wrong) in enumerate(check(scenario), 1):
            failed += bool(wrong)
            after = point.request or "the step"
            print(f"  {number:3}  {point.step:22}  {after:40}  {wrong or 'ok'}")
        print()
    print(f"{failed} failed" if failed else "all passed")
    return 1 if failed else 0
