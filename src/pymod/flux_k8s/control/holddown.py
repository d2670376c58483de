# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Hold-down, as routers have it: hardware that has recovered is not used until it has
been well for a while, and the longer the more often it broke."""

from __future__ import annotations

from dataclasses import dataclass
from typing import AbstractSet, Optional

FIRST_HOLD = 2.0
"""Seconds from the first recovery until something is used again. They double each
time that it breaks again, up to ``LAST_HOLD``."""

LAST_HOLD = 300.0

FORGET = 3600.0
"""Seconds of good health after which earlier failures do not count any more."""


@dataclass
class _Record:
    """Attributes:
    since: when it recovered; None while it is broken.
    breaks: how often it broke.
    """

    since: Optional[float] = None
    breaks: int = 1

    @property
    def ends(self) -> float:
        """The end of the hold-down. Only valid after a recovery."""
        assert self.since is not None
        exponent = min(self.breaks - 1, 16)
        return self.since + min(FIRST_HOLD * 2.0**exponent, LAST_HOLD)


class HoldDown:
    """Which of many things are held down. Names stand for things; those that were
    never broken cost nothing."""

    def __init__(self) -> None:
        self._records: dict[str, _Record] = {}

    def update(self, broken: AbstractSet[str], now: float) -> frozenset[str]:
        """Note which things are ``broken`` now.

        Returns:
            Those that are not, and are held down.
        """
        for name in broken:
            record = self._records.get(name)
            if record is None:
                self._records[name] = _Record()
            elif record.since is not None:
                forgotten = now >= record.since + FORGET
                record.breaks = 1 if forgotten else record.breaks + 1
                record.since = None
        held = set()
        for name, record in list(self._records.items()):
            if name in broken:
                continue
            # A time that is yet to come is from before the clock was set back.
            if record.since is None or record.since > now:
                record.since = now
            if now < record.ends:
                held.add(name)
            elif now >= record.since + FORGET:
                del self._records[name]
        return frozenset(held)

    def next_end(self, now: float) -> Optional[float]:
        """The end of the next hold-down, unless something breaks before; None for
        none."""
        times = [r.ends for r in self._records.values() if r.since is not None]
        return min((time for time in times if time > now), default=None)
