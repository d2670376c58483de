# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Event loops: real time, and virtual time.

Both implement :class:`flux_k8s.ports.Clock`. Timers that are due at the same
moment fire in the order in which they were started, so that a run under
:class:`VirtualLoop` is the same each time.
"""

from __future__ import annotations

import heapq
import itertools
import os
import queue
import signal
import threading
from typing import Callable, Optional

from flux_k8s.eventloop import Readers
from flux_k8s.timers import SteadyClock


class LoopTimer:
    """One timer of a :class:`Loop`."""

    def __init__(self, when: float, function: Callable[[], None]) -> None:
        self.when = when
        self.function: Optional[Callable[[], None]] = function

    def cancel(self) -> None:
        self.function = None


class Loop:
    """The part that both loops share: a heap of timers."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, LoopTimer]] = []
        self._order = itertools.count()

    def now(self) -> float:
        raise NotImplementedError

    def call_later(self, delay: float, function: Callable[[], None]) -> LoopTimer:
        timer = LoopTimer(self.now() + max(delay, 0.0), function)
        heapq.heappush(self._heap, (timer.when, next(self._order), timer))
        return timer

    def call_soon(self, function: Callable[[], None]) -> LoopTimer:
        return self.call_later(0.0, function)

    def next_due(self) -> Optional[float]:
        """The time at which the next timer is due, or None when there is none."""
        while self._heap and self._heap[0][2].function is None:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def _fire_next(self) -> None:
        _, _, timer = heapq.heappop(self._heap)
        function, timer.function = timer.function, None
        if function is not None:
            function()


class VirtualLoop(Loop):
    """A loop whose time jumps to the next timer; nothing ever waits."""

    def __init__(self, start: float = 1_800_000_000.0) -> None:
        super().__init__()
        self._now = start

    def now(self) -> float:
        return self._now

    def step(self) -> bool:
        """Fire the next timer. False when there is none."""
        due = self.next_due()
        if due is None:
            return False
        self._now = max(self._now, due)
        self._fire_next()
        return True

    def run(
        self,
        until: Callable[[], bool] = lambda: False,
        timeout: Optional[float] = None,
    ) -> bool:
        """Step until ``until()`` is true (then True), until ``timeout`` seconds
        of virtual time have passed, or, without a ``timeout``, until nothing is
        left to do (then False)."""
        end = None if timeout is None else self._now + timeout
        while not until():
            due = self.next_due()
            if end is not None and (due is None or due > end):
                self._now = end
                return False
            if not self.step():
                return False
        return True


class RealLoop(Loop):
    """A loop in real time, which other threads may hand work to."""

    def __init__(self) -> None:
        super().__init__()
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._readers = Readers()
        self.add_reader = self._readers.add
        self.remove_reader = self._readers.remove
        self.add_reader(self._wake_read, self._woken)
        self._clock = SteadyClock()
        # A signal's handler may call where it interrupts a call.
        self._open = threading.RLock()
        self._closed = False

    def now(self) -> float:
        return self._clock.now()

    def call_soon_threadsafe(self, function: Callable[[], None]) -> None:
        """Run ``function`` on the loop's thread, from any thread."""
        self._inbox.put(function)
        with self._open:
            if not self._closed:
                try:
                    os.write(self._wake_write, b"x")
                except BlockingIOError:
                    pass  # the pipe is full: the loop will wake up anyway

    def run(
        self,
        until: Callable[[], bool] = lambda: False,
        timeout: Optional[float] = None,
    ) -> bool:
        """Run until ``until()`` is true (then True) or ``timeout`` seconds
        have passed."""
        end = None if timeout is None else self.now() + timeout
        while True:
            self._drain_inbox()
            if until():
                return True
            now = self.now()
            if end is not None and now >= end:
                return False
            due = self.next_due()
            if due is not None and due <= now:
                self._fire_next()
            limits = [max(0.0, t - now) for t in (due, end) if t is not None]
            self._readers.wait(min(limits) if limits else None)

    def run_interruptible(self, until: Callable[[], bool]) -> bool:
        """Run until ``until()`` is true (then True) or SIGINT came (then False). A
        function that was called is not interrupted."""
        came: list[int] = []

        def handle(number: int, frame: object) -> None:
            came.append(number)
            self.call_soon_threadsafe(lambda: None)

        before = signal.signal(signal.SIGINT, handle)
        try:
            self.run(lambda: until() or bool(came))
        finally:
            signal.signal(signal.SIGINT, before)
        return until()

    def _woken(self) -> None:
        os.read(self._wake_read, 4096)

    def _drain_inbox(self) -> None:
        while True:
            try:
                function = self._inbox.get_nowait()
            except queue.Empty:
                return
            function()

    def close(self) -> None:
        """Let go of the pipe. What other threads still hand over is dropped."""
        with self._open:
            if not self._closed:
                self._closed = True
                os.close(self._wake_read)
                os.close(self._wake_write)
