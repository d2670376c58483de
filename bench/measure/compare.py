# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Whether results differ by more than their noise.

The noise is that of the repetitions: both sides are drawn from their values again and
again, with replacement (a bootstrap), and the middle 95 % of the ratios that come out
are the interval of the ratio. How much runs of the same code differ from each other is
seen in no run by itself. It is drawn as well when each side has some runs. Else
``RUN_NOISE`` is allowed for, and nothing is said of what was measured while others used
the machine.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Optional

from .results import Results
from .rows import COUNT, STATISTICS, Row, median, number

DRAWS = 1000
TAIL = 0.025
"""The part of the draws that is left out at each end of the interval."""

RUN_NOISE = 0.05
"""By how much two runs of the same code differ at times, beside the noise of their
repetitions."""

ENOUGH_RUNS = 3
"""So many runs show how much runs differ."""

BUSY_SHARE = 0.1
"""The share of the processors above which others' use of them is no noise any more."""

BETTER, WORSE, SAME, BUSY, UNKNOWN = "better", "worse", "same", "busy", "?"


@dataclass(frozen=True)
class Comparison:
    """A row of both sides.

    Attributes:
        old, new: the values; over several runs, their median.
        ratio: of new to old; None where old is not above 0.
        interval: of the ratio; None for counts, and where the noise is not known.
        busy: others used the processors, and runs are too few to know how much that
            did.
    """

    row: Row
    old: float
    new: float
    ratio: Optional[float]
    interval: Optional[tuple[float, float]]
    busy: bool

    @property
    def verdict(self) -> str:
        if self.row.statistic == COUNT:
            if self.new == self.old:
                return SAME
            rises = self.new > self.old
        elif self.interval is None:
            return UNKNOWN
        else:
            low, high = self.interval
            if low <= 1 <= high:
                return SAME
            if self.busy:
                return BUSY
            rises = low > 1
        return BETTER if rises == self.row.more_is_better else WORSE


@dataclass(frozen=True)
class Differences:
    """All rows of both sides.

    Attributes:
        only_old, only_new: rows that only one of them has.
        incomparable: a sentence about each row that is another thing now.
    """

    compared: Sequence[Comparison]
    only_old: Sequence[Row]
    only_new: Sequence[Row]
    incomparable: Sequence[str]


def compare(old: Sequence[Results], new: Sequence[Results]) -> Differences:
    """Compare the rows of some runs with those of others."""
    ours, theirs = _rows(new), _rows(old)
    compared, incomparable = [], []
    for key in theirs:
        if key in ours:
            problem = _change([*theirs[key], *ours[key]])
            if problem is None:
                busy = _few(old, new) and _were_busy([*old, *new], key[1])
                compared.append(_compare(theirs[key], ours[key], busy))
            else:
                incomparable.append(f"{ours[key][-1].what}: {problem}")
    return Differences(
        compared,
        [rows[-1] for key, rows in theirs.items() if key not in ours],
        [rows[-1] for key, rows in ours.items() if key not in theirs],
        incomparable,
    )


Key = tuple[str, str, str]


def _rows(side: Iterable[Results]) -> Mapping[Key, list[Row]]:
    """The rows of each name, one from each run that has it."""
    found: dict[Key, list[Row]] = {}
    for results in side:
        for row in results.rows:
            found.setdefault(row.key, []).append(row)
    return found


def _change(rows: Sequence[Row]) -> Optional[str]:
    """Why the values of these rows are not of the same kind, or None."""
    first, last = rows[0], rows[-1]
    for row in rows:
        if row.unit != first.unit:
            return f'the unit was "{first.unit}" and is "{row.unit}"'
        if row.statistic != first.statistic:
            return f"the value was the {first.statistic}, and is the {row.statistic}"
        if row.more_is_better != first.more_is_better:
            better = "more" if last.more_is_better else "less"
            return f"{better} is better now, and was worse"
    return None


def _few(old: Sequence[object], new: Sequence[object]) -> bool:
    """Runs are too few to see how much they differ."""
    return min(len(old), len(new)) < ENOUGH_RUNS


def _were_busy(runs: Iterable[Results], measurement: str) -> bool:
    """Others used the processors during a measurement in one of the runs."""
    shares = (results.used_by_others.get(measurement, 0.0) for results in runs)
    return max(shares) > BUSY_SHARE


