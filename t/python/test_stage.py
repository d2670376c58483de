# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Jobs whose data is copied in before they have nodes (DESIGN section 13)."""

from __future__ import annotations

from collections import Counter
from typing import Any, Callable, Sequence

import pytest

from flux_k8s.config.table import Config
from flux_k8s.dws import storageusage
from flux_k8s.dws.directives import GIB
from flux_k8s.dws.workflowview import STAGE, STAGED_FOR
from flux_k8s.ports import COMPUTES, SERVERS, WORKFLOW, Json
from flux_k8s.rfc.jobid import f58, workflow_name
from rabbitsim.dws import Topology
from rabbitsim.dws.options import Fault, Options, table
from rabbitsim.flux.events import JobState
from rabbitsim.system import VirtualSystem
from rabbitsim.torture.crashpoints import Interruption, check
from rabbitsim.torture.scenarios import SCENARIOS
from support.rabbits import set_link, set_status
from support.service import (
    COPY_OUT,
    DAY,
    HOUR,
    LIFE,
    LUSTRE,
    XFS,
    exceptions,
    long,
    memo,
    names,
    running,
    settle,
    started,
)

COPY = 600.0
"""Seconds that DataIn takes."""

COPY_IN = "#DW copy_in source=/lustre/x destination=$DW_JOB_p1/"
AHEAD = {"dw_stage": "ahead"}
ALL = Config.parse({"stage_limit": 100, "stage_user_limit": 100})


def slow(
    rabbits: int = 2,
    nodes: int = 2,
    faults: Sequence[Fault] = (),
    config: Config = ALL,
    **options: Any,
) -> VirtualSystem:
    """A system whose data moves slowly."""
    latency = table({"DataIn": COPY})
    topology = Topology.regular(rabbits * nodes, rabbits, capacity=100 * GIB)
    return started(
        topology=topology,
        options=Options(latency=latency, faults=faults),
        config=config,
        **options,
    )


def submit(
    system: VirtualSystem,
    nodes: int = 1,
    size: int = 10,
    dw: Any = None,
    urgency: int = 16,
    seconds: int = 10,
    **system_: Any,
) -> int:
    if dw is None:
        dw = [XFS.replace("10GiB", f"{size}GiB"), COPY_IN]
    spec = long(dw, nodes, seconds, **{**AHEAD, **system_})
    spec["resources"][0]["exclusive"] = True
    return system.instance.submit(spec, urgency=urgency)


def occupy(system: VirtualSystem, nodes: int, seconds: int = 1200) -> int:
    """A job without storage, which runs."""
    jobid = submit(system, nodes, dw="", seconds=seconds)
    running(system, jobid)
    return jobid


def wait(system: VirtualSystem, seconds: float) -> None:
    system.loop.run(lambda: False, timeout=seconds)


def desired(system: VirtualSystem, jobid: int) -> str:
    state: str = workflow(system, jobid)["spec"]["desiredState"]
    return state


def workflow(system: VirtualSystem, jobid: int) -> Json:
    return system.store.get(WORKFLOW, "default", workflow_name(jobid))


def reaches(system: VirtualSystem, jobid: int, state: str) -> None:
    def there() -> bool:
        return any(
            found["metadata"]["name"] == workflow_name(jobid)
            and found["spec"]["desiredState"] == state
            and found["status"].get("state") == state
            and found["status"]["ready"]
            for found in system.workflows()
        )

    assert system.loop.run(there, timeout=DAY), (
        names(system, jobid),
        memo(system, jobid, "rabbit_waits_for"),
        system.log[-10:],
    )


def computes(system: VirtualSystem, jobid: int) -> list[str]:
    found = system.store.get(COMPUTES, "default", workflow_name(jobid))
    return [node["name"] for node in found.get("data") or ()]


def time_of(system: VirtualSystem, jobid: int, name: str) -> float:
    events = system.instance.eventlog(jobid)
    return next(event.timestamp for event in events if event.name == name)


def fits(system: VirtualSystem) -> bool:
    """Whether no Rabbit has more storage of jobs than it can have."""
    taken: Counter[str] = Counter()
    for servers in system.store.list(SERVERS, None)["items"]:
        taken.update(storageusage.parse(servers).unavailable)
    sizes = {name: rabbit.capacity for name, rabbit in system.topology.rabbits.items()}
    return all(size <= sizes[rabbit] for rabbit, size in taken.items())


