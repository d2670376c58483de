# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""flux_k8s.control.controller: a queue of keys and a reconciler."""

from __future__ import annotations

import random
from typing import Any, Callable, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.control.backoff import Backoff
from flux_k8s.control.controller import BATCH, Controller, Options
from flux_k8s.control.coroutines import Answer, Call
from flux_k8s.ports import KubeError, Timer
from rabbitsim.loop import VirtualLoop

BROKEN = KubeError(500, "InternalError", "it broke")


class Reconciler:
    """A reconciler whose runs are requests that the test answers."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self.runs: list[tuple[float, str]] = []
        self.answers: dict[str, Answer] = {}

    async def reconcile(self, key: str) -> Optional[float]:
        self.runs.append((self.loop.now(), key))
        again: Optional[float] = await Call(lambda answer: self._ask(key, answer))
        return again

    def _ask(self, key: str, answer: Answer) -> None:
        assert key not in self.answers, f"{key} is handled twice at a time"
        self.answers[key] = answer

    def answer(self, key: str, what: Any = None) -> None:
        self.answers.pop(key)(what)


class Clock:
    """A clock that is set."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self.offset = 0.0

    def now(self) -> float:
        return self.loop.now() + self.offset

    def call_later(self, delay: float, function: Callable[[], None]) -> Timer:
        return self.loop.call_later(delay, function)


@pytest.fixture
def loop() -> VirtualLoop:
    return VirtualLoop(0.0)


@pytest.fixture
def reconciler(loop: VirtualLoop) -> Reconciler:
    return Reconciler(loop)


def controller_of(reconciler: Reconciler, **options: Any) -> Controller[str]:
    return Controller(
        reconciler.loop, reconciler.reconcile, options=Options[str](**options)
    )


def settle(loop: VirtualLoop, seconds: float = 1e6) -> None:
    """Run until nothing is due any more."""
    loop.run(lambda: loop.next_due() is None, timeout=seconds)


def test_keys_that_are_added_many_times_are_handled_once(
    loop: VirtualLoop, reconciler: Reconciler
) -> None:
    controller = controller_of(reconciler)
    for _ in range(3):
        controller.add("a")
        controller.add("b")
    settle(loop)
    assert [key for _, key in reconciler.runs] == ["a", "b"]


def test_keys_beyond_those_that_are_handled_in_one_go_have_a_later_turn(
    loop: VirtualLoop, reconciler: Reconciler
) -> None:
    keys = [str(number) for number in range(3 * BATCH)]
    controller = controller_of(reconciler)
    for key in keys:
        controller.add(key)
    assert loop.step()
    assert [key for _, key in reconciler.runs] == keys[:BATCH]
    assert controller.ready == len(keys) - BATCH
    settle(loop)
    assert [key for _, key in reconciler.runs] == keys


@pytest.mark.parametrize("later", [0.3, 0.5])
def test_changes_that_come_at_once_are_waited_for(
    loop: VirtualLoop, reconciler: Reconciler, later: float
) -> None:
    controller = controller_of(reconciler, debounce=0.5)
    loop.call_later(later, lambda: controller.add("a"))
    controller.add("a")
    settle(loop)
    assert reconciler.runs == [(0.5, "a")]


def test_a_key_with_two_delays_is_handled_after_the_shorter_one(
    loop: VirtualLoop, reconciler: Reconciler
) -> None:
    controller = controller_of(reconciler)
    for delay in (5.0, 2.0, 9.0):
        controller.add("a", delay)
    settle(loop)
    assert reconciler.runs == [(2.0, "a")]


def test_a_key_that_is_added_while_it_is_handled_is_handled_again(
    loop: VirtualLoop, reconciler: Reconciler
) -> None:
    controller = controller_of(reconciler)
    controller.add("a")
    settle(loop)
    controller.add("a")
    controller.add("a")
    settle(loop)
    assert len(reconciler.runs) == 1
    reconciler.answer("a")
    settle(loop)
    assert len(reconciler.runs) == 2
    reconciler.answer("a")
    settle(loop)
    assert len(reconciler.runs) == 2


