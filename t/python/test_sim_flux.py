# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The stand-in Flux refuses what Flux refuses, and loses what Flux loses."""

from __future__ import annotations

import errno
from typing import Any, Optional

import pytest

from flux_k8s.ports import Json
from flux_k8s.reasons import Reason
from rabbitsim.dws import Topology
from rabbitsim.flux.broker import FluxPort, Respond
from rabbitsim.flux.execution import VirtualExecutor
from rabbitsim.flux.instance import Instance
from rabbitsim.flux.options import submit_jobspec
from rabbitsim.loop import VirtualLoop
from rabbitsim.system import hosts_of, mapping_of

GUEST, OTHER = 4711, 4712
NODES = Topology.regular(4, 2, node_prefix="node")


class Module:
    """A module that keeps the requests."""

    def __init__(self, port: FluxPort) -> None:
        self.port = port

    def start(self) -> None:
        pass

    def stop(self) -> None:
        self.port.log(6, "stopped", Reason.STARTED)

    def request(self, method: str, payload: Json, respond: Respond) -> None:
        pass


class System:
    """An instance under virtual time, without a plugin."""

    def __init__(self, loaded: bool = True) -> None:
        self.loop = VirtualLoop()
        self.log: list[str] = []
        self.instance = Instance(
            self.loop,
            hosts_of(NODES),
            mapping_of(NODES),
            VirtualExecutor(self.loop),
            log=lambda level, message: self.log.append(message),
        )
        if loaded:
            module = self.instance.load_module(Module)
            assert isinstance(module, Module)
            self.port = module.port

    def submit(self, *args: str, seconds: float = 10.0) -> int:
        test = f"exec.test.run_duration={seconds}s"
        return self.instance.submit(submit_jobspec(["true"], [*args, "-S", test]))

    def run(self, timeout: Optional[float] = None) -> None:
        """Until nothing is left to do, or for some seconds."""
        if timeout is not None:
            self.loop.call_later(timeout, lambda: None)  # time passes in any case
        self.loop.run(timeout=timeout)


def answer_of(system: System, kill: bool = False) -> list[int]:
    """The errors of the answers to a request to the module, which may die."""
    answers: list[int] = []

    def done(errnum: int, text: str, payload: Any) -> None:
        answers.append(errnum)

    system.instance.request("dws.create", {"id": 1}, done)
    assert answers == []
    if kill:
        system.run()
        assert answers == []
        system.instance.kill_module()
    system.run()
    return answers


def test_a_request_fails_without_a_module_and_when_it_dies() -> None:
    assert answer_of(System(loaded=False)) == [errno.ENOSYS]
    system = System()
    assert answer_of(system, kill=True) == [errno.EHOSTUNREACH]
    assert not any("stopped" in line for line in system.log)


@pytest.mark.parametrize("killed", [False, True])
def test_a_module_that_is_killed_takes_along_what_it_had_put(killed: bool) -> None:
    system = System()
    jobid = system.submit()
    system.run(timeout=1)
    system.port.kvs_put(jobid, "rabbit_workflow", "{}")
    if killed:
        system.instance.kill_module()
    else:
        system.instance.unload_module()
    system.run()
    assert ("rabbit_workflow" in system.instance.job(jobid).kvs) is not killed
