# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The event loop: timers that share one of the reactor, and work of other threads."""

from __future__ import annotations

import time
from typing import Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.timers import TURN, OneShotTimer, SteadyClock, Timers


class Reactor:
    """A reactor with one timer, and a clock that stands still between its turns."""

    def __init__(self) -> None:
        self.now = 0.0
        self.due: Optional[float] = None
        self.timers = Timers(self._arm, lambda: self.now)

    def _arm(self, seconds: float) -> None:
        self.due = self.now + seconds

    def turn(self) -> None:
        """Wait for the timer, and call what is due."""
        assert self.due is not None
        self.now, self.due = max(self.now, self.due), None
        self.timers.run()

    def run(self) -> None:
        while self.due is not None:
            self.turn()


delays = st.lists(st.sampled_from([-1.0, 0.0, 0.5, 1.0, 2.5]), max_size=30)


@given(delays, st.data())
def test_what_is_not_cancelled_is_called_once_when_it_is_due(
    seconds: list[float], data: st.DataObject
) -> None:
    reactor = Reactor()
    called: list[tuple[float, int]] = []

    def add(number: int, delay: float) -> OneShotTimer:
        def function() -> None:
            called.append((reactor.now, number))

        return reactor.timers.add(delay, function)

    timers = [add(number, delay) for number, delay in enumerate(seconds)]
    numbers = range(len(seconds))
    cancelled = data.draw(st.sets(st.sampled_from(numbers)) if seconds else st.just([]))
    for number in cancelled:
        timers[number].cancel()
        timers[number].cancel()
    reactor.run()
    expected = [(max(seconds[n], 0.0), n) for n in numbers if n not in cancelled]
    assert called == sorted(expected)
    assert len(reactor.timers) == 0


def test_functions_that_take_long_let_the_reactor_have_its_turn() -> None:
    reactor = Reactor()
    calls: list[float] = []

    def work() -> None:
        calls.append(reactor.now)
        reactor.now += TURN / 2

    for _ in range(3):
        reactor.timers.add(0.0, work)
    reactor.turn()
    assert len(calls) == 2
    reactor.turn()
    assert len(calls) == 3


def test_the_clock_of_a_service_goes_on_evenly_when_that_of_the_machine_is_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_to = {"time": 1_800_000_000.0, "monotonic": 50.0}
    for name in set_to:
        monkeypatch.setattr(time, name, lambda name=name: set_to[name])
    clock = SteadyClock()
    assert clock.now() == pytest.approx(1_800_000_000.0)
    set_to.update(time=set_to["time"] - 7200.0, monotonic=58.0)
    assert clock.now() == pytest.approx(1_800_000_008.0)
    set_to.update(time=set_to["time"] + 32400.0, monotonic=60.0)
    assert clock.now() == pytest.approx(1_800_000_010.0)
