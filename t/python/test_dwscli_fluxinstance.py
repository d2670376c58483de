# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The requests of flux dws to a real Flux, with a handle that has fixed answers."""

from __future__ import annotations

import errno
from typing import Any
from unittest import mock

import pytest

from dwscli import fluxinstance
from dwscli.fluxinstance import PATIENCE, TICK, FluxInstance


class Clock:
    """Stands for the module ``time``."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds


class Future:
    """The future of an answer that comes after some seconds."""

    def __init__(self, clock: Clock, delay: float) -> None:
        self._clock = clock
        self._due = clock.seconds + delay

    def is_ready(self) -> bool:
        return self._clock.seconds >= self._due

    def wait_for(self, seconds: float) -> None:
        left = self._due - self._clock.seconds
        self._clock.seconds += min(left, seconds)
        if left > seconds:
            raise OSError(errno.ETIMEDOUT, "Connection timed out")

    def get(self) -> Any:
        assert self.is_ready()
        return {"jobs": []}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(fluxinstance, "time", clock)
    return clock


def instance(clock: Clock, delay: float) -> FluxInstance:
    """An instance whose answers come after some seconds."""

    class Handle:
        def rpc(self, topic: str, request: Any) -> Future:
            return Future(clock, delay)

    found = FluxInstance.__new__(FluxInstance)
    found._handle = Handle()
    return found


@pytest.mark.parametrize("ticks", [False, True])
def test_an_answer_that_takes_long_is_awaited_but_not_for_ever(
    clock: Clock, ticks: bool
) -> None:
    called: list[float] = []
    tick = (lambda: called.append(clock.seconds)) if ticks else None
    assert instance(clock, 30.5).ask("dws.job-show", {}, tick) == {"jobs": []}
    assert clock.seconds == 30.5
    clock.seconds, called[:] = 0.0, []
    with pytest.raises(OSError, match="the dws module has not answered for 60 s") as e:
        instance(clock, float("inf")).ask("dws.job-list", {}, tick)
    assert e.value.errno == errno.ETIMEDOUT
    assert clock.seconds == PATIENCE and len(called) == (PATIENCE - TICK) * ticks


def test_what_the_kvs_has_is_asked_for_as_it_is() -> None:
    found = FluxInstance.__new__(FluxInstance)
    found._handle = handle = mock.Mock()
    handle.rpc.return_value.get.return_value = {"eventlog": "x"}
    assert found.kvs([(1, "eventlog")]) == {(1, "eventlog"): "x"}
    assert handle.rpc.call_args.args[1] == {"id": 1, "keys": ["eventlog"], "flags": 0}


def test_a_lost_connection_is_no_closed_pipe() -> None:
    """``flux dws list | head`` ends without a word when ``head`` does."""

    found = FluxInstance.__new__(FluxInstance)
    found._handle = handle = mock.Mock()
    handle.rpc.side_effect = BrokenPipeError(errno.EPIPE, "EPIPE: Broken pipe")
    for call in (
        lambda: found.job(1),
        lambda: found.kvs([(1, "eventlog")]),
        lambda: found.raise_exception(1, "cancel", ""),
    ):
        with pytest.raises(ConnectionResetError, match="its broker on this node") as e:
            call()
        assert not isinstance(e.value, BrokenPipeError)
