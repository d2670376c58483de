# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The rows of the results, with the limits of DESIGN section 12."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Optional

STAND_IN = "stand-in"
REAL_FLUX = "real Flux"


@dataclass(frozen=True)
class Target:
    """A bound. ``most``: the value may not be above it, else not below it."""

    bound: float
    most: bool = True

    def is_met(self, value: float) -> bool:
        return value <= self.bound if self.most else value >= self.bound

    def __str__(self) -> str:
        return f"{'≤' if self.most else '≥'} {self.bound:g}"


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        section: ``STAND_IN`` or ``REAL_FLUX``.
        measurement: which one it belongs to, as ``--only`` calls it.
        note: how the value came about, in a few words.
    """

    section: str
    measurement: str
    what: str
    value: float
    unit: str
    target: Optional[Target] = None
    note: str = ""

    @property
    def verdict(self) -> str:
        if self.target is None:
            return ""
        return "met" if self.target.is_met(self.value) else "NOT MET"

    def as_json(self) -> dict[str, Any]:
        fields = asdict(self)
        fields["target"] = None if self.target is None else str(self.target)
        fields["met"] = None if self.target is None else self.verdict == "met"
        return fields


def median(values: Iterable[float]) -> float:
    return statistics.median(values)


def percentile(values: Iterable[float], percent: float) -> float:
    """The smallest value that ``percent`` of them do not exceed."""
    ordered = sorted(values)
    index = -(-len(ordered) * percent // 100) - 1
    return ordered[max(0, int(index))]


def print_rows(rows: Sequence[Row]) -> None:
    """Print the table."""
    section = ""
    for row in rows:
        if row.section != section:
            section = row.section
            print(f"\n{section}")
        value = f"{_number(row.value)} {row.unit}".strip()
        target = "" if row.target is None else f"{row.target} {row.unit}".strip()
        line = f"  {row.what:<56} {value:>14}  {target:<12} {row.verdict:<8}"
        print(line.rstrip())
        if row.note:
            print(f"      {row.note}")


def _number(value: float) -> str:
    if value == 0 or abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"
