# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The order in which ``run`` and ``demo`` show what happens on a real Flux."""

from __future__ import annotations

import heapq
import itertools
from functools import partial
from typing import Callable

from flux_k8s.ports import Clock

DELAY = 0.5
"""Seconds that an event of the eventlog may need from its timestamp to here. What
happens is shown that much later."""


class Timeline:
    """Shows in the order of time what comes by ways that are not equally fast.

    Args:
        loop: the clock, and what shows.
    """

    def __init__(self, loop: Clock) -> None:
        self._loop = loop
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._begun = False
        self._ended = False

    @property
    def begun(self) -> bool:
        """Whether :meth:`begin` was called."""
        return self._begun

    def begin(self) -> None:
        """Show what comes, and what has come. Nothing is shown before."""
        self._begun = True
        self._loop.call_later(DELAY, partial(self._release, self._loop.now()))

    def put(self, when: float, show: Callable[[], None]) -> None:
        """Something happened: ``show`` shows it. Of what happened at the same time the
        first that is put is shown first."""
        if self._ended:
            show()
            return
        heapq.heappush(self._heap, (when, next(self._order), show))
        delay = when + DELAY - self._loop.now()
        self._loop.call_later(delay, partial(self._release, when))

    def end(self) -> None:
        """Show all that there is, and what still comes at once."""
        self._ended = True
        while self._heap:
            heapq.heappop(self._heap)[2]()

    def _release(self, when: float) -> None:
        """Show what happened until ``when``."""
        while self._begun and self._heap and self._heap[0][0] <= when:
            heapq.heappop(self._heap)[2]()
