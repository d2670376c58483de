# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""flux_k8s.control.coroutines: steps that await requests."""

from __future__ import annotations

import traceback
from typing import Any, Coroutine

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.control.coroutines import Answer, Call, Turns, call, drive, gather
from flux_k8s.ports import KubeError
from rabbitsim.loop import VirtualLoop

REFUSED = KubeError(403, "Forbidden", "not you")


class Requests:
    """Requests that are answered later, in any order."""

    def __init__(self) -> None:
        self.sent: dict[str, Answer] = {}

    def send(self, name: str) -> Call[Any]:
        return call(self._send, name)

    def _send(self, name: str, answer: Answer) -> None:
        self.sent[name] = answer


def driven(coroutine: Coroutine[Call[Any], Any, Any]) -> list[Any]:
    """What a coroutine comes to; nothing yet while it waits."""
    results: list[Any] = []
    drive(coroutine, results.append, (KubeError,))
    return results


def test_a_request_is_sent_when_it_is_awaited_and_its_answer_counts_once() -> None:
    requests = Requests()

    async def step() -> str:
        first = await requests.send("a")
        second = await requests.send("b")
        return f"{first}{second}"

    results = driven(step())
    assert list(requests.sent) == ["a"] and not results
    requests.sent["a"]("x")
    requests.sent["a"]("x")
    assert list(requests.sent) == ["a", "b"] and not results
    requests.sent["b"]("y")
    requests.sent["b"]("y")
    assert results == ["xy"]


def test_an_answer_that_comes_twice_at_once_is_none_to_the_next_request() -> None:
    async def step() -> list[str]:
        twice = Call[str](lambda answer: [answer("x"), answer("x")])
        return [await twice, await requests.send("b")]

    requests = Requests()
    results = driven(step())
    requests.sent["b"]("y")
    assert results == [["x", "y"]]


@pytest.mark.parametrize("caught", [True, False])
def test_an_answer_that_is_an_error_is_raised_where_it_is_awaited(caught: bool) -> None:
    requests = Requests()

    async def step() -> str:
        try:
            await requests.send("a")
        except KubeError as error:
            if caught:
                return error.reason
            raise
        return "nothing was raised"

    results = driven(step())
    requests.sent["a"](REFUSED)
    assert results == ["Forbidden" if caught else REFUSED]


def test_any_other_error_goes_to_the_one_who_answered() -> None:
    requests = Requests()

    async def step() -> None:
        await requests.send("a")
        raise LookupError("a mistake of ours")

    results = driven(step())
    with pytest.raises(LookupError):
        requests.sent["a"]("x")
    assert not results


def test_answers_that_come_at_once_need_no_deeper_stack() -> None:
    def at_once(answer: Answer) -> None:
        answer(1)

    async def step() -> int:
        total = 0
        for _ in range(100_000):
            total += await Call[int](at_once)
        return total

    assert driven(step()) == [100_000]


@given(st.permutations(range(4)), st.sets(st.integers(0, 3)))
def test_requests_at_once_give_their_results_or_the_first_error_in_their_order(
    order: list[int], refused: set[int]
) -> None:
    requests = Requests()
    errors = {number: KubeError(500, str(number)) for number in refused}

    async def step() -> list[str]:
        return await gather(requests.send(str(number)) for number in range(4))

    results = driven(step())
    assert len(requests.sent) == 4
    for number in order:
        assert not results
        requests.sent[str(number)](errors.get(number, f"result {number}"))
    expected: Any = [f"result {number}" for number in range(4)]
    assert results == [errors[min(refused)] if refused else expected]


def test_an_error_that_answers_many_requests_keeps_the_frames_of_one() -> None:
    async def step() -> None:
        await Call[None](lambda answer: answer(error))

    error = KubeError(0, "Timeout")
    lengths = []
    for _ in range(3):
        drive(step(), lambda result: None, (KubeError,))
        lengths.append(len(list(traceback.walk_tb(error.__traceback__))))
    assert len(set(lengths)) == 1


async def each(turns: Turns, items: str, order: list[str]) -> int:
    """Note the items, two in a portion. Returns their number."""
    async for item in turns.each(items, 2):
        order.append(item)
    return len(items)


def test_one_long_loop_does_a_portion_in_each_turn_of_the_reactor() -> None:
    loop = VirtualLoop()
    turns, order = Turns(loop), list[str]()
    results = [driven(each(turns, items, order)) for items in ("abcde", "AB", "xyz")]
    assert "".join(order) == "abABxy" and results == [[], [2], []] and len(turns) == 2
    portions = []
    while loop.step():
        portions.append("".join(order[6:]))
    assert portions == ["cd", "cdz", "cdze"]
    assert results == [[5], [2], [3]] and len(turns) == 0


def test_no_loop_goes_on_that_was_stopped() -> None:
    loop = VirtualLoop()
    turns, order = Turns(loop), list[str]()
    results = driven(each(turns, "abc", order))
    turns.stop()
    loop.run()
    assert order == ["a", "b"] and not results and len(turns) == 0
