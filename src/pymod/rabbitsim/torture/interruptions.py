# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Interruptions of the module: at each step of :class:`flux_k8s.jobs.steps.Steps`, and
in each at each request to Kubernetes and to Flux."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, Callable, Mapping, Optional, cast

from flux_k8s.control.coroutines import Call
from flux_k8s.jobs.service import Service
from flux_k8s.jobs.step import Next
from flux_k8s.jobs.steps import Steps
from flux_k8s.jobs.workflowinfo import WorkflowInfo
from flux_k8s.jobs.workflowrequests import FAILURES
from flux_k8s.ports import (
    WORKFLOW,
    Flux,
    KubeError,
    Request,
)
from rabbitsim.flux.broker import FluxPort
from rabbitsim.kube.direct import Fault
from rabbitsim.kube.patch import as_merge_patch

DOWN = 1.0
"""Seconds from the module's death to its return."""


NOT_NOW = "not now"
"""What Kubernetes says when it refuses the request at a point."""

FAULT = "a fault that was planned"
"""What an internal error says that a story has."""


class Interruption(enum.Enum):
    """The kind of interruption at a point."""

    CRASH = "the module dies, and is back 1 s later"
    CANCEL = "the job is cancelled"
    REFUSED = "the request is refused"
    LOST = "the answer is lost"
    LATE = "the answer comes 10 s late"
    PLUGIN = "the plugin is loaded anew"
    WRONG = "the answer is about nothing that was asked for"

    @property
    def fails(self) -> bool:
        """Whether Kubernetes does not answer a request as it should."""
        return self is Interruption.WRONG or self in _FAULTS

    def may_be_at(self, point: Point) -> bool:
        """Whether it does anything there."""
        return point.answered or not self.fails


_LOST = KubeError(0, "ConnectionLost", "the connection was lost")
_FAULTS = {
    Interruption.REFUSED: Fault(error=KubeError(503, "ServiceUnavailable", NOT_NOW)),
    Interruption.LOST: Fault(error=_LOST, carried_out=True),
    Interruption.LATE: Fault(delay=10.0),
}


def _wrong(request: Request) -> Fault:
    """What a proxy makes of an answer: a list is empty, an object is none."""
    if request.verb == "list":
        return Fault(answer={"kind": f"{request.kind.name}List", "items": []})
    return Fault(answer={}, carried_out=True)


@dataclass(frozen=True)
class Point:
    """A moment at which the module may die: after a request within a step, or
    (``request`` is "") after the step. ``answered``: it is one to Kubernetes, which may
    be refused, and whose answer may be lost."""

    step: str
    request: str
    answered: bool = False

    def __str__(self) -> str:
        return f"{self.step}, after {self.request or 'all of it'}"


class Interrupter:
    """Counts points, and lets the interruption happen at one of them.

    Attributes:
        hit: the point at which the interruption was, if it was yet.
        broken: steps, and calls of the port (``_SENT``), that raise an internal error
            each time, by job.
        deadly: steps that the module dies of each time.
        unmet: those of both that were not taken yet.
        die: has it die.
    """

    def __init__(self, target: Optional[int], interruption: Interruption) -> None:
        self.points: list[Point] = []
        self.interruption = interruption
        self.hit: Optional[Point] = None
        self.interrupt: Callable[[], None] = lambda: None
        self.broken: set[tuple[int, str]] = set()
        self.deadly: set[tuple[int, str]] = set()
        self.unmet: set[tuple[int, str]] = set()
        self.die: Callable[[], None] = lambda: None
        self._target = target
        self._step = "at the start"

    def fault(self, request: Request) -> Optional[Fault]:
        """What happens to the request at which the interruption is."""
        if self.interruption is Interruption.WRONG:
            return _wrong(request)
        return _FAULTS.get(self.interruption)

    def plan(self, steps: set[tuple[int, str]], jobid: int, step: str) -> None:
        """Add a step of a job to those that end in one way or the other."""
        steps.add((jobid, step))
        self.unmet.add((jobid, step))

    def begins(self, step: str) -> None:
        self._step = step

    def reached(self, request: str, *, answered: bool = False) -> bool:
        """Note a point; whether the interruption is there."""
        point = Point(self._step, request, answered)
        self.points.append(point)
        if not request:
            self._step = "between two steps"
        if len(self.points) - 1 != self._target:
            return False
        self.hit = point
        return True


class _InterruptedSteps(Steps):
    """Steps that tell when they begin and end."""

    def __init__(self, steps: Steps, interrupter: Interrupter) -> None:
        self.__dict__.update(steps.__dict__)
        self._interrupter = interrupter

    async def carry_out(self, info: WorkflowInfo, step: Next) -> None:
        name = str(step)
        interrupter = self._interrupter
        interrupter.begins(name)
        interrupter.unmet.discard((info.jobid, name))
        if (info.jobid, name) in interrupter.broken:
            raise RuntimeError(FAULT)
        if (info.jobid, name) in interrupter.deadly:
            interrupter.die()
            await Call[None](lambda answer: None)  # there is no service any more
        try:
            await super().carry_out(info, step)
        except FAILURES:
            await self._ended()
            raise
        await self._ended()

    async def _ended(self) -> None:
        if self._interrupter.reached(""):
            self._interrupter.interrupt()
            if self._interrupter.interruption is Interruption.CRASH:
                await Call[None](lambda answer: None)  # there is no service any more


_SENT: Mapping[str, Callable[..., str]] = {
    "rpc": lambda topic, *_: str(topic),
    "raise_exception": lambda *_: "the job exception",
    "post_memo": lambda jobid, memo: f"the memo {', '.join(memo)}",
    "kvs_put": lambda jobid, key, *_: f"the KVS key {key}",
    "kvs_commit": lambda jobid, key, *_: f"the KVS key {key}",
    "drain": lambda hosts, *_: f"draining {hosts}",
    "undrain": lambda hosts: f"undraining {hosts}",
    "run_program": lambda argv, *_: f"the program {argv[0]}",
    "job_ended": lambda *_: "whether the job has ended",
}
"""The calls of the port that send something, and what, by their arguments."""


class _InterruptedPort:
    """Flux; the interruption may happen after each call that sends something."""

    def __init__(self, port: FluxPort, interrupter: Interrupter) -> None:
        self._port = port
        self._interrupter = interrupter

    def __getattr__(self, name: str) -> Any:
        call, text = getattr(self._port, name), _SENT.get(name)
        if text is None:
            return call

        def sent(*args: Any, **more: Any) -> None:
            what = text(*args)
            if any((args[0], what) == each for each in self._interrupter.broken):
                self._interrupter.unmet.discard((args[0], what))
                raise RuntimeError(FAULT)
            call(*args, **more)
            if self._interrupter.reached(what):
                # The message is on its way; it arrives before this does.
                self._port.call_later(0.0, self._interrupter.interrupt)

        return sent


def text_of(request: Request) -> str:
    what = f"{request.verb} {request.kind.plural}"
    if request.kind == WORKFLOW and request.verb == "patch":
        body = as_merge_patch(request.body)
        state = (body.get("spec") or {}).get("desiredState")
        what += f" {state}" if state else ""
    return what


def interrupt_port(port: FluxPort, interrupter: Interrupter) -> Flux:
    """A port whose calls are points."""
    return cast(Flux, _InterruptedPort(port, interrupter))


def interrupt_steps(service: Service, interrupter: Interrupter) -> None:
    """Have the steps of a service be points. There is no other way to learn where one
    ends."""
    reconciler = service._reconciler
    reconciler._steps = _InterruptedSteps(reconciler._steps, interrupter)
