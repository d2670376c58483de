# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""flux_k8s.control: a queue of keys and a reconciler, and long loops in portions."""

from __future__ import annotations

import random
from typing import Any, Callable, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.control.backoff import Backoff
from flux_k8s.control.controller import Controller, Options
from flux_k8s.control.coroutines import Answer, Call, Turns, drive
from flux_k8s.ports import KubeError
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


@pytest.fixture
def loop() -> VirtualLoop:
    return VirtualLoop(0.0)


def settle(loop: VirtualLoop, seconds: float = 1e6) -> None:
    """Run until nothing is due any more."""
    loop.run(lambda: loop.next_due() is None, timeout=seconds)


class Bench:
    """A controller, and what is done with it, in words: ``add a 5`` (after so many
    seconds), ``run a``, ``ok a 7`` (its run has ended, and is due again then),
    ``fail a``, ``429 a``, ``wait 5``, ``settle``, or a method of the controller."""

    def __init__(self, **options: Any) -> None:
        self.loop = VirtualLoop(0.0)
        self.reconciler = Reconciler(self.loop)
        self.told: list[str] = []
        self.controller = Controller(
            self.loop,
            self.reconciler.reconcile,
            lambda key, error: self.told.append(f"{key}: {error}"),
            Options[str](
                slow=lambda key: self.told.append(f"{key} at {self.loop.now():g}"),
                **options,
            ),
        )

    def do(self, words: str) -> str:
        """The runs so far, each with its key and its time."""
        for what, *rest in map(str.split, words.split(", ")):
            key = rest[0] if rest else ""
            seconds = float(rest[1]) if len(rest) > 1 else None
            if what == "add":
                self.controller.add(key, seconds)
            elif what == "ok":
                self.reconciler.answer(key, seconds)
            elif what in ERRORS:
                self.reconciler.answer(key, ERRORS[what])
            elif what == "wait":
                self.loop.run(lambda: False, timeout=float(key))
            elif what == "settle":
                settle(self.loop)
            else:
                getattr(self.controller, what)(*rest)
        return " ".join(f"{key}@{when:g}" for when, key in self.reconciler.runs)


ERRORS = {"fail": BROKEN, "429": KubeError(429, "TooManyRequests", retry_after=30.0)}
FAILS = ", fail a, settle"

# What is done, with which options; and when which key is handled.
COURSES: dict[str, tuple[Any, ...]] = {
    "keys are handled once however often they are added": (
        "add a, add b, add a, add b, add a, settle",
        "a@0 b@0",
    ),
    "changes at once are waited for": (
        "add a, wait 0.3, add a, settle",
        "a@0.5",
        {"debounce": 0.5},
    ),
    "the shorter of two delays counts": ("add a 5, add a 2, add a 9, settle", "a@2"),
    "a key that is added while it is handled is handled again": (
        "add a, settle, add a, add a, settle, ok a, wait 1, ok a, settle",
        "a@0 a@0",
    ),
    "a run that is begun at once is neither late nor done twice": (
        "add a, run a, run a, settle, ok a, settle, ok a, stop, run a, settle",
        "a@0 a@0",
        {"debounce": 5.0},
    ),
    "a reconciler says when it is to be run again": (
        "add a, settle, ok a 7, settle",
        "a@0 a@7",
    ),
    "pauses after failures double until a run succeeds": (
        f"add a, settle{5 * FAILS}, ok a 100, settle{FAILS}",
        "a@0 a@1 a@3 a@7 a@13 a@19 a@119 a@120",
        {"backoff": lambda key: Backoff(1.0, 6.0)},
    ),
    "failures count on while a reconciler has more to do": (
        f"add a, settle{FAILS}, ok a 0, settle{FAILS}, ok a 0, settle",
        "a@0 a@1 a@1 a@3 a@3",
    ),
    "a server that asks for time gets it": ("add a, settle, 429 a, settle", "a@0 a@30"),
    "news end a pause, but not those from before it": (
        "add a, settle, add a, fail a, wait 0.25, add a, settle",
        "a@0 a@0.25",
        {"news_end_pauses": True},
    ),
    "a run that takes long is told": (
        "add a, add b, wait 4, ok b, wait 9",
        "a@0 b@0",
        {"patience": 5.0},
        ["a at 5"],
    ),
}


