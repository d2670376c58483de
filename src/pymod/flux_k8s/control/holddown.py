# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Hardware that flaps: trouble is believed at once, its end only when it lasts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import AbstractSet, Optional

FIRST_HOLD = 2.0
"""Seconds for which something must be well until that is believed. They double
each time that it breaks again, up to ``LAST_HOLD``."""

LAST_HOLD = 300.0

FORGET = 3600.0
"""Seconds of good health after which earlier trouble does not count any more."""


@dataclass
class _Record:
    """Attributes:
    since: when it became well; None while it is broken.
    breaks: how often it broke.
    """

    since: Optional[float] = None
    breaks: int = 1

    @property
    def believed(self) -> float:
        """When its good health is believed. Only for what is well."""
        assert self.since is not None
        exponent = min(self.breaks - 1, 16)
        return self.since + min(FIRST_HOLD * 2.0**exponent, LAST_HOLD)


class Damper:
    """Which of many things count as broken. Names stand for things; those that
    were never broken cost nothing."""

    def __init__(self) -> None:
        self._records: dict[str, _Record] = {}

    def see(self, broken: AbstractSet[str], now: float) -> frozenset[str]:
        """What counts as broken, now that ``broken`` is."""
        for name in broken:
            record = self._records.get(name)
            if record is None:
                self._records[name] = _Record()
            elif record.since is not None:
                forgotten = now >= record.since + FORGET
                record.breaks = 1 if forgotten else record.breaks + 1
                record.since = None
        counted = set()
        for name, record in list(self._records.items()):
            if name not in broken and record.since is None:
                record.since = now
            if record.since is None or now < record.believed:
                counted.add(name)
            elif now >= record.since + FORGET:
                del self._records[name]
        return frozenset(counted)

    def due(self, now: float) -> Optional[float]:
        """When the answer changes next, unless something breaks before."""
        times = [r.believed for r in self._records.values() if r.since is not None]
        return min((time for time in times if time > now), default=None)
