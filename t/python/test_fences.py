# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The nodes that the site's program says are fenced."""

from __future__ import annotations

from typing import Any, Callable, Coroutine
from unittest.mock import Mock

import pytest

from flux_k8s.config.table import Config
from flux_k8s.control.coroutines import drive
from flux_k8s.formats.resourcestatus import NodeStates
from flux_k8s.machine.fences import Fences
from support.unmounting import BAD, FENCE


def flux_that(run_program: Callable[..., None]) -> Any:
    """A Flux that runs programs."""
    return Mock(now=lambda: 0.0, run_program=run_program)


def test_an_answer_that_is_older_than_the_return_of_a_node_does_not_count() -> None:
    answers: list[Callable[[Any], None]] = []
    changes: list[None] = []
    flux = Mock(
        now=lambda: 0.0,
        run_program=lambda argv, timeout, done, read: answers.append(done),
    )
    config = Config.parse({"fence_command": [FENCE]})
    settings = Mock(config=config)
    fences = Fences(Mock(flux=flux, settings=settings), lambda: changes.append(None))

    def ask() -> None:
        drive(fences.ask([BAD]), lambda result: None, ())

    def see(*drained: str) -> None:
        reasons = dict.fromkeys(drained, "bad")
        fences.nodes_changed(NodeStates((BAD,), frozenset(), reasons, {}))

    see(BAD)
    ask()
    see()
    answers.pop()(frozenset({BAD}))
    assert fences.nodes == frozenset() and not changes
    ask()
    assert not answers
    flux.call_later.call_args.args[1]()
    answers.pop()(frozenset({BAD}))
    assert fences.nodes == {BAD} and len(changes) == 1


async def note(asked: Coroutine[Any, Any, None], number: int) -> int:
    """Return the number when an answer is there."""
    await asked
    return number


def test_one_program_runs_at_a_time_and_the_next_is_for_all_who_wait() -> None:
    runs: list[tuple[str, Callable[[Any], None]]] = []
    flux = Mock(
        now=lambda: 0.0,
        run_program=lambda argv, _, done, read: runs.append((argv[-1], done)),
    )
    settings = Mock(config=Config.parse({"fence_command": [FENCE]}))
    fences = Fences(Mock(flux=flux, settings=settings), lambda: None)
    fences.nodes_changed(NodeStates((), frozenset(f"n{i}" for i in range(9)), {}, {}))
    answered: list[int] = []
    for number in range(9):
        drive(note(fences.ask([f"n{number}"]), number), answered.append, ())
    ((asked, done),) = runs
    assert (asked, answered) == ("n0", [])
    done(frozenset())
    assert (answered, len(runs)) == ([0], 1)
    flux.call_later.call_args.args[1]()
    (asked, done) = runs[-1]
    assert (asked, len(runs)) == ("n[1-8]", 2)
    settings.config = Config.parse({})
    drive(note(fences.ask(["n0"]), 9), answered.append, ())
    done(frozenset({"n3"}))
    assert answered == [0, 9, *range(1, 9)] and not fences.nodes
    assert len(runs) == 2


def test_many_jobs_do_not_have_the_program_run_more_often() -> None:
    runs: list[tuple[str, Callable[[Any], None]]] = []
    flux = Mock(run_program=lambda argv, _, done, read: runs.append((argv[-1], done)))
    settings = Mock(config=Config.parse({"fence_command": [FENCE]}))
    fences = Fences(Mock(flux=flux, settings=settings), lambda: None)
    answered: list[int] = []

    def ask(host: str, number: int) -> None:
        drive(note(fences.ask([host]), number), answered.append, ())

    ask("n0", 0)
    runs[0][1](frozenset({"n0"}))
    ask("n0", 1)  # the answer counts for a moment
    for number in range(2, 9):
        ask(f"n{number}", number)
    assert (answered, len(runs)) == ([0, 1], 1)
    flux.call_later.call_args.args[1]()
    assert [asked for asked, _ in runs] == ["n0", "n[2-8]"]
    runs[1][1](frozenset())
    assert answered == [*range(9)] and fences.nodes == {"n0"}


def test_those_who_wait_for_a_program_that_is_configured_no_more_go_on() -> None:
    runs: list[Callable[[Any], None]] = []
    flux = Mock(
        now=lambda: 0.0, run_program=lambda argv, timeout, done, read: runs.append(done)
    )
    settings = Mock(config=Config.parse({"fence_command": [FENCE]}))
    fences = Fences(Mock(flux=flux, settings=settings), lambda: None)
    answered: list[int] = []
    for number in range(2):
        drive(note(fences.ask([BAD]), number), answered.append, ())
    settings.config = Config.parse({})
    runs.pop()(frozenset({BAD}))
    flux.call_later.call_args.args[1]()
    assert answered == [0, 1] and not runs and not fences.nodes


def test_those_who_wait_for_a_program_that_cannot_be_run_go_on_and_ask_again() -> None:
    """Whatever is wrong with it: nobody else would ever get an answer."""
    starts: list[None] = []

    def run(argv: Any, timeout: float, done: Any, read: Any) -> None:
        starts.append(None)
        raise RuntimeError("can't start new thread")

    settings = Mock(config=Config.parse({"fence_command": [FENCE]}))
    fences = Fences(Mock(flux=flux_that(run), settings=settings), lambda: None)
    answered: list[int] = []
    for number in range(2):
        with pytest.raises(RuntimeError):
            drive(note(fences.ask([BAD]), number), answered.append, ())
    assert len(starts) == 2
    drive(note(fences.ask(["no host name"]), 2), answered.append, ())
    assert answered == [2]
