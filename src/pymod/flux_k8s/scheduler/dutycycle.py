# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Work that may take a part of the scheduler's time only."""

from __future__ import annotations

from contextlib import contextmanager
from math import inf
from typing import Callable, Iterator

REST = 4
"""Work is due again after so many times as long as it took."""


class DutyCycle:
    """Measures the work, and says when it is due.

    Args:
        clock: seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._due = -inf

    @property
    def wait(self) -> float:
        """Seconds until the work is due, 0 if it is."""
        return max(0.0, self._due - self._clock())

    @contextmanager
    def spend(self) -> Iterator[None]:
        """Around the work."""
        before = self._clock()
        try:
            yield
        finally:
            after = self._clock()
            self._due = after + REST * (after - before)
