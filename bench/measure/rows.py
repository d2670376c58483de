# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The rows of the results."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Callable, Optional

STAND_IN = "stand-in"
REAL_FLUX = "real Flux"


def median(values: Iterable[float]) -> float:
    return statistics.median(values)


def percentile(values: Iterable[float], percent: float) -> float:
    """The smallest value that ``percent`` of them do not exceed."""
    ordered = sorted(values)
    index = -(-len(ordered) * percent // 100) - 1
    return ordered[max(0, int(index))]


MEDIAN = "median"
P99 = "p99"
COUNT = "count"
"""A count that each repetition finds again: it has no noise."""

STATISTICS: Mapping[str, Callable[[Sequence[float]], float]] = MappingProxyType(
    {MEDIAN: median, P99: partial(percentile, percent=99), COUNT: max}
)
"""What makes the value of a row from those of its repetitions."""


@dataclass(frozen=True)
class Floor:
    """A value that a row cannot be better than on this machine, from the same run.

    Attributes:
        of: what the value is of.
    """

    value: float
    of: str


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        section: ``STAND_IN`` or ``REAL_FLUX``.
        measurement: which one it belongs to, as ``--only`` calls it.
        what: its name. It is the same in each run: results are compared by it.
        values: one of each repetition; at least one.
        target: the bound that was set for it.
        note: how the value came about, in a few words.
        statistic: a key of ``STATISTICS``.
        floor: for a target that the machine, or what we use, may not allow.
    """

    section: str
    measurement: str
    what: str
    values: Sequence[float]
    unit: str
    target: Optional[float] = None
    note: str = ""
    statistic: str = MEDIAN
    more_is_better: bool = False
    floor: Optional[Floor] = None

    @property
    def key(self) -> tuple[str, str, str]:
        return self.section, self.measurement, self.what

    @property
    def value(self) -> float:
        return STATISTICS[self.statistic](self.values)

    @property
    def met(self) -> Optional[bool]:
        """Whether the target is met, or None without one."""
        if self.target is None:
            return None
        if self.more_is_better:
            return self.value >= self.target
        return self.value <= self.target


def print_rows(rows: Sequence[Row]) -> None:
    """Print the table."""
    section = ""
    for row in rows:
        if row.section != section:
            section = row.section
            print(f"\n{section}")
        value = f"{number(row.value)} {row.unit}".strip()
        target = verdict = ""
        if row.target is not None:
            sign = "≥" if row.more_is_better else "≤"
            target = f"{sign} {row.target:g} {row.unit}".strip()
            verdict = "met" if row.met else "NOT MET"
        line = f"  {row.what:<56} {value:>14}  {target:<12} {verdict:<8}"
        print(line.rstrip())
        if row.note:
            print(f"      {row.note}")
        if row.floor is not None:
            floor = f"{number(row.floor.value)} {row.unit}".strip()
            print(f"      floor {floor}: {row.floor.of}")


def number(value: float) -> str:
    """A value as tables show it."""
    if value == 0 or abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"
