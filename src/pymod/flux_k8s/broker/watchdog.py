# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""A watchdog that reports a service which does not answer."""

from __future__ import annotations

from typing import Callable, Optional

from flux_k8s.ports import Timer

STEPS = 6
"""The number of timer steps that make up the watchdog's time. When this process did not
run either, because the machine was asleep, that time counts as one step at most."""


class Watchdog:
    """Watches one service at a time.

    Args:
        call_later: calls a function after some seconds.
        seconds: the time that a service has to answer a ping; 0 for no limit.
        ping: sends a ping to the service.
        expired: is called once when the service has not answered in time.
    """

    def __init__(
        self,
        call_later: Callable[[float, Callable[[], None]], Timer],
        seconds: float,
        ping: Callable[[], None],
        expired: Callable[[], None],
    ) -> None:
        self._call_later = call_later
        self.seconds = seconds
        self._ping = ping
        self._expired = expired
        self._unanswered = 0
        self._timer: Optional[Timer] = None

    def start(self) -> None:
        """Watch a service that has just been started."""
        self._unanswered = 0
        self._start_timer()

    def reset(self) -> None:
        """Note that the service has sent a message."""
        self._unanswered = 0

    def stop(self) -> None:
        """Stop watching."""
        if self._timer is not None:
            self._timer.cancel()

    def _start_timer(self) -> None:
        self.stop()
        if self.seconds > 0:
            self._timer = self._call_later(self.seconds / STEPS, self._tick)

    def _tick(self) -> None:
        if self._unanswered >= STEPS:
            self._expired()
            return
        if self._unanswered == 0:
            self._ping()
        self._unanswered += 1
        self._start_timer()
