# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Tells when nothing is heard of the service for too long."""

from __future__ import annotations

from typing import Any, Callable

STEPS = 6
"""The time is counted in so many steps of a timer. A time in which this process did not
run either, since the machine was asleep, counts as one step at most."""


class Watchdog:
    """Watches one service after the other.

    Args:
        flux: the module's handle.
        seconds: how long a service may be silent after a ping; 0 for ever.
        ping: sends something that a service answers.
        expired: is called once when it does not.
    """

    def __init__(
        self,
        flux: Any,
        seconds: float,
        ping: Callable[[], None],
        expired: Callable[[], None],
    ) -> None:
        self._flux = flux
        self.seconds = seconds
        self._ping = ping
        self._expired = expired
        self._unanswered = 0
        self._timer: Any = None

    def start(self) -> None:
        """Watch a service that has just been started."""
        self._unanswered = 0
        self._start_timer()

    def reset(self) -> None:
        """Something came from the service."""
        self._unanswered = 0

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.stop()
            self._timer.destroy()
            self._timer = None

    def _start_timer(self) -> None:
        self.stop()
        if self.seconds > 0:
            self._timer = self._flux.timer_watcher_create(
                self.seconds / STEPS, lambda *_: self._tick()
            )
            self._timer.start()

    def _tick(self) -> None:
        if self._unanswered >= STEPS:
            self.stop()
            self._expired()
            return
        if self._unanswered == 0:
            self._ping()
        self._unanswered += 1
        self._start_timer()
