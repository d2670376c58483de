# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Stale reads: what is told late, twice, or again when it is out of date."""

from __future__ import annotations

import random
from typing import Any, Optional

import pytest

from flux_k8s.ports import SERVERS, SYSTEMSTATUS, WORKFLOW, Json, KubeError
from rabbitsim.kube.direct import DirectKube, DirectWatch, Fault, Request
from rabbitsim.system import VirtualSystem
from support.effort import seeds
from support.service import COPY_OUT, LIFE, XFS, exceptions, jobspec, names, settle

Past = list[tuple[str, Json]]


def with_echoes(system: VirtualSystem, choose: Any) -> None:
    """After each event of a Workflow the service is told again what ``choose``
    picks from the past."""
    service = system.service
    assert service is not None
    past: Past = []
    watch = service.workflows._watch
    assert isinstance(watch, DirectWatch)
    handler: Any = watch._handler
    event = handler.event

    def echoing(type: str, object: Json) -> None:
        event(type, object)
        past.append((type, object))
        for old in choose(past):
            event(*old)

    handler.event = echoing  # of this one object only


ECHOES = {
    "twice": lambda past: past[-1:],
    "with the one before": lambda past: past[-2:-1],
    "with all before": lambda past: past[:-1],
    "with all before, backwards": lambda past: past[-2::-1],
    "with the very first": lambda past: past[:1],
}


@pytest.mark.parametrize("echo", ECHOES)
def test_events_that_come_again_change_nothing(echo: str) -> None:
    system = VirtualSystem()
    system.start()
    with_echoes(system, ECHOES[echo])
    jobid = system.instance.submit(jobspec([XFS, COPY_OUT]))
    settle(system)
    assert names(system, jobid) == LIFE
    assert exceptions(system, jobid) == []


@pytest.mark.parametrize("seed", seeds(3, soaking=200))
def test_echoes_at_random_change_nothing(seed: int) -> None:
    rng = random.Random(seed)
    system = VirtualSystem(seed, kube_latency=rng.choice([0.0, 0.1, 3.0]))
    system.start()
    with_echoes(system, lambda past: rng.sample(past, rng.randint(0, len(past))))
    jobids = [system.instance.submit(jobspec(nodes=1)) for _ in range(4)]
    settle(system)
    for jobid in jobids:
        assert names(system, jobid) == LIFE


@pytest.mark.parametrize("shown", ["Proposal", "Setup"])
@pytest.mark.parametrize("state", ["PreRun", "PostRun", "DataOut", "Teardown"])
def test_a_server_that_lags_loses_no_data_and_moves_no_storage(
    state: str, shown: str
) -> None:
    """The watch lists all Workflows again, at another server: that is not how to tell a
    Kubernetes that was set back."""
    placed: list[Request] = []

    def note(request: Request) -> None:
        if request.kind == SERVERS and request.verb == "patch":
            placed.append(request)

    def choose(past: Past) -> Past:
        reached = [w["status"].get("ready") and w["status"]["state"] for _, w in past]
        if lagged or state not in reached:
            return []
        lagged.append(past[reached.index(shown)])
        return lagged

    lagged: Past = []
    system = VirtualSystem(faults=note)
    system.start()
    with_echoes(system, choose)
    jobid = system.instance.submit(jobspec([XFS, COPY_OUT]))
    settle(system)
    assert lagged and len(placed) == 1
    assert names(system, jobid) == LIFE
    assert exceptions(system, jobid) == []


@pytest.mark.parametrize("seed", range(10))
def test_answers_that_come_after_newer_events_change_nothing(seed: int) -> None:
    """Requests take long, events do not: each answer is out of date."""
    rng = random.Random(seed)
    system = VirtualSystem(seed)
    system.start()
    kube = system.service_kube
    assert isinstance(kube, DirectKube)
    answer = kube._answer

    def late(key: str, result: Any) -> None:
        system.loop.call_later(rng.uniform(0.0, 5.0), lambda: answer(key, result))

    # Of this one object only.
    kube._answer = late  # type: ignore[method-assign]
    jobid = system.instance.submit(jobspec([XFS, COPY_OUT]))
    settle(system)
    assert names(system, jobid) == LIFE


def test_an_answer_that_there_is_no_workflow_may_be_older_than_the_workflow() -> None:
    """Its creation timed out, and is carried out after it was looked for in vain: the
    watch tells of it before that answer comes."""
    lost: list[Request] = []

    def fault(request: Request) -> Optional[Fault]:
        if request.verb != "create" or request.kind != WORKFLOW or lost:
            return None
        lost.append(request)
        return Fault(error=KubeError(0, "Timeout", "no answer in time"))

    system = VirtualSystem(faults=fault)
    system.start()
    kube = system.service_kube
    assert isinstance(kube, DirectKube)
    answer = kube._answer

    def late(key: str, result: Any) -> None:
        missing = isinstance(result, KubeError) and result.status == 404
        if missing and lost and system.workflows() == []:
            system.store.create(WORKFLOW, "default", lost[0].body)
            system.loop.call_later(1.0, lambda: answer(key, result))
        else:
            answer(key, result)

    # Of this one object only.
    kube._answer = late  # type: ignore[method-assign]
    jobid = system.instance.submit(jobspec([XFS, COPY_OUT]))
    settle(system)
    assert lost
    assert names(system, jobid) == LIFE
    assert exceptions(system, jobid) == []


def test_a_stale_sight_of_a_workflow_that_is_gone_brings_nothing_back() -> None:
    system = VirtualSystem()
    system.start()
    seen: Past = []
    with_echoes(system, lambda past: seen.append(past[-1]) or [])
    jobid = system.instance.submit(jobspec())
    settle(system)
    assert seen
    system.loop.run(timeout=1)
    before = system.store.version
    service = system.service
    assert service is not None
    for type, object in tuple(seen):
        if type != "DELETED":
            service.workflows.event(type, object)
    system.loop.run(timeout=600)
    assert system.workflows() == [] and system.store.version == before
    assert names(system, jobid) == LIFE
    answers: list[Any] = []
    service.request("stats-get", {}, lambda *answer: answers.append(answer[2]))
    assert answers[0]["jobs"] == 0
    assert system.store.list(WORKFLOW, None)["items"] == []


@pytest.mark.parametrize("shown", ["Setup", "DataIn"])
def test_a_server_that_lags_at_the_start_of_a_job_takes_no_variable_from_it(
    shown: str,
) -> None:
    """While SystemStatus is read, just before the prolog is released."""
    system = VirtualSystem()
    system.start()
    seen: Past = []
    with_echoes(system, lambda past: seen.append(past[-1]) or [])
    service, kube = system.service, system.service_kube
    assert service is not None and kube is not None

    def fault(request: Request) -> Optional[Fault]:
        last = seen[-1][1] if seen else {"status": {}}
        now = last["status"].get("state"), last["status"].get("status")
        if request.kind == SYSTEMSTATUS and now == ("PreRun", "Completed"):
            for type, object in tuple(seen):
                if (object.get("status") or {}).get("state") == shown:
                    service.workflows.event(type, object)
        return None

    kube.faults = fault
    jobid = system.instance.submit(jobspec())
    settle(system)
    assert names(system, jobid) == LIFE
    events = system.instance.eventlog(jobid)
    (given,) = [e.context or {} for e in events if e.name == "dws_environment"]
    assert "DW_JOB_p1" in given["variables"]
