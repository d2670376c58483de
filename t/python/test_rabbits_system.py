# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Rabbits and nodes that break, in a whole system under virtual time (seed 001,
"Resource Scheduling Integration")."""

from __future__ import annotations

from typing import Any, Optional

import pytest
from test_service import HOUR, XFS, jobspec, settle, started

from flux_k8s import hostlist
from flux_k8s.config import Config
from flux_k8s.damper import FIRST_HOLD
from flux_k8s.ports import STORAGE, SYSTEMSTATUS, Json
from rabbitsim.dws.topology import Topology
from rabbitsim.flux.events import State
from rabbitsim.system import VirtualSystem

GIB = 2**30
OURS = "dws: PCIe connection to Rabbit rabbit-02 is Offline"
PERSISTENT = "#DW create_persistent type=xfs capacity=10GiB name=keep"
DESTROY = "#DW destroy_persistent name=keep"


def system_of(config: Optional[Config] = None, **options: Any) -> VirtualSystem:
    """Four nodes on two Rabbits, started and settled."""
    system: VirtualSystem = started(config=config, **options)
    wait(system)
    return system


def wait(system: VirtualSystem, seconds: float = 10 * FIRST_HOLD) -> None:
    system.loop.run(timeout=seconds)


def run_job(system: VirtualSystem, nodes: int = 1, dw: Any = XFS) -> Optional[str]:
    """Submit a job. The nodes that it got at once, None if it waits."""
    jobid = submit(system, dw, nodes)
    wait(system)
    return hosts(system, jobid)


def hosts(system: VirtualSystem, jobid: int) -> Optional[str]:
    R = system.instance.job(jobid).R
    return None if R is None else R["execution"]["nodelist"][0]


def marked(system: VirtualSystem, name: str = "badrabbit") -> str:
    nodes = system.instance.scheduler.pool.nodes
    return hostlist.encode(node.host for node in nodes if name in node.dynamic)


def drained(system: VirtualSystem) -> dict[str, str]:
    nodes = system.instance.scheduler.pool.nodes
    return {n.host: n.drained for n in nodes if n.drained is not None}


def requests(system: VirtualSystem) -> dict[str, int]:
    """The requests to Fluxion since this was last asked."""
    counter = system.instance.fluxion.requests
    result = dict(counter)
    counter.clear()
    return result


def set_status(system: VirtualSystem, rabbit: str, status: str) -> None:
    system.controllers.rabbits.set_status(rabbit, status)


def set_link(system: VirtualSystem, host: str, up: bool) -> None:
    system.controllers.rabbits.set_link(host, up)


def stats(system: VirtualSystem) -> Json:
    assert system.service is not None
    answers: list[Json] = []
    system.instance.request(
        "dws.stats-get", {}, lambda errnum, text, payload: answers.append(payload or {})
    )
    system.loop.run(lambda: bool(answers), timeout=1.0)
    result: Json = answers[0]["rabbits"]
    return result


# A Rabbit


@pytest.mark.parametrize("status", ["Offline", "Failed", "Fenced", "Disabled"])
def test_jobs_with_storage_avoid_a_rabbit_that_is_down(status: str) -> None:
    system = system_of()
    set_status(system, "rabbit-01", status)
    wait(system)
    assert run_job(system) == "compute-03"


def test_a_rabbit_that_was_disabled_or_deleted_is_down() -> None:
    system = system_of()
    patch: Json = {"spec": {"state": "Disabled"}}
    system.store.merge_patch(STORAGE, "default", "rabbit-01", patch)
    system.store.delete(STORAGE, "default", "rabbit-02")
    wait(system)
    assert marked(system) == "compute-[01-04]"
    assert stats(system)["down"] == {"rabbit-01": "Disabled", "rabbit-02": "not there"}


def test_a_degraded_rabbit_still_serves() -> None:
    system = system_of()
    set_status(system, "rabbit-01", "Degraded")
    wait(system)
    assert marked(system) == ""
    assert run_job(system) == "compute-01"


def test_other_jobs_use_the_nodes_of_a_rabbit_that_is_down() -> None:
    system = system_of()
    set_status(system, "rabbit-01", "Offline")
    wait(system)
    assert run_job(system, nodes=4, dw=None) == "compute-[01-04]"


def test_a_job_that_waits_for_a_rabbit_starts_when_it_is_back() -> None:
    system = system_of()
    set_status(system, "rabbit-01", "Offline")
    wait(system)
    jobid = system.instance.submit(jobspec(XFS, nodes=4))
    wait(system)
    assert hosts(system, jobid) is None
    set_status(system, "rabbit-01", "Ready")
    wait(system)
    assert hosts(system, jobid) == "compute-[01-04]"


def test_a_rabbit_that_goes_down_costs_one_request_and_its_return_two() -> None:
    system = VirtualSystem(topology=Topology.regular(64, 4))
    system.start()
    wait(system)
    requests(system)
    set_status(system, "rabbit-02", "Offline")
    wait(system)
    assert requests(system) == {"set_property": 1}
    set_status(system, "rabbit-02", "Ready")
    wait(system)
    assert requests(system) == {"remove_property": 1, "set_status": 1}


def test_bad_news_is_told_at_once_and_good_news_when_it_lasts() -> None:
    system = system_of()
    set_status(system, "rabbit-01", "Offline")
    wait(system, 0.5)
    assert marked(system) == "compute-[01-02]"
    set_status(system, "rabbit-01", "Ready")
    wait(system, FIRST_HOLD / 2)
    assert marked(system) == "compute-[01-02]"
    wait(system, FIRST_HOLD)
    assert marked(system) == ""


def test_a_flapping_rabbit_does_not_flood_the_scheduler() -> None:
    system = system_of()
    requests(system)
    for _ in range(500):
        set_status(system, "rabbit-01", "Offline")
        wait(system, 3.0)
        set_status(system, "rabbit-01", "Ready")
        wait(system, 3.0)
    assert sum(requests(system).values()) < 10
    assert marked(system) == "compute-[01-02]"
    wait(system, HOUR)
    assert marked(system) == ""


def test_the_log_explains_what_happens_to_a_rabbit() -> None:
    system = system_of()
    set_status(system, "rabbit-01", "Fenced")
    wait(system)
    set_status(system, "rabbit-01", "Ready")
    wait(system)
    lines = [line for _, _, line in system.log if "Rabbit rabbit-01" in line]
    assert lines == [
        "dws: Rabbit rabbit-01 is Fenced: jobs with Rabbit storage avoid"
        " compute-[01-02]",
        "dws: Rabbit rabbit-01 is used again",
    ]


# What Fluxion was told


def test_fluxion_is_told_again_when_it_was_reloaded() -> None:
    system = system_of()
    set_status(system, "rabbit-01", "Offline")
    wait(system)
    system.instance.reload_fluxion()
    assert marked(system) == ""
    wait(system)
    assert marked(system) == "compute-[01-02]"


@pytest.mark.parametrize("end", ["kill_module", "unload_module"])
def test_what_changed_while_the_module_was_away_is_made_up_for(end: str) -> None:
    system = system_of()
    set_status(system, "rabbit-01", "Offline")
    set_link(system, "compute-03", up=False)
    wait(system)
    getattr(system, end)()
    set_status(system, "rabbit-01", "Ready")
    set_link(system, "compute-03", up=True)
    set_status(system, "rabbit-02", "Offline")
    wait(system)
    system.load_module()
    wait(system)
    assert marked(system) == "compute-[03-04]"
    assert drained(system) == {}


def test_a_scheduler_without_properties_gets_one_line_in_the_log() -> None:
    system = system_of(dynamic_properties=False)
    set_status(system, "rabbit-01", "Offline")
    wait(system)
    set_status(system, "rabbit-01", "Ready")
    wait(system)
    lines = [(level, line) for _, level, line in system.log if "luxion" in line]
    assert lines == [
        (6, "dws: Fluxion is not loaded (yet): it is not told about Rabbits")
    ]


# A connection


def test_a_node_whose_connection_breaks_is_drained_until_it_is_back() -> None:
    system = system_of()
    set_link(system, "compute-03", up=False)
    wait(system)
    assert drained(system) == {"compute-03": OURS}
    assert marked(system) == ""
    set_link(system, "compute-03", up=True)
    wait(system)
    assert drained(system) == {}


def test_with_soft_drain_it_is_only_avoided_by_jobs_with_storage() -> None:
    system = system_of(Config(drain_compute_nodes=False))
    set_link(system, "compute-01", up=False)
    wait(system)
    assert drained(system) == {}
    assert run_job(system) == "compute-02"
    assert run_job(system, dw=None) == "compute-01"
    set_link(system, "compute-01", up=True)
    wait(system)
    assert marked(system) == ""


def test_with_both_off_nothing_is_done() -> None:
    system = system_of(Config(drain_compute_nodes=False, soft_drain=False))
    set_link(system, "compute-01", up=False)
    wait(system)
    assert (drained(system), marked(system)) == ({}, "")


def test_another_configuration_is_applied_to_connections_that_are_broken() -> None:
    system = system_of()
    set_link(system, "compute-01", up=False)
    wait(system)
    assert system.service is not None
    system.service.reconfigure(Config(drain_compute_nodes=False))
    wait(system)
    assert (drained(system), marked(system)) == ({}, "compute-01")


@pytest.mark.parametrize("soft", [False, True])
def test_only_nodes_of_the_module_s_queues_are_touched(soft: bool) -> None:
    system = system_of(
        Config(drain_compute_nodes=not soft),
        properties={"batch": ["compute-01", "compute-03"], "debug": ["compute-04"]},
        queues=(frozenset({"batch"}), frozenset({"debug", "batch"})),
    )
    for host in ("compute-01", "compute-02", "compute-04"):
        set_link(system, host, up=False)
    wait(system)
    assert (marked(system) if soft else ",".join(drained(system))) == "compute-01"


def test_a_node_that_an_administrator_drained_stays_drained() -> None:
    system = system_of()
    system.instance.drain("compute-01", "broken fan")
    set_link(system, "compute-01", up=False)
    wait(system)
    set_link(system, "compute-01", up=True)
    wait(system)
    assert drained(system) == {"compute-01": "broken fan"}


def test_so_does_one_whose_reason_an_administrator_changed() -> None:
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


def small(**options: Any) -> VirtualSystem:
    return system_of(topology=Topology.regular(4, 2, capacity=64 * GIB), **options)


def finish(system: VirtualSystem, dw: Any) -> None:
    jobid = system.instance.submit(jobspec(dw, nodes=1))
    settle(system)
    assert system.instance.job(jobid).state is State.INACTIVE


def ssds_free(system: VirtualSystem) -> list[int]:
    pool = system.instance.scheduler.pool
    return [pool.free("ssd", chassis.index) for chassis in pool.chassis]


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


def test_it_gives_it_back_when_it_is_destroyed() -> None:
    system = small()
    finish(system, PERSISTENT)
    wait(system)
    system.kill_module()
    system.load_module()
    finish(system, DESTROY)
    wait(system)
    assert ssds_free(system) == [64, 64]
    assert stats(system)["reserved"] == {}


# Without a scheduler that knows Rabbits


def submit(system: VirtualSystem, dw: Any = XFS, nodes: int = 1) -> int:
    """Submit a job whose tasks run for a minute."""
    spec = jobspec(dw, nodes=nodes)
    spec["attributes"]["system"]["exec"] = {"test": {"run_duration": "60s"}}
    if dw is None:
        del spec["attributes"]["system"]["dw"]
    return system.instance.submit(spec)


def running(system: VirtualSystem, jobid: int) -> bool:
    return system.instance.job(jobid).state is State.RUN


def test_nodes_whose_rabbit_is_in_use_are_marked_for_as_long_as_it_is() -> None:
    system = system_of(scheduler=False)
    first = submit(system)
    wait(system)
    assert running(system, first)
    assert marked(system, "alloc_rabbit") == "compute-[01-02]"
    system.kill_module()
    system.load_module()
    wait(system, 2.0)
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


# What DWS is told about nodes


def shown(system: VirtualSystem) -> dict[str, str]:
    """The nodes that are not Enabled."""
    nodes = system.store.get(SYSTEMSTATUS, "default", "default")["data"]["nodes"]
    return {host: status for host, status in nodes.items() if status != "Enabled"}


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
def test_so_is_one_that_was_drained_for_its_mounts(reason: str) -> None:
    system = system_of()
    system.instance.drain("compute-02", reason)
    system.instance.drain("compute-03", "broken fan")
    wait(system)
    assert shown(system) == {"compute-02": "Disabled"}
    system.instance.undrain("compute-02")
    wait(system)
    assert shown(system) == {}


def test_dws_is_told_again_when_it_has_forgotten() -> None:
    system = system_of()
    system.instance.set_up("compute-02", False)
    wait(system)
    patch: Json = {"data": {"nodes": {"compute-02": "Enabled"}}}
    system.store.merge_patch(SYSTEMSTATUS, "default", "default", patch)
    wait(system)
    assert shown(system) == {"compute-02": "Disabled"}
    system.store.delete(SYSTEMSTATUS, "default", "default")
    wait(system)
    assert shown(system) == {"compute-02": "Disabled"}


def test_many_nodes_are_told_of_in_one_request() -> None:
    system = system_of(topology=Topology.regular(64, 4))
    version = system.store.version
    for node in list(system.instance.scheduler.pool.nodes):
        system.instance.set_up(node.host, False)
    wait(system)
    assert len(shown(system)) == 64
    assert system.store.version == version + 1
