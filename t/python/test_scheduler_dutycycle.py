# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What is costly takes a share of sched-rabbit's time only."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.scheduler.dutycycle import REST, DutyCycle


@given(st.lists(st.floats(0.0, 10.0), min_size=1))
def test_work_that_is_done_when_it_is_due_takes_its_part_of_the_time(
    costs: list[float],
) -> None:
    now = 0.0
    work = DutyCycle(lambda: now)
    assert work.wait == 0.0
    for cost in costs:
        now += work.wait
        with work.spend():
            now += cost
        assert work.wait <= REST * cost + 1e-9
    now += work.wait
    assert sum(costs) <= now / (1 + REST) + 1e-6
