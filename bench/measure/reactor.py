# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The event loop that the service has in the broker, without the broker."""

from __future__ import annotations

import time
from typing import Callable, Optional

from flux_k8s.eventloop.callbackqueue import CallbackQueue
from flux_k8s.eventloop.loop import Readers
from rabbitsim.loop import Loop, LoopTimer

CALLBACKS_PER_TURN = 32
"""As in ``flux_k8s.broker.process``."""


class Reactor(Loop):
    """Timers, and a queue of callbacks that takes turns with them.

    Attributes:
        gaps: how late each beat was, in seconds.
        used: the seconds of processor time that went by since the beat before, which
            others' work on this machine disturbs less.
    """

    def __init__(self) -> None:
        super().__init__()
        self.callbacks = CallbackQueue()
        self.call_soon_threadsafe = self.callbacks.put
        self._readers = Readers()
        self.add_reader = self._readers.add
        self.remove_reader = self._readers.remove
        self.add_reader(self.callbacks.fileno(), self._run_callbacks)
        self.gaps: list[float] = []
        self.used: list[float] = []

    def now(self) -> float:
        return time.time()

    def _run_callbacks(self) -> None:
        self.callbacks.run(CALLBACKS_PER_TURN)

    def run(self, until: Callable[[], bool], timeout: float) -> bool:
        """Run until ``until()`` (then True) or for ``timeout`` seconds."""
        end = self.now() + timeout
        while not until():
            now = self.now()
            if now >= end:
                return False
            due = self.next_due()
            wait = min(end, due if due is not None else end) - now
            self._readers.wait(max(wait, 0.0))
            self._fire_due()
        return True

    def _fire_due(self) -> None:
        """Timers that are due now, but not those that they start."""
        now = self.now()
        for _ in range(len(self._heap)):
            due = self.next_due()
            if due is None or due > now:
                return
            self._fire_next()

    def beat(self, interval: float = 0.001) -> Callable[[], None]:
        """Note how late a timer is, again and again, until the function that is
        returned is called."""
        self.gaps, self.used = [], []
        timer: Optional[LoopTimer] = None
        before = 0.0

        def start() -> None:
            nonlocal timer, before
            timer = self.call_later(interval, tick)
            before = time.thread_time()

        def tick() -> None:
            if timer is not None:
                self.gaps.append(self.now() - timer.when)
                self.used.append(time.thread_time() - before)
                start()

        def stop() -> None:
            nonlocal timer
            if timer is not None:
                timer.cancel()
                timer = None

        start()
        return stop
