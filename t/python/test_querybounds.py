# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The bounds of guests' queries, and work that is done in several turns."""

from __future__ import annotations

import errno
from typing import Any, Generator, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.broker.querybounds import (
    QUERIES_IN_WORK,
    QUERIES_PER_SECOND,
    QUERY_BYTES,
    USERS,
    QueryBounds,
)
from flux_k8s.control.turns import TURN, Shared, Turns
from rabbitsim.loop import VirtualLoop

pauses = st.floats(0.0, 2.0)


@given(st.lists(pauses, max_size=300))
def test_no_guest_gets_more_answers_than_the_rate_allows(pauses: list[float]) -> None:
    bounds, now, granted = QueryBounds(), 0.0, 0
    for pause in pauses:
        now += pause
        granted += bounds.refuse(1000, 10, 0, now) is None
    assert granted <= QUERIES_PER_SECOND * (1 + now) + 1


@given(st.lists(st.floats(1 / QUERIES_PER_SECOND + 1e-6, 2.0), max_size=100))
def test_a_guest_who_keeps_to_the_rate_is_never_refused(pauses: list[float]) -> None:
    bounds, now = QueryBounds(), 0.0
    for pause in pauses:
        now += pause
        assert bounds.refuse(1000, 10, 0, now) is None


def test_the_guest_is_told_which_bound_it_is() -> None:
    bounds = QueryBounds()
    refusals = [
        bounds.refuse(1, QUERY_BYTES + 1, 0, 0.0),
        bounds.refuse(1, 10, QUERIES_IN_WORK, 0.0),
    ]
    while (refusal := bounds.refuse(1, 10, 0, 0.0)) is None:
        pass
    refusals.append(refusal)
    errors = [refusal[0] for refusal in refusals if refusal is not None]
    assert errors == [errno.EMSGSIZE, errno.EAGAIN, errno.EAGAIN]


def test_a_clock_that_is_set_back_gives_no_further_queries() -> None:
    bounds = QueryBounds()
    for _ in range(1000):
        bounds.refuse(1, 10, 0, 100.0)
    assert bounds.refuse(1, 10, 0, 0.0) is not None


def test_only_so_many_users_are_remembered() -> None:
    bounds = QueryBounds()
    for userid in range(3 * USERS):
        bounds.refuse(userid, 10, 0, 0.0)
    assert len(bounds._buckets) == USERS


def test_pieces_of_work_take_turns_and_an_error_is_of_its_own_work_only() -> None:
    loop = VirtualLoop()
    turns = Turns[str](loop)
    order: list[str] = []
    results: list[Any] = []

    def parts(name: str, count: int, fails: bool) -> Generator[int, None, str]:
        for _ in range(count):
            order.append(name)
            yield TURN
        if fails:
            raise ValueError(name)
        return name

    for name, count, fails in (("a", 3, False), ("b", 2, True), ("c", 0, False)):
        turns.add(parts(name, count, fails), results.append)
    assert order == ["a"] and results == []
    loop.run()
    assert order == ["a", "a", "b", "a", "b"]
    assert [str(result) for result in results] == ["c", "a", "b"]
    assert isinstance(results[2], ValueError) and len(turns) == 0


@pytest.mark.parametrize("error", [None, ValueError("it broke")])
def test_shared_work_is_done_once_and_its_result_or_error_is_for_all(
    error: Optional[ValueError],
) -> None:
    loop = VirtualLoop()
    turns = Turns[str](loop)
    done: list[int] = []
    results: list[Any] = []

    def parts() -> Generator[int, None, str]:
        for part in range(5):
            done.append(part)
            yield TURN
        if error is not None:
            raise error
        return "rows"

    shared = Shared(parts())
    for _ in range(3):
        turns.add(shared.wait(), results.append)
    loop.run()
    turns.add(shared.wait(), results.append)
    assert done == list(range(5))
    assert results == [error or "rows"] * 4


def test_work_that_is_stopped_is_never_done() -> None:
    loop = VirtualLoop()
    turns = Turns[None](loop)

    def parts() -> Generator[int, None, None]:
        yield TURN

    turns.add(parts(), lambda result: 1 / 0)
    turns.stop()
    loop.run()
    assert len(turns) == 0
