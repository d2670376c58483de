# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Which nodes failed, and whether their job goes on without them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.errors import BadObject
from flux_k8s.formats import hostlist
from flux_k8s.formats.jobid import f58
from flux_k8s.objects import mapping
from flux_k8s.objects.workflowstate import State
from flux_k8s.objects.workflowview import WorkflowView
from flux_k8s.ports import Json
from flux_k8s.rules.directivebreakdown.breakdown import (
    STRATEGIES,
    AllocationSet,
    Breakdown,
    Reference,
)
from flux_k8s.rules.nodefailure import (
    Survey,
    computes_patch,
    failed_nodes,
    survey_mounts,
    survey_storage,
    verdict,
)

JOBID = 1234
NOW = 1000.0
HOSTS = ("node1", "node2", "node3", "node4")
MAPPING = mapping.parse(
    {
        "computes": {
            "node1": "rabbit1",
            "node2": "rabbit1",
            "node3": "rabbit2",
            "node4": "rabbit2",
        },
        "rabbits": {
            "rabbit1": {"capacity": 1, "hostlist": "node[1-2]"},
            "rabbit2": {"capacity": 1, "hostlist": "node[3-4]"},
        },
    }
)
SERVERS = Reference("default", "w-0")


def computes(*hosts: str) -> Json:
    return {"metadata": {"name": "w"}, "data": [{"name": host} for host in hosts]}


def servers(ready: dict[str, bool], label: str = "xfs") -> Json:
    entries = [{"name": name, "allocationCount": 2} for name in ready]
    shown = {
        name: {"allocationSize": 9, "ready": is_ready}
        for name, is_ready in ready.items()
    }
    spec = {"label": label, "allocationSize": 9, "storage": entries}
    return {
        "metadata": {"name": "w-0"},
        "spec": {"allocationSets": [spec]},
        "status": {"allocationSets": [{"label": label, "storage": shown}]},
    }


def breakdown(strategy: str, label: str = "xfs", lifetime: str = "job") -> Breakdown:
    entry = AllocationSet(label, STRATEGIES[strategy], 9)
    return Breakdown("b", "#DW", lifetime, (entry,), SERVERS)


SUBSETS = st.sets(st.sampled_from(HOSTS))


@st.composite
def surveys(draw: st.DrawFn) -> Survey:
    present = draw(SUBSETS)
    return Survey(
        draw(st.sampled_from([State.Setup, State.PreRun])),
        draw(st.floats(0, 2 * NOW)),
        tuple(host for host in HOSTS if host in present),
        tuple(host for host in HOSTS if host in present & draw(SUBSETS)),
        draw(st.booleans()),
        draw(st.none() | st.floats(0, 2 * NOW)),
    )


def clientmount(
    node: str, name: str = "default-w-0-computes", **changes: Any
) -> dict[str, Any]:
    """One that is mounted; ``changes`` replace fields of its status."""
    mount = {"ready": True, "state": "mounted"}
    return {
        "metadata": {"name": name, "namespace": node},
        "spec": {"desiredState": "mounted", "mounts": [{}]},
        "status": {"allReady": True, "mounts": [mount], **changes},
    }


def storage(name: str, *hosts: str, offline: tuple[str, ...] = ()) -> Json:
    entries = [
        {"name": host, "status": "Offline" if host in offline else "Ready"}
        for host in hosts
    ]
    status = {"status": "Ready", "access": {"computes": entries}}
    return {"metadata": {"name": name}, "status": status}


def mounts_of(*clientmounts: Json, expected: int = 1, **storages: Any) -> Survey:
    return survey_mounts(
        NOW,
        computes(*HOSTS),
        clientmounts,
        storages.get("storages", ()),
        expected,
        MAPPING,
    )


# Mounts


def broken(**changes: Any) -> list[Json]:
    """All have mounted but node3, the status of whose mount has these fields."""
    return [
        *map(clientmount, ("node1", "node2", "node4")),
        clientmount("node3", **changes),
    ]


ALL = list(map(clientmount, HOSTS))
NO_STATUS = {**clientmount("node3"), "status": None}
ONE = storage("rabbit1", "node1", "node2")
OTHER = storage("rabbit2", "node3", "node4")
AWAY = {**OTHER, "status": {**OTHER["status"], "status": "Offline"}}
WORN = {**OTHER, "status": {**OTHER["status"], "status": "Degraded"}}
ERROR = {"severity": "Major", "type": "Internal", "debugMessage": "x"}


