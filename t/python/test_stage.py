# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Jobs whose data is copied in before they have nodes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from flux_k8s.dws.directivebreakdown import below_chassis
from flux_k8s.dws.workflowmarks import STAGE, STAGED_FOR
from flux_k8s.ports import Json
from flux_k8s.rfc.jobid import f58
from rabbitsim.flux.events import JobState
from support.queries import query
from support.rabbits import set_link, set_status
from support.service import (
    COPY_OUT,
    DAY,
    HOUR,
    LIFE,
    LUSTRE,
    XFS,
    desired,
    exceptions,
    long,
    memo,
    names,
    running,
    settle,
    workflow,
)
from support.staging import (
    AHEAD,
    COPY,
    COPY_IN,
    always,
    computes,
    config,
    fits,
    made_for,
    occupy,
    reaches,
    set_urgency,
    slow,
    ssds_down,
    started_staging,
    submit,
    time_of,
    wait,
)
from support.unmounting import job_show


def test_data_is_copied_in_while_the_nodes_run_another_job() -> None:
    system = slow()
    other = occupy(system, 4)
    jobid = submit(system, nodes=4)
    reaches(system, jobid, "DataIn")
    assert system.instance.job(other).state is JobState.RUN
    assert computes(system, jobid) == []
    running(system, jobid)
    assert names(system, jobid)[: LIFE.index("finish")] == LIFE[: LIFE.index("finish")]
    idle = time_of(system, jobid, "start") - time_of(system, other, "free")
    assert idle < 5.0
    assert len(computes(system, jobid)) == 4
    settle(system)
    assert not exceptions(system, jobid)
    wait(system, 120.0)
    assert ssds_down(system) == 0


@pytest.mark.parametrize("dw_stage", ["ahead", "prolog"])
def test_a_job_that_waits_for_nodes_says_so_and_names_rabbits_that_have_none(
    dw_stage: str,
) -> None:
    system = slow()
    occupy(system, 4)
    jobid = submit(system, dw_stage=dw_stage)
    wait(system, COPY + 60.0)
    (row,) = (each for each in query(system, "job-list")["jobs"] if each["id"] == jobid)
    assert (row["state"], row["ready"]) == (
        "DataIn" if dw_stage == "ahead" else "Proposal",
        True,
    )
    assert row["waits"] == job_show(system, jobid)["waits"] == "nodes"
    query(system, "rabbit-disable", {"rabbits": ["rabbit-02"], "reason": "new disks"})
    wait(system, 1.0)
    owner = system.instance.broker.owner
    waits = f"nodes; out of service: rabbit-02 (disabled by {owner}: new disks)"
    assert job_show(system, jobid)["waits"] == waits
    query(system, "rabbit-enable", {"rabbits": ["rabbit-02"]})
    settle(system)
    assert names(system, jobid)[-1] == "clean"


def test_by_default_data_is_copied_in_when_the_job_has_nodes() -> None:
    system = slow()
    jobid = submit(system, dw_stage="prolog")
    plain = submit(system, dw_stage="prolog")
    running(system, jobid, plain)
    annotations = workflow(system, jobid)["metadata"]["annotations"]
    assert not {STAGE, STAGED_FOR} & annotations.keys()
    begun = time_of(system, jobid, "alloc")
    assert time_of(system, jobid, "start") - begun >= COPY
    settle(system)


def test_a_job_asks_for_no_ssd_with_the_resources_of_one_that_had_some() -> None:
    system = slow()
    first = submit(system, dw_stage="prolog")
    running(system, first)
    resources = system.instance.job(first).jobspec["resources"]
    assert "ssd" in str(resources)
    spec = long([XFS, COPY_IN], 1, 10, **AHEAD)
    jobid = system.instance.submit({**spec, "resources": resources})
    running(system, jobid)
    assert "ssd" not in str(system.instance.job(jobid).jobspec["resources"])
    settle(system)


@pytest.mark.parametrize(
    "constraint", [{"ranks": ["0-1000000"]}, {"properties": ["^a"] * 10_000}]
)
def test_a_job_whose_constraint_is_too_large_fails(constraint: Json) -> None:
    system = slow()
    jobid = submit(system, constraints=constraint)
    settle(system)
    (found,) = exceptions(system, jobid)
    assert "constraints" in found["note"]


