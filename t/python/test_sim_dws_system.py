# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""A cluster with the stand-in controllers, and Workflows that go through it."""

from __future__ import annotations

import dataclasses
import json
import random
from typing import Any, Optional

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flux_k8s.ports import (
    CLIENTMOUNT,
    Json,
    KubeError,
)
from rabbitsim.dws import (
    Options,
    Topology,
    recorded,
)
from rabbitsim.dws.cluster import Cluster
from rabbitsim.dws.directive import STATES
from rabbitsim.kube import direct
from support.dws import TIMEOUT, XFS, System
from support.effort import examples

LIVES = (
    (XFS,),
    ("#DW jobdw type=gfs2 capacity=10GiB name=project1",),
    ("#DW jobdw type=raw capacity=1TB name=project1",),
    ("#DW jobdw type=lustre capacity=50GiB name=project1",),
    ("#DW jobdw type=lustre capacity=1TiB name=aa profile=high-performance",),
    ("#DW jobdw type=lustre capacity=1TiB name=aa profile=exclusive-mdt",),
    ("#DW jobdw type=lustre capacity=1TiB name=aa profile=single-mgtmdt",),
    ("#DW jobdw type=gfs2 capacity=1TiB name=aa profile=shared",),
    (XFS, "#DW jobdw type=lustre capacity=1TiB name=scratch-2"),
    (
        "#DW jobdw type=xfs capacity=1GiB name=aa requires=copy-offload",
        "#DW copy_in source=/lustre/in destination=$DW_JOB_aa/",
        "#DW copy_out source=$DW_JOB_aa/out destination=/lustre/out",
    ),
)


@pytest.mark.parametrize("directives", LIVES, ids=lambda d: d[0][4:].replace(" ", "-"))
def test_a_workflow_goes_through_all_its_states_and_leaves_nothing(
    directives: tuple[str, ...],
) -> None:
    system = System()
    system.run(*directives)
    system.check_clean()
    assert system.troubles == []


def test_a_job_finds_its_storage_in_its_environment() -> None:
    system = System()
    system.submit(
        "#DW jobdw type=xfs capacity=1GiB name=fast-one",
        "#DW jobdw type=lustre capacity=1GiB name=two",
    )
    status = system.wait()
    assert status["env"] == {
        "DW_WORKFLOW_NAME": "job",
        "DW_WORKFLOW_NAMESPACE": "default",
    }
    system.assign()
    for state in STATES[1:4]:
        status = system.go(state)
    uid = system.workflow()["metadata"]["uid"]
    assert status["env"] == {
        "DW_WORKFLOW_NAME": "job",
        "DW_WORKFLOW_NAMESPACE": "default",
        "DW_JOB_fast_one": f"/mnt/nnf/{uid}-0",
        "DW_JOB_XFS": f"/mnt/nnf/{uid}-0",
        "DW_JOB_two": f"/mnt/nnf/{uid}-1",
        "DW_JOB_LUSTRE": f"/mnt/nnf/{uid}-1",
        "DW_JOBS": f"fast-one:/mnt/nnf/{uid}-0,two:/mnt/nnf/{uid}-1",
    }
    assert {m["metadata"]["namespace"] for m in system.items(CLIENTMOUNT)} == {
        "compute-01",
        "compute-04",
        "rabbit-01",
        "rabbit-02",
    }


def test_a_workflow_takes_no_more_requests_than_the_real_controllers_wrote() -> None:
    system = System()
    before = system.controllers.requests
    system.run(XFS)
    assert system.controllers.requests - before < 85