@pytest.mark.parametrize("name", COURSES)
def test_keys_are_handled_in_their_turns(name: str) -> None:
    words, runs, *rest = COURSES[name]
    options, told = (*rest, *({}, None)[len(rest) :])
    bench = Bench(**options)
    assert bench.do(words) == runs
    if told is not None:
        assert bench.told == told


@pytest.mark.parametrize("end", ["restart", "forget", "abandon", "stop"])
def test_an_answer_to_a_run_that_has_ended_does_not_count(end: str) -> None:
    bench = Bench()
    bench.do("add a, settle")
    bench.do(end if end == "stop" else f"{end} a")
    late = bench.reconciler.answers.pop("a")
    bench.do("settle")
    late(3.0)
    assert bench.do("settle") == ("a@0 a@0" if end == "restart" else "a@0")
    assert bench.controller.busy("a") == (end in ("restart", "stop"))


def test_an_unexpected_error_reaches_the_scope_of_its_key(
    loop: VirtualLoop,
) -> None:
    broken: list[str] = []

    def scope(key: str, function: Callable[..., None], *args: Any) -> None:
        try:
            function(*args)
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


@pytest.mark.parametrize("where", ["reconcile", "failed", "scope"])
@pytest.mark.parametrize("news_end_pauses", [False, True])
def test_a_key_that_its_own_run_adds_waits_for_the_pause_after_its_failure(
    loop: VirtualLoop, where: str, news_end_pauses: bool
) -> None:
    runs: list[float] = []

    def add(at: str) -> None:
        if at == where:
            controller.add("a")

    def scope(key: str, function: Callable[..., None], *args: Any) -> None:
        if controller.busy(key):
            add("scope")
        function(*args)

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
        Options[str](scope=scope, news_end_pauses=news_end_pauses),
    )
    controller.run("a")
    loop.run(lambda: len(runs) == 4, timeout=60.0)
    assert runs == [0.0, 1.0, 3.0, 7.0]


@given(data=st.data())
def test_nothing_that_is_added_is_lost(data: st.DataObject) -> None:
    """Whatever comes in whatever order: in the end each key was handled after it was
    added last, and nothing is kept of it."""
    bench = Bench(debounce=data.draw(st.sampled_from([0, 0.1])))
    loop, reconciler, controller = bench.loop, bench.reconciler, bench.controller
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


# Long loops


async def each(turns: Turns, items: str, order: list[str]) -> int:
    """Note the items, two in a portion. Returns their number."""
    async for item in turns.each(items, 2):
        order.append(item)
    return len(items)


def begun(turns: Turns, items: str, order: list[str]) -> list[Any]:
    """What a loop comes to; nothing yet while it waits for its turn."""
    results: list[Any] = []
    drive(each(turns, items, order), results.append, (KubeError,))
    return results


def test_one_long_loop_does_a_portion_in_each_turn_of_the_reactor(
    loop: VirtualLoop,
) -> None:
    turns, order = Turns(loop), list[str]()
    results = [begun(turns, items, order) for items in ("abcde", "AB", "xyz")]
    assert "".join(order) == "abABxy" and results == [[], [2], []] and len(turns) == 2
    portions = []
    while loop.step():
        portions.append("".join(order[6:]))
    assert portions == ["cd", "cdz", "cdze"]
    assert results == [[5], [2], [3]] and len(turns) == 0


def test_no_loop_goes_on_that_was_stopped(loop: VirtualLoop) -> None:
    turns, order = Turns(loop), list[str]()
    results = begun(turns, "abc", order)
    turns.stop()
    loop.run()
    assert order == ["a", "b"] and not results and len(turns) == 0
