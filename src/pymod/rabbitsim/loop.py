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
import signal
from typing import Callable, Optional

from flux_k8s.eventloop import PollLoop
from flux_k8s.timers import SteadyClock


class LoopTimer:
    """One timer of a :class:`VirtualLoop`."""

    def __init__(self, when: float, function: Callable[[], None]) -> None:
        self.when = when
        self.function: Optional[Callable[[], None]] = function

    def cancel(self) -> None:
        self.function = None


class VirtualLoop:
    """A loop whose time jumps to the next timer; nothing ever waits.

    Attributes:
        rush: the timers that were fired since time has gone on.
    """

    def __init__(self, start: float = 1_800_000_000.0) -> None:
        self._heap: list[tuple[float, int, LoopTimer]] = []
        self._order = itertools.count()
        self._now = start
        self.rush = 0

    def now(self) -> float:
        return self._now

    def call_later(self, delay: float, function: Callable[[], None]) -> LoopTimer:
        timer = LoopTimer(self._now + max(delay, 0.0), function)
        heapq.heappush(self._heap, (timer.when, next(self._order), timer))
        return timer

    def call_soon(self, function: Callable[[], None]) -> LoopTimer:
        return self.call_later(0.0, function)

    def next_due(self) -> Optional[float]:
        """The time at which the next timer is due, or None when there is none."""
        while self._heap and self._heap[0][2].function is None:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def step(self) -> bool:
        """Fire the next timer. False when there is none."""
        due = self.next_due()
        if due is None:
            return False
        self.rush = 0 if due > self._now else self.rush + 1
        self._now = max(self._now, due)
        _, _, timer = heapq.heappop(self._heap)
        function, timer.function = timer.function, None
        if function is not None:
            function()
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


class RealLoop(PollLoop):
    """A loop in real time, which other threads may hand work to."""

    def __init__(self) -> None:
        super().__init__()
        self._clock = SteadyClock()

    def now(self) -> float:
        return self._clock.now()

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