def test_a_run_that_is_begun_at_once_is_neither_late_nor_done_twice(
    loop: VirtualLoop, reconciler: Reconciler
) -> None:
    controller = controller_of(reconciler, debounce=5.0)
    controller.add("a")
    controller.run("a")
    assert reconciler.runs == [(0.0, "a")]
    controller.run("a")
    settle(loop)
    assert reconciler.runs == [(0.0, "a")], "a run was begun within another"
    reconciler.answer("a")
    settle(loop)
    assert reconciler.runs == [(0.0, "a")] * 2
    reconciler.answer("a")
    controller.stop()
    controller.run("a")
    settle(loop)
    assert reconciler.runs == [(0.0, "a")] * 2


def test_a_reconciler_says_when_it_is_to_be_run_again(
    loop: VirtualLoop, reconciler: Reconciler
) -> None:
    controller = controller_of(reconciler)
    controller.add("a")
    settle(loop)
    reconciler.answer("a", 7.0)
    settle(loop)
    assert reconciler.runs == [(0.0, "a"), (7.0, "a")]


def test_pauses_after_failures_double_until_a_run_succeeds(
    loop: VirtualLoop, reconciler: Reconciler
) -> None:
    failed: list[str] = []
    controller = Controller(
        loop,
        reconciler.reconcile,
        lambda key, error: failed.append(f"{key}: {error}"),
        Options[str](backoff=lambda key: Backoff(1.0, 6.0)),
    )
    controller.add("a")
    settle(loop)
    for _ in range(5):
        reconciler.answer("a", BROKEN)
        settle(loop)
    assert [when for when, _ in reconciler.runs] == [0.0, 1.0, 3.0, 7.0, 13.0, 19.0]
    assert failed == ["a: it broke"] * 5 and controller.failures("a") == 5
    reconciler.answer("a", 100.0)
    settle(loop)
    reconciler.answer("a", BROKEN)
    settle(loop)
    assert [when for when, _ in reconciler.runs[6:]] == [119.0, 120.0]


def test_failures_count_on_while_a_reconciler_has_more_to_do(
    loop: VirtualLoop, reconciler: Reconciler
) -> None:
    controller = controller_of(reconciler)
    controller.add("a")
    settle(loop)
    for answer in (BROKEN, 0.0, BROKEN, 0.0):
        reconciler.answer("a", answer)
        settle(loop)
    assert [when for when, _ in reconciler.runs] == [0.0, 1.0, 1.0, 3.0, 3.0]


def test_a_server_that_asks_for_time_gets_it(
    loop: VirtualLoop, reconciler: Reconciler
) -> None:
    controller = controller_of(reconciler)
    controller.add("a")
    settle(loop)
    reconciler.answer("a", KubeError(429, "TooManyRequests", retry_after=30.0))
    settle(loop)
    assert reconciler.runs == [(0.0, "a"), (30.0, "a")]


def test_a_key_added_in_a_pause_ends_it_but_not_one_added_before(
    loop: VirtualLoop, reconciler: Reconciler
) -> None:
    controller = controller_of(reconciler, news_end_pauses=True)
    controller.add("a")
    settle(loop)
    controller.add("a")
    reconciler.answer("a", BROKEN)
    loop.call_later(0.25, lambda: controller.add("a"))
    settle(loop)
    assert reconciler.runs == [(0.0, "a"), (0.25, "a")]


