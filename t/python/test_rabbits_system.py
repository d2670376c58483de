# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Rabbits and nodes that break, in a whole system under virtual time (seed 001,
"Resource Scheduling Integration")."""

from __future__ import annotations

from typing import Any, Optional

import pytest

from flux_k8s.config.table import Config
from flux_k8s.control.holddown import FIRST_HOLD
from flux_k8s.dws import storageusage
from flux_k8s.dws.allocatedssd import ssd_per_rabbit
from flux_k8s.dws.directives import GIB
from flux_k8s.ports import SERVERS, STORAGE, Json
from flux_k8s.rfc import rset
from rabbitsim.dws.topology import Topology
from rabbitsim.flux.broker import FluxPort
from rabbitsim.system import VirtualSystem
from support.rabbits import (
    DESTROY,
    PERSISTENT,
    SMALL,
    drained,
    finish,
    hosts,
    marked,
    requests,
    run_job,
    set_link,
    set_status,
    shown,
    small,
    ssds_free,
    stats,
    submit,
    system_of,
    wait,
)
from support.service import (
    HOUR,
    LIFE,
    USE,
    XFS,
    exceptions,
    jobspec,
    lines,
    memo,
    names,
    settle,
)


def chunks(system: VirtualSystem, jobid: int) -> dict[str, Optional[int]]:
    """GiB on each Rabbit, as the scheduling key of a job's R has them."""
    R = system.instance.job(jobid).R
    return ssd_per_rabbit(rset.parse(R), system.mapping)


# Nodes, and storage near them


def storage_of(gib: int) -> str:
    return f"#DW jobdw type=xfs capacity={gib}GiB name=p1"


def test_a_job_gets_nodes_and_storage_of_the_same_chassis() -> None:
    system = system_of()
    jobid = submit(system, nodes=1)
    wait(system)
    R = system.instance.job(jobid).R
    assert R is not None
    found = {
        (vertex["metadata"]["type"], vertex["metadata"]["paths"]["containment"])
        for vertex in R["scheduling"]["graph"]["nodes"]
    }
    chassis = {
        type: {path.split("/")[2] for other, path in found if other == type}
        for type in ("node", "ssd")
    }
    assert chassis["node"] == chassis["ssd"] and len(chassis["ssd"]) == 1
    assert (hosts(system, jobid), chunks(system, jobid)) == (
        "compute-01",
        {"rabbit-01": 11},
    )


def test_each_chassis_gives_the_storage_of_its_own_nodes() -> None:
    system = system_of()
    jobid = submit(system, nodes=3)
    wait(system)
    assert chunks(system, jobid) == {"rabbit-01": 22, "rabbit-02": 11}


@pytest.mark.parametrize("type", ["xfs", "gfs2", "lustre"])
def test_the_scheduling_key_of_R_leads_to_the_servers(type: str) -> None:
    system = system_of()
    jobid = submit(system, f"#DW jobdw type={type} capacity=90GiB name=p1", nodes=3)
    wait(system)
    (servers,) = system.store.list(SERVERS, None)["items"]
    data = servers["spec"]["allocationSets"][0]  # a Lustre's first one is its OSTs
    made = storageusage.parse({"spec": {"allocationSets": [data]}}).unavailable
    given = chunks(system, jobid)
    assert made.keys() == given.keys() == {"rabbit-01", "rabbit-02"}
    for rabbit, size in made.items():
        assert size <= (given[rabbit] or 0) * GIB


def test_a_job_that_a_rabbit_has_too_little_for_waits_for_another_one_s_end() -> None:
    system = small()
    first, second = (submit(system, storage_of(40)) for _ in range(2))
    third = submit(system, storage_of(40))
    wait(system)
    assert (hosts(system, first), hosts(system, second)) == ("compute-01", "compute-03")
    assert hosts(system, third) is None
    settle(system)
    assert hosts(system, third) == "compute-01"
    assert [names(system, jobid) for jobid in (first, second, third)] == 3 * [LIFE]


@pytest.mark.parametrize(
    ("gib", "nodes", "note"),
    [
        (
            100,
            1,
            "each node needs 101 GiB on its Rabbit, but the largest Rabbit has 64 GiB "
            "for jobs",
        ),
        (
            40,
            3,
            "the job asks for 3 nodes with 41 GiB each, and the Rabbits have room for"
            " 2",
        ),
        (
            32,
            4,
            "the job asks for 4 nodes with 33 GiB each, and the Rabbits have"
            " room for 2",
        ),
        (1, 5, "the job asks for 5 nodes, and 4 are below Rabbits"),
    ],
)
def test_a_request_for_more_storage_than_there_is_is_refused(
    gib: int, nodes: int, note: str
) -> None:
    system = small()
    jobid = submit(system, storage_of(gib), nodes)
    settle(system)
    (exception,) = exceptions(system, jobid)
    assert exception["note"] == note
    assert "alloc" not in names(system, jobid)


