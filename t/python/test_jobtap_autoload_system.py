# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The plugin, the service and a broker that loads modules, in the stand-in."""

from __future__ import annotations

import errno
import functools
import itertools
from typing import Any

import pytest
from test_sim_flux_system import LIFE, XFS, finish, names, run_until, submit

from flux_k8s.hello import LoadedAs
from flux_k8s.service import Service
from rabbitsim.flux.broker import Respond
from rabbitsim.system import VirtualSystem

LOADED_AS = LoadedAs("/x/dws.py", ("scheduler=none",))
EVENTS = ["submit", "dependency-add", "alloc", "prolog-start", "start", "finish"]


class AutoloadSystem(VirtualSystem):
    """A system whose broker has ``module.load``."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.loads: list[Any] = []
        self.instance.broker.register("module", self._module_service)
        self.start()

    def _module_service(
        self, method: str, payload: Any, userid: int, respond: Respond
    ) -> None:
        assert method == "load"
        self.loads.append(payload)
        try:
            self.load_module()
        except OSError as error:
            respond(error.errno or errno.EINVAL, str(error), None)
        else:
            respond(0, "", None)


@pytest.fixture(autouse=True)
def says_how_it_was_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    service = functools.partial(Service, loaded_as=LOADED_AS)
    monkeypatch.setattr("rabbitsim.system.Service", service)


def rest(system: VirtualSystem, seconds: float) -> None:
    system.loop.call_later(seconds, lambda: None)
    system.loop.run(timeout=seconds)


@pytest.mark.parametrize("event", EVENTS)
def test_a_module_that_dies_comes_back_by_itself(event: str) -> None:
    system = AutoloadSystem(message_latency=0.01)
    jobid = submit(system, "-N2", "-S", XFS)
    run_until(system, jobid, event)
    system.kill_module()
    finish(system)
    assert names(system, jobid) == LIFE
    assert system.loads == [{"path": "/x/dws.py", "args": ["scheduler=none"]}]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("call", [1, 3, 8])
@pytest.mark.parametrize("name", ["event", "synced", "_pump", "_stepped", "_mark"])
def test_a_module_that_ends_by_an_error_of_its_own_comes_back_too(
    name: str, call: int, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails before or after what it does in one of its callbacks. (That this
    ends it is dws.py's doing: t1007-dws-crash.t.)"""
    calls = itertools.count(1)
    original = getattr(Service, name)

    def fragile(service: Service, *args: Any) -> None:
        fails = next(calls) == call
        if after or not fails:
            original(service, *args)
        if fails:
            raise ArithmeticError("it broke")

    monkeypatch.setattr(Service, name, fragile)
    system = AutoloadSystem(message_latency=0.01)
    jobid = submit(system, "-N2", "-S", XFS)
    try:
        finish(system)
    except ArithmeticError:
        system.kill_module()
        finish(system)
        assert len(system.loads) == 1
    assert names(system, jobid) == LIFE


@pytest.mark.parametrize("seed", range(20))
def test_one_that_is_removed_or_loaded_by_hand_is_left_alone(seed: int) -> None:
    system = AutoloadSystem(seed=seed, message_latency=0.5)
    rest(system, 5.0)
    system.unload_module()
    rest(system, 100.0)
    assert system.loads == [] and not system.instance.module_loaded
    system.load_module()
    rest(system, system.rng.random())
    system.unload_module()
    system.load_module()
    rest(system, 100.0)
    assert system.loads == []
    system.kill_module()
    rest(system, 100.0)
    assert system.instance.module_loaded and len(system.loads) == 1


@pytest.mark.parametrize("seed", range(20))
def test_plugin_and_module_may_come_and_go_in_any_order(seed: int) -> None:
    """In the end each hears of the other, whatever was before."""
    system = AutoloadSystem(seed=seed, message_latency=0.1)
    for _ in range(10):
        if system.rng.random() < 0.5:
            system.instance.unload_plugin()
            rest(system, system.rng.random())
            system.load_plugin()
        elif system.instance.module_loaded:
            system.rng.choice([system.kill_module, system.unload_module])()
        else:
            system.load_module()
        rest(system, system.rng.random())
    if not system.instance.module_loaded:
        try:
            system.load_module()
        except OSError as error:
            assert error.errno == errno.EEXIST
    rest(system, 200.0)
    assert system.instance.module_loaded
    loads = len(system.loads)
    system.kill_module()
    rest(system, 200.0)
    assert system.instance.module_loaded and len(system.loads) == loads + 1
