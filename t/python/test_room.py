# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What Rabbits have left, where no scheduler gives out shares of it."""

from __future__ import annotations

import syslog
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.config.arguments import FLUXION
from flux_k8s.formats.directives import GIB
from flux_k8s.formats.jobid import workflow_name
from flux_k8s.machine.ledger import Ledger
from flux_k8s.objects import mapping, storageusage, topology
from flux_k8s.ports import (
    SERVERS,
    STORAGE,
    SYSTEMCONFIGURATION,
    WORKFLOW,
    Json,
)
from flux_k8s.reasons import Reason
from rabbitsim.dws.topology import Topology
from rabbitsim.system import VirtualSystem
from support.effort import examples, seeds
from support.queries import query
from support.rabbits import (
    hosts,
    marked,
    set_status,
    small,
    submit,
    system_of,
    wait,
)
from support.service import (
    HOUR,
    LIFE,
    exceptions,
    jobspec,
    long,
    memos,
    names,
    settle,
)
from support.watched import watched

LARGE = "#DW jobdw type=xfs capacity=40GiB name=p1"
"""More than half of a Rabbit."""


def without_scheduler(**options: Any) -> VirtualSystem:
    """Two nodes on each of two small Rabbits, of which only DWS keeps count."""
    return small(scheduler=False, dynamic_properties=False, **options)


def on(host: str, dw: str, seconds: int = 60) -> Json:
    """The jobspec of a job that must run on a certain node."""
    return long(dw, 1, seconds, constraints={"hostlist": [host]})


def running(system: VirtualSystem, jobid: int) -> bool:
    """Whether its tasks are."""
    return names(system, jobid)[-1] == "start"


TWO, ONE = {"a": 2, "b": 2}, {"a": 1}


# A whole system, with scheduler=none


def test_jobs_wait_where_fluxion_is_to_schedule_no_storage() -> None:
    system = system_of(scheduler=False, scheduler_module=FLUXION)
    jobid = submit(system)
    wait(system)
    assert names(system, jobid)[-1] == "dependency-add"
    reason = memos(system, jobid)["rabbit_waits_for"]
    assert "scheduler=none: Fluxion is loaded" in reason
    system.instance.reload_fluxion()
    wait(system)
    begin = "dws: scheduler=none: Fluxion is loaded"
    told = [(level, line) for _, level, line in system.log if line.startswith(begin)]
    assert [level for level, _ in told] == [syslog.LOG_ERR] * 2
    assert "flux dws2jgf" in told[0][1]
    system.instance.cancel(jobid)
    settle(system)


def test_nodes_whose_rabbit_is_in_use_are_marked_for_as_long_as_it_is() -> None:
    system = system_of(scheduler=False)
    first = submit(system)
    wait(system)
    assert running(system, first)
    assert marked(system, "alloc_rabbit") == "compute-[01-02]"
    second, third = submit(system), submit(system, nodes=3)
    wait(system, 2.0)
    assert (hosts(system, second), hosts(system, third)) == ("compute-03", None)
    settle(system)
    wait(system)
    assert marked(system, "alloc_rabbit") == ""


def test_a_plan_names_the_nodes_where_the_scheduler_takes_no_properties() -> None:
    system = system_of(scheduler=False, dynamic_properties=False)
    set_status(system, "rabbit-01", "Offline")
    wait(system)
    jobid = submit(system)
    wait(system)
    assert hosts(system, jobid) == "compute-03"
    constraints = system.instance.job(jobid).jobspec["attributes"]["system"]
    assert {"not": [{"hostlist": ["compute-[01-02]"]}]} in constraints["constraints"][
        "and"
    ]


requests = st.tuples(
    st.sampled_from(["compute-01", "compute-02", "compute-03", "compute-04"]),
    st.integers(1, 59),
    st.integers(0, 90),
)


