# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Messages between the plugin, the module and their users.

Messages from one sender to one receiver arrive in order, a little later than
they were sent. A request to a service that nobody offers fails with ENOSYS; one
that was in flight when its module went away, with EHOSTUNREACH.
"""

from __future__ import annotations

import errno
import syslog
from functools import partial
from typing import Any, Callable, Mapping, Optional, Protocol, Sequence, Union

from msgspec import to_builtins

from flux_k8s.formats import hostlist
from flux_k8s.jobs import setupreader
from flux_k8s.ports import (
    Clock,
    CommitDone,
    Json,
    Payload,
    ProgramDone,
    ReadOutput,
    RpcError,
    Sender,
)
from flux_k8s.ports import RpcDone as PortDone
from flux_k8s.reasons import Reason, log_line
from rabbitsim.flux.events import JobState
from rabbitsim.flux.manager import JobManager

Respond = Callable[[int, str, Optional[Json]], None]
"""Gets errno (0 for success), an error text, and the payload."""

Handler = Callable[[Json, int, Respond], None]
"""A service's method: gets the payload, the sender's user ID, and ``respond``."""

Offered = Callable[[str, Json, int, Respond], None]
"""A service: gets the method, too."""

WRITE_DELAY = 0.05
"""Seconds that a write to the KVS waits for others."""

COMMIT_DELAY = 0.005
"""Seconds until what is committed at once is in the KVS: 2 to 8 ms on a real Flux."""

ALL_WRITTEN = 2 * (WRITE_DELAY + COMMIT_DELAY)
"""Seconds after which all that was written is in the KVS."""

DRAIN_DELAY = 0.02
"""Seconds until the scheduler knows of a drain: the resource module writes it to the
KVS before."""

READING = 0.5
"""Seconds that one R takes."""

NOT_OWNER = "Request requires owner credentials"


class Module(Protocol):
    """The broker module: in production a supervisor with the service as its child,
    here the service itself."""

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def request(self, method: str, payload: Json, respond: Respond) -> None: ...

    def query(
        self, method: str, payload: Json, respond: Respond, sender: Sender
    ) -> None: ...


class Broker:
    """Routes requests. Services are registered by the topic up to its last dot."""

    def __init__(
        self, clock: Clock, owner: int, latency: Callable[[], float] = lambda: 0.0
    ) -> None:
        self._clock = clock
        self._latency = latency
        self._arrival: dict[str, float] = {}
        self._services: dict[str, Offered] = {}
        self._in_flight: dict[str, dict[int, Respond]] = {}
        self._sequence = 0
        self.owner = owner

    def register(self, service: str, handler: Offered) -> None:
        """Offer a service. ``handler`` gets the method, the payload, the
        sender's user ID and ``respond``."""
        self._services[service] = handler
        self._in_flight[service] = {}

    def unregister(self, service: str) -> None:
        """Withdraw a service; requests that it has not answered fail."""
        self._services.pop(service, None)
        pending = self._in_flight.pop(service, {})
        for respond in list(pending.values()):
            respond(errno.EHOSTUNREACH, "No route to host", None)

    def stand_in(
        self, service: str, make: Callable[[Offered], Offered]
    ) -> Callable[[], None]:
        """Have something else answer for a service, until the function that this
        returns is called. ``make`` gets the service, and returns what answers."""
        before = self._services[service]
        self._services[service] = make(before)

        def restore() -> None:
            self._services[service] = before

        return restore

    def send(
        self, topic: str, payload: Json, respond: Respond, userid: Optional[int] = None
    ) -> None:
        """Send a request; ``respond`` is called later, once at most."""
        service, _, method = topic.rpartition(".")
        module = _module_of(service)
        sender = self.owner if userid is None else userid
        message = to_builtins(payload)

        def deliver() -> None:
            if service not in self._services:
                text = f"No service matching {topic} is registered"
                self._later(f"<{module}", lambda: respond(errno.ENOSYS, text, None))
                return
            once = self._track(service, respond)
            self._services[service](method, message, sender, once)

        self._later(f">{module}", deliver)

    def _track(self, service: str, respond: Respond) -> Respond:
        """``respond`` so that it works once, later, and fails with the service."""
        self._sequence += 1
        number = self._sequence
        module = _module_of(service)

        def once(errnum: int, text: str, payload: Optional[Json]) -> None:
            pending = self._in_flight.get(service, {})
            if number not in pending and errnum != errno.EHOSTUNREACH:
                return
            pending.pop(number, None)
            answer = to_builtins(payload)
            self._later(f"<{module}", lambda: respond(errnum, text, answer))

        self._in_flight[service][number] = once
        return once

    def _later(self, channel: str, function: Callable[[], None]) -> None:
        """Call ``function`` after the latency, in order within ``channel``."""
        now = self._clock.now()
        when = max(now + self._latency(), self._arrival.get(channel, 0.0))
        self._arrival[channel] = when
        self._clock.call_later(when - now, function)


