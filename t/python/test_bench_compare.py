# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""``make bench-compare``: what differs by more than its noise, and what does not."""

from __future__ import annotations

import dataclasses
from typing import Any, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from measure.compare import (
    BETTER,
    BUSY,
    SAME,
    UNKNOWN,
    WORSE,
    Comparison,
    compare,
    lines,
)
from measure.results import Results
from measure.rows import COUNT, P99, STAND_IN, Row

CALM = [98.0, 99.0, 100.0, 101.0, 102.0]
"""A row's values, with little noise."""

TIMES = st.lists(st.floats(1e-6, 1e6), min_size=2, max_size=6)


def row(values: Sequence[float], **more: Any) -> Row:
    """A row, of a time unless said otherwise."""
    fields: dict[str, Any] = {"what": "time of a job", "unit": "ms", **more}
    return Row(STAND_IN, "jobs", values=values, **fields)


def run(*rows: Row, **more: Any) -> Results:
    """The results of one run."""
    facts: dict[str, Any] = {
        "time": "2026-01-31T12:00:00Z",
        "quick": False,
        "machine": {"cpu": "A", "cores": 2},
        "versions": {"python": "3.9.0", "commit": "0123456789abcdef", "dirty": False},
        **more,
    }
    return Results(rows=list(rows), **facts)


def only(old: Sequence[Row], new: Sequence[Row]) -> Comparison:
    """The comparison of a row, of one run for each."""
    found = compare([run(each) for each in old], [run(each) for each in new])
    (comparison,) = found.compared
    return comparison


def table(old: Results, new: Results) -> str:
    return "\n".join(lines([old], [new], compare([old], [new])))


def times(values: Sequence[float], factor: float) -> list[float]:
    return [value * factor for value in values]


@given(TIMES, st.sampled_from(["median", P99]))
def test_results_compared_with_themselves_are_the_same(
    values: list[float], statistic: str
) -> None:
    each = row(values, statistic=statistic)
    found = only([each], [each])
    assert (found.ratio, found.verdict) == (1.0, SAME)


@given(TIMES, TIMES, st.sampled_from([0.25, 2.0, 1024.0]))
def test_the_interval_grows_with_the_ratio(
    old: list[float], new: list[float], factor: float
) -> None:
    found = only([row(old)], [row(new)])
    larger = only([row(old)], [row(times(new, factor))])
    assert found.interval is not None and larger.interval is not None
    assert larger.ratio == pytest.approx(factor * (found.ratio or 0))
    assert larger.interval == pytest.approx(times(found.interval, factor))


@given(TIMES)
def test_what_takes_a_thousand_times_longer_than_ever_is_worse(
    old: list[float],
) -> None:
    new = [1000 * max(old)] * 5
    assert only([row(old)], [row(new)]).verdict == WORSE
    assert only([row(new)], [row(old)]).verdict == BETTER


def test_more_is_better_where_a_row_says_so() -> None:
    slow = row(CALM, unit="jobs/s", more_is_better=True)
    fast = dataclasses.replace(slow, values=times(CALM, 2))
    assert only([slow], [fast]).verdict == BETTER
    assert only([fast], [slow]).verdict == WORSE


def test_a_difference_within_the_noise_of_the_repetitions_is_none() -> None:
    noisy = [50.0, 80.0, 100.0, 130.0, 200.0]
    assert only([row(noisy)], [row(times(noisy, 1.2))]).verdict == SAME
    assert only([row(CALM)], [row(times(CALM, 1.2))]).verdict == WORSE


def test_one_run_of_each_does_not_show_a_difference_of_a_few_percent() -> None:
    same = [100.0] * 20
    assert only([row(same)], [row(times(same, 1.04))]).verdict == SAME
    assert only([row(same)] * 3, [row(times(same, 1.04))] * 3).verdict == WORSE


def test_noise_between_runs_counts_where_there_are_some() -> None:
    runs = [row(times(CALM, factor)) for factor in (0.8, 1.0, 1.3)]
    others = [row(times(CALM, factor)) for factor in (0.9, 1.1, 1.4)]
    assert only(runs[:1], others[:1]).verdict == WORSE
    found = only(runs, others)
    assert (found.verdict, found.old, found.new) == (SAME, 100.0, pytest.approx(110))


