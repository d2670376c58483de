# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The health of Rabbits and nodes: whatever happens, Flux ends up knowing what
Kubernetes shows."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flux_k8s.config.arguments import Arguments, queue_properties
from flux_k8s.config.table import Config
from flux_k8s.errors import BadObject, ConfigError
from flux_k8s.formats import hostlist
from flux_k8s.formats.directives import GIB
from flux_k8s.formats.resourcestatus import parse
from flux_k8s.machine.storages import Storages, parse_storage
from flux_k8s.machine.wanted import FIRST_HOLD, LAST_HOLD, HoldDown
from flux_k8s.ports import Json
from flux_k8s.rules.drainreason import LOST_CONNECTION
from rabbitsim.system import VirtualSystem
from support.effort import examples
from support.mapping import context_of
from support.rabbits import (
    Unseen,
    disable,
    drained,
    marked,
    set_link,
    set_status,
    shown,
    system_of,
    wait,
)
from support.service import HOUR
from support.watched import watched

RABBITS = ("rabbit-01", "rabbit-02")
HOSTS = ("compute-01", "compute-02", "compute-03", "compute-04")
FAN = "broken fan"
DISABLED = "Disabled"

events = st.one_of(
    st.tuples(
        st.just("status"),
        st.sampled_from(RABBITS),
        st.sampled_from(["Ready", "Degraded", "Offline", "Fenced"]),
    ),
    st.tuples(st.just("link"), st.sampled_from(HOSTS), st.booleans()),
    st.tuples(st.just("drain"), st.sampled_from(HOSTS), st.just(FAN)),
    st.tuples(st.just("undrain"), st.sampled_from(HOSTS), st.none()),
    st.tuples(st.just("up"), st.sampled_from(HOSTS), st.booleans()),
    st.tuples(
        st.just("write"), st.sampled_from(HOSTS), st.sampled_from(["Enabled", DISABLED])
    ),
    st.tuples(st.just("fluxion"), st.none(), st.none()),
    st.tuples(st.just("unload"), st.none(), st.booleans()),
    st.tuples(st.just("load"), st.none(), st.none()),
    st.tuples(st.just("watches"), st.none(), st.none()),
    st.tuples(st.just("unseen"), st.none(), st.sampled_from([0, 403, 404, 500])),
    st.tuples(st.just("seen"), st.none(), st.none()),
    st.tuples(st.just("wait"), st.none(), st.floats(0.0, 20.0)),
)


def happen(system: VirtualSystem, what: str, name: Any, value: Any) -> None:
    if what == "status":
        set_status(system, name, value)
    elif what == "link":
        set_link(system, name, up=value)
    elif what == "drain":
        system.instance.drain(name, value)
    elif what == "undrain":
        system.instance.undrain(name)
    elif what == "up":
        system.instance.set_up(name, value)
    elif what == "write":
        disable(system, name, value)
    elif what == "fluxion":
        system.instance.reload_fluxion()
    elif what == "unload" and system.service is not None:
        system.kill_module() if value else system.unload_module()
    elif what == "load" and system.service is None:
        system.load_module()
    elif what in ("watches", "unseen") and system.service_kube is not None:
        system.service_kube.drop_watches()
    wait(system, value if what == "wait" else 0.01)


@examples(30)
@example([("status", "rabbit-01", "Offline"), ("link", "compute-01", False)], "drain")
@given(st.lists(events, max_size=12), st.sampled_from(["drain", "soft", "none"]))
def test_the_state_in_flux_follows_the_state_in_kubernetes(
    sequence: list[tuple[str, Any, Any]], mode: str
) -> None:
    config = Config(drain_compute_nodes=mode == "drain", soft_drain=mode != "none")
    unseen = Unseen(0, on=False)
    system = system_of(config, faults=unseen)
    status = dict.fromkeys(RABBITS, "Ready")
    lost: set[str] = set()
    by_hand: set[str] = set()
    by_others: set[str] = set()
    for what, name, value in sequence:
        if (what, value) == ("write", DISABLED) and name not in shown(system):
            by_others.add(name)
        elif what == "write" and value != DISABLED:
            by_others.discard(name)
        if what in ("unseen", "seen"):
            unseen.status, unseen.on = value or 0, what == "unseen"
        happen(system, what, name, value)
        by_hand = {host for host, why in drained(system).items() if why == FAN}
        if what == "status":
            status[name] = value
        elif what == "link":
            (lost.discard if value else lost.add)(name)
    happen(system, "load", None, None)
    wait(system, HOUR)

    down = {name for name, s in status.items() if s not in ("Ready", "Degraded")}
    cut = {host for host in lost if system.mapping.rabbit_of(host) not in down}
    bad = {host for name in down for host in system.mapping.hosts_of(name)}
    bad |= cut if mode == "soft" else set()
    assert set(hostlist.decode(marked(system))) == bad | by_others
    found = drained(system)
    ours = {
        host for host, reason in found.items() if reason.startswith(LOST_CONNECTION)
    }
    assert ours <= (cut if mode == "drain" else set())
    assert mode != "drain" or cut <= found.keys()
    assert all(found[host] == FAN for host in by_hand)
    rabbit_of = system.mapping.rabbit_of
    for host in ours:
        assert found[host] == f"{LOST_CONNECTION}{rabbit_of(host)} is Offline"
    offline = {n.host for n in system.instance.scheduler.pool.nodes if not n.up}
    assert set(shown(system)) == offline | by_others


# Flapping


