# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The nodes that the site's program says are fenced."""

from __future__ import annotations

import errno
import os
from typing import Any, Callable, Coroutine
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.config.table import Config
from flux_k8s.control.coroutines import drive
from flux_k8s.formats import hostlist
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
    answers.pop()(frozenset({BAD}))
    assert fences.nodes == {BAD} and len(changes) == 1


def test_one_run_in_a_while_is_enough_for_all_jobs_that_ask_again_and_again() -> None:
    """Ten jobs, of as many nodes, ask each minute, one after the other."""
    now, runs = [0.0], []

    def run(argv: list[str], timeout: float, done: Any, read: Any) -> None:
        runs.append((now[0], argv[-1]))
        done(frozenset())

    settings = Mock(config=Config.parse({"fence_command": [FENCE]}))
    flux = Mock(now=lambda: now[0], run_program=run)
    fences, hosts = (
        Fences(Mock(flux=flux, settings=settings), lambda: None),
        [f"n{i}" for i in range(10)],
    )
    fences.nodes_changed(NodeStates((), frozenset(hosts), {}, {}))
    for turn in range(60):
        for number, host in enumerate(hosts):
            now[0] = 60.0 * turn + 6.0 * number
            drive(fences.ask([host]), lambda result: None, ())
    later = [asked for at, asked in runs if at >= 120.0]
    assert set(later) == {"n[0-9]"} and len(later) <= 2 * 60
    assert all(b - a >= 25.0 for (a, _), (b, _) in zip(runs[20:], runs[21:]))
    del runs[:]
    fences.nodes_changed(NodeStates((), frozenset(hosts[1:]), {}, {}))
    fences.nodes_changed(NodeStates((), frozenset(hosts), {}, {}))
    drive(fences.ask(["n0"]), lambda result: None, ())
    assert len(runs) == 1, "n0 has served meanwhile"


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
    assert answered == [0]
    (asked, done) = runs[-1]
    assert (asked, len(runs)) == ("n[1-8]", 2)
    settings.config = Config.parse({})
    drive(note(fences.ask(["n0"]), 9), answered.append, ())
    done(frozenset({"n3"}))
    assert answered == [0, 9, *range(1, 9)] and not fences.nodes
    assert len(runs) == 2


def test_two_who_ask_for_the_same_node_get_the_same_answer() -> None:
    runs: list[Callable[[Any], None]] = []
    flux = Mock(
        now=lambda: 0.0,
        run_program=lambda argv, timeout, done, read: runs.append(done),
    )
    settings = Mock(config=Config.parse({"fence_command": [FENCE]}))
    fences = Fences(Mock(flux=flux, settings=settings), lambda: None)
    fences.nodes_changed(NodeStates((), frozenset({"n0"}), {}, {}))
    answered: list[int] = []
    for number in range(2):
        drive(note(fences.ask(["n0"]), number), answered.append, ())
    runs.pop()(frozenset())
    assert answered == [0, 1] and not runs


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


@given(st.integers(1, 3000), st.integers(1, 200))
def test_of_many_nodes_the_program_gets_as_many_as_fit_into_an_argument(
    count: int, length: int
) -> None:
    asked: list[str] = []

    def run(argv: list[str], timeout: float, done: Any, read: Any) -> None:
        long = len(argv[-1]) >= 2**17
        failure = OSError(errno.E2BIG, os.strerror(errno.E2BIG))
        asked.extend(hostlist.decode(argv[-1]))
        done(failure if long else read(argv[-1]))

    hosts = tuple(f"{number}{'n' * length}" for number in range(count))
    settings = Mock(config=Config.parse({"fence_command": [FENCE]}))
    fences = Fences(Mock(flux=flux_that(run), settings=settings), lambda: None)
    fences.nodes_changed(NodeStates((), frozenset(hosts), {}, {}))
    answered: list[int] = []
    drive(note(fences.ask(hosts), 1), answered.append, ())
    assert answered == [1] and fences.nodes == frozenset(hosts)
    assert tuple(asked) == hosts
