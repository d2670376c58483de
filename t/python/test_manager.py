# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Reports about Rabbits and nodes to Fluxion, DWS and administrators: when, and how
often."""

from __future__ import annotations

from functools import partial
from typing import Iterable, Mapping, Optional
from unittest.mock import Mock

import pytest

from flux_k8s.config.settings import Queues, Settings
from flux_k8s.config.table import Config
from flux_k8s.formats.resourcestatus import NodeStates
from flux_k8s.machine.fluxion import Fluxion
from flux_k8s.machine.manager import RabbitManager
from flux_k8s.machine.ssdcounts import SsdCounts
from flux_k8s.machine.wanted import (
    BAD_RABBIT,
    FIRST_HOLD,
    Machine,
    lost_connection_reason,
    wanted,
)
from flux_k8s.objects import mapping
from flux_k8s.ports import STORAGE, SYSTEMSTATUS, Json
from rabbitsim.dws.topology import Topology
from support.mapping import EXAMPLE
from support.rabbits import (
    drained,
    marked,
    requests,
    set_link,
    set_status,
    shown,
    small,
    system_of,
    wait,
)
from support.service import lines

# When, and how often


def test_a_rabbit_that_goes_down_is_told_at_once_and_its_return_later() -> None:
    system = system_of(topology=Topology.regular(64, 4))
    requests(system)
    set_status(system, "rabbit-02", "Fenced")
    wait(system, 0.5)
    assert marked(system) == "compute-[17-32]"
    assert requests(system) == {"set_property": 1}
    set_status(system, "rabbit-02", "Ready")
    wait(system, FIRST_HOLD / 2)
    assert marked(system) == "compute-[17-32]"
    wait(system, FIRST_HOLD)
    assert marked(system) == ""
    assert requests(system) == {"remove_property": 1, "set_status": 1}
    assert lines(system, "Rabbit rabbit-02") == [
        "dws: Rabbit rabbit-02 is Fenced: jobs with Rabbit storage avoid"
        " compute-[17-32] [rabbit-broken]",
        "dws: Rabbit rabbit-02 is used again [rabbit-back]",
    ]


def test_the_log_names_rabbits_that_the_mapping_lacks() -> None:
    system = system_of()
    for name in ("rabbit-04", "rabbit-03"):
        storage = {"metadata": {"name": name}, "spec": {"state": "Enabled"}}
        system.store.create(STORAGE, "default", storage)
        wait(system)
    told = "dws: rabbit.mapping lacks {}: no job gets storage there; flux rabbitmapping"
    assert lines(system, "rabbit-") == [
        told.format("rabbit-04") + " writes a new one [mapping-disagrees]",
        told.format("rabbit-[03-04]") + " writes a new one [mapping-disagrees]",
    ]


def test_a_scheduler_without_properties_gets_one_line_in_the_log() -> None:
    system = system_of(dynamic_properties=False)
    set_status(system, "rabbit-01", "Offline")
    wait(system)
    set_status(system, "rabbit-01", "Ready")
    wait(system)
    found = [(level, line) for _, level, line in system.log if "luxion" in line]
    assert found == [
        (
            6,
            "dws: neither Fluxion nor sched-rabbit is loaded (yet): none is told about"
            " Rabbits [fluxion-missing]",
        )
    ]


def test_another_configuration_is_applied_to_connections_that_are_broken() -> None:
    system = system_of()
    set_link(system, "compute-01", up=False)
    wait(system)
    assert system.service is not None
    system.service.reconfigure(Config(drain_compute_nodes=False))
    wait(system)
    assert (drained(system), marked(system)) == ({}, "compute-01")


def test_only_nodes_of_the_module_s_queues_are_touched() -> None:
    system = system_of(
        properties={"batch": ["compute-01", "compute-03"], "debug": ["compute-04"]},
        queues=(frozenset({"batch"}), frozenset({"debug", "batch"})),
    )
    for host in ("compute-01", "compute-02", "compute-04"):
        set_link(system, host, up=False)
    wait(system)
    assert list(drained(system)) == ["compute-01"]


def test_a_systemstatus_that_lost_its_nodes_gets_them_again() -> None:
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


def test_the_state_of_many_nodes_is_sent_in_one_request() -> None:
    system = system_of(topology=Topology.regular(64, 4))
    version = system.store.version
    for node in list(system.instance.scheduler.pool.nodes):
        system.instance.set_up(node.host, False)
    wait(system)
    assert len(shown(system)) == 64
    assert system.store.version == version + 1


# Servers that cannot be seen: stories/room.py


def test_storage_is_said_to_be_kept_when_workflows_are_seen_as_well() -> None:
    """Before that, it is not known which jobs gave back their shares."""
    system = small()
    assert system.service is not None
    machine = RabbitManager(
        system.service.context,
        awaited=frozenset,
        has_mounts=lambda jobid: False,
        may_hold=lambda jobid: True,
        rabbits_changed=lambda: None,
    )
    machine.start()
    kept: list[None] = []
    for _ in range(3):  # a step that is tried again: only the last one waits
        machine.when_withheld(1, partial(kept.append, None))
    wait(system)
    assert kept == []
    machine.workflows_listed()
    wait(system)
    assert kept == [None]


def test_a_job_without_storage_waits_for_no_scheduler() -> None:
    """One that was to get some may have waited for it, and has none by now."""
    ledger, fluxion = Mock(), Fluxion(Mock(), Mock())
    counts = SsdCounts(Mock(scheduler=True), ledger, fluxion)
    ledger.withheld_on.return_value = 1
    for rabbits in ({"rabbit-01"}, set()):
        ledger.rabbits_of.return_value = rabbits
        assert counts.are_kept(1) is not bool(rabbits)


# The decision

HOSTS = tuple(f"hetchy{number}" for number in range(1001, 1019))
LOST = dict.fromkeys(
    ("hetchy1002", "hetchy1003"), lost_connection_reason("hetchy202", "Offline")
)
STATES = NodeStates(
    HOSTS,
    frozenset(),
    {},
    {"pbatch": frozenset(HOSTS[3:])},
)
BROKEN = {"hetchy201": "Offline"}
BELOW_BROKEN = {"hetchy1001", "hetchy1002"}
DISABLED = "hetchy1010"

HARD: Json = {}
SOFT = {"drain_compute_nodes": False}
NEITHER = {"drain_compute_nodes": False, "soft_drain": False}
PBATCH = (frozenset({"pbatch"}),)


@pytest.mark.parametrize(
    ("config", "queues", "states", "drains", "marked"),
    [
        (HARD, None, STATES, LOST, set()),
        ({"soft_drain": False}, None, STATES, LOST, set()),
        (SOFT, None, STATES, {}, LOST),
        (NEITHER, None, STATES, {}, set()),
        (HARD, PBATCH, STATES, {}, set()),
        (SOFT, PBATCH, STATES, {}, set()),
        (HARD, None, None, LOST, set()),
        (HARD, PBATCH, None, {}, set()),
    ],
)
def test_what_follows_for_nodes_that_are_cut_off(
    config: Json,
    queues: Queues,
    states: Optional[NodeStates],
    drains: Mapping[str, str],
    marked: Iterable[str],
) -> None:
    """One Rabbit is broken, nodes of both are cut off, another one is disabled. (Which
    of them are drained already: test_nodes.py.)"""
    machine = Machine(BROKEN, lost=LOST, disabled=frozenset({DISABLED}), states=states)
    settings = Settings(Config.parse(config), mapping.parse(EXAMPLE), queues=queues)
    found = wanted(machine, settings)
    assert found.drains == drains
    assert found.marked == {BAD_RABBIT: {DISABLED, *marked}}
    assert found.avoided.keys() == {DISABLED, *marked, *BELOW_BROKEN}
