# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The process of the service: a child of the supervisor, which may die.

The process has two Flux handles: one through the local connector, as the instance
owner, and the channel to the supervisor, through which requests arrive.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
import syslog
import threading
import uuid
from functools import partial
from typing import Any, Optional, Sequence

import flux.constants
import flux.kvs
from flux.constants import (
    FLUX_MSGTYPE_REQUEST,
    FLUX_ROLE_OWNER,
    FLUX_RPC_NORESPONSE,
)
from flux.core.inner import ffi, lib

from flux_k8s.broker.adapter import BrokerFlux
from flux_k8s.broker.channel import (
    CONFIG,
    METHODS,
    PING,
    PONG,
    READY,
    REFUSED,
    CurrentWork,
    first_config,
)
from flux_k8s.broker.files import load_mapping
from flux_k8s.broker.log import log_exception, open_handle
from flux_k8s.broker.parentdeath import die_with
from flux_k8s.broker.reactor import ReactorLoop
from flux_k8s.broker.relay import route_of
from flux_k8s.config.arguments import Arguments, api_versions, queue_properties
from flux_k8s.config.settings import Identity, Settings
from flux_k8s.config.table import Config
from flux_k8s.errors import DWSError
from flux_k8s.eventloop import CallbackQueue
from flux_k8s.jobs import setupreader
from flux_k8s.jobs.service import Service, collect_rarely
from flux_k8s.jobs.work import DISCONNECT, OWNER_QUERIES, QUERIES, Work
from flux_k8s.ports import Json, Sender
from flux_k8s.reasons import Reason

CALLBACKS_PER_TURN = 32
"""The most callbacks from other threads that run before Flux has its turn again."""

WRITE_TIMEOUT = 2.0
"""Seconds that the service waits, at its end, for its writes to the log and the KVS."""

SERVICE_OOM_SCORE = 500
"""The kernel kills the service before the broker and the supervisor: only the service
is started again."""

FROM_USERS = QUERIES | OWNER_QUERIES | {DISCONNECT}
"""The methods whose handlers get the sender."""


INSTANCE = "dws.instance"
"""Where Flux's KVS has the identity of the instance among others that use the same
cluster. It is kept there for as long as the jobs are."""

NAMES = "dws.names"
"""Where it has the names that the instance has, or has had."""


