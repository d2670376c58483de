# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The watchdog of the service (with a real Flux: t1017-dws-hang.t)."""

from __future__ import annotations

from typing import Any, Callable, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.broker.watchdog import STEPS, Watchdog
from flux_k8s.ports import Timer
from rabbitsim.loop import VirtualLoop

SECONDS = 60.0
STEP = SECONDS / STEPS


class Loop(VirtualLoop):
    """A loop whose machine may sleep."""

    def sleep(self, seconds: float) -> None:
        self._now += seconds


class Watcher:
    """A timer of the reactor, which fires once."""

    def __init__(self, loop: Loop, delay: float, call: Callable[[], None]) -> None:
        self._loop, self._delay, self._call = loop, delay, call
        self._timer: Optional[Timer] = None

    def start(self) -> None:
        self._timer = self._loop.call_later(self._delay, self._call)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def destroy(self) -> None:
        self._timer = None


class Module:
    """A module with a watchdog, and a service that answers pings after ``latency``
    seconds; None: it does not."""

    def __init__(self, latency: Optional[float], seconds: float = SECONDS) -> None:
        self.loop = Loop(0.0)
        self.latency = latency
        self.killed: list[float] = []
        self.watchdog = Watchdog(self, seconds, self._ping, self._kill)
        self.watchdog.start()

    def timer_watcher_create(self, delay: float, call: Any) -> Watcher:
        return Watcher(self.loop, delay, call)

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
    module = Module(None, seconds)
    module.wait(100 * seconds)
    (at,) = module.killed
    assert seconds <= at <= seconds + 2 * seconds / STEPS


def test_a_service_that_hangs_after_a_long_time_is_killed() -> None:
    module = Module(0.0)
    module.wait(100 * SECONDS)
    module.latency = None
    module.wait(2 * SECONDS)
    assert len(module.killed) == 1


def test_the_next_service_has_all_of_its_time() -> None:
    module = Module(None)
    module.wait(SECONDS - STEP)
    module.watchdog.start()
    module.wait(SECONDS - STEP)
    assert module.killed == []
    module.wait(3 * STEP)
    assert len(module.killed) == 1


def test_without_a_limit_nothing_is_killed() -> None:
    module = Module(None, 0.0)
    module.wait(100 * SECONDS)
    assert module.killed == []


def test_a_watchdog_that_was_stopped_kills_nothing() -> None:
    module = Module(None)
    module.wait(SECONDS - STEP)
    module.watchdog.stop()
    module.wait(100 * SECONDS)
    assert module.killed == []


def test_a_service_that_was_paused_with_the_module_is_left_alone() -> None:
    """The machine was asleep: a timer is due once, however long that was."""
    module = Module(None)
    module.wait(2.5 * STEP)
    module.loop.sleep(100 * SECONDS)
    module.wait(0.5 * STEP)
    module.latency = 0.0
    module.watchdog.reset()
    module.wait(100 * SECONDS)
    assert module.killed == []
