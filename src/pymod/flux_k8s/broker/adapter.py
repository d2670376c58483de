# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
""":class:`flux_k8s.ports.Flux` over a Flux handle."""

from __future__ import annotations

import errno
import functools
import os
import syslog
from typing import Any, Callable, Mapping, Optional, Sequence

from flux.constants import FLUX_MSGTYPE_REQUEST, FLUX_NODEID_ANY, FLUX_RPC_STREAMING

from flux_k8s.broker import users
from flux_k8s.broker.programs import Programs
from flux_k8s.broker.reactor import reactor_timers
from flux_k8s.broker.writer import Writer
from flux_k8s.control.backoff import Backoff
from flux_k8s.eventloop import CallbackQueue
from flux_k8s.formats.jobid import kvs_directory
from flux_k8s.ports import (
    CommitDone,
    Json,
    Payload,
    ProgramDone,
    ReadOutput,
    RpcDone,
    RpcError,
)
from flux_k8s.reasons import Reason, log_line
from flux_k8s.threads import Threads
from flux_k8s.timers import OneShotTimer, SteadyClock

COMMIT_DELAY = 0.1
"""Seconds that a write to a job's KVS waits for others, to share their commit."""

INACTIVE = 64  # FLUX_JOB_STATE_INACTIVE
RUNNING = 1  # FLUX_MODSTATE_RUNNING
WATCH_APPEND = 4 | 256  # FLUX_KVS_WATCH | FLUX_KVS_WATCH_APPEND

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0
"""Seconds until a streaming RPC that has failed is sent again, or a user database that
has failed is asked again."""


class Streams:
    """Streaming RPCs, each of which is sent again when it ends, until :meth:`stop`.

    Args:
        got: is called with the future at each response.
        normal_end: the errno that ends an RPC without a failure: it is sent again at
            once, without a warning in the log.
    """

    def __init__(
        self,
        flux: BrokerFlux,
        requests: Mapping[str, Json],
        got: Callable[[Any], None],
        normal_end: Optional[int] = None,
    ) -> None:
        self._flux = flux
        self._got = got
        self._normal_end = normal_end
        self._stopped = False
        for topic, payload in requests.items():
            self._open(topic, payload, Backoff(FIRST_PAUSE, LONGEST_PAUSE))

    def stop(self) -> None:
        """Ignore all further responses. The broker ends the RPCs when the service
        ends."""
        self._stopped = True

    def _open(self, topic: str, payload: Json, backoff: Backoff) -> None:
        answered_once = False

        def answered(future: Any) -> None:
            nonlocal answered_once
            if self._stopped:
                return
            try:
                future.get_str()
            except OSError as error:
                if error.errno == self._normal_end and answered_once:
                    again()
                    return
                if not backoff.failures:
                    text = f"{topic}: {error}"
                    self._flux.log(syslog.LOG_WARNING, text, Reason.FLUX_ERROR)
                self._flux.call_later(backoff.fail(), again)
                return
            backoff.reset()
            answered_once = True
            self._got(future)
            future.reset()

        def again() -> None:
            if not self._stopped:
                self._open(topic, payload, backoff)

        self._flux.open_stream(topic, payload).then(answered)


def module_status(traced: Any) -> Optional[int]:
    """The status in a ``module.status`` message that ``module.trace`` shows; None for
    any other message."""
    payload = traced.get("payload") if isinstance(traced, dict) else None
    status = payload.get("status") if isinstance(payload, dict) else None
    return status if isinstance(status, int) else None


