# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The rabbitmapping file."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from flux_k8s.errors import BadObject
from flux_k8s.objects import mapping
from support.mapping import CAPACITY, EXAMPLE


def test_the_example_of_topology_mapping_is_read() -> None:
    system = mapping.parse(EXAMPLE)
    assert system.rabbits == ("hetchy201", "hetchy202")
    assert system.rabbit_of("hetchy1002") == "hetchy201"
    assert system.rabbit_of("hetchy1018") == "hetchy202"
    assert system.hosts_of("hetchy201") == ("hetchy1001", "hetchy1002")
    assert system.capacity("hetchy202") == CAPACITY


def test_a_mapping_prints_as_it_was_read() -> None:
    assert mapping.parse(EXAMPLE).to_json() == EXAMPLE


def test_a_rabbit_or_node_that_the_mapping_lacks_has_no_connections() -> None:
    system = mapping.parse(EXAMPLE)
    assert system.rabbit_of("login1") is None
    assert system.hosts_of("hetchy203") == ()
    assert system.capacity("hetchy203") == 0
    assert not system.has("hetchy203")


def test_the_rabbits_of_a_mapping_are_in_natural_order() -> None:
    names = ["r10", "r9", "r1"]
    obj = {
        "computes": {},
        "rabbits": {name: {"capacity": 1, "hostlist": ""} for name in names},
    }
    assert mapping.parse(obj).rabbits == ("r1", "r9", "r10")


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        ((), None, "the whole is null, expected an object"),
        (("computes",), None, "computes is null, expected an object"),
        (("rabbits",), [], "rabbits is [], expected an object"),
        (("computes", "hetchy1001"), 7, "computes.hetchy1001 is 7"),
        (("computes", "hetchy1001"), "hetchy202", "rabbits.hetchy201.hostlist"),
        (("computes", "hetchy9"), "hetchy202", "a Rabbit whose hostlist has"),
        (("rabbits", "hetchy201"), 5, "rabbits.hetchy201 is 5"),
        (("rabbits", "hetchy201", "capacity"), -1, "rabbits.hetchy201.capacity is -1"),
        (("rabbits", "hetchy201", "capacity"), 2**63, "below 2^63"),
        (("rabbits", "hetchy201", "capacity"), True, "capacity is true"),
        (("rabbits", "hetchy201", "capacity"), 1.5, "capacity is 1.5"),
        (("rabbits", "hetchy201", "hostlist"), "h[", "RFC 29"),
        (("rabbits", "hetchy201", "hostlist"), 1, "a string"),
        (
            ("rabbits", "hetchy201", "hostlist"),
            "hetchy[1001-1003]",
            'computes.hetchy1003 is "hetchy202"',
        ),
        (
            ("rabbits", "hetchy202", "hostlist"),
            "hetchy[1002-1018]",
            "hetchy1002 is also listed for hetchy201",
        ),
        (
            ("rabbits", "hetchy201", "hostlist"),
            "hetchy[1001-1002,1001]",
            "hetchy1001 is also listed for hetchy201",
        ),
    ],
)
def test_a_wrong_mapping_is_refused_with_its_place(
    place: tuple[str, ...], value: Any, words: str
) -> None:
    obj = copy.deepcopy(EXAMPLE)
    if place:
        parent = obj
        for key in place[:-1]:
            parent = parent[key]
        parent[place[-1]] = value
    else:
        obj = value
    with pytest.raises(BadObject) as caught:
        mapping.parse(obj, "the file rabbits.json")
    assert str(caught.value).startswith("the file rabbits.json: ")
    assert words in str(caught.value)