def test_lustre_larger_than_a_rabbit_is_refused_where_its_node_is_alone() -> None:
    """The scheduler takes all of it from the Rabbit of the node."""
    system = small()
    lustre = storage_of(70).replace("xfs", "lustre")
    alone, two = submit(system, lustre, 1), submit(system, lustre, 3)
    settle(system)
    (exception,) = exceptions(system, alone)
    assert "on its Rabbit, but the largest Rabbit has 64 GiB" in exception["note"]
    assert names(system, two) == LIFE


def test_more_nodes_below_each_of_some_rabbits_than_have_room_are_refused() -> None:
    system = small()
    spec = jobspec(storage_of(40))
    (node,) = spec["resources"]
    below = [{**node, "count": 2}]
    spec["resources"] = [{"type": "chassis", "count": 1, "with": below}]
    jobid = system.instance.submit(spec)
    settle(system)
    (exception,) = exceptions(system, jobid)
    assert exception["note"] == (
        "the job asks for 2 nodes with 41 GiB each below each of 1 Rabbits, and 0 have"
        " room for them"
    )


def test_a_job_that_uses_storage_may_have_no_more_nodes_than_there_are() -> None:
    system = small()
    finish(system, PERSISTENT.replace("xfs", "lustre"))
    jobid = submit(system, USE, 5)
    settle(system)
    (exception,) = exceptions(system, jobid)
    assert exception["note"] == "the job asks for 5 nodes, and Flux has 4"


# A Rabbit


@pytest.mark.parametrize("topology", [None, SMALL])
def test_a_rabbit_that_goes_down_is_avoided_and_used_again(
    topology: Optional[Topology],
) -> None:
    system = system_of(topology=topology)
    set_status(system, "rabbit-01", "Offline")
    wait(system)
    assert run_job(system) == "compute-03"
    set_status(system, "rabbit-01", "Ready")
    wait(system)
    assert run_job(system) == "compute-01"


@pytest.mark.parametrize(
    ("status", "host"),
    [
        ("Offline", "compute-03"),
        ("Failed", "compute-03"),
        ("Fenced", "compute-03"),
        ("Disabled", "compute-03"),
        ("Degraded", "compute-01"),
    ],
)
def test_jobs_with_storage_avoid_a_rabbit_that_does_not_serve(
    status: str, host: str
) -> None:
    system = system_of()
    set_status(system, "rabbit-01", status)
    wait(system)
    assert run_job(system) == host
    settle(system)
    assert run_job(system, nodes=4, dw=None) == "compute-[01-04]"


def test_a_rabbit_that_was_disabled_or_deleted_is_down() -> None:
    system = system_of()
    patch: Json = {"spec": {"state": "Disabled"}}
    system.store.merge_patch(STORAGE, "default", "rabbit-01", patch)
    system.store.delete(STORAGE, "default", "rabbit-02")
    wait(system)
    assert marked(system) == "compute-[01-04]"
    assert stats(system)["down"] == {"rabbit-01": "Disabled", "rabbit-02": "not there"}


@pytest.mark.parametrize("topology", [None, SMALL])
def test_a_job_that_fits_nowhere_else_waits_until_a_rabbit_is_back(
    topology: Optional[Topology],
) -> None:
    system = system_of(topology=topology)
    set_status(system, "rabbit-01", "Offline")
    wait(system)
    jobid = system.instance.submit(jobspec(XFS, nodes=4))
    wait(system)
    assert hosts(system, jobid) is None
    set_status(system, "rabbit-01", "Ready")
    wait(system)
    assert hosts(system, jobid) == "compute-[01-04]"


def test_a_flapping_rabbit_does_not_flood_the_scheduler() -> None:
    system = system_of()
    requests(system)
    for _ in range(150):
        set_status(system, "rabbit-01", "Offline")
        wait(system, 3.0)
        set_status(system, "rabbit-01", "Ready")
        wait(system, 3.0)
    assert sum(requests(system).values()) < 10
    assert marked(system) == "compute-[01-02]"
    wait(system, HOUR)
    assert marked(system) == ""


# A connection


def test_a_clock_that_is_set_back_keeps_no_rabbit_from_jobs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    system = system_of()
    set_status(system, "rabbit-01", "Offline")
    wait(system)
    set_status(system, "rabbit-01", "Ready")
    wait(system, FIRST_HOLD / 2)
    assert not lines(system, "rabbit-01 is used again")
    now = FluxPort.now
    monkeypatch.setattr(FluxPort, "now", lambda self: now(self) - HOUR)
    wait(system, 2 * FIRST_HOLD)
    assert lines(system, "rabbit-01 is used again")