def always(system: VirtualSystem, holds: Callable[[], bool], seconds: float) -> bool:
    """Whether something holds after each step of the next seconds."""
    end = system.loop.now() + seconds
    return not system.loop.run(lambda: not holds(), timeout=end - system.loop.now())


def ssds_down(system: VirtualSystem) -> int:
    """How many ``ssd`` of all Rabbits Fluxion gives to no job."""
    pool = system.instance.scheduler.pool
    return sum(len(pool.ssds_down(chassis.index)) for chassis in pool.chassis)


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


def made_for(system: VirtualSystem, jobid: int) -> Counter[str]:
    """The allocations of a job on each Rabbit."""
    servers = system.store.get(SERVERS, "default", f"{workflow_name(jobid)}-0")
    counts: Counter[str] = Counter()
    for entry in servers["spec"]["allocationSets"]:
        for storage in entry["storage"]:
            counts[storage["name"]] += storage["allocationCount"]
    return counts


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


def started_staging(system: VirtualSystem, jobid: int) -> str:
    """ "workflow" if the storage of a job is made, or was made."""
    for found in system.workflows():
        if found["metadata"]["name"] == workflow_name(jobid):
            return "" if found["spec"]["desiredState"] == "Proposal" else "workflow"
    return ""


def set_urgency(system: VirtualSystem, jobid: int, urgency: int) -> None:
    manager = system.instance.manager
    manager.set_urgency(jobid, urgency, manager.owner)


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


def test_a_job_that_is_held_is_not_staged() -> None:
    system = slow()
    jobid = submit(system, urgency=0)
    wait(system, HOUR)
    assert desired(system, jobid) == "Proposal"
    set_urgency(system, jobid, 16)
    running(system, jobid)
    settle(system)


def test_a_job_that_waits_for_another_dependency_is_not_staged() -> None:
    system = slow()
    first = submit(system, dw=[XFS, COPY_IN, COPY_OUT], seconds=3000)
    depends = {"dependencies": [{"scheme": "dws-out", "value": f58(first)}]}
    jobid = submit(system, **depends)
    wait(system, HOUR / 2)
    assert desired(system, jobid) == "Proposal"
    running(system, jobid)
    settle(system)


@pytest.mark.parametrize("steps", range(60, 1080, 60))
@pytest.mark.parametrize("end", ["kill_module", "unload_plugin", "cancel"])
def test_whatever_happens_when_nothing_is_stuck_or_lost(end: str, steps: int) -> None:
    system = slow()
    occupied = occupy(system, 4)
    jobid = submit(system, 4, size=45)
    other = submit(system, 2, size=45, dw_stage="prolog")
    for _ in range(steps):
        system.loop.step()
    if end == "cancel":
        system.instance.cancel(jobid)
    elif end == "unload_plugin":
        system.instance.unload_plugin()
        system.loop.call_later(0.05, system.load_plugin)
    else:
        system.kill_module()
        system.loop.call_later(1.0, system.load_module)
    assert always(system, lambda: fits(system), 3 * COPY)
    settle(system, DAY)
    assert not exceptions(system, other) and not exceptions(system, occupied)
    if end != "cancel":
        assert not exceptions(system, jobid)
    wait(system, 120.0)
    assert ssds_down(system) == 0


def test_a_fluxion_that_is_loaded_again_does_not_give_the_storage_twice() -> None:
    system = slow()
    occupied = occupy(system, 4)
    jobid = submit(system, 4, size=45)
    reaches(system, jobid, "DataIn")
    system.instance.reload_fluxion()
    other = submit(system, 2, size=45, dw_stage="prolog")
    assert always(system, lambda: fits(system), 2 * COPY)
    settle(system, DAY)
    for each in (occupied, jobid, other):
        assert not exceptions(system, each)


def test_a_rabbit_that_breaks_while_data_waits_there_fails_the_job_and_is_named() -> (
    None
):
    system = slow()
    occupy(system, 4)
    jobid = submit(system, 4)
    reaches(system, jobid, "DataIn")
    set_status(system, "rabbit-02", "Offline")
    wait(system, 30.0)
    set_status(system, "rabbit-02", "Ready")
    settle(system, DAY)
    (exception,) = exceptions(system, jobid)
    assert (
        "its data is lost before it had nodes: Rabbit rabbit-02 is"
        in (exception["note"])
    )
    assert "alloc" not in names(system, jobid)