@pytest.mark.parametrize(
    "error, pauses",
    [
        (BROKEN, [1.0, 2.0, 4.0]),
        (KubeError(429, "TooManyRequests", retry_after=30.0), [30.0] * 3),
    ],
)
def test_whatever_changes_a_server_that_fails_has_its_pauses(
    loop: VirtualLoop, reconciler: Reconciler, error: KubeError, pauses: list[float]
) -> None:
    controller = controller_of(reconciler, debounce=0.25)
    controller.run("a")
    for _ in pauses:
        runs = len(reconciler.runs)
        reconciler.answer("a", error)
        while len(reconciler.runs) == runs:
            controller.add("a")
            loop.run(timeout=0.125)
    times = [time for time, _ in reconciler.runs]
    assert [after - time for time, after in zip(times, times[1:])] == pauses
    reconciler.answer("a")
    controller.add("a")
    settle(loop)
    assert reconciler.runs[-1] == (sum(pauses) + 0.25, "a"), "news wait for no pause"


@pytest.mark.parametrize("end", ["restart", "forget", "abandon", "stop"])
def test_an_answer_to_a_run_that_has_ended_does_not_count(
    loop: VirtualLoop, reconciler: Reconciler, end: str
) -> None:
    controller = controller_of(reconciler)
    controller.add("a")
    settle(loop)
    getattr(controller, end)(*([] if end == "stop" else ["a"]))
    late = reconciler.answers.pop("a")
    settle(loop)
    late(3.0)
    settle(loop)
    assert reconciler.runs == [(0.0, "a")] * (2 if end == "restart" else 1)
    assert controller.busy("a") == (end in ("restart", "stop"))


def test_an_unexpected_error_reaches_the_scope_of_its_key(
    loop: VirtualLoop,
) -> None:
    broken: list[str] = []

    def scope(key: str, function: Callable[[], None]) -> None:
        try:
            function()
        except ArithmeticError as error:
            broken.append(f"{key}: {error}")
            controller.retry(key)

    runs: list[str] = []

    async def reconcile(key: str) -> None:
        runs.append(key)
        if runs.count(key) == 1 and key == "a":
            raise ArithmeticError("it broke")

    controller = Controller(loop, reconcile, options=Options[str](scope=scope))
    controller.add("a")
    controller.add("b")
    settle(loop)
    assert runs == ["a", "b", "a"] and broken == ["a: it broke"]


def test_a_run_that_takes_long_is_reported(
    loop: VirtualLoop, reconciler: Reconciler
) -> None:
    slow: list[tuple[float, str]] = []
    controller = controller_of(
        reconciler, patience=5.0, slow=lambda key: slow.append((loop.now(), key))
    )
    for key in ("a", "b"):
        controller.add(key)
    loop.call_later(4.0, lambda: reconciler.answer("b"))
    settle(loop)
    assert slow == [(5.0, "a")]


def test_a_clock_that_is_set_forward_holds_up_no_news(
    loop: VirtualLoop, reconciler: Reconciler
) -> None:
    clock = Clock(loop)
    controller = Controller(
        clock, reconciler.reconcile, options=Options[str](debounce=0.5)
    )
    controller.add("a", 300.0)
    clock.offset = 3600.0
    controller.add("a")
    settle(loop)
    assert reconciler.runs == [(0.5, "a")]


def test_a_run_that_is_begun_anew_from_within_is_not_ended_by_its_own_end(
    loop: VirtualLoop,
) -> None:
    runs: list[float] = []

    async def reconcile(key: str) -> None:
        runs.append(loop.now())
        if len(runs) == 1:
            controller.retry(key)

    controller = Controller[str](loop, reconcile)
    controller.add("a")
    settle(loop)
    assert runs == [0.0, 1.0]


