# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The reactor of the module in virtual time: it does one thing after the other, and
each keeps it busy for a while. So queues form as they do in a module that is slow.

As in :mod:`flux_k8s.kube.eventqueue`, the events of a watch have a queue of their own,
from which a few at a time are taken before other work has its turn. Newer events do not
replace older ones of the same object here.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from typing import Any, Callable, Collection, Mapping, Optional, Sequence

from flux_k8s.ports import (
    Clock,
    CommitDone,
    Json,
    ProgramDone,
    Respond,
    RpcDone,
    Sender,
)
from rabbitsim.day.site import OTHER_COST
from rabbitsim.flux.broker import FluxPort, Module, PortWatch

Function = Callable[[], None]

_Waiting = tuple[float, Function]
"""Since when (UNIX time) a function waits for its turn."""

RECEIVE, PARSE = "receive", "parse"
"""The names of the work of reading watches: the cache, and JSON."""

PORTION = 50
SECONDS = 0.002
"""The most events of one watch, and the most time for them, before other work has its
turn."""


class Meter:
    """What the module does, in all its lives.

    Attributes:
        calls: how many things of each name it did.
        processor: the seconds of processor time that these took here.
        busy: seconds of virtual time for which the reactor was busy.
        waits: how many things waited for so many milliseconds.
        longest: the most things that waited at once since it was set to 0.
        by_second: how many events came within each second (UNIX time).
        bytes: the length of the JSON that was parsed.
        listed: how many objects the lists of each kind had.
    """

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.processor: dict[str, float] = {}
        self.busy = 0.0
        self.waits: Counter[int] = Counter()
        self.longest = 0
        self.by_second: Counter[int] = Counter()
        self.bytes = 0
        self.listed: Counter[str] = Counter()

    def measure(self, name: str, function: Callable[[], object]) -> None:
        begin = time.thread_time()
        try:
            function()
        finally:
            seconds = self.processor.get(name, 0.0) + time.thread_time() - begin
            self.processor[name] = seconds
            self.calls[name] += 1

    def receive(self, function: Function) -> None:
        """Do the work of reading a watch."""
        self.measure(RECEIVE, function)


class Reactor:
    """The thread of one service.

    Args:
        clock: that of the port, so that it ends with the module.
        costs: the seconds that things of each name take.
        streams: the names of events.
    """

    def __init__(
        self,
        clock: Clock,
        meter: Meter,
        costs: Mapping[str, float],
        streams: Collection[str] = (),
    ) -> None:
        self._clock = clock
        self._meter = meter
        self._costs = costs
        self._queue: deque[tuple[str, deque[_Waiting]]] = deque()
        self._streams: dict[str, deque[_Waiting]] = {name: deque() for name in streams}
        self._waiting = 0

    def add(self, name: str, function: Function) -> None:
        """Have a function called when those before it are done."""
        stream = self._streams.get(name)
        waiting: deque[_Waiting] = deque() if stream is None else stream
        waiting.append((self._clock.now(), function))
        self._waiting += 1
        self._meter.longest = max(self._meter.longest, self._waiting)
        if len(waiting) == 1:
            self._queue.append((name, waiting))
            if len(self._queue) == 1:
                self._begin()

    def bind(self, name: str, function: Callable[..., None]) -> Callable[..., None]:
        """A function that has ``function`` called in its turn."""
        return lambda *args: self.add(name, lambda: function(*args))

    def _begin(self) -> None:
        name, waiting = self._queue[0]
        cost = self._costs.get(name, OTHER_COST)
        count = max(1, min(PORTION, len(waiting), int(SECONDS / cost)))
        self._meter.busy += count * cost
        self._clock.call_later(count * cost, lambda: self._end(count))

    def _end(self, count: int) -> None:
        name, waiting = self._queue.popleft()
        due = [waiting.popleft() for _ in range(count)]
        self._waiting -= count
        if waiting:
            self._queue.append((name, waiting))
        if self._queue:
            self._begin()
        for since, function in due:
            self._meter.waits[round((self._clock.now() - since) * 1e3)] += 1
            self._meter.measure(name, function)


class _Timer:
    """A timer whose function is called in its turn, unless it is cancelled before."""

    def __init__(self, reactor: Reactor, function: Function) -> None:
        self._reactor = reactor
        self._function: Optional[Function] = function

    def cancel(self) -> None:
        self._function = None

    def expire(self) -> None:
        if self._function is not None:
            self._reactor.add("timer", self._call)

    def _call(self) -> None:
        function, self._function = self._function, None
        if function is not None:
            function()


class ReactorPort:
    """Implements :class:`flux_k8s.ports.Flux`: that of a port, whose answers and timers
    wait for their turn."""

    def __init__(self, port: FluxPort, reactor: Reactor) -> None:
        self._port = port
        self._reactor = reactor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)

    def call_later(self, delay: float, function: Function) -> _Timer:
        timer = _Timer(self._reactor, function)
        self._port.call_later(delay, timer.expire)
        return timer

    def rpc(self, topic: str, payload: Json, done: RpcDone) -> None:
        self._port.rpc(topic, payload, self._reactor.bind("rpc", done))

    def kvs_commit(self, jobid: int, key: str, value: str, done: CommitDone) -> None:
        self._port.kvs_commit(jobid, key, value, self._reactor.bind("rpc", done))

    def drain(
        self, hosts: str, reason: str, done: CommitDone, *, overwrite: bool = False
    ) -> None:
        bound = self._reactor.bind("rpc", done)
        self._port.drain(hosts, reason, bound, overwrite=overwrite)

    def watch_nodes(self, changed: Function) -> PortWatch:
        return self._port.watch_nodes(self._reactor.bind("rpc", changed))

    def watch_module(self, name: str, loaded: Function) -> PortWatch:
        return self._port.watch_module(name, self._reactor.bind("rpc", loaded))

    def primary_group(self, userid: int, done: Callable[[Optional[int]], None]) -> None:
        self._port.primary_group(userid, self._reactor.bind("rpc", done))

    def run_program(
        self,
        argv: Sequence[str],
        timeout: float,
        done: ProgramDone,
        **options: Any,
    ) -> None:
        bound = self._reactor.bind("rpc", done)
        self._port.run_program(argv, timeout, bound, **options)

    def job_ended(self, jobid: int, done: Callable[[Optional[bool]], None]) -> None:
        self._port.job_ended(jobid, self._reactor.bind("rpc", done))


class ReactorModule:
    """The module, whose requests wait for their turn."""

    def __init__(self, module: Module, reactor: Reactor, meter: Meter) -> None:
        self._module = module
        self._reactor = reactor
        self._meter = meter

    def start(self) -> None:
        self._meter.measure("start", self._module.start)

    def stop(self) -> None:
        self._module.stop()

    def request(self, method: str, payload: Json, respond: Respond) -> None:
        self._reactor.add(
            "request", lambda: self._module.request(method, payload, respond)
        )

    def query(
        self, method: str, payload: Json, respond: Respond, sender: Sender
    ) -> None:
        self._reactor.add(
            "request", lambda: self._module.query(method, payload, respond, sender)
        )
