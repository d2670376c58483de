# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The Rabbits that are chosen for a job without nodes."""

from __future__ import annotations

from collections import Counter
from typing import Mapping, Optional

from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.dws.stagechoice import StageChoice, choose_nodes

NODES = {
    name: [f"{name}{number}" for number in range(8)] for name in ("a", "b", "c", "d")
}


def choose(
    nodes: int,
    places: Mapping[str, int],
    own: Optional[Mapping[str, int]] = None,
    chassis: int = 0,
    spread: bool = True,
) -> Optional[StageChoice]:
    """Choose for nodes that need 10 bytes each."""
    room = {name: 10 * number for name, number in places.items()}
    return choose_nodes(nodes, 10, NODES, room, own or {}, chassis, spread)


def per_rabbit(hosts: tuple[str, ...]) -> Counter[str]:
    return Counter(host[0] for host in hosts)


def test_a_job_that_fits_on_one_rabbit_gets_that_with_most_room() -> None:
    choice = choose(3, {"a": 2, "b": 4, "c": 6, "d": 5})
    assert choice is not None
    assert choice.hosts == ("c0", "c1", "c2") and choice.allowed == tuple(NODES["c"])


def test_a_request_that_was_chosen_before_is_chosen_again() -> None:
    choice = choose(3, {"a": 8, "b": 4}, own={"b": 30})
    assert choice is not None and per_rabbit(choice.hosts) == {"b": 3}


def test_nodes_that_cannot_be_shared_evenly_are_named() -> None:
    choice = choose(7, {"a": 4, "b": 4, "c": 4})
    assert choice is not None
    assert per_rabbit(choice.hosts) == {"a": 4, "b": 3}
    assert choice.allowed == choice.hosts


def test_one_rabbit_more_makes_the_shares_even() -> None:
    choice = choose(9, {"a": 8, "b": 4, "c": 4})
    assert choice is not None
    assert per_rabbit(choice.hosts) == {"a": 3, "b": 3, "c": 3}
    assert len(choice.allowed) == 24


def test_nodes_are_named_where_no_chassis_can_be_asked_for() -> None:
    choice = choose(6, {"a": 3, "b": 3}, spread=False)
    assert choice is not None and choice.allowed == choice.hosts


def test_a_job_that_asks_for_chassis_gets_as_many() -> None:
    choice = choose(4, {"a": 8, "b": 1, "c": 2}, chassis=2)
    assert choice is not None
    assert per_rabbit(choice.hosts) == {"a": 2, "c": 2}
    assert choose(4, {"a": 8, "b": 1}, chassis=2) is None


@given(
    nodes=st.integers(1, 32),
    places=st.dictionaries(st.sampled_from("abcd"), st.integers(0, 12)),
    chassis=st.integers(0, 4),
    spread=st.booleans(),
)
def test_no_rabbit_has_more_nodes_than_room_and_the_request_forces_that(
    nodes: int, places: Mapping[str, int], chassis: int, spread: bool
) -> None:
    choice = choose(nodes, places, chassis=chassis, spread=spread)
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