@pytest.mark.parametrize("where", ["reconcile", "failed", "bind"])
@pytest.mark.parametrize("news_end_pauses", [False, True])
def test_a_key_that_its_own_run_adds_waits_for_the_pause_after_its_failure(
    loop: VirtualLoop, where: str, news_end_pauses: bool
) -> None:
    runs: list[float] = []

    def add(at: str) -> None:
        if at == where:
            controller.add("a")

    def bind(callback: Callable[..., None]) -> Callable[..., None]:
        add("bind")
        return callback

    async def reconcile(key: str) -> None:
        runs.append(loop.now())
        assert len(runs) < 9, "there is no pause"
        add("reconcile")
        await Call[None](lambda answer: loop.call_later(0.0, lambda: answer(None)))
        if len(runs) < 4:
            raise BROKEN

    controller = Controller[str](
        loop,
        reconcile,
        lambda key, error: add("failed"),
        Options[str](bind=bind, news_end_pauses=news_end_pauses),
    )
    controller.run("a")
    loop.run(lambda: len(runs) == 4, timeout=60.0)
    assert runs == [0.0, 1.0, 3.0, 7.0]


def test_one_run_at_a_time_is_under_way_whatever_is_tried_again(
    loop: VirtualLoop, reconciler: Reconciler
) -> None:
    controller = controller_of(reconciler, patience=5.0)
    controller.add("a")
    settle(loop)
    late = reconciler.answers.pop("a")
    controller.retry("a")
    settle(loop)
    late()
    settle(loop)
    assert reconciler.runs == [(0.0, "a"), (6.0, "a")] and controller.busy("a")


def test_an_unexpected_error_leaves_no_key_busy(loop: VirtualLoop) -> None:
    async def reconcile(key: str) -> None:
        await Call[None](lambda answer: loop.call_later(1.0, lambda: answer(None)))
        raise ArithmeticError("it broke")

    controller = Controller[str](loop, reconcile)
    controller.add("a")
    with pytest.raises(ArithmeticError):
        settle(loop)
    assert not controller.busy("a")


def test_the_owner_of_a_back_off_may_reset_it(
    loop: VirtualLoop, reconciler: Reconciler
) -> None:
    backoff = Backoff(1.0, 60.0)
    controller = controller_of(reconciler, backoff=lambda key: backoff, forgets=False)
    for answer in (BROKEN, None):
        controller.add("a", 100.0)
        settle(loop, 100.0)
        reconciler.answer("a", answer)
    assert backoff.failures == 1


@given(data=st.data())
def test_nothing_that_is_added_is_lost(data: st.DataObject) -> None:
    """Whatever comes in whatever order: in the end each key was handled after it was
    added last, and nothing is kept of it."""
    loop = VirtualLoop(0.0)
    reconciler = Reconciler(loop)
    controller = controller_of(
        reconciler, debounce=data.draw(st.sampled_from([0, 0.1]))
    )
    added: dict[str, float] = {}
    for _ in range(data.draw(st.integers(1, 20))):
        act = data.draw(st.sampled_from(["add", "later", "answer", "fail", "time"]))
        key = data.draw(st.sampled_from("abc"))
        if act in ("add", "later"):
            controller.add(key, None if act == "add" else 3.0)
            added[key] = loop.now()
        elif act == "time":
            loop.run(lambda: False, timeout=data.draw(st.sampled_from([0.0, 0.05, 5])))
        elif key in reconciler.answers:
            reconciler.answer(key, BROKEN if act == "fail" else None)
    for _ in range(100):
        settle(loop)
        if not reconciler.answers:
            break
        for key in list(reconciler.answers):
            reconciler.answer(key)
    last = {key: when for when, key in reconciler.runs}
    assert all(last[key] >= when for key, when in added.items())
    assert not any(controller.busy(key) or controller.failures(key) for key in "abc")


@given(st.floats(0.01, 10.0), st.floats(10.0, 100.0), st.lists(st.just(0), max_size=40))
def test_a_pause_with_chance_is_between_half_and_all_of_one_without(
    first: float, longest: float, failures: list[int]
) -> None:
    plain, varied = Backoff(first, longest), Backoff(first, longest, random.Random(0))
    for _ in failures:
        most = plain.fail()
        assert most / 2 <= varied.fail() <= most <= longest
    assert plain.failures == varied.failures == len(failures)
    plain.reset()
    assert plain.fail() == first
