# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The Rabbits that are chosen for a job without nodes."""

from __future__ import annotations

from collections import Counter
from typing import Any, Mapping, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.rules.stagechoice import (
    HORIZONS,
    NodeTimes,
    StageChoice,
    choose_nodes,
)

NODES = {
    name: [f"{name}{number}" for number in range(8)] for name in ("a", "b", "c", "d")
}

ALL = {"a": 8, "b": 8, "c": 8, "d": 8}
NOW = 1000.0


def choose(
    nodes: int,
    places: Mapping[str, int],
    own: Optional[Mapping[str, int]] = None,
    chassis: int = 0,
    spread: bool = True,
    times: Optional[NodeTimes] = None,
    below: Mapping[str, list[str]] = NODES,
) -> Optional[StageChoice]:
    """Choose for nodes that need 10 bytes each."""
    room = {name: 10 * number for name, number in places.items()}
    return choose_nodes(nodes, 10, below, room, own or {}, chassis, spread, times)


def busy(until: float, *hosts: str, **awaited: int) -> NodeTimes:
    return NodeTimes(NOW, dict.fromkeys(hosts, until), awaited)


def per_rabbit(hosts: tuple[str, ...]) -> Counter[str]:
    return Counter(host[0] for host in hosts)


HALVES = [host for hosts in NODES.values() for host in hosts[:4]]
MOST = [host for hosts in NODES.values() for host in hosts[:6]]
SOON = {**dict.fromkeys(NODES["a"], NOW + 200), **dict.fromkeys(NODES["c"], 1e9)}
AGAIN = {"own": {"b": 30}}
A_OR_C = {"a": 3, "c": 8}


@pytest.mark.parametrize(
    ("nodes", "places", "more", "made"),
    [
        # it fits on one Rabbit, and gets that with most room
        (3, {"a": 2, "b": 4, "c": 6, "d": 5}, {}, {"c": 3}),
        # a request that was chosen before is chosen again, whatever is free
        (3, {"a": 8, "b": 4}, AGAIN, {"b": 3}),
        (3, {"a": 8, "b": 4}, {**AGAIN, "times": busy(NOW + 9, *NODES["b"])}, {"b": 3}),
        # nodes that cannot be shared evenly, unless there is one more
        (7, {"a": 4, "b": 4, "c": 4}, {}, {"a": 4, "b": 3}),
        (9, {"a": 8, "b": 4, "c": 4}, {}, {"a": 3, "b": 3, "c": 3}),
        # it asks for chassis, and gets as many
        (4, {"a": 8, "b": 1, "c": 2}, {"chassis": 2}, {"a": 2, "c": 2}),
        (4, {"a": 8, "b": 1}, {"chassis": 2}, None),
        # one whose nodes are free, or soon, is better than one with more room
        (3, A_OR_C, {"times": busy(NOW + 3600, *NODES["c"])}, {"a": 3}),
        (3, A_OR_C, {"times": busy(NOW + 3600, *NODES["a"], *NODES["c"])}, {"c": 3}),
        (3, A_OR_C, {"times": NodeTimes(NOW, SOON)}, {"a": 3}),
        # and more of them than it needs, if that is sooner
        (8, ALL, {"times": busy(NOW + 3600, *HALVES)}, {"a": 4, "b": 4}),
        (8, ALL, {"times": busy(NOW + 3600, *MOST)}, {"a": 8}),
        # nodes that other jobs wait for are not free
        (3, {"a": 8, "b": 3}, {"times": busy(0.0, a=6)}, {"b": 3}),
    ],
)
def test_the_rabbits_of_a_job(
    nodes: int,
    places: dict[str, int],
    more: dict[str, Any],
    made: Optional[dict[str, int]],
) -> None:
    choice = choose(nodes, places, **more)
    assert (choice and per_rabbit(choice.hosts)) == made