def _module_of(service: str) -> str:
    """The module that offers a service: ``job-manager.dws`` is the job manager's,
    which gets its messages in one and the same order."""
    return service.partition(".")[0]


class PortHost(Protocol):
    """The interface that a :class:`FluxPort` needs of the instance."""

    broker: Broker
    manager: JobManager
    commit_delay: float
    kvs_left: dict[int, dict[str, str]]
    drain_error: Optional[RpcError]
    group_delay: float

    def log(self, level: int, message: str) -> None: ...

    def drain(self, host: str, reason: str, overwrite: bool = False) -> None: ...

    def undrain(self, host: str) -> None: ...

    def watch_nodes(self, changed: Callable[[], None]) -> None: ...

    def watch_module(self, name: str, loaded: Callable[[], None]) -> None: ...

    def primary_group(self, userid: int) -> Optional[int]: ...
    def run_program(self, argv: Sequence[str]) -> Union[str, OSError]: ...


class VirtualReader:
    """The program that reads R, and reads one after the other.

    Args:
        clock: the time.

    Attributes:
        seconds: how long it takes to read a payload.
        failure: why nothing can be read, or None.
        longest: the most seconds until something was read.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._free = clock.now()
        self.seconds: Callable[[Payload], float] = lambda text: READING
        self.failure: Optional[OSError] = None
        self.longest = 0.0

    def begin(self, text: Payload) -> float:
        """Read a payload when it is its turn: seconds until that is done."""
        now = self._clock.now()
        self._free = max(self._free, now) + self.seconds(text)
        self.longest = max(self.longest, self._free - now)
        return self._free - now


class _PortTimer:
    """A timer that does not fire once the module of its port is unloaded."""

    def __init__(self, port: FluxPort, function: Callable[[], None]) -> None:
        self._port = port
        self._function: Optional[Callable[[], None]] = function

    def cancel(self) -> None:
        self._function = None

    def fire(self) -> None:
        if self._function is not None and self._port.alive:
            self._function()


class PortWatch:
    """Calls a function when it is notified, until it is stopped or the module of the
    port is unloaded."""

    def __init__(self, port: FluxPort, function: Callable[[], None]) -> None:
        self._port = port
        self._function: Optional[Callable[[], None]] = function

    def stop(self) -> None:
        self._function = None

    def notify(self) -> None:
        self._port.call_later(0.0, self._call)

    def _call(self) -> None:
        if self._function is not None:
            self._function()


class FluxPort:
    """Flux as one loaded module sees it (:class:`flux_k8s.ports.Flux`).

    Once the module is gone nothing reaches it any more.

    Attributes:
        ahead: the seconds by which the clock of the machine was ahead when the module
            was loaded.
        reader: the program that reads R.
    """

    def __init__(self, host: PortHost, clock: Clock) -> None:
        self._host = host
        self._clock = clock
        self.reader = VirtualReader(clock)
        self._puts: list[Callable[[], None]] = []
        self.alive = True
        self.ahead = 0.0

    def close(self) -> None:
        """Write what waits: the module is about to be unloaded."""
        self._commit()

    def now(self) -> float:
        return self._clock.now() + self.ahead

    def call_later(self, delay: float, function: Callable[[], None]) -> _PortTimer:
        timer = _PortTimer(self, function)
        self._clock.call_later(delay, timer.fire)
        return timer

    def log(self, level: int, message: str, reason: Reason) -> None:
        self._host.log(level, f"dws: {log_line(message, reason)}")

    def rpc(self, topic: str, payload: Json, done: PortDone) -> None:
        def respond(errnum: int, text: str, answer: Optional[Json]) -> None:
            result: Union[Json, RpcError] = answer or {}
            if errnum:
                result = RpcError(errnum, text)
            if self.alive:
                done(result)

        self._host.broker.send(topic, payload, respond)

    def _send(self, topic: str, payload: Json) -> None:
        """Send a request, and log its failure."""

        def respond(errnum: int, text: str, answer: Optional[Json]) -> None:
            if errnum and errnum != errno.ENOENT:
                self.log(syslog.LOG_ERR, f"{topic}: {text}", Reason.FLUX_ERROR)

        self._host.broker.send(topic, payload, respond)

    def raise_exception(
        self, jobid: int, type: str, severity: int, note: str, reason: Reason
    ) -> None:
        payload = {"id": jobid, "type": type, "severity": severity, "note": note}
        # Of this, production sends nothing: it is for rules about the reason.
        payload["reason"] = reason.value
        self._send("job-manager.raise", payload)

    def post_memo(
        self, jobid: int, memo: Mapping[str, Any], *, volatile: bool = False
    ) -> None:
        payload = {"id": jobid, "memo": dict(memo), "volatile": volatile}
        self._send("job-manager.memo", payload)

    def kvs_put(
        self, jobid: int, key: str, value: Optional[str], *, last: bool = False
    ) -> None:
        self._puts.append(partial(self._write, jobid, key, value))
        if last:
            self._commit()
        elif len(self._puts) == 1:
            self._clock.call_later(WRITE_DELAY, self._commit)

    def _commit(self) -> None:
        """Commit the writes that wait. A module that was killed takes them with it."""
        puts, self._puts = self._puts, []
        if not self.alive:
            return

        def write() -> None:
            for put in puts:
                put()

        self._clock.call_later(self._host.commit_delay, write)

    def kvs_commit(self, jobid: int, key: str, value: str, done: CommitDone) -> None:
        self._commit()

        def write() -> None:
            self._write(jobid, key, value)
            if self.alive:
                done(None)

        self._clock.call_later(self._host.commit_delay, write)

    def _write(self, jobid: int, key: str, value: Optional[str]) -> None:
        job = self._host.manager.jobs.get(jobid)
        kvs = self._host.kvs_left.setdefault(jobid, {}) if job is None else job.kvs
        if value is None:
            kvs.pop(key, None)
        else:
            kvs[key] = value

    def drain(
        self, hosts: str, reason: str, done: CommitDone, *, overwrite: bool = False
    ) -> None:
        error = self._host.drain_error
        for host in () if error else hostlist.decode(hosts):
            self._host.drain(host, reason, overwrite)
        self.call_later(DRAIN_DELAY, partial(done, error))

    def undrain(self, hosts: str) -> None:
        for host in hostlist.decode(hosts):
            self._host.undrain(host)

    def watch_nodes(self, changed: Callable[[], None]) -> PortWatch:
        watch = PortWatch(self, changed)
        self._host.watch_nodes(watch.notify)
        return watch

    def watch_module(self, name: str, loaded: Callable[[], None]) -> PortWatch:
        watch = PortWatch(self, loaded)
        self._host.watch_module(name, watch.notify)
        return watch

    def primary_group(self, userid: int, done: Callable[[Optional[int]], None]) -> None:
        def answer() -> None:
            if self.alive:
                done(self._host.primary_group(userid))

        self._clock.call_later(self._host.group_delay, answer)

    def run_program(
        self,
        argv: Sequence[str],
        timeout: float,
        done: ProgramDone,
        *,
        read: ReadOutput,
        text: Payload = b"",
        thread: str = "programs",
    ) -> None:
        reads_R = argv is setupreader.COMMAND
        seconds = self.reader.begin(text) if reads_R else 0.0

        def result() -> Any:
            output: Union[str, OSError]
            if reads_R:
                output = self.reader.failure or setupreader.encode_answer(text)
            else:
                output = self._host.run_program(argv)
            try:
                return output if isinstance(output, OSError) else read(output)
            except ValueError as error:
                return error

        def answer() -> None:
            if self.alive:
                done(result())

        self._clock.call_later(seconds, answer)

    def job_ended(self, jobid: int, done: Callable[[Optional[bool]], None]) -> None:
        def answered(result: Union[Json, RpcError]) -> None:
            if isinstance(result, RpcError):
                done(True if result.errnum == errno.ENOENT else None)
            else:
                done(result["job"]["state"] == JobState.INACTIVE)

        self.rpc("job-list.list-id", {"id": jobid, "attrs": ["state"]}, answered)
