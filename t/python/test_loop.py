# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""rabbitsim.loop: timers in real and in virtual time."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbitsim.loop import RealLoop, VirtualLoop


@pytest.fixture
def real() -> Iterator[RealLoop]:
    loop = RealLoop()
    yield loop
    loop.close()


@given(st.lists(st.floats(-1.0, 1e6)))
def test_virtual_timers_fire_in_order_of_time_then_of_start(
    delays: list[float],
) -> None:
    loop = VirtualLoop(start=0.0)
    fired: list[tuple[float, int]] = []
    for index, delay in enumerate(delays):
        loop.call_later(delay, lambda i=index: fired.append((loop.now(), i)))  # type: ignore[misc]
    assert not loop.run()
    assert fired == sorted(
        (max(delay, 0.0), index) for index, delay in enumerate(delays)
    )


def test_a_cancelled_timer_does_not_fire_and_may_be_cancelled_again() -> None:
    loop = VirtualLoop()
    fired: list[str] = []
    timer = loop.call_later(1.0, lambda: fired.append("cancelled"))
    kept = loop.call_later(2.0, lambda: fired.append("kept"))
    timer.cancel()
    timer.cancel()
    loop.run()
    kept.cancel()
    assert fired == ["kept"]


def test_a_virtual_run_stops_at_its_timeout_and_goes_on_from_there() -> None:
    loop = VirtualLoop(start=0.0)
    fired: list[float] = []
    for delay in (1.0, 2.0, 3.0):
        loop.call_later(delay, lambda: fired.append(loop.now()))
    assert not loop.run(timeout=2.0)
    assert fired == [1.0, 2.0]
    assert loop.run(until=lambda: len(fired) == 3)
    assert not loop.step()


def test_a_real_loop_runs_timers_and_stops_when_it_is_told(real: RealLoop) -> None:
    fired: list[str] = []
    real.call_later(0.002, lambda: fired.append("late"))
    real.call_soon(lambda: fired.append("soon"))
    assert real.run(until=lambda: len(fired) == 2, timeout=10.0)
    assert fired == ["soon", "late"]


def test_an_interrupt_ends_a_real_loop_and_no_function_that_it_called(
    real: RealLoop,
) -> None:
    seen: list[str] = []

    def interrupted() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        seen.append("to its end")

    before = signal.getsignal(signal.SIGINT)
    real.call_soon(interrupted)
    assert not real.run_interruptible(lambda: False)
    assert seen == ["to its end"]
    assert signal.getsignal(signal.SIGINT) is before
    assert real.run_interruptible(lambda: True)


def test_a_flood_from_other_threads_never_blocks_them(real: RealLoop) -> None:
    seen: list[int] = []
    # More wake-ups than a pipe holds, while nobody reads.
    for number in range(100_000):
        real.call_soon_threadsafe(lambda n=number: seen.append(n))  # type: ignore[misc]
    assert real.run(until=lambda: bool(seen), timeout=10.0)
    assert seen == list(range(100_000))
