# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Copies whose times follow from bandwidth: that of the Rabbits of a job, and that of
the global file system, which all copies share."""

from __future__ import annotations

import random
from typing import Callable, Mapping

from flux_k8s.ports import Clock
from rabbitsim.dws.files import CopyError, NoFiles, Progress

Size = Callable[[int, str], int]
"""Gets the number of a job and ``in`` or ``out``; gives the bytes of that copy."""


class SharedFiles(NoFiles):
    """File systems on paper. The name of a file in the global one is the number of a
    job and ``in`` or ``out``.

    Args:
        rate: bytes per second of the global file system.
        rabbit_rate: bytes per second of one Rabbit.
        size: the bytes of a copy.
        rabbits: on how many Rabbits the storage of a job is.
        failures: the chance that a copy fails.
        interval: seconds between two reports of a copy.

    Attributes:
        moving: the copies under way.
        moved: the bytes of all copies until now.
    """

    def __init__(
        self,
        clock: Clock,
        rate: float,
        rabbit_rate: float,
        size: Size,
        rabbits: Callable[[int], int],
        failures: float,
        interval: float,
        rng: random.Random,
    ) -> None:
        super().__init__()
        self._clock = clock
        self._rate = rate
        self._rabbit_rate = rabbit_rate
        self._size_of = size
        self._rabbits = rabbits
        self._failures = failures
        self._interval = interval
        self._rng = rng
        self._since = clock.now()
        self.moving: dict[BandwidthCopy, None] = {}
        self.moved = 0.0

    @property
    def flow(self) -> float:
        """Bytes per second now."""
        return sum(copy.rate for copy in self.moving)

    def copy(
        self, source: str, destination: str, variables: Mapping[str, str]
    ) -> BandwidthCopy:
        place = source if source.startswith("/") else destination
        number, way = place.split("/")[-2:]
        copy = BandwidthCopy(
            self,
            self._size_of(int(number), way),
            self._rabbit_rate * self._rabbits(int(number)),
            self._interval,
            self._rng.random() < self._failures,
        )
        self.advance()
        self.moving[copy] = None
        self._share()
        return copy

    def advance(self) -> None:
        """Move what was to be moved until now. A copy that nobody asks for any more,
        since its job was cancelled, goes on to its end."""
        now = self._clock.now()
        seconds, self._since = now - self._since, now
        for copy in self.moving:
            moved = min(copy.rate * seconds, copy.left)
            copy.left -= moved
            self.moved += moved
        over = [copy for copy in self.moving if copy.left < 1.0]
        for copy in over:
            del self.moving[copy]
        if over:
            self._share()

    def _share(self) -> None:
        """Give each copy the same part of what there is, or as much as it can use."""
        left, count = self._rate, len(self.moving)
        for copy in sorted(self.moving, key=lambda copy: copy.most):
            copy.rate = min(copy.most, left / count)
            left -= copy.rate
            count -= 1


class BandwidthCopy:
    """Data movement under way. Its steps follow the clock, not their limits.

    Attributes:
        most: bytes per second at most; ``rate`` those at the moment.
        left: bytes that are not moved yet.
    """

    def __init__(
        self, files: SharedFiles, size: int, most: float, interval: float, fails: bool
    ) -> None:
        self._files = files
        self._interval = interval
        self._fails = fails
        self.progress = Progress(files=1, bytes_total=size)
        self.most = self.rate = most
        self.left = float(size)

    @property
    def pause(self) -> float:
        return min(self.left / self.rate, self._interval)

    def step(self, limit: int) -> bool:
        self._files.advance()
        total = self.progress.bytes_total
        self.progress.bytes = total - int(self.left)
        if self._fails and self.left < total / 2:
            self.left = 0.0
            raise CopyError("dcp: Input/output error")
        return self.left < 1.0
