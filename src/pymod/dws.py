# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""dws: the broker module that drives Data Workflow Services.

Serves ``dws.create``, ``dws.setup``, ``dws.post_run``, ``dws.teardown``, ``dws.abort``
and ``dws.hello`` to ``dws-jobtap.so`` (seed 001, "RPC Interface", and
:mod:`flux_k8s.jobs.hello`), and ``dws.stats-get``. What they mean is the business of
:mod:`flux_k8s.jobs.service`, which runs in a child process of the module; this file
passes them on, and answers what must be answered without it.

Load with::

    flux module load dws [scheduler=none] [queues=NAME,...] [watchdog=SECONDS]

``scheduler=none`` leaves jobs' resources alone, for instances without Fluxion.
``queues`` limits what is done about broken PCIe connections to the nodes of these
queues.
``watchdog`` is how long the service may give no answer, 120 by default; then it is
killed, and started again. 0 means for ever.
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
from flux_k8s.broker.files import check_files
from flux_k8s.broker.log import log, log_exception
from flux_k8s.broker.supervisor import Supervisor
from flux_k8s.config.arguments import Arguments, queue_properties
from flux_k8s.config.table import Config
from flux_k8s.errors import ConfigError, DWSError
from flux_k8s.text import printable

STATS = "stats-get"


class DwsModule(BrokerModule):
    """The ``dws`` service as the broker sees it.

    Raises:
        DWSError: an argument or the ``[rabbit]`` table is wrong.
        OSError: the service refuses to start.
    """

    def __init__(self, handle: Any, *args: str) -> None:
        super().__init__(handle, *args)
        self._arguments = Arguments.parse(args)
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
        """What of Flux's configuration the service gets, if it is right."""
        tables = {name: config.get(name) for name in ("rabbit", "queues")}
        if tables["rabbit"] is None:
            raise ConfigError(
                "rabbit",
                "there is no such table in the configuration, expected one with"
                " mapping (a file from flux rabbitmapping) and kubeconfig (unless"
                " the instance owner has one, or is in a pod with a service account)",
            )
        Config.parse(tables["rabbit"])
        queue_properties(tables["queues"], self._arguments.queues)
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
        """Take over a new ``[rabbit]`` table; keep the old one if it is bad."""
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
            log(self.handle, syslog.LOG_ERR, f"configuration kept as it was: {text}")
            self.handle.respond_error(msg, errno.EINVAL, text)
            return
        self._supervisor.configure(tables)
        self.handle.respond(msg)


def payload_of(msg: Any) -> Any:
    """The payload of a message, or None if that is no JSON."""
    try:
        return msg.payload
    except (OSError, TypeError, ValueError, RecursionError):
        return None


def mod_main(handle: Any, *args: str) -> None:
    """What the broker calls. Raises OSError, which makes ``flux module load`` fail; the
    reason is in the broker's log. Once loaded, nothing: the broker would panic."""
    # For the reactor to take, whichever thread the kernel would choose.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        module = DwsModule(handle, *args)
    except (DWSError, OSError) as error:
        reason = (isinstance(error, OSError) and error.strerror) or str(error)
        log(handle, syslog.LOG_ERR, reason)
        raise OSError(errno.EINVAL, reason) from None
    except Exception as error:
        log_exception(handle, "dws cannot be loaded", error)
        raise OSError(errno.EINVAL, "internal error, see the log") from None
    try:
        module.serve()
    except BaseException as error:
        log_exception(handle, "dws ends, jobs with #DW directives wait", error)
