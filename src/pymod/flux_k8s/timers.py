# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The time of a service, and many one-shot timers on one timer of an event loop."""

from __future__ import annotations

import heapq
import itertools
import time
from typing import Callable, Optional

Function = Callable[[], None]

TURN = 0.003
"""Seconds after which no other function is called in a turn of the reactor."""

FEW = 64
"""Timers that were cancelled and are still in the queue, at least, when it is sorted
anew without them."""


class OneShotTimer:
    """A function that is called once, unless the timer is cancelled before."""

    def __init__(self, timers: Timers, function: Function) -> None:
        self._timers = timers
        self.function: Optional[Function] = function

    def cancel(self) -> None:
        if self.function is not None:
            self.function = None
            self._timers.note_cancelled()


class Timers:
    """A queue of timers, in the order in which they are due, on one timer of a loop.

    A watcher of Flux's bindings costs more to make and to destroy than most functions
    that the service calls later, and there are several for each event of a watch.

    Args:
        arm: has :meth:`run` called once, after so many seconds, and not at the time
            that was set before. It may be called early.
        now: a clock that is never set back.
    """

    def __init__(
        self,
        arm: Callable[[float], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._arm = arm
        self._now = now
        self._queue: list[tuple[float, int, OneShotTimer]] = []
        self._numbers = itertools.count()
        self._armed: Optional[float] = None
        self._cancelled = 0

    def __len__(self) -> int:
        """The number of timers in the queue."""
        return len(self._queue)

    def add(self, delay: float, function: Function) -> OneShotTimer:
        """Have a function called once, after ``delay`` seconds."""
        due = self._now() + max(delay, 0.0)
        timer = OneShotTimer(self, function)
        heapq.heappush(self._queue, (due, next(self._numbers), timer))
        self._arm_for_first()
        return timer

    def run(self) -> None:
        """Call the functions that are due, for about ``TURN`` seconds. Those that they
        add have a later turn. An exception of a function is raised; the functions after
        it stay in the queue."""
        self._armed = None
        now = self._now()
        try:
            while self._queue and self._queue[0][0] <= now:
                _, _, timer = heapq.heappop(self._queue)
                function, timer.function = timer.function, None
                if function is None:
                    self._cancelled -= 1
                else:
                    function()
                    if self._now() >= now + TURN:
                        break
        finally:
            self._arm_for_first()

    def note_cancelled(self) -> None:
        """A timer was cancelled. It stays in the queue until it is due, or until half
        of the queue is like it."""
        self._cancelled += 1
        if self._cancelled > max(FEW, len(self._queue) // 2):
            self._queue = [entry for entry in self._queue if entry[2].function]
            heapq.heapify(self._queue)
            self._cancelled = 0

    def _arm_for_first(self) -> None:
        if not self._queue:
            return
        due = self._queue[0][0]
        if self._armed is None or due < self._armed:
            self._armed = due
            self._arm(max(due - self._now(), 0.0))


class SteadyClock:
    """The UNIX time by the system's clock when this was made. It goes on evenly from
    there, whatever the system's clock is set to."""

    def __init__(self) -> None:
        self._epoch = time.time() - time.monotonic()

    def now(self) -> float:
        """The UNIX time, in seconds."""
        return self._epoch + time.monotonic()
