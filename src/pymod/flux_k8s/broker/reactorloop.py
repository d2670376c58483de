# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The Flux reactor as the event loop of the Kubernetes adapter."""

from __future__ import annotations

from typing import Any

from flux_k8s.eventloop.callbackqueue import CallbackQueue, Function
from flux_k8s.ports import Clock


class ReactorLoop:
    """:class:`flux_k8s.eventloop.loop.EventLoop` over the reactor of a Flux handle.

    Args:
        clock: has the timers.
        callbacks: the queue for calls from other threads, which the reactor watches.
    """

    def __init__(self, handle: Any, clock: Clock, callbacks: CallbackQueue) -> None:
        self._handle = handle
        self._watchers: dict[int, Any] = {}
        self.call_later = clock.call_later
        self.call_soon_threadsafe = callbacks.put

    def add_reader(self, fd: int, function: Function) -> None:
        watcher = self._handle.fd_watcher_create(fd, lambda *_: function())
        self._watchers[fd] = watcher
        watcher.start()

    def remove_reader(self, fd: int) -> None:
        watcher = self._watchers.pop(fd)
        watcher.stop()
        watcher.destroy()
