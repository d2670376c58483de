# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Event loops: what the Kubernetes adapter needs of one, calls from other threads for
those who make one, and a loop of poll(2).

The names of what a loop does are those of asyncio.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections import deque
from typing import Callable, Optional, Protocol

from flux_k8s.ports import Timer
from flux_k8s.timers import Function, OneShotTimer, Timers


class CallbackQueue:
    """Functions to be called on the thread of an event loop.

    The loop watches :meth:`fileno`, and calls :meth:`run` when it is readable.
    """

    def __init__(self) -> None:
        self._functions: deque[Function] = deque()
        # A signal's handler may call where it interrupts a call.
        self._lock = threading.RLock()
        self._signalled = False
        self._closed = False
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def fileno(self) -> int:
        """A file descriptor that is readable while functions wait."""
        return self._read

    def __len__(self) -> int:
        """The number of functions that wait."""
        return len(self._functions)

    def put(self, function: Function) -> None:
        """Append a function. Any thread may call this; after :meth:`close` it has no
        effect."""
        with self._lock:
            if self._closed:
                return
            self._functions.append(function)
            if not self._signalled:
                self._signalled = True
                os.write(self._write, b"x")

    def run(self, limit: int = 100, seconds: float = 0.005) -> int:
        """Call functions, in the order of :meth:`put`, and return their number: at
        most ``limit``, and none after the first that ends ``seconds`` or more after
        the call. ``fileno`` stays readable while more functions wait.

        An exception of a function is raised; the functions after it stay in the queue.
        """
        deadline = time.monotonic() + seconds
        for count in range(limit):
            with self._lock:
                if not self._functions:
                    self._reset()
                    return count
                function = self._functions.popleft()
            function()
            if time.monotonic() >= deadline:
                return count + 1
        return limit

    def close(self) -> None:
        """Drop the functions that still wait. Only the loop's thread may call this."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._functions.clear()
                os.close(self._read)
                os.close(self._write)

    def _reset(self) -> None:
        if self._signalled and not self._closed:
            self._signalled = False
            os.read(self._read, 1)


class EventLoop(Protocol):
    """An event loop. Functions are called on its thread."""

    def call_later(self, delay: float, function: Function) -> Timer:
        """Call a function after ``delay`` seconds."""

    def call_soon_threadsafe(self, function: Function) -> None:
        """Call a function. Any thread may ask for this."""

    def add_reader(self, fd: int, function: Function) -> None:
        """Call a function whenever a file descriptor is readable."""

    def remove_reader(self, fd: int) -> None:
        """Do not watch a file descriptor any more."""


class PollLoop:
    """An event loop that runs until something has come about, for commands and the
    simulator."""

    def __init__(self) -> None:
        self._callbacks = CallbackQueue()
        self._due: Optional[float] = None
        self._timers = Timers(self._arm)
        self._readers: dict[int, Function] = {}
        self._poll = select.poll()
        self.add_reader(self._callbacks.fileno(), self._run_callbacks)

    def call_later(self, delay: float, function: Function) -> OneShotTimer:
        """As of :class:`EventLoop`."""
        return self._timers.add(delay, function)

    def call_soon_threadsafe(self, function: Function) -> None:
        """As of :class:`EventLoop`."""
        self._callbacks.put(function)

    def add_reader(self, fd: int, function: Function) -> None:
        """As of :class:`EventLoop`."""
        self._readers[fd] = function
        self._poll.register(fd, select.POLLIN)

    def remove_reader(self, fd: int) -> None:
        """As of :class:`EventLoop`."""
        del self._readers[fd]
        self._poll.unregister(fd)

    def run(
        self,
        until: Callable[[], bool] = lambda: False,
        timeout: Optional[float] = None,
    ) -> bool:
        """Run until ``until()`` (then True), or for ``timeout`` seconds."""
        end = None if timeout is None else time.monotonic() + timeout
        while not until():
            now = time.monotonic()
            if end is not None and now >= end:
                return False
            limits = [limit for limit in (self._due, end) if limit is not None]
            wait = max(0.0, min(limits) - now) * 1e3 if limits else None
            for fd, _ in self._poll.poll(wait):
                function = self._readers.get(fd)
                if function is not None:  # another may have removed it
                    function()
            if self._due is not None and self._due <= time.monotonic():
                self._due = None
                self._timers.run()
        return True

    def close(self) -> None:
        """Call nothing any more."""
        self._callbacks.close()

    def _run_callbacks(self) -> None:
        self._callbacks.run()

    def _arm(self, seconds: float) -> None:
        self._due = time.monotonic() + seconds
