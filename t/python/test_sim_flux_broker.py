# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Messages of the stand-in Flux, and modules that come and go."""

from __future__ import annotations

import errno
from typing import Optional

import pytest

from flux_k8s.ports import Json
from flux_k8s.reasons import Reason
from rabbitsim.flux.broker import FluxPort, Respond
from rabbitsim.flux.events import JobState
from support.flux import GUEST, System, load


class Module:
    """A module that answers ``dws.*`` or keeps the requests."""

    def __init__(self, port: FluxPort, answer: bool = True) -> None:
        self.port = port
        self.answer = answer
        self.requests: list[tuple[str, Json]] = []

    def start(self) -> None:
        self.port.log(6, "started", Reason.STARTED)

    def stop(self) -> None:
        self.port.log(6, "stopped", Reason.STARTED)

    def request(self, method: str, payload: Json, respond: Respond) -> None:
        self.requests.append((method, payload))
        if self.answer:
            respond(0, "", {"success": True})


class TestMessages:
    def ask(
        self, system: System, topic: str, userid: Optional[int] = None
    ) -> list[tuple[int, Optional[Json]]]:
        answers: list[tuple[int, Optional[Json]]] = []
        system.instance.request(
            topic,
            {"id": 1},
            lambda errnum, text, payload: answers.append((errnum, payload)),
            userid,
        )
        return answers

    def test_a_request_without_a_module_fails_with_enosys(self, system: System) -> None:
        answers = self.ask(system, "dws.create")
        assert answers == []
        system.run()
        assert answers == [(errno.ENOSYS, None)]

    def test_a_request_is_answered_by_the_module(self, system: System) -> None:
        system.instance.load_module(Module)
        answers = self.ask(system, "dws.create")
        system.run()
        assert answers == [(0, {"success": True})]

    def test_a_request_in_flight_fails_when_the_module_dies(
        self, system: System
    ) -> None:
        system.instance.load_module(lambda port: Module(port, answer=False))
        answers = self.ask(system, "dws.create")
        system.run()
        system.instance.kill_module()
        system.run()
        assert answers == [(errno.EHOSTUNREACH, None)]
        assert not any("stopped" in line for line in system.log)

    def test_nothing_reaches_a_module_that_died(self, system: System) -> None:
        fired: list[int] = []
        module = system.instance.load_module(Module)
        assert isinstance(module, Module)
        module.port.call_later(1.0, lambda: fired.append(1))
        module.port.rpc("job-manager.memo", {}, lambda result: fired.append(2))
        module.port.job_ended(1, lambda ended: fired.append(3))
        system.instance.kill_module()
        system.run()
        assert fired == []

    def test_a_guest_is_refused_by_the_module_and_the_plugin(
        self, system: System
    ) -> None:
        load(system)
        system.instance.load_module(Module)
        for topic in ("dws.create", "job-manager.dws.hello"):
            answers = self.ask(system, topic, GUEST)
            system.run()
            assert answers == [(errno.EPERM, None)]

    def test_the_module_reaches_the_plugin(self, system: System) -> None:
        answers = self.ask(system, "job-manager.dws.hello")
        system.run()
        load(system)
        more = self.ask(system, "job-manager.dws.hello")
        system.run()
        assert answers == [(errno.ENOSYS, None)]
        assert more == [(0, {"method": "hello"})]

    def test_the_module_posts_memos_raises_exceptions_and_writes_to_the_kvs(
        self, system: System
    ) -> None:
        module = system.instance.load_module(Module)
        assert isinstance(module, Module)
        jobid = system.submit(seconds=10)
        system.run(timeout=1)
        module.port.post_memo(jobid, {"rabbits": "r1"})
        module.port.kvs_put(jobid, "rabbit_workflow", "{}")
        module.port.raise_exception(jobid, "dws", 0, "broken", Reason.DWS_FAILED)
        system.run()
        assert system.context(jobid, "memo") == {"rabbits": "r1"}
        found = system.context(jobid, "exception")
        assert found["note"] == "broken" and "reason" not in found
        assert system.instance.job(jobid).kvs["rabbit_workflow"] == "{}"
        ended: list[Optional[bool]] = []
        module.port.job_ended(jobid, ended.append)
        module.port.job_ended(1, ended.append)
        system.run()
        assert ended == [True, True]

    @pytest.mark.parametrize("killed", [False, True])
    def test_a_module_that_is_killed_takes_along_what_it_had_put(
        self, system: System, killed: bool
    ) -> None:
        module = system.instance.load_module(Module)
        assert isinstance(module, Module)
        jobid = system.submit(seconds=10)
        system.run(timeout=1)
        module.port.kvs_put(jobid, "rabbit_workflow", "{}")
        if killed:
            system.instance.kill_module()
        else:
            system.instance.unload_module()
        system.run()
        assert ("rabbit_workflow" in system.instance.job(jobid).kvs) is not killed

    def test_a_drained_node_gets_no_jobs(self, system: System) -> None:
        module = system.instance.load_module(Module)
        assert isinstance(module, Module)
        module.port.drain("node[0-1]", "broken", lambda error: None)
        system.run()
        jobid, other = system.submit("-N2"), system.submit("-N3")
        system.run()
        assert system.context(jobid, "alloc")
        R = system.instance.job(jobid).R
        assert R is not None and R["execution"]["nodelist"] == ["node[2-3]"]
        assert system.state(other) is JobState.SCHED
        system.instance.undrain("node1")
        system.run()
        assert system.state(other) is JobState.INACTIVE

    def test_a_property_set_in_fluxion_steers_jobs(self, system: System) -> None:
        path = {"sp_resource_path": "/cluster0/chassis0/node0"}
        remove = {"resource_path": [path["sp_resource_path"]], "key": "badrabbit"}
        requests: list[tuple[str, Json]] = [
            ("set_property", {**path, "sp_keyval": "badrabbit=1"}),
            ("remove_property", remove),
        ]
        for method, payload in requests:
            system.instance.request(
                f"sched-fluxion-resource.{method}", payload, lambda *answer: None
            )
            jobid = system.submit("-N1", "--requires=^badrabbit")
            system.run()
            R = system.instance.job(jobid).R
            assert R is not None
            rank = R["execution"]["R_lite"][0]["rank"]
            assert rank == ("1" if method == "set_property" else "0")
