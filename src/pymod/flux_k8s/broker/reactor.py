# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Timers and sockets on the reactor of a Flux handle."""

from __future__ import annotations

from typing import Any, Callable

from flux_k8s.ports import Clock, Deliver
from flux_k8s.timers import Timers


def reactor_timers(handle: Any) -> Timers:
    """Timers, all on one of the reactor."""

    def arm(seconds: float) -> None:
        # A watcher that runs is not armed anew by its reset (flux-core 0.88).
        watcher.stop()
        watcher.reset(seconds)

    timers = Timers(arm)
    watcher = handle.timer_watcher_create(0.0, lambda *_: timers.run())
    return timers


class ReactorLoop:
    """:class:`flux_k8s.eventloop.EventLoop` over the reactor of a Flux handle.

    Args:
        clock: has the timers.
        deliver: calls a function on the thread of the reactor, from any other.
    """

    def __init__(self, handle: Any, clock: Clock, deliver: Deliver) -> None:
        self._handle = handle
        self._watchers: dict[int, Any] = {}
        self.call_later = clock.call_later
        self.call_soon_threadsafe = deliver

    def add_reader(self, fd: int, function: Callable[[], None]) -> None:
        watcher = self._handle.fd_watcher_create(fd, lambda *_: function())
        self._watchers[fd] = watcher
        watcher.start()

    def remove_reader(self, fd: int) -> None:
        watcher = self._watchers.pop(fd)
        watcher.stop()
        watcher.destroy()
