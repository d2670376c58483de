# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The bounds of guests' queries."""

from __future__ import annotations

import errno

from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.broker.querybounds import (
    QUERIES_IN_WORK,
    QUERIES_PER_SECOND,
    QUERY_BYTES,
    USERS,
    QueryBounds,
)

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
    while bounds.refuse(0, 10, 0, 0.0) is None:
        pass
    for userid in range(1, USERS + 1):
        bounds.refuse(userid, 10, 0, 0.0)
    assert bounds.refuse(0, 10, 0, 0.0) is None