class Process:
    """The ``dws`` service and its connections.

    An exception that leaves a callback ends the reactor, and the process with it. The
    state in memory is uncertain then; the next service reads it from Flux and
    Kubernetes.

    Args:
        handle: the Flux handle of the instance owner.
        channel: the Flux handle to the supervisor.
        name: the module's name.
        arguments: the module's arguments.
        tables: the payload of :data:`~flux_k8s.broker.channel.CONFIG`.
        work: the memory in which the supervisor finds the work of a service that died.

    Raises:
        DWSError: the service cannot start with this configuration.
        ImportError: a package that the service needs is missing, or broken.
        OSError: the KVS fails.
    """

    def __init__(
        self,
        handle: Any,
        channel: Any,
        name: str,
        arguments: Sequence[str],
        tables: Json,
        work: CurrentWork,
    ) -> None:
        self._handle = handle
        self._channel = channel
        self._arguments = Arguments.parse(arguments)
        self._loaded = config = Config.parse(tables["rabbit"])
        self._callbacks = CallbackQueue()
        self._flux = BrokerFlux(handle, self._callbacks, name)
        # Imported here: main() reports a pycurl that does not fit to its libcurl.
        from flux_k8s.kube.client import KubeClient

        self._kube = KubeClient(
            config.kubeconfig,
            loop=ReactorLoop(handle, self._flux, self._callbacks.put),
            api_versions=api_versions(config),
            log=self._flux.log,
        )
        settings = Settings(
            config,
            load_mapping(config),
            scheduler=self._arguments.scheduler,
            owner=os.getuid(),
            queues=queue_properties(tables["queues"], self._arguments.queues),
            identity=identify(handle, config.instance),
            graph_file=tables["graph"],
        )
        self._service = Service(
            self._flux,
            self._kube,
            settings,
            note_work=work.set,
            barred=[Work(jobid, releasing) for jobid, releasing in tables["barred"]],
        )
        self._watchers = [self._method(name, method) for method in METHODS]
        for topic, act in ((CONFIG, self._configure), (PING, self._pong)):
            self._watchers.append(
                channel.msg_watcher_create(
                    lambda handle, watcher, msg, act: act(msg.payload),
                    FLUX_MSGTYPE_REQUEST,
                    topic,
                    args=act,
                )
            )

    def _method(self, name: str, method: str) -> Any:
        return self._channel.msg_watcher_create(
            lambda handle, watcher, msg, args: self._request(method, msg),
            FLUX_MSGTYPE_REQUEST,
            f"{name}.{method}",
            rolemask=METHODS[method],
        )

    def run(self) -> None:
        """Serve until SIGTERM.

        Raises:
            OSError: the supervisor or the broker is gone.
        """
        self._watchers += [
            self._handle.fd_watcher_create(
                self._callbacks.fileno(),
                lambda *_: self._callbacks.run(CALLBACKS_PER_TURN),
            ),
            self._handle.signal_watcher_create(
                signal.SIGTERM, lambda *_: self._handle.reactor_stop()
            ),
        ]
        for watcher in self._watchers:
            watcher.start()
        # READY goes before hello, which the plugin answers with requests.
        self._channel.rpc(READY, {}, flags=FLUX_RPC_NORESPONSE)
        self._service.start()
        with contextlib.closing(self._kube):
            try:
                if self._handle.reactor_run() < 0:
                    raise OSError(errno.ECONNRESET, "the connection to Flux was lost")
                self._service.stop()
            finally:
                self._flux.close(WRITE_TIMEOUT)

    def _request(self, method: str, msg: Any) -> None:
        def respond(errnum: int, errstr: str, payload: Optional[Json]) -> None:
            # A module that has died takes no response, and this service ends as well.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                if errnum:
                    self._channel.respond_error(msg, errnum, errstr)
                else:
                    self._channel.respond(msg, payload)

        text = payload_of(msg)
        try:
            payload = None if text is None else setupreader.parse(method, text)
        except setupreader.NotJson as error:
            respond(errno.EPROTO, str(error), None)
            return
        try:
            if method in FROM_USERS:
                self._service.query(method, payload, respond, sender_of(msg))
            else:
                self._service.request(method, payload, respond)
        except Exception:
            # Without a response the request would be sent to each next service.
            respond(errno.EINVAL, "internal error, see the log", None)
            raise

    def _pong(self, _: Json) -> None:
        self._channel.rpc(PONG, {}, flags=FLUX_RPC_NORESPONSE)

    def _configure(self, tables: Json) -> None:
        """Put another configuration in force, which the supervisor has checked."""
        config = Config.parse(tables["rabbit"])
        queues = queue_properties(tables["queues"], self._arguments.queues)
        self._service.reconfigure(config, queues)
        waiting = config.not_in_force(self._loaded)
        if waiting:
            self._flux.log(
                syslog.LOG_WARNING,
                f"{', '.join(waiting)}: as before until the module is loaded again",
                Reason.CONFIG_WAITS,
            )


def identify(handle: Any, name: Optional[str]) -> Identity:
    """The identity of the instance. One without a name is given an identity of its own.

    Args:
        name: ``rabbit.instance``.

    Raises:
        OSError: the KVS fails.
    """
    kept = str(_kept(handle, INSTANCE) or "")
    names = list(_kept(handle, NAMES) or ())
    if name is not None:
        if name not in names:
            _keep(handle, NAMES, [*names, name])
        return Identity(name, former=kept, shares=True, names=frozenset(names))
    if not kept:
        kept = uuid.uuid4().hex
        _keep(handle, INSTANCE, kept)
    return Identity(kept, names=frozenset(names))


