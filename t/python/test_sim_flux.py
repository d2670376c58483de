# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The stand-in Flux refuses what Flux refuses, and loses what Flux loses."""

from __future__ import annotations

import errno
from typing import Any, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.ports import Json
from flux_k8s.reasons import Reason
from rabbitsim.commands import VirtualInstance
from rabbitsim.flux.broker import FluxPort, Respond
from rabbitsim.flux.events import JobState
from rabbitsim.flux.instance import Instance
from rabbitsim.flux.manager import SubmitError
from rabbitsim.system import VirtualSystem
from support.effort import examples
from support.flux import GUEST, PLAIN, System, epilog, hold, load, prolog
from support.service import XFS, jobspec, long, running, settle, started

OTHER = 4712


class TestLife:
    def test_a_job_goes_through_all_states(self, system: System) -> None:
        jobid = system.submit()
        system.run()
        assert system.names(jobid) == PLAIN
        assert system.state(jobid) is JobState.INACTIVE

    def test_an_unsupported_dependency_is_refused(self, system: System) -> None:
        with pytest.raises(SubmitError, match='scheme "after" not supported'):
            system.submit("-S", 'dependencies=[{"scheme":"after","value":"1"}]')
        assert system.instance.idle()


class TestExceptions:
    def test_an_exception_of_another_severity_kills_nothing(
        self, system: System
    ) -> None:
        jobid = system.submit(seconds=5)
        system.run(timeout=1)
        system.instance.manager.raise_exception(jobid, "note", 1, "hm", 500)
        system.run()
        assert system.names(jobid) == [*PLAIN[:6], "exception", *PLAIN[6:]]
        assert system.context(jobid, "finish") == {"status": 0}

    def test_a_guest_cannot_cancel_the_job_of_another(self, system: System) -> None:
        jobid = system.submit(seconds=10)
        with pytest.raises(OSError, match="their own jobs"):
            system.instance.cancel(jobid, userid=GUEST)


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


# The commands


def ended(system: VirtualSystem, spec: Any, userid: int = GUEST) -> int:
    jobid = system.instance.submit(spec, userid=userid)
    settle(system)
    return jobid


def test_jobs_that_ended_are_listed_by_their_end() -> None:
    system = started()
    instance = VirtualInstance(system)
    first, second = ended(system, jobspec()), ended(system, jobspec(), OTHER)
    system.instance.submit(jobspec())
    assert [job["id"] for job in instance.ended_jobs(None, 0.0, 10)] == [second, first]
    assert [job["id"] for job in instance.ended_jobs(GUEST, 0.0, 10)] == [first]
    assert [job["id"] for job in instance.ended_jobs(None, 0.0, 1)] == [second]
    since = (instance.job(first) or {})["t_inactive"]
    assert [job["id"] for job in instance.ended_jobs(None, since, 10)] == [second]
    request = {"attrs": [], "constraint": {"not": []}}
    with pytest.raises(OSError, match="unknown constraint operator not"):
        instance.ask("job-list.list", request)


def test_a_guest_reads_the_kvs_of_the_own_jobs_only() -> None:
    system = started()
    jobid = ended(system, jobspec())
    wanted = [(jobid, "rabbit_setup_timing"), (jobid, "none")]
    for userid in (None, GUEST):
        found = VirtualInstance(system, userid).kvs(wanted)
        assert [*found] == wanted[:1] and float(found[wanted[0]]) >= 0
    with pytest.raises(PermissionError):
        VirtualInstance(system, OTHER).kvs(wanted)


def test_an_unknown_job_and_a_module_that_is_not_loaded_are_errors() -> None:
    system = started()
    instance = VirtualInstance(system)
    assert instance.job(1) is None
    system.unload_module()
    with pytest.raises(OSError) as error:
        instance.ask("dws.job-list", {})
    assert error.value.errno == errno.ENOSYS