LINK_DRAINED = {"compute-01": "dws: PCIe connection to Rabbit rabbit-01 is Offline"}


@pytest.mark.parametrize(
    ("config", "told", "with_storage", "without"),
    [
        (Config(), (LINK_DRAINED, ""), "compute-02", "compute-02"),
        (
            Config(drain_compute_nodes=False),
            ({}, "compute-01"),
            "compute-02",
            "compute-01",
        ),
        (
            Config(drain_compute_nodes=False, soft_drain=False),
            ({}, ""),
            "compute-01",
            "compute-01",
        ),
    ],
    ids=["drain_compute_nodes", "soft_drain", "neither"],
)
def test_a_node_whose_connection_breaks_is_avoided_until_it_is_back(
    config: Config, told: Any, with_storage: str, without: str
) -> None:
    system = system_of(config)
    set_link(system, "compute-01", up=False)
    wait(system)
    assert (drained(system), marked(system)) == told
    assert run_job(system, dw=None) == without
    settle(system)
    assert run_job(system) == with_storage
    set_link(system, "compute-01", up=True)
    wait(system)
    assert (drained(system), marked(system)) == ({}, "")


def test_a_node_that_an_administrator_drained_stays_drained() -> None:
    system = system_of()
    system.instance.drain("compute-01", "broken fan")
    set_link(system, "compute-01", up=False)
    wait(system)
    set_link(system, "compute-01", up=True)
    wait(system)
    assert drained(system) == {"compute-01": "broken fan"}


def test_a_node_whose_drain_reason_an_administrator_changed_stays_drained() -> None:
    system = system_of()
    set_link(system, "compute-01", up=False)
    wait(system)
    system.instance.undrain("compute-01")
    system.instance.drain("compute-01", "to be replaced")
    set_link(system, "compute-01", up=True)
    wait(system)
    assert drained(system) == {"compute-01": "to be replaced"}


def test_nodes_of_a_rabbit_that_is_down_are_not_drained() -> None:
    system = system_of()
    set_status(system, "rabbit-01", "Offline")
    set_link(system, "compute-01", up=False)
    wait(system)
    assert (drained(system), marked(system)) == ({}, "compute-[01-02]")


# Storage that the scheduler does not know of


def test_persistent_storage_takes_as_much_from_the_scheduler_as_it_holds() -> None:
    system = small()
    finish(system, PERSISTENT)
    wait(system)
    assert ssds_free(system) == [53, 64]
    assert stats(system)["reserved"] == {"rabbit-01": 11051991040}
    system.instance.reload_fluxion()
    assert ssds_free(system) == [64, 64]
    wait(system)
    assert ssds_free(system) == [53, 64]


def test_jobs_wait_for_storage_that_is_persistent_until_it_is_destroyed() -> None:
    system = small()
    finish(system, PERSISTENT.replace("10GiB", "40GiB"))
    wait(system)
    first, second = (submit(system, storage_of(40)) for _ in range(2))
    wait(system)
    assert (hosts(system, first), hosts(system, second)) == ("compute-03", None)
    system.instance.submit(jobspec(DESTROY, nodes=1), urgency=31)
    wait(system)
    assert hosts(system, second) == "compute-01"


def test_destroyed_persistent_storage_is_given_back_to_the_scheduler() -> None:
    system = small()
    finish(system, PERSISTENT)
    wait(system)
    system.kill_module()
    system.load_module()
    finish(system, DESTROY)
    wait(system)
    assert ssds_free(system) == [64, 64]
    assert stats(system)["reserved"] == {}


# Nodes in the SystemStatus


def test_a_node_that_is_offline_is_disabled_until_it_returns() -> None:
    system = system_of()
    system.instance.set_up("compute-02", False)
    wait(system)
    assert shown(system) == {"compute-02": "Disabled"}
    system.instance.set_up("compute-02", True)
    wait(system)
    assert shown(system) == {}


@pytest.mark.parametrize(
    "reason",
    [
        "fABC: Rabbit storage could not be mounted",
        "fABC: storage still in use at epilog-timeout",
    ],
)
def test_a_node_drained_for_its_mounts_is_disabled_until_it_is_undrained(
    reason: str,
) -> None:
    system = system_of()
    system.instance.drain("compute-02", reason)
    system.instance.drain("compute-03", "broken fan")
    wait(system)
    assert shown(system) == {"compute-02": "Disabled"}
    system.instance.undrain("compute-02")
    wait(system)
    assert shown(system) == {}