def _kept(handle: Any, key: str) -> Any:
    try:
        return flux.kvs.get(handle, key)
    except FileNotFoundError:
        return None


def _keep(handle: Any, key: str, value: Any) -> None:
    """Write a value so that it outlives a crash of Flux, where the KVS does: the KVS
    goes back to its last checkpoint then."""
    try:
        flux.kvs.put(handle, key, value)
        flux.kvs.commit(handle, flux.constants.FLUX_KVS_SYNC)
    except OSError:  # nothing outlives this instance
        flux.kvs.put(handle, key, value)
        flux.kvs.commit(handle)


def sender_of(msg: Any) -> Sender:
    """The sender of a request. The supervisor passes on its user and role, which the
    broker has authenticated."""
    return Sender(
        userid=int(msg.userid),
        owner=bool(msg.rolemask & FLUX_ROLE_OWNER),
        route=route_of(msg),
    )


def payload_of(msg: Any) -> Optional[memoryview]:
    """The text of a message's payload; None without one. The text may be large, and is
    not copied: it is valid for as long as the message."""
    data, size = ffi.new("void *[1]"), ffi.new("size_t [1]")
    if lib.flux_msg_get_payload(msg.handle, data, size) < 0:
        return None
    return memoryview(ffi.buffer(data[0], size[0])).toreadonly()[:-1]


def raise_oom_score(score: int) -> None:
    """Have the kernel kill this process, or a program that it runs, before others when
    memory runs out: the largest of these first.

    Args:
        score: up to 1000, added to the process's score.
    """
    with contextlib.suppress(OSError):
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
            file.write(str(score))


def exit_on_thread_failure(name: str, failure: threading.ExceptHookArgs) -> None:
    """End the process when a thread has failed: no other thread does its work.

    Args:
        name: the module's name.
    """
    try:
        handle = open_handle(name)
        if failure.exc_value is not None:
            log_exception(handle, "the dws service ends", failure.exc_value)
    finally:
        os._exit(1)


def connect(name: str, fd: int) -> tuple[Any, Any]:
    """The handles of the instance owner and of the channel, on one reactor.

    Args:
        name: the module's name.
        fd: the descriptor of the service's end of the channel.

    Raises:
        OSError: Flux or the supervisor is gone.
    """
    handle = open_handle(name)
    channel = flux.Flux(f"fd://{fd}")
    channel.set_reactor(handle.get_reactor())
    return handle, channel


def main(argv: Sequence[str]) -> int:
    """Run the service, and return the exit status.

    Args:
        argv: the module's name, the file descriptors of the channel and of the memory
            for :class:`~flux_k8s.broker.channel.CurrentWork`, the process ID of
            the supervisor, and the module's arguments.
    """
    name, fd, work_fd, parent, *arguments = argv
    if not die_with(int(parent)):
        return 1
    raise_oom_score(SERVICE_OOM_SCORE)
    collect_rarely()
    # The reactor receives these signals; the kernel would choose any thread.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    threading.excepthook = partial(exit_on_thread_failure, name)
    try:
        handle, channel = connect(name, int(fd))
    except OSError as error:
        print(f"{name}: cannot connect to Flux: {error}", file=sys.stderr)
        return 1
    try:
        process = Process(
            handle,
            channel,
            name,
            arguments,
            first_config(channel),
            CurrentWork(int(work_fd)),
        )
    except (DWSError, ImportError) as error:
        text, why = str(error), Reason.SERVICE_FAULT
        if isinstance(error, DWSError):
            why = error.reason
        else:
            text = f"{sys.executable} cannot import a package: {error}"
        refusal = {"reason": text, "why": why.value}
        channel.rpc(REFUSED, refusal, flags=FLUX_RPC_NORESPONSE)
        return 1
    except Exception as error:
        log_exception(handle, "the dws service cannot start", error)
        return 1
    try:
        process.run()
    except Exception as error:
        log_exception(handle, "the dws service ends", error)
        return 1
    return 0
