# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What may block is called on threads, and never on that of the service."""

from __future__ import annotations

import queue
import threading
from typing import Any, Callable

import pytest

from flux_k8s.threads import Threads

PATIENCE = 60.0


class Bench:
    """The thread of a service."""

    def __init__(self) -> None:
        self._mails: queue.Queue[Callable[[], None]] = queue.Queue()
        self.threads = Threads(self._mails.put)
        self.results: list[Any] = []

    def next(self) -> Any:
        self._mails.get(timeout=PATIENCE)()
        return self.results.pop()


def test_one_that_blocks_delays_those_of_its_thread_only() -> None:
    bench, gate = Bench(), threading.Event()
    bench.threads.call("a", lambda: gate.wait(PATIENCE), bench.results.append)
    bench.threads.call("a", threading.get_ident, bench.results.append)
    bench.threads.call("b", threading.get_ident, bench.results.append)
    other = bench.next()
    gate.set()
    assert bench.next() is True
    assert len({other, bench.next(), threading.get_ident()}) == 3


def test_an_exception_is_an_answer_and_the_next_function_is_called() -> None:
    bench = Bench()
    bench.threads.call("a", lambda: 1 // 0, bench.results.append)
    assert isinstance(bench.next(), ZeroDivisionError)
    bench.threads.call("a", lambda: 1, bench.results.append)
    assert bench.next() == 1


def test_a_thread_that_cannot_be_started_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench()

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        bench.threads.call("a", lambda: 1, bench.results.append)
    assert isinstance(bench.next(), OSError)
    bench.threads.call("a", lambda: 1, bench.results.append)
    assert bench.next() == 1