# A Rabbit that holds persistent storage


def with_keep(nodes: int = 1, **options: Any) -> VirtualSystem:
    """Two small Rabbits; persistent storage on the first, or on both."""
    system = small(**options)
    jobid = system.instance.submit(jobspec(PERSISTENT, nodes=nodes))
    settle(system)
    assert names(system, jobid) == LIFE
    return system


def is_back(system: VirtualSystem, jobid: int) -> bool:
    """Whether a job, which waits, has run when its Rabbit serves again."""
    assert (hosts(system, jobid), exceptions(system, jobid)) == (None, [])
    set_status(system, "rabbit-01", "Ready")
    settle(system)
    return names(system, jobid) == LIFE


def broken(nodes: int = 1, **options: Any) -> VirtualSystem:
    """The same, and the first Rabbit is down."""
    system = with_keep(nodes, **options)
    set_status(system, "rabbit-01", "Offline")
    wait(system)
    return system


@pytest.mark.parametrize("scheduler", [True, False])
def test_a_job_waits_for_the_rabbit_of_its_persistent_storage(scheduler: bool) -> None:
    system = broken(scheduler=scheduler)
    jobid = submit(system, USE)
    wait(system, HOUR)
    assert memo(system, jobid, "rabbit_waits_for") == (
        "the Rabbits that it needs: rabbit-01 is Offline"
    )
    assert is_back(system, jobid) and hosts(system, jobid) == "compute-01"


def test_a_job_runs_where_serving_rabbits_reach_its_persistent_storage() -> None:
    system = broken(nodes=4)
    first = submit(system, USE, nodes=2)
    settle(system)
    assert hosts(system, first) == "compute-[03-04]"
    assert names(system, first) == LIFE
    jobid = submit(system, USE, nodes=3)
    wait(system)
    assert is_back(system, jobid)


def test_a_job_waits_for_the_rabbit_with_an_allocation_for_each_node() -> None:
    system = broken(nodes=3)
    jobid = submit(system, USE, nodes=2)
    wait(system)
    assert is_back(system, jobid) and hosts(system, jobid) == "compute-[01-02]"


def test_a_job_waits_for_its_rabbit_although_the_module_is_loaded_again() -> None:
    system = broken()
    jobid = submit(system, USE)
    wait(system)
    system.kill_module()
    system.load_module()
    wait(system)
    assert is_back(system, jobid)


def test_a_job_that_is_cancelled_while_it_waits_for_a_rabbit_is_over() -> None:
    system = broken()
    jobid = submit(system, USE)
    wait(system)
    system.instance.cancel(jobid)
    settle(system)
    assert "alloc" not in names(system, jobid)


def broken_before_alloc(**options: Any) -> tuple[VirtualSystem, int]:
    """A job that was planned when the Rabbit of its persistent storage served, and
    got nodes when it did not."""
    system = with_keep(**options)
    spec = jobspec(None, nodes=4)
    spec["resources"][0]["exclusive"] = True
    del spec["attributes"]["system"]["dw"]
    spec["attributes"]["system"]["exec"] = {"test": {"run_duration": "60s"}}
    other = system.instance.submit(spec)
    jobid = submit(system, USE)
    wait(system)
    assert hosts(system, jobid) is None
    set_status(system, "rabbit-01", "Offline")
    wait(system, 100.0)
    assert not system.instance.job(other).active
    return system, jobid


def test_a_job_that_got_nodes_below_a_broken_rabbit_waits_in_its_prolog() -> None:
    system, jobid = broken_before_alloc()
    wait(system, 600.0)
    assert names(system, jobid)[-1] == "prolog-start"
    assert "rabbit-01 is Offline" in str(memo(system, jobid, "rabbit_waits_for"))
    set_status(system, "rabbit-01", "Ready")
    settle(system)
    assert names(system, jobid) == LIFE


def test_a_job_below_a_broken_rabbit_gives_up_before_its_prolog_would() -> None:
    system, jobid = broken_before_alloc(config=Config(prolog_timeout=600.0))
    settle(system)
    (exception,) = exceptions(system, jobid)
    assert exception["note"] == (
        "the Rabbits that it needs: rabbit-01 is Offline; the job has waited for 300s,"
        " half of prolog_timeout; please submit it again"
    )


def test_a_job_below_a_broken_rabbit_waits_for_ever_without_prolog_timeout() -> None:
    config = Config.parse({"prolog_timeout": 0})
    system, jobid = broken_before_alloc(config=config)
    wait(system, 2 * HOUR)
    assert names(system, jobid)[-1] == "prolog-start"
    set_status(system, "rabbit-01", "Ready")
    settle(system)
    assert names(system, jobid) == LIFE
