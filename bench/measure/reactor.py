# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The event loop that the service has in the broker, without the broker."""

from __future__ import annotations

import time
from typing import Callable, Optional

from flux_k8s.eventloop import CallbackQueue, PollLoop
from flux_k8s.timers import OneShotTimer

CALLBACKS_PER_TURN = 32
"""As in ``flux_k8s.broker.process``."""


class Reactor(PollLoop):
    """The timers and the queue of callbacks of the service, which take turns with
    what it reads.

    Attributes:
        messages: what Flux has for the service. Of these a turn handles one, as
            libflux does (``handle_cb`` of its ``msg_handler.c``).
        gaps: how late each beat was, in seconds.
        used: the seconds of processor time that went by since the beat before, which
            others' work on this machine disturbs less.
    """

    def __init__(self) -> None:
        super().__init__()
        self.messages = CallbackQueue()
        self.add_reader(self.messages.fileno(), self._handle_message)
        self.gaps: list[float] = []
        self.used: list[float] = []

    def now(self) -> float:
        return time.time()

    def beat(self, interval: float = 0.001) -> Callable[[], None]:
        """Note how late a timer is, again and again, until the function that is
        returned is called."""
        self.gaps, self.used = [], []
        timer: Optional[OneShotTimer] = None
        due = before = 0.0

        def start() -> None:
            nonlocal timer, due, before
            due = time.monotonic() + interval
            timer = self.call_later(interval, tick)
            before = time.thread_time()

        def tick() -> None:
            if timer is not None:
                self.gaps.append(time.monotonic() - due)
                self.used.append(time.thread_time() - before)
                start()

        def stop() -> None:
            nonlocal timer
            if timer is not None:
                timer.cancel()
                timer = None

        start()
        return stop

    def _run_callbacks(self) -> None:
        self._callbacks.run(CALLBACKS_PER_TURN)

    def _handle_message(self) -> None:
        self.messages.run(1)