class BrokerFlux:
    """:class:`flux_k8s.ports.Flux` for the service.

    Args:
        handle: the service's own Flux handle.
        callbacks: the queue for calls from other threads.
        name: the module's name, for the log.
    """

    def __init__(self, handle: Any, callbacks: CallbackQueue, name: str) -> None:
        self._handle = handle
        self._clock = SteadyClock()
        self._writer = Writer(name)
        self._callbacks = callbacks
        self._threads = Threads(callbacks.put)
        self._programs = Programs()
        self._timers = reactor_timers(handle)

    def now(self) -> float:
        return self._clock.now()

    def call_later(self, delay: float, function: Callable[[], None]) -> OneShotTimer:
        return self._timers.add(delay, function)

    def log(self, level: int, message: str, reason: Reason) -> None:
        self._writer.log(level, log_line(message, reason))

    def rpc(self, topic: str, payload: Json, done: RpcDone) -> None:
        def answered(future: Any) -> None:
            # There is one answer. A future and its handle refer to each other: they
            # would stay, with all that waits for the answer, until a full collection of
            # garbage.
            future.cb_handle = None
            try:
                result = future.get()
            except OSError as error:
                number = error.errno or errno.EIO
                done(RpcError(number, error.strerror or os.strerror(number)))
                return
            done({} if result is None else result)

        self._handle.rpc(topic, payload).then(answered)

    def _send(self, topic: str, payload: Json) -> None:
        """Send an RPC whose failure is only logged. ENOENT is not logged: the job may
        have ended meanwhile."""

        def answered(result: Any) -> None:
            if isinstance(result, RpcError) and result.errnum != errno.ENOENT:
                self.log(syslog.LOG_WARNING, f"{topic}: {result}", Reason.FLUX_ERROR)

        self.rpc(topic, payload, answered)

    def raise_exception(
        self, jobid: int, type: str, severity: int, note: str, reason: Reason
    ) -> None:
        self._send(
            "job-manager.raise",
            {"id": jobid, "type": type, "severity": severity, "note": note},
        )

    def post_memo(
        self, jobid: int, memo: Mapping[str, Any], *, volatile: bool = False
    ) -> None:
        payload = {"id": jobid, "memo": dict(memo), "volatile": volatile}
        self._send("job-manager.memo", payload)

    def kvs_put(
        self, jobid: int, key: str, value: Optional[str], *, last: bool = False
    ) -> None:
        """Writes within ``COMMIT_DELAY`` share a commit: a commit costs more than all
        other work of a state."""
        first = self._writer.put(f"{kvs_directory(jobid)}.{key}", value)
        if last:
            self._writer.commit()
        elif first:
            self.call_later(COMMIT_DELAY, self._writer.commit)

    def kvs_commit(self, jobid: int, key: str, value: str, done: CommitDone) -> None:
        def committed(error: Optional[OSError]) -> None:
            failure = None
            if error is not None:
                number = error.errno or errno.EIO
                text = f"cannot write {key}: {os.strerror(number)}"
                failure = RpcError(number, text)
            self._callbacks.put(functools.partial(done, failure))

        self._writer.put(f"{kvs_directory(jobid)}.{key}", value, committed)
        self._writer.commit(awaited=True)

    def close(self, timeout: float) -> None:
        """Write all that waits to the KVS and the log, within ``timeout`` seconds, and
        kill the programs that run."""
        self._programs.close()
        self._writer.close(timeout)

    def drain(
        self, hosts: str, reason: str, done: CommitDone, *, overwrite: bool = False
    ) -> None:
        def answered(result: Any) -> None:
            done(result if isinstance(result, RpcError) else None)

        # Without a mode, the request fails for all nodes if one is drained already.
        mode = "overwrite" if overwrite else "update"
        payload = {"targets": hosts, "reason": reason, "mode": mode}
        self.rpc("resource.drain", payload, answered)

    def undrain(self, hosts: str) -> None:
        self._send("resource.undrain", {"targets": hosts, "mode": "update"})

    def watch_nodes(self, changed: Callable[[], None]) -> Streams:
        """The eventlog of the resource module, in the KVS, has the drains; the group
        ``broker.online`` has the nodes that are online. (The journal of the resource
        module has both, but begins with all of R, which has 200 MB on a large system.)
        The resource module shortens its eventlog when it is loaded. That ends the watch
        with EINVAL."""
        drains = {
            "key": "resource.eventlog",
            "namespace": "primary",
            "flags": WATCH_APPEND,
        }
        online = {"name": "broker.online"}

        def got(future: Any) -> None:
            changed()

        requests: dict[str, Json] = {"kvs-watch.lookup": drains, "groups.get": online}
        return Streams(self, requests, got, errno.EINVAL)

    def watch_module(self, name: str, loaded: Callable[[], None]) -> Streams:
        payload = {
            "typemask": FLUX_MSGTYPE_REQUEST,
            "topic_glob": "module.status",
            "names": [name],
            "full": True,
        }
        running = False

        def got(future: Any) -> None:
            # The trace has each message twice: when it is sent and when it arrives.
            nonlocal running
            before = running
            running = module_status(future.get()) == RUNNING
            if running and not before:
                loaded()

        return Streams(self, {"module.trace": payload}, got)

    def open_stream(self, topic: str, payload: Json) -> Any:
        """Send a streaming RPC to this broker. Return its future."""
        return self._handle.rpc(
            topic, payload, nodeid=FLUX_NODEID_ANY, flags=FLUX_RPC_STREAMING
        )

    def job_ended(self, jobid: int, done: Callable[[Optional[bool]], None]) -> None:
        def answered(result: Any) -> None:
            if isinstance(result, RpcError):
                done(True if result.errnum == errno.ENOENT else None)
            else:
                done(result.get("job", {}).get("state") == INACTIVE)

        self.rpc("job-list.list-id", {"id": jobid, "attrs": ["state"]}, answered)

    def primary_group(self, userid: int, done: Callable[[Optional[int]], None]) -> None:
        backoff = Backoff(FIRST_PAUSE, LONGEST_PAUSE)

        def ask() -> None:
            look_up = functools.partial(users.primary_group, userid)
            self._threads.call("users", look_up, answered)

        def answered(found: Any) -> None:
            if not isinstance(found, OSError):
                done(found)
                return
            pause = backoff.fail()
            self.log(
                syslog.LOG_WARNING,
                f"the user database fails: user {userid}: {found.strerror};"
                f" asking it again in {pause:g} s",
                Reason.USER_DATABASE,
            )
            self.call_later(pause, ask)

        ask()

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
        run = functools.partial(self._programs.run, argv, timeout, read, text)
        self._threads.call(thread, run, done)