@pytest.mark.parametrize(
    ("clientmounts", "storages", "lost"),
    [
        (ALL, [], ()),
        (broken(mounts=[]), [], ("node3",)),
        (broken(mounts=[{"ready": False, "state": "mounted"}]), [], ("node3",)),
        (broken(mounts=[{"ready": True, "state": "unmounted"}]), [], ("node3",)),
        (broken(error=ERROR), [], ("node3",)),
        (broken(mounts=[{"ready": "yes", "state": "mounted"}]), [], ("node3",)),
        (broken(mounts="mounted"), [], ("node3",)),
        ([*ALL[:2], NO_STATUS], [], ("node3", "node4")),
        # Those of Rabbits, and of nodes that have left, do not count
        ([*ALL, clientmount("rabbit1", "default-w-0-servers", mounts=[])], [], ()),
        ([*ALL, clientmount("node9", mounts=[])], [], ()),
        # Without any, it is the connections that count
        (
            [],
            [ONE, storage("rabbit2", "node3", "node4", offline=("node4",))],
            ("node4",),
        ),
        ([], [ONE, AWAY], ("node3", "node4")),
        ([], [ONE, WORN], ()),
        ([], [{"status": 7}, {"status": {"status": "Ready", "access": []}}], HOSTS),
        (ALL, [storage("rabbit1", "node1", "node2", offline=("node1",))], ()),
    ],
)
def test_the_nodes_are_lost_that_have_not_mounted_everything(
    clientmounts: list[Json], storages: list[Json], lost: tuple[str, ...]
) -> None:
    survey = mounts_of(*clientmounts, storages=storages)
    assert survey.lost == lost
    assert survey.served == bool(clientmounts)
    assert survey.remaining == tuple(host for host in HOSTS if host not in lost)


def test_a_node_must_have_mounted_all_file_systems() -> None:
    second = [clientmount(host, name="default-w-1-computes") for host in HOSTS[1:]]
    assert mounts_of(*ALL, *second, expected=2).lost == ("node1",)
    # As long as some are missing, those that are there count more than connections.
    assert mounts_of(*ALL[:3], expected=2, storages=[ONE]).lost == ("node4",)


def test_malformed_computes_are_an_error_that_names_them() -> None:
    with pytest.raises(BadObject, match=r"Computes w: data\[0\].name is 7"):
        survey_mounts(
            NOW,
            {"metadata": {"name": "w"}, "data": [{"name": 7}]},
            (),
            (),
            1,
            MAPPING,
        )


# Storage


def storage_of(found: Json, *breakdowns: Breakdown) -> Survey:
    holdings = [(each, found) for each in breakdowns]
    return survey_storage(NOW, computes(*HOSTS), holdings, MAPPING)


HALF = servers({"rabbit1": True, "rabbit2": False})
WHOLE = servers({"rabbit1": True, "rabbit2": True})


@pytest.mark.parametrize(
    ("found", "strategy", "lifetime", "lost", "tolerable"),
    [
        (HALF, "AllocatePerCompute", "job", ("node3", "node4"), True),
        (HALF, "AllocatePerServer", "job", ("node3", "node4"), True),
        # Shared storage, and storage that outlives the job, must be complete
        (HALF, "AllocateAcrossServers", "job", HOSTS, False),
        (HALF, "AllocateSingleServer", "job", HOSTS, False),
        (HALF, "AllocatePerCompute", "persistent", HOSTS, False),
        (WHOLE, "AllocatePerCompute", "job", (), True),
        ({**WHOLE, "status": None}, "AllocatePerCompute", "job", HOSTS, False),
        ({}, "AllocatePerCompute", "job", (), True),
    ],
)
def test_the_nodes_of_a_rabbit_without_their_storage_are_lost(
    found: Json, strategy: str, lifetime: str, lost: tuple[str, ...], tolerable: bool
) -> None:
    survey = storage_of(found, breakdown(strategy, lifetime=lifetime))
    assert survey.lost == lost
    assert verdict(HOSTS, survey, 4, "")[0] == tolerable


def test_servers_no_longer_request_storage_of_rabbits_that_failed() -> None:
    found = servers({"rabbit1": True, "rabbit2": False})
    (patch,) = storage_of(found, breakdown("AllocatePerCompute")).patches
    (before,) = found["spec"]["allocationSets"]
    left = [entry for entry in before["storage"] if entry["name"] == "rabbit1"]
    sets = [{**before, "storage": left}]
    assert patch == (SERVERS, {"spec": {"allocationSets": sets}})


def test_complete_storage_is_requested_as_before() -> None:
    assert storage_of(WHOLE, breakdown("AllocatePerCompute")).patches == ()


# The decision