@given(st.lists(st.tuples(st.booleans(), st.floats(0.0, 100.0)), max_size=40))
def test_a_rabbit_that_recovered_is_held_down_for_a_while(
    steps: list[tuple[bool, float]],
) -> None:
    hold_down, now, was_broken = HoldDown(), 0.0, False
    for broken, seconds in steps:
        held = hold_down.update({"x"} if broken else set(), now)
        assert held <= {"x"} and not (broken and held)
        assert broken or not was_broken or held == {"x"}
        was_broken = broken
        now += seconds
    assert hold_down.update(set(), now) <= {"x"}
    assert hold_down.update(set(), now + LAST_HOLD) == set()


def test_the_hold_doubles_with_each_break() -> None:
    hold_down, now = HoldDown(), 0.0
    for hold in (FIRST_HOLD, 2 * FIRST_HOLD, 4 * FIRST_HOLD):
        assert hold_down.update({"x"}, now) == set()
        assert hold_down.update(set(), now) == {"x"}
        assert hold_down.next_end(now) == now + hold
        assert hold_down.update(set(), now + hold) == set()
        now += hold


def test_a_connection_is_no_better_since_its_rabbit_went_down() -> None:
    system = system_of(Config(drain_compute_nodes=True))
    set_link(system, "compute-01", up=False)
    wait(system)
    lost = drained(system)
    assert lost.keys() == {"compute-01"}
    for _ in range(3):
        set_status(system, "rabbit-01", "Offline")
        wait(system, FIRST_HOLD / 2)
        assert drained(system) == {}
        set_status(system, "rabbit-01", "Ready")
        wait(system)
        assert drained(system) == lost
    set_link(system, "compute-01", up=True)
    wait(system, FIRST_HOLD / 2)
    assert drained(system).keys() == {"compute-01"}
    wait(system, FIRST_HOLD)
    assert drained(system) == {}


# Objects that are read


def test_an_event_that_says_nothing_new_of_a_rabbit_is_none() -> None:
    """Each job changes what is free."""
    entry = {"capacity": 9 * GIB, "hostlist": "n1"}
    context = context_of({"computes": {"n1": "r"}, "rabbits": {"r": entry}})
    changes: list[None] = []
    storages = Storages(context, lambda: changes.append(None))

    def see(status: str, free: int, type: str = "MODIFIED") -> int:
        metadata = {"name": "r", "labels": {"a": "b"}}
        found: Json = {"status": status, "capacity": free * GIB}
        storages.event(type, watched({"metadata": metadata, "status": found}))
        return len(changes)

    assert see("Ready", 9, "ADDED") == 0
    storages.synced()
    assert (storages.labels, storages.broken) == ({"r": {"a": "b"}}, {})
    assert [see("Ready", 4), see("Ready", 9), see("Ready", 10)] == [1, 1, 2]
    assert see("Offline", 4) == 3
    assert (storages.labels, storages.broken) == ({}, {"r": "Offline"})
    assert see("Offline", 4, "DELETED") == 4
    assert (storages.broken, storages.absent) == ({"r": "not there"}, {"r"})


def test_a_storage_names_its_broken_connections() -> None:
    computes = [
        {"name": "a", "status": "Ready"},
        {"name": "b", "status": "Offline"},
        {"name": "c"},
    ]
    status = {"status": "Degraded", "access": {"computes": computes}}
    state = parse_storage({"status": status})
    assert (state.serving, state.lost) == (True, {"b": "Offline"})
    assert not state.well


def test_excluded_nodes_are_not_read_from_resource_status() -> None:
    R = {
        "version": 1,
        "execution": {
            "R_lite": [{"rank": "0-2", "children": {"core": "0"}}],
            "nodelist": ["n[0-2]"],
            "properties": {"batch": "1-2"},
        },
    }
    drain = {"1": {"timestamp": 1.0, "reason": ""}, "2": {"timestamp": 1.0}}
    states = parse({"R": R, "drain": drain, "offline": "0,2", "exclude": "0"})
    assert states.hosts == ("n1", "n2")
    assert states.offline == {"n2"}
    assert states.drained == {"n1": "", "n2": ""}
    assert states.with_all(["batch"]) == {"n1", "n2"}
    assert states.with_all(["batch", "gpu"]) == set()


@pytest.mark.parametrize("status", [None, {}, {"R": {}}, {"R": {}, "drain": 1}])
def test_a_malformed_answer_of_resource_status_is_refused(status: Any) -> None:
    with pytest.raises(BadObject):
        parse(status)


# The module's arguments


def test_the_queues_of_the_module_give_the_properties_of_their_nodes() -> None:
    queues = {"batch": {"requires": ["batch"]}, "all": {}}
    names = Arguments.parse(["queues=batch", "scheduler=none"]).queues
    assert queue_properties(queues, names) == (frozenset({"batch"}),)
    assert queue_properties(queues, ["batch", "all"]) is None
    assert queue_properties(queues, []) is None


@pytest.mark.parametrize(
    ("argument", "text"),
    [
        ("queues=", "queues=: expected queues=NAME,..."),
        ("scheduler=x", "scheduler=x: expected scheduler=none, or no such argument"),
        (
            "x=1",
            "x=1: unknown module argument, known: scheduler=none, queues=NAME,..., "
            "watchdog=SECONDS",
        ),
        ("watchdog=-1", "watchdog=-1: expected watchdog=SECONDS, 0 for none"),
        ("watchdog=nan", "watchdog=nan: expected watchdog=SECONDS, 0 for none"),
        ("watchdog=", "watchdog=: expected watchdog=SECONDS, 0 for none"),
    ],
)
def test_a_wrong_argument_is_named(argument: str, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Arguments.parse([argument])
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("nosuch", "queues=nosuch: no such queue, known: batch"),
        ("batch", "queues.batch.requires: is 5, expected an array"),
    ],
)
def test_a_wrong_queue_is_named(name: str, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        queue_properties({"batch": {"requires": 5}}, [name])
    assert str(caught.value) == text