def test_a_rabbit_that_breaks_while_data_is_copied_in_fails_the_job() -> None:
    system = slow()
    jobid = submit(system, 4)
    assert system.loop.run(lambda: bool(started_staging(system, jobid)), timeout=HOUR)
    set_status(system, "rabbit-01", "Offline")
    wait(system, 30.0)
    set_status(system, "rabbit-01", "Ready")
    settle(system, DAY)
    (exception,) = exceptions(system, jobid)
    assert "Rabbit rabbit-01 is" in exception["note"]


def test_a_rabbit_that_broke_while_the_module_was_away_fails_the_job() -> None:
    system = slow()
    occupy(system, 4)
    jobid = submit(system, 4)
    reaches(system, jobid, "DataIn")
    system.kill_module()
    set_status(system, "rabbit-02", "Offline")
    wait(system, 10.0)
    system.load_module()
    wait(system, 30.0)
    set_status(system, "rabbit-02", "Ready")
    settle(system, DAY)
    (exception,) = exceptions(system, jobid)
    assert "Rabbit rabbit-02 is" in exception["note"]


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
    "constraint", [{"hostlist": ["compute-[03-04]"]}, {"not": [{"ranks": ["9"]}]}]
)
def test_a_job_is_staged_where_its_own_constraint_lets_it_run(constraint: Json) -> None:
    system = slow()
    jobid = submit(system, 2, constraints=constraint)
    running(system, jobid)
    assert len(computes(system, jobid)) == 2
    if "hostlist" in constraint:
        assert computes(system, jobid) == ["compute-03", "compute-04"]
    settle(system)


def test_storage_that_gets_no_nodes_in_time_is_given_back() -> None:
    system = slow(config=config(stage_timeout="1h"))
    occupied = occupy(system, 4, seconds=20000)
    jobid = submit(system, 4, size=45)
    other = submit(system, 4, size=45)
    settle(system, DAY)
    for each in (jobid, other):
        (exception,) = exceptions(system, each)
        assert "stage_timeout=3600s" in exception["note"]
        assert "submit it again" in exception["note"]
    assert time_of(system, other, "clean") < time_of(system, occupied, "finish")


def config(**table: Any) -> Config:
    return Config.parse({"stage_limit": 100, "stage_user_limit": 100, **table})


def test_a_module_that_is_loaded_again_keeps_the_time_limit() -> None:
    system = slow(config=config(stage_timeout="1h"))
    occupy(system, 4, seconds=20000)
    jobid = submit(system, 4)
    reaches(system, jobid, "DataIn")
    begun = system.loop.now()
    wait(system, HOUR / 2)
    system.kill_module()
    wait(system, 10.0)
    system.load_module()
    settle(system, DAY)
    assert HOUR - 2 < time_of(system, jobid, "exception") - begun < HOUR + 60


@pytest.mark.parametrize("limit", ["stage_limit", "stage_user_limit"])
def test_the_storage_of_jobs_without_nodes_is_bounded(limit: str) -> None:
    system = slow(config=config(**{limit: 30}))
    occupy(system, 4, seconds=3000)
    first, second = submit(system, size=40), submit(system, size=40)
    small = submit(system, size=10)
    reaches(system, small, "DataIn")
    assert desired(system, first) == "DataIn"
    assert desired(system, second) == "Proposal"
    running(system, second)
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
    assert "needs the scheduler Fluxion" in exception["note"]


def test_nodes_where_a_job_has_no_storage_fail_it() -> None:
    system = slow()
    occupied = occupy(system, 4)
    jobid = submit(system, 2)
    reaches(system, jobid, "DataIn")
    wait(system, 1.0)
    (rabbit,) = made_for(system, jobid)
    hosts = {"rabbit-01": "compute-[03-04]", "rabbit-02": "compute-[01-02]"}[rabbit]
    updates = {"attributes.system.constraints": {"hostlist": [hosts]}}
    system.instance.manager.post(system.instance.job(jobid), "jobspec-update", updates)
    system.instance.cancel(occupied)
    settle(system)
    (exception,) = exceptions(system, jobid)
    assert "its storage was made for 0 there" in exception["note"]


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


@pytest.mark.parametrize("interruption", ["CANCEL", "REFUSED", "LOST"])
def test_a_staged_job_may_be_cancelled_and_requests_fail_at_every_step(
    interruption: str,
) -> None:
    (scenario,) = (one for one in SCENARIOS if one.stage == "ahead")
    results = check(scenario, Interruption[interruption])
    assert results and [f"{point}: {wrong}" for point, wrong in results if wrong] == []
