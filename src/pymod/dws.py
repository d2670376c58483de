# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""dws: the broker module that drives Data Workflow Services.

Serves ``dws.create``, ``dws.setup``, ``dws.post_run``, ``dws.teardown``,
``dws.abort``, ``dws.hello`` and ``dws.alive`` to ``dws-jobtap.so`` (seed 001, "RPC
Interface", and :mod:`flux_k8s.hello`), and ``dws.stats-get``. What they mean is
the business of :mod:`flux_k8s.service`; this file connects it to the broker.

Load with::

    flux module load dws [scheduler=none] [queues=NAME,...]

``scheduler=none`` leaves jobs' resources alone, for instances without Fluxion.
``queues`` limits what is done about broken PCIe connections to the nodes of these
queues.
The configuration is the ``[rabbit]`` table.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import gc
import json
import os
import pwd
import queue
import signal
import syslog
import threading
import time
import traceback
from typing import Any, Callable, Mapping, Optional

import flux.kvs
from flux.brokermod import BrokerModule, request_handler
from flux.constants import FLUX_MSGTYPE_REQUEST, FLUX_NODEID_ANY, FLUX_RPC_STREAMING
from flux.job import JobID

from flux_k8s import mapping
from flux_k8s.arguments import Arguments, api_versions, queue_properties
from flux_k8s.client import KubeClient, Mailbox
from flux_k8s.config import Config
from flux_k8s.errors import ConfigError, DWSError
from flux_k8s.hello import LoadedAs
from flux_k8s.mapping import RabbitMapping
from flux_k8s.ports import CommitDone, Json, RpcDone, RpcError
from flux_k8s.service import Service
from flux_k8s.settings import Settings

NOPANIC = "broker.module-nopanic"
COMMIT_DELAY = 0.1
"""Seconds that a write to a job's KVS may wait for others."""

GC_THRESHOLDS = (5_000, 20, 1_000)
"""What is kept here is nearly free of cycles, and a full collection over ten
thousand Workflows holds the reactor up for longer than it may be."""

MAILS_PER_TURN = 32
"""Answers from Kubernetes that are taken in before Flux has its turn again."""

INACTIVE = 64  # FLUX_JOB_STATE_INACTIVE
RUNNING = 1  # FLUX_MODSTATE_RUNNING
APPENDED = 4 | 256  # FLUX_KVS_WATCH | FLUX_KVS_WATCH_APPEND

REOPEN = 5.0
"""Seconds until a stream that has ended is opened again."""


class ReactorTimer:
    """A one-shot timer of the Flux reactor."""

    def __init__(self, watcher: Any) -> None:
        self._watcher = watcher

    def cancel(self) -> None:
        if self._watcher is not None:
            self._watcher.stop()
            self._watcher.destroy()
            self._watcher = None


class Stream:
    """A streaming RPC, opened again when it ends.

    Args:
        got: is called with the future at each response.
    """

    def __init__(
        self, flux: BrokerFlux, topic: str, payload: Json, got: Callable[[Any], None]
    ) -> None:
        self._flux = flux
        self._topic = topic
        self._payload = payload
        self._got = got
        self._future: Any = None
        self._ended = False
        self._stopped = False
        self._open()

    def stop(self) -> None:
        """No response is taken any more. The broker ends the RPC when the module
        ends."""
        self._stopped = True

    def _open(self) -> None:
        if not self._stopped:
            self._future = self._flux.open_stream(self._topic, self._payload)
            self._future.then(self._answered)

    def _answered(self, future: Any) -> None:
        if self._stopped:
            return
        try:
            future.get_str()
        except OSError as error:
            if not self._ended:
                self._flux.log(syslog.LOG_WARNING, f"{self._topic}: {error}")
            self._ended = True
            self._flux.call_later(REOPEN, self._open)
            return
        self._ended = False
        self._got(future)
        future.reset()


class Streams:
    """Several streams that are stopped together."""

    def __init__(self, streams: list[Stream]) -> None:
        self._streams = streams

    def stop(self) -> None:
        for stream in self._streams:
            stream.stop()


def module_status(traced: Any) -> Optional[int]:
    """The status in a traced ``module.status`` message; None for anything else."""
    payload = traced.get("payload") if isinstance(traced, dict) else None
    status = payload.get("status") if isinstance(payload, dict) else None
    return status if isinstance(status, int) else None


class BrokerFlux:
    """:class:`flux_k8s.ports.Flux` on the module's handle."""

    def __init__(self, handle: Any, mailbox: Mailbox) -> None:
        self._handle = handle
        self._mailbox = mailbox
        self._userids: queue.SimpleQueue[tuple[int, Callable[[Optional[int]], None]]]
        self._userids = queue.SimpleQueue()
        self._lookups: Optional[threading.Thread] = None
        self._puts: list[tuple[str, Optional[str]]] = []

    def now(self) -> float:
        return time.time()

    def call_later(self, delay: float, function: Callable[[], None]) -> ReactorTimer:
        def fire(handle: Any, watcher: Any, revents: int, args: Any) -> None:
            timer.cancel()
            function()

        watcher = self._handle.timer_watcher_create(max(delay, 0.0), fire)
        watcher.start()
        timer = ReactorTimer(watcher)
        return timer

    def log(self, level: int, message: str) -> None:
        self._handle.log(level, message)

    def rpc(self, topic: str, payload: Json, done: RpcDone) -> None:
        def answered(future: Any) -> None:
            try:
                result = future.get()
            except OSError as error:
                number = error.errno or errno.EIO
                done(RpcError(number, error.strerror or os.strerror(number)))
                return
            done({} if result is None else result)

        self._handle.rpc(topic, payload).then(answered)

    def _tell(self, topic: str, payload: Json) -> None:
        """An RPC whose failure changes nothing: it is about a job that may
        have ended meanwhile."""

        def answered(result: Any) -> None:
            if isinstance(result, RpcError) and result.errnum != errno.ENOENT:
                self.log(syslog.LOG_WARNING, f"{topic}: {result}")

        self.rpc(topic, payload, answered)

    def raise_exception(self, jobid: int, type: str, severity: int, note: str) -> None:
        self._tell(
            "job-manager.raise",
            {"id": jobid, "type": type, "severity": severity, "note": note},
        )

    def post_memo(self, jobid: int, memo: Mapping[str, Any]) -> None:
        self._tell("job-manager.memo", {"id": jobid, "memo": dict(memo)})

    def kvs_put(
        self, jobid: int, key: str, value: Optional[str], *, last: bool = False
    ) -> None:
        """A commit costs more than all else that a state does here: what comes
        within a moment goes into one."""
        self._puts.append((f"{JobID(jobid).kvs}.{key}", value))
        if last:
            self.commit()
        elif len(self._puts) == 1:
            self.call_later(COMMIT_DELAY, self.commit)

    def commit(self) -> None:
        """Write what :meth:`kvs_put` has gathered."""
        if not self._puts:
            return
        puts, self._puts = self._puts, []

        def committed(future: Any) -> None:
            try:
                future.get()
            except OSError as error:
                paths = ", ".join(path for path, _ in puts)
                self.log(syslog.LOG_WARNING, f"cannot write {paths}: {error}")

        transaction = flux.kvs.KVSTxn(self._handle)
        for path, value in puts:
            if value is None:
                transaction.unlink(path)
            else:
                transaction.put(path, value, raw=True)
        transaction.commit_async().then(committed)

    def kvs_commit(self, jobid: int, key: str, value: str, done: CommitDone) -> None:
        def committed(future: Any) -> None:
            try:
                future.get()
            except OSError as error:
                number = error.errno or errno.EIO
                done(RpcError(number, f"cannot write {key}: {os.strerror(number)}"))
                return
            done(None)

        transaction = flux.kvs.KVSTxn(self._handle)
        transaction.put(f"{JobID(jobid).kvs}.{key}", value, raw=True)
        transaction.commit_async().then(committed)

    def drain(self, hosts: str, reason: str) -> None:
        # Without a mode, one node that is drained already would spare the others.
        payload = {"targets": hosts, "reason": reason, "mode": "update"}
        self._tell("resource.drain", payload)

    def undrain(self, hosts: str) -> None:
        self._tell("resource.undrain", {"targets": hosts, "mode": "update"})

    def watch_nodes(self, changed: Callable[[], None]) -> Streams:
        """Drains are in the eventlog of the resource module, in the KVS; who is
        online is not. (The journal, which has both, begins with all of R, and that
        is 200 MB long on a large system.)"""
        drains = {"key": "resource.eventlog", "namespace": "primary", "flags": APPENDED}
        online = {"name": "broker.online"}

        def got(future: Any) -> None:
            changed()

        return Streams(
            [
                Stream(self, "kvs-watch.lookup", drains, got),
                Stream(self, "groups.get", online, got),
            ]
        )

    def watch_module(self, name: str, loaded: Callable[[], None]) -> Streams:
        payload = {
            "typemask": FLUX_MSGTYPE_REQUEST,
            "topic_glob": "module.status",
            "names": [name],
            "full": True,
        }
        running = False

        def got(future: Any) -> None:
            # Each message is seen twice: as the module sends it, and as it arrives.
            nonlocal running
            before = running
            running = module_status(future.get()) == RUNNING
            if running and not before:
                loaded()

        return Streams([Stream(self, "module.trace", payload, got)])

    def open_stream(self, topic: str, payload: Json) -> Any:
        """A streaming RPC to this broker."""
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
        """The user database may be on the network: it is asked on a thread."""
        if self._lookups is None:
            self._lookups = threading.Thread(target=self._look_up_groups, daemon=True)
            self._lookups.start()
        self._userids.put((userid, done))

    def _look_up_groups(self) -> None:
        while True:
            userid, done = self._userids.get()
            try:
                group: Optional[int] = pwd.getpwuid(userid).pw_gid
            except KeyError:
                group = None
            self._mailbox.put(functools.partial(done, group))


class DwsModule(BrokerModule):
    """The ``dws`` service as the broker sees it.

    An exception that escapes a callback ends the reactor, and the module with
    it: what was done and what was not is uncertain then, and the next module
    begins with what is true. The plugin has it loaded.
    """

    def __init__(self, handle: Any, *args: str) -> None:
        super().__init__(handle, *args)
        self._arguments = arguments = Arguments.parse(args)
        table = handle.conf_get("rabbit", default=None, update=True)
        self._loaded = config = Config.parse(table)
        self._mailbox = Mailbox()
        self._flux = BrokerFlux(handle, self._mailbox)
        self._kube = KubeClient(
            config.kubeconfig,
            deliver=self._mailbox.put,
            api_versions=api_versions(config),
            log=self._flux.log,
        )
        settings = Settings(
            config,
            load_mapping(config),
            scheduler=arguments.scheduler,
            owner=os.getuid(),
            queues=queue_properties(
                handle.conf_get("queues", default=None, update=True), arguments.queues
            ),
        )
        loaded_as = LoadedAs(os.path.abspath(__file__), args)
        self._service = Service(self._flux, self._kube, settings, loaded_as=loaded_as)
        if config.module_nopanic:
            self._avoid_panic()

    def _avoid_panic(self) -> None:
        """The broker of a system instance must outlive this module, however
        it ends."""
        try:
            current = self.handle.attr_get(NOPANIC)
        except OSError:  # not set
            current = "0"
        if current == "0":
            self.handle.attr_set(NOPANIC, "1")
            self.log.notice(
                f"set {NOPANIC}=1: the broker will not panic if a module fails "
                "(rabbit.module_nopanic = false leaves it alone)"
            )

    def serve(self) -> None:
        """Run until the module is removed. If it ends by an exception the
        service does not say bye, and the plugin has the module loaded again."""
        watcher = self.handle.fd_watcher_create(
            self._mailbox.fileno(), lambda *_: self._mailbox.drain(MAILS_PER_TURN)
        )
        watcher.start()
        # The broker sends SIGTERM at shutdown, unless modprobe has removed the
        # module before; Ctrl-C reaches all processes of a flux start.
        terminate = self.handle.signal_watcher_create(
            signal.SIGTERM, lambda *_: self.stop()
        )
        terminate.start()
        self._service.start()
        with contextlib.closing(self._kube):
            try:
                with contextlib.suppress(KeyboardInterrupt):
                    self.run()
                self._service.stop()
            finally:
                self._flux.commit()
        watcher.stop()
        terminate.stop()

    def _handle_request(self, method: str, msg: Any) -> None:
        def respond(errnum: int, errstr: str, payload: Optional[Json]) -> None:
            if errnum:
                self.handle.respond_error(msg, errnum, errstr)
            else:
                self.handle.respond(msg, payload)

        try:
            text = msg.payload_str
            payload = None if text is None else json.loads(text)
        except (OSError, ValueError, RecursionError):
            respond(errno.EPROTO, f"dws.{method}: the payload is not JSON", None)
            return
        try:
            self._service.request(method, payload, respond)
        except Exception:
            # Who asked must not ask the next module the same again, and again.
            respond(errno.EINVAL, "internal error, see the log", None)
            raise

    @request_handler("create")
    def create(self, msg: Any) -> None:
        self._handle_request("create", msg)

    @request_handler("setup")
    def setup(self, msg: Any) -> None:
        self._handle_request("setup", msg)

    @request_handler("post_run")
    def post_run(self, msg: Any) -> None:
        self._handle_request("post_run", msg)

    @request_handler("teardown")
    def teardown(self, msg: Any) -> None:
        self._handle_request("teardown", msg)

    @request_handler("abort")
    def abort(self, msg: Any) -> None:
        self._handle_request("abort", msg)

    @request_handler("hello")
    def hello(self, msg: Any) -> None:
        self._handle_request("hello", msg)

    @request_handler("alive")
    def alive(self, msg: Any) -> None:
        self._handle_request("alive", msg)

    @request_handler("stats-get")
    def stats_get(self, msg: Any) -> None:
        self._handle_request("stats-get", msg)

    @request_handler("config-reload")
    def config_reload(self, msg: Any) -> None:
        """Take over a new ``[rabbit]`` table; keep the old one if it is bad."""
        try:
            config = Config.parse(msg.payload.get("rabbit"))
            queues = msg.payload.get("queues")
            self._service.reconfigure(
                config, queue_properties(queues, self._arguments.queues)
            )
            waiting = config.not_in_force(self._loaded)
            if waiting:
                self.log.warning(
                    f"{', '.join(waiting)}: as before until the module is loaded again"
                )
        except ConfigError as error:
            self.log.error(f"configuration kept as it was: {error}")
        self.handle.respond(msg)


def load_mapping(config: Config) -> RabbitMapping:
    """Read the file that ``rabbit.mapping`` names."""
    path = config.mapping
    if path is None:
        raise ConfigError("rabbit.mapping", "is not set: expected the path of a file")
    try:
        with open(path, encoding="utf-8") as file:
            return mapping.parse(json.load(file), name=path)
    except OSError as error:
        raise ConfigError("rabbit.mapping", f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError("rabbit.mapping", f"{path}: is not JSON: {error}") from None


def log_end(handle: Any, error: BaseException) -> None:
    """Log that an unexpected exception ends the module, and where it arose."""
    trace = "".join(traceback.format_tb(error.__traceback__))
    text = f"dws ends: {type(error).__name__}: {error}\n{trace}"
    for line in text.splitlines():
        handle.log(syslog.LOG_CRIT, line)


def mod_main(handle: Any, *args: str) -> None:
    """What the broker calls. Nothing is raised but OSError, which makes ``flux
    module load`` fail; the reason is in the broker's log."""
    gc.set_threshold(*GC_THRESHOLDS)
    # For the reactor to take, whichever thread the kernel would choose.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        module = DwsModule(handle, *args)
    except DWSError as error:
        handle.log(syslog.LOG_ERR, str(error))
        raise OSError(errno.EINVAL, str(error)) from None
    except Exception as error:
        log_end(handle, error)
        raise OSError(errno.EINVAL, "internal error, see the log") from None
    try:
        module.serve()
    except Exception as error:
        log_end(handle, error)
