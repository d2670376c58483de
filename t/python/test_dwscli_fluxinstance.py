# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The requests of flux dws to a real Flux, with a handle that has fixed answers."""

from __future__ import annotations

import errno
import sys
import types
from typing import Any
from unittest import mock

import pytest

from dwscli import fluxinstance
from dwscli.fluxinstance import PATIENCE, TICK, FluxInstance
from flux_k8s.command import CommandError


class Clock:
    """Stands for the module ``time``, and for the future of an answer that comes after
    ``delay`` seconds."""

    def __init__(self, delay: float) -> None:
        self.seconds, self.delay = 0.0, delay

    def monotonic(self) -> float:
        return self.seconds

    def is_ready(self) -> bool:
        return self.seconds >= self.delay

    def wait_for(self, seconds: float) -> None:
        left = self.delay - self.seconds
        self.seconds += min(left, seconds)
        if left > seconds:
            raise OSError(errno.ETIMEDOUT, "Connection timed out")

    def get(self) -> Any:
        assert self.is_ready()
        return {"jobs": []}


@pytest.fixture
def handle(monkeypatch: pytest.MonkeyPatch) -> mock.Mock:
    """What ``flux.Flux()`` is."""
    found, module = mock.Mock(), types.ModuleType("flux")
    vars(module)["Flux"] = lambda: found
    monkeypatch.setitem(sys.modules, "flux", module)
    monkeypatch.setattr(sys, "setrecursionlimit", lambda levels: None)
    return found


@pytest.mark.parametrize("ticks", [False, True])
def test_an_answer_that_takes_long_is_awaited_but_not_for_ever(
    handle: mock.Mock, ticks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[float] = []
    for delay in (30.5, float("inf")):
        handle.rpc.return_value = clock = Clock(delay)
        monkeypatch.setattr(fluxinstance, "time", clock)
        called.clear()
        tick = (lambda: called.append(0.0)) if ticks else None
        if delay < PATIENCE:
            assert FluxInstance().ask("dws.job-show", {}, tick) == {"jobs": []}
            assert clock.seconds == delay
            continue
        with pytest.raises(
            OSError, match="the dws module has not answered for 60"
        ) as e:
            FluxInstance().ask("dws.job-list", {}, tick)
        assert e.value.errno == errno.ETIMEDOUT
        assert clock.seconds == PATIENCE and len(called) == (PATIENCE - TICK) * ticks


def test_what_the_kvs_has_is_asked_for_as_it_is(handle: mock.Mock) -> None:
    handle.rpc.return_value.get.return_value = {"eventlog": "x"}
    assert FluxInstance().kvs([(1, "eventlog")]) == {(1, "eventlog"): "x"}
    assert handle.rpc.call_args.args[1] == {"id": 1, "keys": ["eventlog"], "flags": 0}


@pytest.mark.parametrize(
    ("method", "args"),
    [
        ("job", [1]),
        ("kvs", [[(1, "eventlog")]]),
        ("raise_exception", [1, "cancel", ""]),
    ],
)
def test_a_lost_connection_is_no_closed_pipe(
    handle: mock.Mock, method: str, args: list[Any]
) -> None:
    """``flux dws list | head`` ends without a word when ``head`` does."""
    handle.rpc.side_effect = BrokenPipeError(errno.EPIPE, "EPIPE: Broken pipe")
    with pytest.raises(ConnectionResetError, match="its broker on this node") as e:
        getattr(FluxInstance(), method)(*args)
    assert not isinstance(e.value, BrokenPipeError)


def test_a_wrong_user_of_the_handle_is_an_error_where_a_user_is_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FLUX_HANDLE_USERID", "54321")
    assert FluxInstance().userid == 54321
    monkeypatch.setenv("FLUX_HANDLE_USERID", "root")
    found = FluxInstance()
    with pytest.raises(CommandError, match="FLUX_HANDLE_USERID: 'root' is not the ID"):
        assert found.userid