def _compare(old: Sequence[Row], new: Sequence[Row], busy: bool) -> Comparison:
    before, after = (median(row.value for row in rows) for rows in (old, new))
    ratio = after / before if before > 0 else None
    return Comparison(new[-1], before, after, ratio, _interval(old, new), busy)


def _interval(old: Sequence[Row], new: Sequence[Row]) -> Optional[tuple[float, float]]:
    """The interval of the ratio of new to old; None where a side has but one value, or
    old may be 0, or neither has noise."""
    if new[-1].statistic == COUNT:
        return None
    if any(sum(len(row.values) for row in rows) < 2 for rows in (old, new)):
        return None
    rng = random.Random(1)
    ratios = []
    for _ in range(DRAWS):
        before, after = _draw(old, rng), _draw(new, rng)
        if before <= 0:
            return None
        ratios.append(after / before)
    ratios.sort()
    margin = 1 + RUN_NOISE if _few(old, new) else 1.0
    tail = int(DRAWS * TAIL)
    return ratios[tail] / margin, ratios[-1 - tail] * margin


def _draw(runs: Sequence[Row], rng: random.Random) -> float:
    """The value of a side if other runs and other repetitions had been made: some of
    these again, and others not."""
    return median(
        STATISTICS[row.statistic](rng.choices(row.values, k=len(row.values)))
        for row in rng.choices(runs, k=len(runs))
    )


def lines(
    old: Sequence[Results], new: Sequence[Results], found: Differences
) -> Iterator[str]:
    """The table."""
    yield from _heading("OLD", old)
    yield from _heading("NEW", new)
    yield from _other_facts(old, new)
    section = ""
    for each in found.compared:
        if each.row.section != section:
            section = each.row.section
            yield f"\n{section:<62}{'old':>8}{'new':>9} {'':<11} {'ratio':>6}"
        yield _line(each)
    for where, rows in ("OLD", found.only_old), ("NEW", found.only_new):
        if rows:
            yield f"\nonly in {where}"
            yield from (f"  {row.section}: {row.what}" for row in rows)
    if found.incomparable:
        yield "\nnot compared"
        yield from (f"  {sentence}" for sentence in found.incomparable)
    verdicts = [each.verdict for each in found.compared]
    counts = [f"{verdicts.count(word)} {word}" for word in (BETTER, WORSE, SAME)]
    yield f"\n{', '.join(counts)}"
    share = f"{100 * BUSY_SHARE:.0f} %"
    reasons = {
        BUSY: f"differ, but others used more than {share} of the processors",
        UNKNOWN: "too few values to know their noise",
    }
    for verdict, reason in reasons.items():
        if verdict in verdicts:
            yield f"{verdict} ({verdicts.count(verdict)}): {reason}"


def _line(each: Comparison) -> str:
    ratio = "-" if each.ratio is None else f"{each.ratio:.2f}"
    interval = ""
    if each.interval is not None:
        interval = f"{each.interval[0]:.2f} to {each.interval[1]:.2f}"
    values = f"{number(each.old):>8} {number(each.new):>8} {each.row.unit:<11}"
    return f"  {each.row.what:<60}{values} {ratio:>6}  {interval:<14} {each.verdict}"


def _heading(name: str, side: Sequence[Results]) -> Iterator[str]:
    for results in side:
        parts = [results.time, f"commit {results.commit[:9]}"]
        if results.dirty:
            parts.append("changed since")
        if results.quick:
            parts.append("quick")
        if results.used_by_others:
            most = max(results.used_by_others.values())
            parts.append(f"others used up to {100 * most:.0f} % of the processors")
        parts += [f"{name} failed" for name in results.failed]
        yield f"{name}: {', '.join(parts)}"


def _other_facts(old: Sequence[Results], new: Sequence[Results]) -> Iterator[str]:
    """A line for each fact in which the sides differ, but what the heading tells."""
    for kind in "machine", "versions":
        facts = [[getattr(results, kind) for results in side] for side in (old, new)]
        for key in facts[1][0]:
            if key in ("commit", "dirty", "flux-dws"):
                continue
            before, after = (
                sorted({str(each.get(key)) for each in side}) for side in facts
            )
            if before != after:
                what = "another machine: " if kind == "machine" else ""
                yield f"{what}{key}: {', '.join(before)} -> {', '.join(after)}"