def test_nothing_is_said_of_what_was_measured_while_others_used_the_machine() -> None:
    idle = {"jobs": 0.05, "ideal": 0.5}
    old = run(row(CALM), used_by_others=idle)
    new = run(row(times(CALM, 2)), used_by_others={"jobs": 0.5})
    calm = run(row(times(CALM, 2)), used_by_others=idle)
    for slow, runs, verdict in (new, 1, BUSY), (calm, 1, WORSE), (new, 3, WORSE):
        (found,) = compare([old] * runs, [slow] * runs).compared
        assert found.verdict == verdict
    assert table(old, new).endswith(
        "\nbusy (1): differ, but others used more than 10 % of the processors"
    )


def test_nothing_is_said_of_a_row_with_a_single_value() -> None:
    found = only([row([100.0])], [row([300.0])])
    assert (found.ratio, found.interval, found.verdict) == (3.0, None, UNKNOWN)
    assert only([row([100.0])] * 3, [row([300.0])] * 3).verdict == WORSE


def test_a_ratio_to_nothing_is_not_made_up() -> None:
    found = only([row([0.0, 0.0, 0.0])], [row(CALM)])
    assert (found.ratio, found.interval, found.verdict) == (None, None, UNKNOWN)


@pytest.mark.parametrize(
    "new, verdict", [(1, BETTER), (2, SAME), (3, WORSE), (0, BETTER)]
)
def test_counts_have_no_noise(new: int, verdict: str) -> None:
    old = row([2], unit="", statistic=COUNT)
    assert only([old], [dataclasses.replace(old, values=[new])]).verdict == verdict


def test_a_count_that_was_nothing_may_become_worse() -> None:
    old = row([0], unit="", statistic=COUNT)
    assert only([old], [dataclasses.replace(old, values=[1])]).verdict == WORSE


def test_rows_that_only_one_has_are_named() -> None:
    kept, gone, come = (row(CALM, what=what) for what in ("kept", "gone", "come"))
    found = compare([run(kept, gone)], [run(kept, come)])
    assert [each.row.what for each in found.compared] == ["kept"]
    assert (found.only_old, found.only_new) == ([gone], [come])
    text = table(run(kept, gone), run(kept, come))
    assert "only in OLD\n  stand-in: gone" in text
    assert "only in NEW\n  stand-in: come" in text


@pytest.mark.parametrize(
    "change, sentence",
    [
        ({"unit": "s"}, 'the unit was "ms" and is "s"'),
        ({"statistic": P99}, "the value was the median, and is the p99"),
        ({"more_is_better": True}, "more is better now, and was worse"),
    ],
)
def test_a_row_that_is_another_thing_now_gets_a_line(
    change: dict[str, Any], sentence: str
) -> None:
    old = row(CALM)
    found = compare([run(old)], [run(dataclasses.replace(old, **change))])
    assert not found.compared
    assert found.incomparable == [f"time of a job: {sentence}"]


def test_the_table_says_what_became_of_each_row() -> None:
    fast = row(CALM, what="time of a job")
    rate = row(CALM, what="jobs per second", unit="jobs/s", more_is_better=True)
    slower = dataclasses.replace(fast, values=times(CALM, 2))
    text = table(run(fast, rate), run(slower, rate))
    words = [line.split() for line in text.splitlines()]
    (job,) = [line for line in words if line[:2] == ["time", "of"]]
    assert job[4:8] == ["100", "200", "ms", "2.00"]
    assert job[-1] == WORSE
    (jobs,) = [line for line in words if line[:2] == ["jobs", "per"]]
    assert jobs[-1] == SAME
    assert text.endswith("0 better, 1 worse, 1 same")


def test_the_table_says_where_runs_are_hard_to_compare() -> None:
    versions = {"python": "3.13.0", "commit": "f" * 40, "dirty": True}
    new = run(
        row(CALM),
        quick=True,
        machine={"cpu": "B", "cores": 2},
        versions=versions,
        used_by_others={"jobs": 0.25},
        failed=["ideal"],
    )
    text = table(run(row(CALM)), new)
    assert "OLD: 2026-01-31T12:00:00Z, commit 012345678\n" in text
    assert (
        "NEW: 2026-01-31T12:00:00Z, commit fffffffff, changed since, quick, "
        "others used up to 25 % of the processors, ideal failed\n"
    ) in text
    assert "another machine: cpu: A -> B\n" in text
    assert "python: 3.9.0 -> 3.13.0\n" in text
    assert "cores" not in text
