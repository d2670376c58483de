# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The numbers that ``doc/scale.md`` shows, and how pages of ``doc/`` show numbers."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Iterable, Mapping, Sequence, TypeVar

from flux_k8s.ports import Json

NUMBERS = ("day.json", "day-ten.json")

MADE = re.compile(r"(<!-- made by \w+\.py: ([a-z ]+) -->\n).*?(<!-- end -->)", re.S)
"""A part of a page that is made: its name, and what is in it."""

Row = Sequence[str]
N = TypeVar("N")


@dataclass(frozen=True)
class Numbers:
    """Those of the day, those of the machine that is ten times as large, and the
    checksums of the two files."""

    day: Json
    ten: Json
    checksums: Sequence[str]

    @classmethod
    def read(cls, folder: Path) -> Numbers:
        texts = [(folder / name).read_bytes() for name in NUMBERS]
        day, ten = map(json.loads, texts)
        return cls(day, ten, [hashlib.sha256(text).hexdigest()[:16] for text in texts])

    @property
    def factor(self) -> float:
        """How many times as large the larger machine is."""
        return float(self.ten["site"]["nodes"] / self.day["site"]["nodes"])

    @property
    def jobs_of_day(self) -> float:
        return float(self.day["jobs"]["submitted"] * 24 / self.day["site"]["hours"])


def fill(page: str, tables: Mapping[str, Callable[[N], str]], found: N) -> str:
    """The page, with the parts that are made of some numbers."""
    return MADE.sub(
        lambda match: f"{match[1]}\n{tables[match[2]](found)}\n\n{match[3]}", page
    )


def table(head: Row, rows: Iterable[Row]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def number(value: float, digits: int = 0) -> str:
    """With separators; small numbers with so many digits behind the point."""
    return f"{value:,.{digits}f}"


def significant(value: float) -> str:
    """With three digits, or as a whole number."""
    return number(value) if abs(value) >= 100 else f"{value:.3g}"


def size(value: float) -> str:
    """Bytes."""
    for unit, length in (("MB", 1e6), ("KB", 1e3)):
        if value >= length:
            return f"{significant(value / length)} {unit}"
    return f"{value:.0f} B"


def counts(found: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {number(count)}" for name, count in found.items())