@examples(4)
@given(st.lists(requests, min_size=1, max_size=8), st.integers(0, 99))
def test_jobs_that_fit_each_by_itself_all_get_their_storage(
    jobs: list[tuple[str, int, int]], seed: int
) -> None:
    system = without_scheduler(seed=seed, kube_latency=0.1)
    for host, size, later in sorted(jobs, key=lambda job: job[2]):
        wait(system, max(0.0, later - system.loop.now()))
        dw = f"#DW jobdw type=xfs capacity={size}GiB name=p1"
        system.instance.submit(on(host, dw, 30))
    settle(system)
    for job in system.instance.manager.jobs.values():
        assert names(system, job.id) == LIFE, exceptions(system, job.id)


# All who count agree


def on_rabbits(system: VirtualSystem, key: str) -> dict[str, int]:
    """What ``flux dws rabbits`` says of each."""
    rows = query(system, "rabbit-list")["rabbits"]
    return {row["name"]: row[key] for row in rows}


def unscheduled(system: VirtualSystem) -> dict[str, int]:
    """GiB, rounded up, that the scheduler is told to leave out."""
    found = on_rabbits(system, "withheld")
    return {rabbit: -(-size // GIB) for rabbit, size in found.items() if size}


kinds = st.sampled_from(["jobdw type=xfs", "jobdw type=lustre", "create_persistent"])
mixes = st.lists(
    st.tuples(kinds, st.integers(1, 3), st.integers(1, 9), st.booleans()), max_size=5
)


@examples(6)
@given(mixes, st.booleans())
def test_the_counted_room_is_that_of_dws(
    jobs: list[tuple[str, int, int, bool]], scheduler: bool
) -> None:
    """As soon as all is quiet, whatever was made and removed before."""
    system = small(scheduler=scheduler)
    for index, (kind, nodes, size, runs_on) in enumerate(jobs):
        type = kind if "type" in kind else f"{kind} type=raw"
        dw = f"#DW {type} capacity={size}GiB name=keep{index}"
        system.instance.submit(long(dw, nodes, int(10 * HOUR) if runs_on else 30))
        wait(system, 7.0)
    wait(system, HOUR)
    storages = system.store.list(STORAGE, None)["items"]
    shown = {s["metadata"]["name"]: s["status"]["capacity"] for s in storages}
    assert on_rabbits(system, "free") == shown
    configuration = system.store.get(SYSTEMCONFIGURATION, "default", "default")
    servers = system.store.list(SERVERS, None)["items"]
    found = topology.parse(configuration, storages, servers)
    assert found.to_json() == system.mapping.to_json()


# Storage that a scheduler does not know of

ONE_PIECE = "#DW jobdw type=lustre capacity=4GiB name=p1"
"""With an MDT of 5 GiB in one piece."""

ALONE = Topology.regular(4, 4, capacity=64 * GIB)
"""Each node has a Rabbit of its own."""


def servers_of_others(system: VirtualSystem, gib: int, name: str = "system") -> None:
    """Storage that no Workflow made, on the first Rabbit."""
    storage = [{"name": "rabbit-01", "allocationCount": 1}]
    sets = [{"label": "xfs", "allocationSize": gib * GIB, "storage": storage}]
    body = {"metadata": {"name": name}, "spec": {"allocationSets": sets}}
    system.store.create(SERVERS, "default", body)


def test_a_job_with_nodes_waits_while_others_fill_its_rabbit() -> None:
    """They came when it had been scheduled, and no module was there."""
    system = small()
    first = system.instance.submit(on("compute-01", LARGE))
    jobid = system.instance.submit(on("compute-02", LARGE))
    wait(system)
    assert running(system, first) and names(system, jobid)[-1] == "priority"
    system.kill_module()
    system.instance.cancel(first)
    servers_of_others(system, 40)
    system.store.delete(WORKFLOW, "default", workflow_name(first))
    wait(system)
    system.instance.scheduler.wake()
    system.load_module()
    wait(system, 600.0)
    assert not running(system, jobid)
    assert memos(system, jobid)["rabbit_waits_for"].startswith("others' storage: ")
    system.store.delete(SERVERS, "default", "system")
    settle(system)
    assert names(system, jobid) == LIFE


def test_the_scheduler_loses_the_ssd_that_a_job_takes_beyond_its_share() -> None:
    """An MDT in one piece does not fit into the share of one node."""
    system = system_of(topology=ALONE)
    jobid = system.instance.submit(long(ONE_PIECE, 4))
    wait(system)
    assert running(system, jobid)
    before = unscheduled(system)
    assert before
    system.kill_module()
    system.load_module()
    wait(system)
    assert unscheduled(system) == before
    settle(system)
    wait(system)
    assert unscheduled(system) == {}


@pytest.mark.parametrize("seed", seeds(2, soaking=50))
def test_no_job_fails_for_what_another_takes_beyond_its_share(seed: int) -> None:
    system = system_of(topology=ALONE, seed=seed, kube_latency=0.1)
    jobids = [system.instance.submit(jobspec(ONE_PIECE, 4)) for _ in range(3)]
    for host in ALONE.rabbit_of:
        spec = on(host, "#DW jobdw type=xfs capacity=60GiB name=p1", 30)
        jobids.append(system.instance.submit(spec))
    jobids += [system.instance.submit(jobspec(ONE_PIECE, 4)) for _ in range(3)]
    settle(system)
    for jobid in jobids:
        assert names(system, jobid) == LIFE, exceptions(system, jobid)


def test_storage_whose_colocation_keys_cannot_be_read_is_counted() -> None:
    entry = {"capacity": 60 * GIB, "hostlist": "n1"}
    system = mapping.parse({"computes": {"n1": "r1"}, "rabbits": {"r1": entry}})
    log: list[tuple[int, str, Reason]] = []
    room = Ledger(system, lambda *line: log.append(line), print, print, bool)
    metadata = {
        "namespace": "default",
        "name": "x",
        "annotations": {storageusage.COLOCATION_ANNOTATION: "mgt"},
    }
    made = {"r1": {"allocationSize": GIB}}
    status = {"ready": True, "allocationSets": [{"storage": made}]}
    room.event("ADDED", watched({"metadata": metadata, "status": status}))
    assert room.left([]) == {"r1": 59 * GIB}
    ((level, text, reason),) = log
    assert (level, reason) == (syslog.LOG_ERR, Reason.BAD_OBJECT)
    assert text.startswith("Servers default/x: metadata.annotations[") and "mgt" in text


def test_storage_of_the_system_is_taken_off_a_rabbit_once() -> None:
    """The mapping has it left out of the capacity that Fluxion gives out."""
    entry = {"capacity": 60 * GIB, "system": 40 * GIB, "hostlist": "n1"}
    system = mapping.parse({"computes": {"n1": "r1"}, "rabbits": {"r1": entry}})
    room = Ledger(system, print, print, print, bool)

    def see(type: str, name: str, size: int) -> None:
        made = {"r1": {"allocationSize": size * GIB}}
        status = {"ready": True, "allocationSets": [{"storage": made}]}
        metadata = {"namespace": "default", "name": name}
        room.event(type, watched({"metadata": metadata, "status": status}))

    see("ADDED", "system", 40)
    assert (room.withheld, room.capacity("r1")) == ({}, 60 * GIB)
    assert room.left([]) == {"r1": 60 * GIB}
    see("ADDED", "persistent", 5)
    assert room.withheld == {"r1": 5 * GIB}
    see("MODIFIED", "system", 50)  # the mapping is out of date
    assert room.withheld == {"r1": 15 * GIB}
    assert room.left([]) == {"r1": 45 * GIB}
    see("DELETED", "system", 50)
    assert (room.withheld, room.left([])) == ({}, {"r1": 95 * GIB})
