# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Storage that is full, wrong, shared or persistent in the stand-in."""

from __future__ import annotations

import pytest

from flux_k8s.ports import COMPUTES, PERSISTENTSTORAGE, SECRET, Json
from rabbitsim.dws import Options, Topology, constant
from rabbitsim.dws.directive import STATES
from support.dws import XFS, System


def test_a_storage_that_is_full_makes_the_next_job_wait() -> None:
    size = 20 << 30
    system = System(topology=Topology.regular(2, 1, capacity=size))
    for name in ("one", "two"):
        system.submit(XFS, name=name)
        system.wait(name)
        system.assign(["compute-01"], name=name)
    system.go("Setup", "one")
    assert system.free() == {"rabbit-01": size - 11051991040}
    system.patch({"desiredState": "Setup"}, "two")
    assert not system.loop.run(lambda: system.settled("two"), 60.0)
    status = system.status("two")
    assert status["status"] == "TransientCondition"
    assert status["message"] == (
        "DW Directive 0: Internal error: could not allocate storage"
    )
    system.remove("one")
    assert system.wait("two")["ready"]
    system.remove("two")
    system.check_clean()


@pytest.mark.parametrize(
    "changes, debug",
    [
        (
            {"storage": [{"name": "rabbit-99", "allocationCount": 1}]},
            "Storage 'rabbit-99' not found",
        ),
        ({"allocationSize": 1 << 30}, "less than the minimum capacity 11051991040"),
        ({"label": "ost"}, "allocation sets are ['ost'], expected ['xfs']"),
        ({"storage": []}, "allocation set 'xfs' has no storage"),
    ],
)
def test_servers_that_do_not_satisfy_the_breakdown_are_an_error_in_setup(
    changes: Json, debug: str
) -> None:
    system = System()
    system.submit(XFS)
    system.wait()
    system.assign(**changes)
    status = system.go("Setup")
    assert (status["status"], status["ready"]) == ("Error", False)
    assert status["message"] == (
        "DW Directive 0: WLM error: storage directive requirements were not satisfied"
    )
    driver = next(d for d in status["drivers"] if d["watchState"] == "Setup")
    assert debug in driver["error"]
    system.remove()
    system.check_clean()


def test_a_compute_node_without_storage_on_its_rabbit_is_an_error_in_prerun() -> None:
    system = System()
    system.submit(XFS)
    system.wait()
    system.assign(["compute-01"])
    data = {"data": [{"name": "compute-01"}, {"name": "compute-02"}]}
    system.store.merge_patch(COMPUTES, "default", "job", data)
    system.go("Setup")
    system.go("DataIn")
    status = system.go("PreRun")
    assert status["status"] == "Error"
    assert "no storage for compute node 'compute-02'" in status["message"]
    system.remove()
    system.check_clean()


@pytest.mark.parametrize(
    "directive, message",
    [
        (
            "#DW jobdw type=xfs capacity=1GiB name=aa profile=nosuch",
            "User error: Unable to find NnfStorageProfile: nosuch",
        ),
        (
            "#DW persistentdw name=nosuch",
            "User error: PersistentStorageInstance 'nosuch' not found",
        ),
        (
            "#DW destroy_persistent name=nosuch",
            "User error: PersistentStorageInstance 'nosuch' not found",
        ),
        (
            "#DW copy_in source=/home/me destination=/lustre/x",
            "User error: global Lustre file system containing '/home/me' not found",
        ),
        (
            "#DW copy_in source=$DW_JOB_x destination=/lustre/x",
            "User error: Unable to find the storage of '$DW_JOB_x'",
        ),
        (
            "#DW create_persistent type=lustre name=aa",
            "User error: a capacity is needed for the 'ost' allocation",
        ),
        (
            "#DW jobdw type=lustre capacity=0GiB name=aa",
            "User error: 'capacity' must be a non-zero value",
        ),
        (
            "#DW container name=aa profile=none",
            "User error: NnfContainerProfile 'none' not found",
        ),
    ],
)
def test_directives_that_cannot_be_satisfied_are_an_error_in_proposal(
    directive: str, message: str
) -> None:
    system = System()
    system.submit(directive)
    status = system.wait()
    assert (status["status"], status["ready"]) == ("Error", False)
    assert status["message"] == f"DW Directive 0: {message}"
    system.remove()
    system.check_clean()


def test_a_daemon_gets_a_token_that_goes_with_the_workflow() -> None:
    system = System()
    system.submit("#DW jobdw type=xfs capacity=1GiB name=aa requires=copy-offload")
    status = system.wait()
    assert status["requires"] == ["copy-offload", "container-auth"]
    token = status["workflowToken"]
    secret = system.store.get(SECRET, token["secretNamespace"], token["secretName"])
    assert secret["data"]["token"]
    [breakdown] = system.breakdowns()
    assert breakdown["status"]["requires"] == ["copy-offload"]
    system.remove()
    system.check_clean()


def test_shared_storage_serves_all_nodes_of_a_rabbit() -> None:
    system = System()
    system.submit("#DW jobdw type=gfs2 capacity=1TiB name=aa profile=shared")
    system.wait()
    system.assign(["compute-01", "compute-02"])
    for state in STATES[1:4]:
        assert system.go(state)["ready"]
    system.remove()
    system.check_clean()


def test_persistent_storage_outlives_its_creator_until_it_is_destroyed() -> None:
    system = System()
    create = "#DW create_persistent type=lustre capacity=20GiB name=keep1"
    system.run(create, name="creator")
    [instance] = system.items(PERSISTENTSTORAGE)
    assert instance["status"]["state"] == "Active"
    assert "ownerReferences" not in instance["metadata"]
    held = sum(system.full().values()) - sum(system.free().values())
    assert held >= 20 << 30

    system.submit(create, name="again")
    assert "already exists" in system.wait("again")["message"]
    system.remove("again")

    system.submit("#DW persistentdw name=keep1", name="user")
    system.wait("user")
    system.assign(name="user")
    for state in STATES[1:4]:
        status = system.go(state, "user")
    uid = system.workflow("user")["metadata"]["uid"]
    assert status["env"]["DW_PERSISTENT_keep1"] == f"/mnt/nnf/{uid}-0"

    system.submit("#DW destroy_persistent name=keep1", name="early")
    assert "is in use" in system.wait("early")["message"]
    system.remove("early")
    system.submit("#DW destroy_persistent name=keep1", name="stranger", user=5)
    assert "belongs to another user" in system.wait("stranger")["message"]
    system.remove("stranger")
    system.remove("user")

    system.run("#DW destroy_persistent name=keep1", name="destroyer")
    assert system.items(PERSISTENTSTORAGE) == []
    system.check_clean()


@pytest.mark.parametrize("state", ["Proposal", "Setup"])
def test_persistent_storage_that_was_never_completed_goes_with_its_workflow(
    state: str,
) -> None:
    options = Options(latency=constant(5.0))
    system = System(options)
    system.submit("#DW create_persistent type=lustre capacity=20GiB name=keep1")
    if state == "Setup":
        system.wait()
        system.assign()
        system.patch({"desiredState": "Setup"})
    system.sleep(1.0)
    system.remove()
    assert system.items(PERSISTENTSTORAGE) == []
    system.check_clean()
