# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The watchdog of the service (with a real Flux: t1017-dws-hang.t)."""

from __future__ import annotations

from typing import Callable, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.broker.watchdog import STEPS, Watchdog
from flux_k8s.ports import Timer
from rabbitsim.loop import VirtualLoop

SECONDS = 60.0
STEP = SECONDS / STEPS


class Module:
    """A module with a watchdog, and a service that answers pings after ``latency``
    seconds; None: it does not. The machine is ``asleep`` while the next timer runs."""

    def __init__(self, latency: Optional[float], seconds: float = SECONDS) -> None:
        self.loop = VirtualLoop(0.0)
        self.latency = latency
        self.asleep = 0.0
        self.killed: list[float] = []
        self.watchdog = Watchdog(self._call_later, seconds, self._ping, self._kill)
        self.watchdog.start()

    def _call_later(self, delay: float, call: Callable[[], None]) -> Timer:
        delay, self.asleep = delay + self.asleep, 0.0
        return self.loop.call_later(delay, call)

    def _ping(self) -> None:
        if self.latency is not None:
            self.loop.call_later(self.latency, self.watchdog.reset)

    def _kill(self) -> None:
        self.killed.append(self.loop.now())

    def wait(self, seconds: float) -> None:
        self.loop.run(lambda: False, timeout=seconds)


@given(st.floats(0.0, SECONDS - 0.001))
def test_a_service_that_answers_in_time_is_left_alone(latency: float) -> None:
    module = Module(latency)
    module.wait(100 * SECONDS)
    assert module.killed == []


@pytest.mark.parametrize("seconds", [0.5, SECONDS])
def test_a_service_that_does_not_answer_is_killed_once(seconds: float) -> None:
    module = Module(0.0, seconds)
    module.wait(100 * seconds)
    module.latency = None
    module.wait(100 * seconds)
    (at,) = module.killed
    assert seconds <= at - 100 * seconds <= seconds + 2 * seconds / STEPS


def test_the_next_service_has_all_of_its_time() -> None:
    module = Module(None)
    module.wait(SECONDS - STEP)
    module.watchdog.start()
    module.wait(SECONDS - STEP)
    assert module.killed == []
    module.wait(3 * STEP)
    assert len(module.killed) == 1


@pytest.mark.parametrize("stopped", [False, True])
def test_without_a_limit_or_when_it_was_stopped_it_kills_nothing(stopped: bool) -> None:
    module = Module(None, SECONDS * stopped)
    if stopped:
        module.wait(SECONDS - STEP)
        module.watchdog.stop()
    module.wait(100 * SECONDS)
    assert module.killed == []


def test_a_service_that_was_paused_with_the_module_is_left_alone() -> None:
    """The machine was asleep: a timer is due once, however long that was."""
    module = Module(None)
    module.wait(1.5 * STEP)
    module.asleep = 100 * SECONDS
    module.wait(STEP + 100 * SECONDS)
    module.latency = 0.0
    module.watchdog.reset()
    module.wait(100 * SECONDS)
    assert module.killed == []