@pytest.mark.parametrize("type", ["xfs", "gfs2"])
def test_the_work_for_each_node_does_not_grow_with_the_number_of_nodes(
    type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up: list[object] = []
    get = Cluster.get

    def count(cluster: Cluster, *key: Any) -> Optional[Json]:
        looked_up.append(key)
        return get(cluster, *key)

    monkeypatch.setattr(Cluster, "get", count)

    def work(nodes: int) -> float:
        """Objects that are looked up for each node. Answers come one at a time."""
        rng = random.Random(1)
        topology = Topology.regular(nodes, 4)
        system = System(topology=topology, latency=lambda: rng.uniform(0.0, 0.1))
        looked_up.clear()
        system.submit(
            f"#DW jobdw type={type} capacity=1GiB name=aa",
            "#DW copy_in source=/lustre/in destination=$DW_JOB_aa/",
            "#DW copy_out source=$DW_JOB_aa/out destination=/lustre/out",
        )
        system.wait()
        system.assign(tuple(topology.rabbit_of))
        for state in STATES[1:]:
            assert system.go(state)["ready"]
        system.remove()
        system.check_clean()
        return len(looked_up) / nodes

    assert work(128) < 1.5 * work(32)


def test_the_same_seed_gives_the_same_events() -> None:
    def run(seed: int) -> str:
        rng = random.Random(seed)
        options = Options(latency=recorded())
        system = System(options, seed=seed, latency=lambda: rng.random() / 100)
        for number, directives in enumerate(LIVES):
            system.submit(*directives, name=f"job{number}")
        for number in range(len(LIVES)):
            system.wait(f"job{number}")
            system.assign(name=f"job{number}")
            system.go("Setup", f"job{number}")
            system.remove(f"job{number}")
        return json.dumps(system.events)

    first = run(1)
    assert run(1) == first
    assert run(2) != first


STEP = st.sampled_from(
    ["go", "go", "go", "restart", "drop", "teardown", "delete", "wait"]
)


@examples(20)
@given(
    life=st.sampled_from(LIVES),
    steps=st.lists(STEP, max_size=12),
    events=st.integers(0, 40),
    seed=st.integers(0, 2**32 - 1),
)
def test_whatever_happens_on_the_way_nothing_is_left(
    life: tuple[str, ...], steps: list[str], events: int, seed: int
) -> None:
    rng = random.Random(seed)
    system = System(seed=seed, latency=lambda: rng.random() / 1000)
    system.submit(*life)
    for step in steps:
        if system.gone():
            break
        for _ in range(rng.randrange(events + 1)):
            system.loop.step()
        _random_step(system, step)
    if not system.gone():
        system.wait()
        system.remove()
    system.check_clean()


def _random_step(system: System, step: str) -> None:
    deleting = "deletionTimestamp" in system.workflow()["metadata"]
    state = system.workflow()["spec"]["desiredState"]
    if step == "restart":
        system.restart()
    elif step == "drop":
        system.kube.drop_watches()
    elif deleting:
        pass
    elif step == "wait":
        system.wait()
    elif step == "delete":
        system.release()
    elif step == "teardown":
        system.patch({"desiredState": "Teardown"})
    elif state != "Teardown" and system.wait()["ready"]:
        if state == "Proposal":
            system.assign()
        system.patch({"desiredState": STATES[STATES.index(state) + 1]})


@examples(13)
@given(life=st.sampled_from(LIVES), seed=st.integers(0, 2**32 - 1))
@example(life=LIVES[0], seed=17248)
def test_an_api_server_with_trouble_only_delays(
    life: tuple[str, ...], seed: int
) -> None:
    rng = random.Random(seed)

    def trouble(request: direct.Request) -> Optional[direct.Fault]:
        dice = rng.random()
        if dice < 0.1:
            return direct.Fault(error=KubeError(500, "InternalError"))
        if dice < 0.2 and request.verb != "watch":
            lost = KubeError(0, "Lost")
            return direct.Fault(error=lost, carried_out=True)
        if dice < 0.25:
            return direct.Fault(delay=rng.random())
        return None

    system = System(seed=seed, faults=trouble)
    system.run(*life)
    system.sleep(60.0)
    system.check_clean()


def test_a_workflow_that_no_webhook_saw_is_checked_all_the_same() -> None:
    system = System()
    system.store.admission.clear()
    system.submit("#DW jobdw type=zfs capacity=1GiB name=aa", name="bad")
    assert system.loop.run(lambda: "message" in system.status("bad"), TIMEOUT)
    assert system.status("bad")["message"] == "argument 'type' invalid string 'zfs'"
    system.remove("bad")
    system.run(XFS)
    system.check_clean()


def test_workflows_at_once_do_not_get_in_each_others_way() -> None:
    system = System(dataclasses.replace(Options(), capacity_interval=0.01))
    names = [f"job{number}" for number in range(40)]
    for name in names:
        system.submit(XFS, name=name)
    for name in names:
        system.wait(name)
        system.assign(name=name)
    for state in STATES[1:]:
        for name in names:
            system.patch({"desiredState": state}, name)
        for name in names:
            assert system.wait(name)["ready"]
    for name in names:
        system.remove(name)
    system.check_clean()