def test_time_passes_while_an_answer_is_awaited() -> None:
    system = started()
    jobid = system.instance.submit(long(XFS, 1))
    running(system, jobid)
    instance, ticks, begin = VirtualInstance(system), [], system.loop.now()
    serial = instance.ask("dws.job-show", {"id": jobid})["serial"]
    request = {"id": jobid, "seen": serial}
    answer = instance.ask("dws.job-show", request, lambda: ticks.append(1))
    assert answer["serial"] == serial and 25 <= len(ticks) <= 31
    assert system.loop.now() - begin == pytest.approx(30, abs=2)


# Whatever happens

ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(
            "submit cancel wait remove_dependency finish_prolog finish_epilog"
            " hold release unload load down up".split()
        ),
        st.integers(0, 7),
    ),
    max_size=40,
)


@examples(30)
@given(ACTIONS, st.integers(0, 3))
def test_every_job_becomes_inactive_once_whatever_happens(
    actions: list[tuple[str, int]], latency: int
) -> None:
    system = System(latency=lambda: latency / 1000)
    script = {
        "job_state_depend": hold,
        "job_state_run": prolog,
        "job_state_cleanup": epilog,
    }
    load(system, **script)
    jobs: list[int] = []
    for action, number in actions:
        job = jobs[number % len(jobs)] if jobs else None
        _act(system, action, number, job, jobs, script)
        system.run(timeout=0.02 * number)
    _let_go(system, script, jobs)
    for jobid in jobs:
        names = system.names(jobid)
        assert system.state(jobid) is JobState.INACTIVE
        assert names.count("clean") == 1 and names[-1] == "clean"
        assert names.count("alloc") == names.count("free") <= 1
        assert names.count("prolog-start") == names.count("prolog-finish")
        assert names.count("epilog-start") == names.count("epilog-finish")
        assert names.count("start") == names.count("release") == names.count("finish")
    pool = system.instance.scheduler.pool
    assert all(pool.free("core", node.rank) == node.cores for node in pool.nodes)


def _act(
    system: System,
    action: str,
    number: int,
    job: Optional[int],
    jobs: list[int],
    script: dict[str, Any],
) -> None:
    instance = system.instance
    if action == "submit":
        jobs.append(system.submit(f"-N{number % 4 + 1}", seconds=number / 10))
    elif action == "unload" and instance.jobtap.plugin is not None:
        instance.unload_plugin()
    elif action == "load" and instance.jobtap.plugin is None:
        load(system, **script)
    elif action in ("up", "down"):
        instance.set_up(f"node{number % 4}", action == "up")
    elif job is not None:
        _act_on_job(instance, action, job)


def _act_on_job(instance: Instance, action: str, job: int) -> None:
    calls = {
        "remove_dependency": lambda: instance.jobtap.dependency_remove(job, "storage"),
        "finish_prolog": lambda: _finish(instance, job, "prolog"),
        "finish_epilog": lambda: _finish(instance, job, "epilog"),
        "hold": lambda: instance.manager.set_urgency(job, 0, 0),
        "release": lambda: instance.manager.set_urgency(job, 16, 0),
        "cancel": lambda: instance.cancel(job),
    }
    if action in calls:
        try:
            calls[action]()
        except OSError:
            pass  # not possible in the job's state: as in Flux


def _finish(instance: Instance, job: int, what: str) -> None:
    """Finish an action that was started and not finished, as plugins do."""
    names = [event.name for event in instance.eventlog(job)]
    if names.count(f"{what}-start") > names.count(f"{what}-finish"):
        getattr(instance.jobtap, f"{what}_finish")(job, "x", 0)


def _let_go(system: System, script: dict[str, Any], jobs: list[int]) -> None:
    """Let everything that can go on do so, until all is quiet."""
    if system.instance.jobtap.plugin is None:
        load(system, **script)
    for host in ("node0", "node1", "node2", "node3"):
        system.instance.set_up(host, True)
    for _ in range(200):
        if system.instance.idle():
            return
        for job in jobs:
            for action in (
                "release",
                "remove_dependency",
                "finish_prolog",
                "finish_epilog",
            ):
                _act_on_job(system.instance, action, job)
        system.run(timeout=0.1)
