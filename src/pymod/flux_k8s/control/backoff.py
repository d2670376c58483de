# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The pauses between attempts of something that fails."""

from __future__ import annotations

import random
from typing import Optional


class Backoff:
    """Pauses between tries: each is twice the one before, up to a longest one.

    Args:
        first: seconds after the first failure.
        longest: seconds that a pause has at most.
        rng: shortens each pause by up to a half, so that those who failed together
            do not try together. None: pauses are as they are.

    Attributes:
        failures: how many there were since the last success.
    """

    __slots__ = ("_first", "_longest", "_rng", "failures")

    def __init__(
        self, first: float, longest: float, rng: Optional[random.Random] = None
    ) -> None:
        self.failures = 0
        self._first = first
        self._longest = longest
        self._rng = rng

    def reset(self) -> None:
        """A try has succeeded."""
        self.failures = 0

    def fail(self, retry_after: Optional[float] = None) -> float:
        """A try has failed.

        Args:
            retry_after: seconds that the server asks for.

        Returns:
            Seconds until the next try, never less than ``retry_after``.
        """
        doublings = min(self.failures, 32)
        self.failures += 1
        pause = min(self._longest, self._first * 2.0**doublings)
        if self._rng is not None:
            pause *= self._rng.uniform(0.5, 1.0)
        return max(pause, retry_after or 0.0)
