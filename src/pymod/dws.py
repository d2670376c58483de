# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""dws: the broker module that drives Data Workflow Services.

Serves ``dws.create``, ``dws.setup``, ``dws.post_run``, ``dws.teardown``, ``dws.abort``,
``dws.report_data`` and ``dws.hello`` to ``dws-jobtap.so`` (its head comment,
:mod:`flux_k8s.jobs.plugin`, :mod:`flux_k8s.jobs.orphans` and
:mod:`flux_k8s.jobs.hello`), and ``dws.stats-get``.
Users may send ``dws.job-list``, ``dws.job-show``, ``dws.rabbit-list``, ``dws.rescue``
and ``dws.rules``, the instance owner also ``dws.metrics``, ``dws.rabbit-disable`` and
``dws.rabbit-enable`` (:mod:`flux_k8s.jobs.queries`). The service
(:mod:`flux_k8s.jobs.service`) handles these requests in a child process of the module.
The module relays them. It answers ``config-reload`` itself, and ``dws.stats-get`` while
no service is ready.

Load with::

    flux module load dws [scheduler=none] [queues=NAME,...] [watchdog=SECONDS]

``scheduler=none``, for instances whose scheduler does not know Rabbits, leaves the
resources of jobs unchanged. Without it, the module works with Fluxion or with
``sched-rabbit``, whichever is loaded.
``queues`` names the queues whose nodes are drained or marked when a PCIe connection
breaks; without it, all nodes are.
``watchdog`` is the time after which a service that does not answer is killed and
started again: 120 s by default, 0 for never.
The configuration is the ``[rabbit]`` table.
"""

from __future__ import annotations

import contextlib
import errno
import signal
import syslog
from typing import Any

from flux.brokermod import BrokerModule, request_handler
from flux.constants import FLUX_MSGTYPE_REQUEST

from flux_k8s.broker.channel import METHODS
from flux_k8s.broker.files import check_files, check_program
from flux_k8s.broker.log import log, log_exception
from flux_k8s.broker.supervisor import Supervisor
from flux_k8s.config.arguments import (
    FLUXION,
    NOT_WITH_FLUXION,
    Arguments,
    graph_file,
    queue_properties,
)
from flux_k8s.config.table import Config, misspelt
from flux_k8s.errors import ConfigError, DWSError
from flux_k8s.reasons import Reason, log_line
from flux_k8s.text import printable
from flux_k8s.version import check_flux

STATS = "stats-get"


class DwsModule(BrokerModule):
    """The broker module ``dws``: a supervisor with the topics of the service.

    Raises:
        DWSError: an argument, the ``[rabbit]`` table, the rank or Flux's version is
            wrong.
        OSError: the service refuses to start.
    """

    def __init__(self, handle: Any, *args: str) -> None:
        super().__init__(handle, *args)
        check_flux(handle.attr_get("version"), self.name)
        rank = handle.attr_get("rank")
        if rank != "0":
            raise DWSError(f"is for rank 0, where the job manager is, not for {rank}")
        self._arguments = Arguments.parse(args)
        if not self._arguments.scheduler and has_fluxion(handle):
            raise DWSError(NOT_WITH_FLUXION)
        tables = self._check(handle.conf_get(update=True))
        self._supervisor = Supervisor(handle, self.name, args, self._arguments.watchdog)
        self._supervisor.start(tables)
        for method, roles in METHODS.items():
            handle.msg_watcher_create(
                self._stats if method == STATS else self._relay,
                FLUX_MSGTYPE_REQUEST,
                f"{self.name}.{method}",
                rolemask=roles,
            ).start()

    def serve(self) -> None:
        """Run until the module is removed."""
        # The broker sends SIGTERM at shutdown, unless modprobe has removed the
        # module before; Ctrl-C reaches all processes of a flux start.
        terminate = self.handle.signal_watcher_create(
            signal.SIGTERM, lambda *_: self.stop()
        )
        terminate.start()
        try:
            with contextlib.suppress(KeyboardInterrupt):
                self.run()
        finally:
            self._supervisor.stop()

    def _check(self, config: Any) -> dict[str, Any]:
        """The part of Flux's configuration that the service receives.

        Raises:
            ConfigError: the part is invalid, or has no ``[rabbit]`` table.
        """
        tables = {name: config.get(name) for name in ("rabbit", "queues")}
        hint = misspelt(config)
        if tables["rabbit"] is None:
            # flux config reload shows the first 160 bytes.
            expected = (
                ", expected one with mapping (a file from flux rabbitmapping) and"
                " kubeconfig (unless the instance owner has one, or is in a pod with a"
                " service account)"
            )
            problem = f"there is no such table in the configuration{hint or expected}"
            raise ConfigError("rabbit", problem)
        table = Config.parse(tables["rabbit"])
        if table.mapping is None and hint:
            raise ConfigError("rabbit.mapping", f"is not set in this table{hint}")
        check_program(table)
        queue_properties(tables["queues"], self._arguments.queues)
        tables["graph"] = graph_file(config.get("resource"))
        return tables

    def _relay(self, handle: Any, watcher: Any, msg: Any, args: Any) -> None:
        self._supervisor.request(msg)

    def _stats(self, handle: Any, watcher: Any, msg: Any, args: Any) -> None:
        if self._supervisor.ready:
            self._supervisor.request(msg)
        else:
            handle.respond(msg, self._supervisor.stats())

    @request_handler("config-reload")
    def config_reload(self, msg: Any) -> None:
        """Put a new ``[rabbit]`` table in force. An invalid table is refused, and the
        old one kept."""
        config = payload_of(msg)
        if not isinstance(config, dict):
            text = f"{self.name}.config-reload: expected an object"
            self.handle.respond_error(msg, errno.EPROTO, text)
            return
        try:
            tables = self._check(config)
            check_files(Config.parse(tables["rabbit"]))
        except DWSError as error:
            text = printable(str(error))
            line = f"configuration kept as it was: {text}"
            log(self.handle, syslog.LOG_ERR, log_line(line, error.reason))
            self.handle.respond_error(msg, errno.EINVAL, text)
            return
        self._supervisor.configure(tables)
        self.handle.respond(msg)


def has_fluxion(handle: Any) -> bool:
    """Whether Fluxion is loaded, as far as the broker says."""
    try:
        modules = handle.rpc("module.list").get()["mods"]
    except (OSError, KeyError):
        return False  # the service finds out later
    return any(module.get("name") == FLUXION for module in modules)


def payload_of(msg: Any) -> Any:
    """The payload of a message; None if it is no JSON."""
    try:
        return msg.payload
    except (OSError, TypeError, ValueError, RecursionError):
        return None


def mod_main(handle: Any, *args: str) -> None:
    """The entry point of the module, which the broker calls.

    Raises:
        OSError: the module cannot be loaded; the broker's log has the reason. After the
            load nothing is raised: the broker would panic.
    """
    # The reactor receives these signals; the kernel would choose any thread.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        module = DwsModule(handle, *args)
    except (DWSError, OSError) as error:
        reason = (isinstance(error, OSError) and error.strerror) or str(error)
        # After a reload there is no module: the one before was removed.
        text = f"{reason}; not loaded: mend that, then flux module load dws"
        log(handle, syslog.LOG_ERR, log_line(text, Reason.CONFIG_WRONG))
        raise OSError(errno.EINVAL, reason) from None
    except Exception as error:
        log_exception(handle, "dws cannot be loaded", error)
        raise OSError(errno.EINVAL, "internal error, see the log") from None
    try:
        module.serve()
    except BaseException as error:
        log_exception(handle, "dws ends, jobs with #DW directives wait", error)