@pytest.mark.parametrize("nodes", [1, 2, 3, 4, 5, 6])
def test_a_job_gets_its_nodes_where_its_storage_is(nodes: int) -> None:
    system = slow(rabbits=3)
    jobid = submit(system, nodes)
    reaches(system, jobid, "DataIn")
    made = made_for(system, jobid)
    assert sum(made.values()) == nodes
    running(system, jobid)
    rabbits = map(system.topology.rabbit_of.get, computes(system, jobid))
    assert Counter(rabbits) == made
    settle(system)
    assert not exceptions(system, jobid)


@pytest.mark.parametrize("nodes, chassis", [(6, 0), (2, 2), (4, 2)])
def test_a_job_on_two_rabbits_gets_any_nodes_below_them_as_many_on_each(
    nodes: int, chassis: int
) -> None:
    system = slow(rabbits=3, nodes=4)
    first = {rabbit.computes[0] for rabbit in system.topology.rabbits.values()}
    for host in sorted(first):
        occupy(system, 1, constraints={"hostlist": [host]}, seconds=9000)
    jobid = submit(system, nodes, chassis=chassis, seconds=100)
    running(system, jobid)
    made = made_for(system, jobid)
    assert list(made.values()) == [nodes // 2] * 2
    rabbits = map(system.topology.rabbit_of.get, computes(system, jobid))
    assert Counter(rabbits) == made
    assert not first.intersection(computes(system, jobid))
    settle(system, DAY)
    assert not exceptions(system, jobid)


def test_a_lustre_file_system_is_staged_for_any_nodes() -> None:
    system = slow()
    occupied = occupy(system, 2, seconds=3000)
    jobid = submit(system, 2, dw=[LUSTRE, COPY_IN])
    running(system, jobid)
    assert system.instance.job(occupied).state is JobState.RUN
    assert workflow(system, jobid)["metadata"]["annotations"][STAGED_FOR] == ""
    settle(system)


def test_staged_storage_is_not_given_to_another_job() -> None:
    system = slow()
    occupied = occupy(system, 4)
    jobid = submit(system, 4, size=45)
    reaches(system, jobid, "DataIn")
    system.instance.cancel(occupied)
    other = submit(system, 2, size=45, dw_stage="prolog")
    assert always(system, lambda: fits(system), 2 * COPY)
    settle(system)
    assert not exceptions(system, jobid) and not exceptions(system, other)
    assert time_of(system, other, "alloc") > time_of(system, jobid, "free")


def test_storage_that_a_job_has_is_not_staged_for_another() -> None:
    system = slow()
    first = submit(system, 2, size=60, dw_stage="prolog", seconds=2000)
    running(system, first)
    jobid = submit(system, 2, size=60)
    wait(system, HOUR / 4)
    assert desired(system, jobid) == "Proposal"
    assert "room" in memo(system, jobid, "rabbit_waits_for")
    assert always(system, lambda: fits(system), DAY / 8)
    assert not exceptions(system, jobid) and "start" in names(system, jobid)
    settle(system)


def test_jobs_are_staged_in_the_order_of_urgency_then_of_submission() -> None:
    system = slow(rabbits=1)
    first = submit(system, 1, size=90)
    reaches(system, first, "DataIn")
    jobs = [submit(system, 1, size=90, urgency=u) for u in (10, 16, 16, 20)]
    begun: list[int] = []

    def note() -> bool:
        for jobid in jobs:
            if jobid not in begun and "workflow" in started_staging(system, jobid):
                begun.append(jobid)
        return False

    system.loop.run(note, timeout=DAY / 4)
    assert begun == [jobs[3], jobs[1], jobs[2], jobs[0]]
    settle(system)


def test_a_change_of_urgency_changes_the_order() -> None:
    system = slow(rabbits=1)
    first = submit(system, 1, size=90)
    reaches(system, first, "DataIn")
    second, third = (submit(system, 1, size=90) for _ in range(2))
    wait(system, 10.0)
    set_urgency(system, third, 20)
    running(system, third)
    assert "start" not in names(system, second)
    settle(system)


def test_a_job_that_is_held_is_not_staged_and_says_so() -> None:
    system = slow()
    jobid = submit(system, urgency=0)
    wait(system, HOUR)
    assert desired(system, jobid) == "Proposal"
    assert job_show(system, jobid)["waits"] == "an urgency above 0: the job is held"
    set_urgency(system, jobid, 16)
    running(system, jobid)
    settle(system)


def test_a_job_that_waits_for_another_dependency_is_not_staged_and_says_so() -> None:
    system = slow()
    first = submit(system, dw=[XFS, COPY_IN, COPY_OUT], seconds=3000)
    depends = {"dependencies": [{"scheme": "dws-out", "value": f58(first)}]}
    jobid = submit(system, **depends)
    wait(system, HOUR / 2)
    assert desired(system, jobid) == "Proposal"
    assert job_show(system, jobid)["waits"] == "another dependency of the job"
    running(system, jobid)
    settle(system)


def test_a_broken_rabbit_is_not_chosen() -> None:
    system = slow()
    set_status(system, "rabbit-01", "Offline")
    wait(system, 1.0)
    jobid = submit(system, 2)
    running(system, jobid)
    assert set(made_for(system, jobid)) == {"rabbit-02"}
    too_large = submit(system, 4)
    behind = submit(system, 2)
    running(system, behind)
    assert desired(system, too_large) == "Proposal"
    assert "do not serve" in memo(system, too_large, "rabbit_waits_for")
    set_status(system, "rabbit-01", "Ready")
    settle(system, DAY)
    assert not exceptions(system, too_large)


def test_a_drained_node_is_not_chosen() -> None:
    system = slow(rabbits=2)
    system.instance.drain("compute-01", "bad")
    wait(system, 1.0)
    jobid = submit(system, 3)
    running(system, jobid)
    assert "compute-01" not in computes(system, jobid)
    settle(system)


@pytest.mark.parametrize(
    "constraint", [{"hostlist": ["compute-[03-04]"]}, {"ranks": ["2-3"]}]
)
def test_a_job_is_staged_where_its_own_constraint_lets_it_run(constraint: Json) -> None:
    system = slow()
    jobid = submit(system, 2, constraints=constraint)
    running(system, jobid)
    assert len(computes(system, jobid)) == 2
    assert computes(system, jobid) == ["compute-03", "compute-04"]
    settle(system)


@pytest.mark.parametrize("limit", ["stage_limit", "stage_user_limit"])
def test_the_storage_of_jobs_without_nodes_is_bounded_and_stays_in_order(
    limit: str,
) -> None:
    system = slow(config=config(**{limit: 30}))
    occupy(system, 4, seconds=3000)
    first, second = submit(system, size=40), submit(system, size=40)
    small, other = submit(system, size=10), submit(system, size=10, userid=4711)
    wait(system, 3 * COPY)
    assert desired(system, first) == "DataIn"
    assert desired(system, second) == "Proposal"
    assert f"rabbit.{limit} is reached" in memo(system, second, "rabbit_waits_for")
    assert desired(system, small) == "Proposal"
    assert desired(system, other) == (
        "Proposal" if limit == "stage_limit" else "DataIn"
    )
    running(system, second, small, other)
    settle(system)


def test_a_job_that_exceeds_the_bound_by_itself_fails() -> None:
    system = slow(config=config(stage_limit=30))
    jobid = submit(system, 2, size=40)
    settle(system)
    (exception,) = exceptions(system, jobid)
    assert "may have 60 GiB (rabbit.stage_limit)" in exception["note"]


def test_a_site_stages_all_jobs_that_can_be_staged() -> None:
    system = slow(config=config(stage="ahead", stage_limit=30))
    spec = long([XFS, COPY_IN], 1, 10)
    ahead = system.instance.submit(spec)
    without = system.instance.submit(long(XFS, 1, 10))
    large = system.instance.submit(long([XFS.replace("10G", "40G"), COPY_IN], 2, 10))
    reaches(system, ahead, "DataIn")
    running(system, large)
    assert STAGE in workflow(system, ahead)["metadata"]["annotations"]
    settle(system)
    for jobid in (ahead, without, large):
        assert not exceptions(system, jobid)


@pytest.mark.parametrize(
    "dw, nodes, reason",
    [
        ([XFS], 1, "there is no copy_in"),
        ([XFS + " requires=copy-offload", COPY_IN], 1, "needs nodes when"),
        (["#DW persistentdw name=keep"], 1, "is not for storage that is made before"),
        ([XFS, COPY_IN], "2-4", "a fixed number of whole nodes"),
    ],
)
def test_a_job_that_cannot_be_staged_is_refused_with_the_reason(
    dw: Any, nodes: Any, reason: str
) -> None:
    system = slow()
    jobid = submit(system, nodes, dw=dw)
    settle(system)
    (exception,) = exceptions(system, jobid)
    assert reason in exception["note"]


def test_a_job_that_fits_no_rabbits_is_refused_with_the_reason() -> None:
    system = slow()
    jobid = submit(system, 2, size=80, constraints={"hostlist": ["compute-[01-02]"]})
    settle(system)
    (exception,) = exceptions(system, jobid)
    assert "no Rabbits have room for 2 nodes of 81 GiB each" in exception["note"]


def test_without_fluxion_no_job_is_staged() -> None:
    system = slow(scheduler=False)
    jobid = submit(system)
    settle(system)
    (exception,) = exceptions(system, jobid)
    assert "needs a scheduler that knows Rabbits" in exception["note"]


def test_a_staged_job_may_give_its_nodes_back_when_they_have_unmounted() -> None:
    system = slow()
    jobs = [
        submit(system, 4, dw=[XFS, COPY_IN, COPY_OUT], dw_release="unmounted")
        for _ in range(3)
    ]
    assert always(system, lambda: fits(system), 4 * COPY)
    settle(system)
    for jobid in jobs:
        assert not exceptions(system, jobid)
    wait(system, 120.0)
    assert ssds_down(system) == 0


def test_two_jobs_that_need_the_same_rabbits_run_one_after_the_other() -> None:
    system = slow(rabbits=3)
    jobs = [submit(system, nodes, size=30) for nodes in (4, 6, 4, 2, 6, 1)]
    assert always(system, lambda: fits(system), 6 * COPY)
    settle(system, DAY)
    for jobid in jobs:
        assert not exceptions(system, jobid)


def test_a_node_that_lost_its_rabbit_is_not_chosen() -> None:
    system = slow(config=config(drain_compute_nodes=False))
    set_link(system, "compute-01", False)
    wait(system, 1.0)
    jobid = submit(system, 3)
    running(system, jobid)
    assert "compute-01" not in computes(system, jobid)
    settle(system)


def test_a_job_is_staged_where_the_nodes_have_the_cores_that_it_needs() -> None:
    system = slow()
    pool = system.instance.scheduler.pool
    for node in pool.nodes[:2]:
        node.cores = 2
        pool._free["core", node.rank] = [0, 1]
    system.instance.drain("compute-02", "to have the nodes read again")
    system.instance.undrain("compute-02")
    wait(system, 2.0)
    spec = long([XFS, COPY_IN], 2, 10, dw_stage="ahead")
    spec["resources"][0]["with"][0]["with"][0]["count"] = 3
    jobid = system.instance.submit(spec)
    running(system, jobid)
    assert computes(system, jobid) == ["compute-03", "compute-04"]
    settle(system)
    assert not exceptions(system, jobid)


def test_a_job_that_wants_all_of_its_chassis_is_refused() -> None:
    system = slow()
    spec = long([XFS, COPY_IN], 2, 10, dw_stage="ahead")
    spec["resources"] = below_chassis(spec["resources"], 1)
    spec["resources"][0]["exclusive"] = True
    jobid = system.instance.submit(spec)
    settle(system)
    (exception,) = exceptions(system, jobid)
    assert "a fixed number of whole nodes" in exception["note"]
