# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The supervisor runs the service as a child process, and starts it again when it ends.

The broker panics when one of its modules dies. So the module does nothing that may
fail, and the service, which may, is no module (doc/architecture.md, "Supervision").
"""

from __future__ import annotations

import errno
import mmap
import os
import select
import signal
import subprocess
import sys
import syslog
import time
from collections import Counter
from pathlib import Path
from typing import Any, Callable, Optional

from flux.constants import FLUX_MSGTYPE_RESPONSE, FLUX_ROLE_OWNER
from flux.core.inner import lib

from flux_k8s.broker.channel import (
    CONFIG,
    GUEST_QUEUE_SIZE,
    PING,
    READY,
    REFUSED,
    Channel,
    CurrentWork,
    encode_request,
    message_size,
)
from flux_k8s.broker.log import log
from flux_k8s.broker.querybounds import QUERY_BYTES, QueryBounds, Refusal
from flux_k8s.broker.reactor import reactor_timers
from flux_k8s.broker.relay import Relay
from flux_k8s.broker.watchdog import Watchdog
from flux_k8s.control.backoff import Backoff
from flux_k8s.formats.jobid import f58
from flux_k8s.jobs.work import DISCONNECT, Work
from flux_k8s.reasons import Note, Reason, log_line, read_reason
from flux_k8s.timers import OneShotTimer
from flux_k8s.version import version

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0
"""Seconds until the service is started again. The delay doubles each time. It begins
anew when a service has run for ``LONGEST_PAUSE``."""

START_TIMEOUT = 30.0
"""Seconds that the load of the module waits until the service is ready."""

STOP_TIMEOUT = 5.0
"""Seconds after which a service that does not end is killed."""

MAX_DEATHS = 5
"""The number of services that may die of the same work. Then that work is not done any
more."""

QUEUE_FULL = "the dws service does not take the requests that wait for it"

PROGRAM = Path(__file__).with_name("__main__.py")


class Supervisor:
    """Runs one service at a time.

    Args:
        flux: the module's handle.
        name: the module's name.
        arguments: the module's arguments.
        watchdog: seconds after which a service that does not answer is killed; 0 for
            never.
    """

    def __init__(
        self, flux: Any, name: str, arguments: tuple[str, ...], watchdog: float
    ) -> None:
        self._flux = flux
        self._name = name
        self._arguments = arguments
        self._timers = reactor_timers(flux)
        self._timer: Optional[OneShotTimer] = None
        self._watchdog = Watchdog(
            self._timers.add, watchdog, self._ping, self._kill_hung
        )
        self._relay = Relay(flux)
        self._bounds = QueryBounds()
        self._work_fd = os.memfd_create("dws-work")
        os.ftruncate(self._work_fd, mmap.PAGESIZE)
        self._work = CurrentWork(self._work_fd)
        self._deaths: Counter[Work] = Counter()
        self._config: Any = None
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._channel: Optional[Channel] = None
        self._signals: Any = None
        self._refusal: Optional[Note] = None
        self._ready_since: Optional[float] = None
        self._backoff = Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        self._starts = 0
        self._full = False

    def start(self, config: Any) -> None:
        """Start the service, and wait until it is ready, has died, or ``START_TIMEOUT``
        has passed.

        Args:
            config: the tables of the configuration, as for :meth:`configure`.

        Raises:
            OSError: EINVAL when the service refuses to start.
        """
        self._config = config
        self._signals = self._flux.signal_watcher_create(
            signal.SIGCHLD, lambda *_: self._reap()
        )
        self._signals.start()
        self._spawn()
        self._wait_for_start()
        if self._refusal is not None:
            self.stop()
            raise OSError(errno.EINVAL, self._refusal.text)

    def _wait_for_start(self) -> None:
        """Wait as long as the service may be getting ready."""
        deadline = time.monotonic() + START_TIMEOUT
        while self._channel is not None and self._ready_since is None:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._channel], [], [], left)[0]:
                return
            self._channel.receive()
            if self._refusal is not None:
                return

    def configure(self, config: Any) -> None:
        """Send another configuration to this service and to all later ones.

        Args:
            config: the payload of :data:`~flux_k8s.broker.channel.CONFIG`, without
                ``barred``.
        """
        self._config = config
        if self._channel is not None:
            self._channel.send(encode_request(CONFIG, config))

    def request(self, message: Any) -> None:
        """Pass a request on to the service. The request fails with EAGAIN while no
        service is ready or too many requests wait, and with EHOSTUNREACH when the
        service dies before it has answered."""
        if self._ready_since is None and self._channel is not None:
            # The service sends READY, then hello on its other handle. A request that
            # answers the hello may arrive before READY.
            self._channel.receive()
        if message.topic == f"{self._name}.{DISCONNECT}":
            self._disconnect(message)
            return
        if self._ready_since is None or self._channel is None:
            self._flux.respond_error(message, errno.EAGAIN, self.state())
            return
        if not is_owner(message):
            if lib.flux_msg_is_noresponse(message.handle):
                return  # Nobody waits for the answer, and the relay would not count it.
            refusal = self._refuse_guest(message, self._channel)
            if refusal is not None:
                self._flux.respond_error(message, *refusal)
                return
        if not self._channel.has_room_for(message):
            if not self._full:
                self._full = True
                text = f"{QUEUE_FULL}: others are refused"
                self._log(syslog.LOG_WARNING, text, Reason.OVERLOADED)
            self._flux.respond_error(message, errno.EAGAIN, QUEUE_FULL)
            return
        self._relay.add(message)
        self._channel.send(message)

    def _disconnect(self, message: Any) -> None:
        """The sender of requests has gone: nobody waits for their responses.

        A guest may send this topic at any time, with anything. The service hears of it
        only where it has a request of the sender.
        """
        if not is_owner(message) and message_size(message) > QUERY_BYTES:
            return  # no request that was passed on has as long a route
        if self._relay.drop(message) and self._channel is not None:
            self._channel.send(message)

    def _refuse_guest(self, message: Any, channel: Channel) -> Optional[Refusal]:
        """The reason to refuse the request of a guest; None without one."""
        if not channel.has_room_for(message, GUEST_QUEUE_SIZE):
            return errno.EAGAIN, QUEUE_FULL
        userid = message.userid
        size, in_work = message_size(message), self._relay.count(userid)
        return self._bounds.refuse(userid, size, in_work, time.monotonic())

    @property
    def ready(self) -> bool:
        """Whether the service accepts requests."""
        return self._ready_since is not None

    def state(self) -> str:
        """The state of the service, in words."""
        if self.ready:
            return "the dws service is running"
        if self._channel is not None:
            return "the dws service is starting"
        return "the dws service has died and is being started again"

    def stats(self) -> dict[str, Any]:
        """The answer to ``flux module stats`` while no service is ready."""
        state = self.state()
        return {"service": state, "starts": self._starts, "version": version()}

    def stop(self) -> None:
        """End the service, and wait until it has ended. Its open requests fail with
        EHOSTUNREACH."""
        if self._timer is not None:
            self._timer.cancel()
        if self._signals is not None:
            self._signals.stop()
        process, self._process = self._process, None
        if process is not None:
            if self.ready:
                process.terminate()
                process.send_signal(signal.SIGCONT)  # it may have been stopped
            else:  # it has not begun any work
                process.kill()
            try:
                process.wait(STOP_TIMEOUT)
            except subprocess.TimeoutExpired:
                self._log(
                    syslog.LOG_ERR,
                    f"the dws service did not end within {STOP_TIMEOUT:g} s: killed",
                    Reason.SERVICE_DIED,
                )
                process.kill()
                process.wait()
        self._disconnected("the dws module was removed")

    # The child process

    def _spawn(self) -> None:
        """Start the service. If that fails, try again later."""
        self._refusal = None
        self._starts += 1
        channel: Optional[Channel] = None
        try:
            channel = Channel(self._flux, self._received, self._lost)
            self._work.set(None)
            self._process = subprocess.Popen(
                self._command(channel.peer),
                env=self._environment(),
                pass_fds=[channel.peer, self._work_fd],
                stdin=subprocess.DEVNULL,
                # Ctrl-C at a "flux start" is for the supervisor, which stops the child.
                start_new_session=True,
            )
        except OSError as error:
            if channel is not None:
                channel.close()
            self._restart_later(f"cannot be started: {error}")
            return
        self._channel = channel
        channel.close_peer()
        channel.send(
            encode_request(CONFIG, {**self._config, "barred": self._barred_work()})
        )
        self._full = False
        self._watchdog.start()

    def _barred_work(self) -> list[tuple[int, bool]]:
        """The work that no service may do any more, as in the payload of CONFIG."""
        return [
            (work.jobid, work.releasing)
            for work, count in self._deaths.items()
            if count >= MAX_DEATHS
        ]

    def _command(self, fd: int) -> list[str]:
        ours = [self._name, str(fd), str(self._work_fd), str(os.getpid())]
        return [sys.executable, str(PROGRAM), *ours, *self._arguments]

    def _environment(self) -> dict[str, str]:
        """The environment of the service: that of the broker, with the URI of this
        broker (in the broker itself, FLUX_URI is the parent instance), and with the
        supervisor's own paths of Python packages."""
        environment = {
            **os.environ,
            "FLUX_URI": self._flux.attr_get("local-uri"),
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
        environment.pop("FLUX_MODULE_URI", None)
        return environment

    def _received(self, message: Any) -> None:
        self._watchdog.reset()
        if self._full and self._channel is not None and self._channel.is_empty:
            # The plugin sends the requests that were refused again at the next hello.
            self._full = False
            self._channel.send(encode_request(f"{self._name}.hello", {}))
        if message.type == FLUX_MSGTYPE_RESPONSE:
            self._relay.respond(message)
        elif message.topic == READY:
            self._ready_since = time.monotonic()
            if self._starts > 1:
                text = "the dws service was started again"
                self._log(syslog.LOG_NOTICE, text, Reason.STARTED)
        elif message.topic == REFUSED:
            text, why = str(message.payload["reason"]), message.payload.get("why")
            self._refusal = Note(text, read_reason(why))

    def _ping(self) -> None:
        if self._channel is not None:
            self._channel.send(encode_request(PING, {}))

    def _kill_hung(self) -> None:
        """Kill a service that does not answer."""
        text = f"has not answered for {self._watchdog.seconds:g} s: killed"
        self._log(syslog.LOG_ERR, f"the dws service {text}", Reason.SERVICE_DIED)
        if self._process is not None:
            self._process.kill()
        self._disconnected("the dws service died")

    def _lost(self) -> None:
        """Handle the end of the channel: the service ends, or has ended."""
        self._disconnected("the dws service died")
        if self._process is not None:
            self._start_timer(STOP_TIMEOUT, self._process.kill)

    def _disconnected(self, why: str) -> None:
        """Close the channel, where that is not done yet: no service is ready. Fail the
        open requests."""
        self._watchdog.stop()
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()
        if self._ready_since is not None:
            if time.monotonic() - self._ready_since >= LONGEST_PAUSE:
                self._backoff.reset()
            self._ready_since = None
        self._relay.fail(errno.EHOSTUNREACH, why)

    def _reap(self) -> None:
        """Start the service again if it has ended."""
        if self._process is None or self._process.poll() is None:
            return
        status, self._process = self._process.returncode, None
        if self._channel is not None:
            self._channel.receive()  # the last messages of the service
        self._disconnected("the dws service died")
        if self._refusal is not None:
            text = f"cannot start: {self._refusal.text}"
            self._restart_later(text, self._refusal.reason)
        else:
            self._restart_later(f"died ({describe_status(status)})")
            self._count_death()

    def _count_death(self) -> None:
        """Count the death for the work that the service was doing, if it was doing any
        for a single job."""
        work = self._work.get()
        if work is None:
            return
        self._deaths[work] += 1
        count = self._deaths[work]
        what = "releasing the job's storage" if work.releasing else "the job's storage"
        text = f"{f58(work.jobid)}: the dws service died while working on {what}"
        self._log(
            syslog.LOG_ERR,
            f"{text}, {count} of {MAX_DEATHS} times"
            if count < MAX_DEATHS
            else f"{text} {count} times: that is not tried again",
            Reason.SERVICE_DIED if count < MAX_DEATHS else Reason.BARRED,
        )

    def _restart_later(self, what: str, reason: Reason = Reason.SERVICE_DIED) -> None:
        """Start the service again after the delay. ``what`` has happened, for the
        log."""
        delay = self._backoff.fail()
        self._start_timer(delay, self._spawn)
        self._log(
            syslog.LOG_ERR,
            f"the dws service {what}: jobs with #DW directives wait, starting it again"
            f" in {delay:g} s",
            reason,
        )

    def _start_timer(self, delay: float, function: Callable[[], None]) -> None:
        """Call a function later, in place of the one that was to be called."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._timers.add(delay, function)

    def _log(self, level: int, text: str, reason: Reason) -> None:
        log(self._flux, level, log_line(text, reason))


def is_owner(message: Any) -> bool:
    """Whether the sender of a message has the role of the instance owner."""
    return bool(message.rolemask & FLUX_ROLE_OWNER)


def describe_status(status: int) -> str:
    """The meaning of ``Popen.returncode``, in words."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"