@given(surveys(), st.integers(0, 5))
def test_as_many_nodes_as_tolerated_may_fail_and_one_must_remain(
    survey: Survey, tolerance: int
) -> None:
    failed = failed_nodes(HOSTS, survey)
    before = [host for host in HOSTS if host not in survey.computes]
    assert set(failed) == {*before, *survey.lost}
    assert sorted((*failed, *survey.remaining)) == sorted(HOSTS)
    goes_on = len(failed) <= tolerance and bool(survey.remaining)
    assert verdict(HOSTS, survey, tolerance, "")[0] is goes_on


@given(surveys())
def test_nodes_taken_out_of_computes_stay_failed_and_no_others_do(
    survey: Survey,
) -> None:
    """What is written can be read again, by a module that knows nothing."""
    written = computes_patch(survey, NOW)
    mounted = [clientmount(host) for host in HOSTS]
    storages = [
        storage(rabbit, *MAPPING.hosts_of(rabbit)) for rabbit in MAPPING.rabbits
    ]
    again = survey_mounts(2 * NOW, written, mounted, storages, 1, MAPPING)
    assert again.computes == survey.remaining and again.lost == ()
    assert failed_nodes(HOSTS, again) == failed_nodes(HOSTS, survey)
    assert again.excluded == (NOW if survey.state is State.PreRun else None)


def test_a_host_with_several_brokers_is_one_node() -> None:
    survey = mounts_of(*map(clientmount, HOSTS[1:]))
    assert failed_nodes(("node1", *HOSTS), survey) == ("node1",)
    assert not verdict(("node1", "node1"), survey, 1, "")[0]


def test_the_jobs_owner_reads_which_nodes_failed_and_how_many_may() -> None:
    survey = mounts_of(*map(clientmount, HOSTS[:2]))
    goes_on, note = verdict(HOSTS, survey, 2, "it broke")
    nodes, _, rest = note.partition(": ")
    assert hostlist.decode(nodes) == ("node3", "node4")
    assert rest == (
        "it broke; the job goes on without its storage there"
        " (failed nodes: 2, dw_failure_tolerance=2)"
    )
    assert goes_on
    assert verdict(HOSTS, survey, 1, "it broke") == (
        False,
        "it broke; failed nodes: 2 of 4 (node[3-4]), dw_failure_tolerance=1",
    )


@pytest.mark.parametrize(
    "state, outstanding, may",
    [
        (State.PreRun, (), True),
        (State.PreRun, ("jobdw",), True),
        (State.PreRun, ("persistentdw",), True),
        (State.PreRun, ("jobdw", "jobdw"), False),
        (State.PreRun, ("container",), False),
        (State.Setup, ("jobdw", "jobdw", "persistentdw"), True),
        (State.Setup, ("jobdw", "container"), False),
    ],
)
def test_no_state_is_forced_that_would_leave_out_more_than_nodes(
    state: State, outstanding: tuple[str, ...], may: bool
) -> None:
    survey = Survey(state, NOW, (), (), served=True, excluded=NOW)
    assert survey.may_be_forced(outstanding) is may
    assert not replace(survey, excluded=None).may_be_forced(outstanding)
    assert not replace(survey, served=False).may_be_forced(outstanding)
    assert not replace(survey, lost=("node1",)).may_be_forced(outstanding)


# The objects that a survey reads


def workflow(**status: Any) -> Json:
    return {
        "metadata": {"name": "w", "uid": "u", "resourceVersion": "1"},
        "spec": {
            "desiredState": "PreRun",
            "dwDirectives": [
                "#DW jobdw type=xfs capacity=1GiB name=p1",
                "#DW copy_in source=/x destination=$DW_JOB_p1/",
                "#DW persistentdw name=p2",
                "#DW container name=c profile=p",
            ],
            "forceReady": True,
            "jobID": f58(JOBID),
            "wlmID": "flux",
        },
        "status": {"state": "PreRun", **status},
    }


def driver(index: int, state: str, completed: bool) -> Json:
    return {"dwdIndex": index, "watchState": state, "completed": completed}


def test_the_view_of_a_workflow_has_the_commands_that_dws_has_not_completed() -> None:
    drivers = [
        driver(0, "Setup", False),
        driver(0, "PreRun", True),
        driver(2, "PreRun", False),
        driver(3, "PreRun", False),
        driver(9, "PreRun", False),
    ]
    view = WorkflowView.parse(workflow(drivers=drivers))
    assert view.damage is None
    assert view.outstanding == ("persistentdw", "container", "")
    assert view.mounts == 2
    assert view.forced