def test_nodes_are_named_where_no_shares_of_chassis_can_be_asked_for() -> None:
    """They are those that are free first."""
    even = choose(3, {"a": 2, "c": 6})
    assert even is not None
    assert even.hosts == ("c0", "c1", "c2") and even.allowed == tuple(NODES["c"])
    spread = choose(9, {"a": 8, "b": 4, "c": 4})
    assert spread is not None and len(spread.allowed) == 24
    named = choose(6, {"a": 3, "b": 3}, spread=False)
    assert named is not None and named.allowed == named.hosts
    odd = choose(7, {"a": 4, "b": 4}, times=busy(NOW + 60, *NODES["a"][:4], "b1"))
    assert odd is not None and odd.allowed == odd.hosts
    assert sorted(odd.hosts) == ["a4", "a5", "a6", "a7", "b0", "b2", "b3"]


TIMES = st.builds(
    NodeTimes,
    now=st.just(NOW),
    until=st.dictionaries(
        st.sampled_from([host for hosts in NODES.values() for host in hosts]),
        st.sampled_from([0.0, NOW, NOW + 50, NOW + 100, NOW + 9999, 1e12]),
    ),
    awaited=st.dictionaries(st.sampled_from("abcd"), st.integers(0, 12)),
)


@given(
    nodes=st.integers(1, 32),
    places=st.dictionaries(st.sampled_from("abcd"), st.integers(0, 12)),
    chassis=st.integers(0, 4),
    spread=st.booleans(),
    times=TIMES,
)
def test_no_choice_of_as_few_rabbits_gets_its_nodes_sooner_by_more_than_a_step(
    nodes: int,
    places: Mapping[str, int],
    chassis: int,
    spread: bool,
    times: NodeTimes,
) -> None:
    anyhow = choose(nodes, places, chassis=chassis, spread=spread)
    choice = choose(nodes, places, chassis=chassis, spread=spread, times=times)
    assert (choice is None) == (anyhow is None)
    if choice is None or anyhow is None:
        return
    made, most = per_rabbit(choice.hosts), 2 * len(per_rabbit(anyhow.hosts))
    sooner: list[StageChoice] = []
    for horizon in HORIZONS:
        ready = free_at(horizon, times)
        if all(len(ready[rabbit]) >= number for rabbit, number in made.items()):
            break
        other = choose(nodes, places, chassis=chassis, spread=spread, below=ready)
        if other is not None and len(per_rabbit(other.hosts)) <= most:
            sooner.append(other)
    assert len(sooner) <= 1
    if sooner:
        # Nodes that are named are not as good.
        assert sooner[0].hosts == sooner[0].allowed
        assert len(set(made.values())) == 1


def free_at(horizon: float, times: NodeTimes) -> dict[str, list[str]]:
    """The nodes below each Rabbit that nobody waits for and that are free by then."""

    def end(host: str) -> float:
        return times.until.get(host, 0.0)

    return {
        rabbit: [
            host
            for host in sorted(hosts, key=end)[times.awaited.get(rabbit, 0) :]
            if end(host) <= NOW + horizon
        ]
        for rabbit, hosts in NODES.items()
    }


@given(
    nodes=st.integers(1, 32),
    places=st.dictionaries(st.sampled_from("abcd"), st.integers(0, 12)),
    chassis=st.integers(0, 4),
    spread=st.booleans(),
    times=st.none() | TIMES,
)
def test_no_rabbit_has_more_nodes_than_room_and_the_request_forces_that(
    nodes: int,
    places: Mapping[str, int],
    chassis: int,
    spread: bool,
    times: Optional[NodeTimes],
) -> None:
    choice = choose(nodes, places, chassis=chassis, spread=spread, times=times)
    if choice is None:
        fitting = sum(min(8, number) for number in places.values())
        assert chassis or fitting < nodes
        return
    made = per_rabbit(choice.hosts)
    assert len(choice.hosts) == nodes == len(set(choice.hosts))
    assert all(number <= places[rabbit] for rabbit, number in made.items())
    assert set(choice.hosts) <= set(choice.allowed)
    if choice.allowed != choice.hosts:
        assert len(set(made.values())) == 1
        assert spread or chassis or len(made) == 1
