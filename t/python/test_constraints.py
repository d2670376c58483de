# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""RFC 31 constraints."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.errors import BadObject
from flux_k8s.formats import constraints
from flux_k8s.formats.resourcestatus import NodeStates
from flux_k8s.ports import Json
from support.effort import count_calls
from support.fluxpython import needs_flux, of_flux

NODES: list[tuple[str, int, frozenset[str]]] = [
    ("host0", 0, frozenset({"ssd"})),
    ("host1", 1, frozenset({"ssd", "slowgpu"})),
    ("host2", 2, frozenset({"huge"})),
    ("host3", 3, frozenset({"slowgpu", "foo", "bar"})),
    ("other4", 4, frozenset()),
]

EXAMPLES: list[tuple[Json, set[int]]] = [
    ({"properties": ["ssd"]}, {0, 1}),
    ({"properties": ["^slowgpu"]}, {0, 2, 4}),
    ({"not": [{"properties": ["slowgpu"]}]}, {0, 2, 4}),
    ({"not": [{"properties": ["foo", "bar"]}]}, {0, 1, 2, 4}),
    ({"or": [{"properties": ["ssd"]}, {"properties": ["huge"]}]}, {0, 1, 2}),
    ({"or": [{"properties": ["foo"]}, {"properties": ["bar"]}]}, {3}),
    ({"hostlist": ["host[0-1]"]}, {0, 1}),
    ({"not": [{"hostlist": ["host[0-1]"]}]}, {2, 3, 4}),
    ({"and": [{"hostlist": ["host[0-1]"]}, {"properties": ["ssd"]}]}, {0, 1}),
    ({"ranks": ["0"]}, {0}),
]

EMPTY: list[tuple[Json, bool]] = [
    ({}, True),
    ({"and": []}, True),
    ({"or": []}, True),
    ({"not": []}, False),
    ({"properties": []}, True),
    ({"hostlist": []}, False),
    ({"ranks": []}, False),
]

leaves: st.SearchStrategy[Json] = st.one_of(
    st.fixed_dictionaries(
        {
            "properties": st.lists(
                st.sampled_from(["ssd", "^ssd", "huge", "^slowgpu", "foo"]),
                max_size=3,
            )
        }
    ),
    st.fixed_dictionaries(
        {
            "hostlist": st.lists(
                st.sampled_from(["host[0-1]", "host[1,1-3]", "other4", "", "x9"]),
                max_size=2,
            )
        }
    ),
    st.fixed_dictionaries(
        {"ranks": st.lists(st.sampled_from(["0", "1-3", "[2,4]", ""]), max_size=2)}
    ),
    st.just({}),
)
trees = st.recursive(
    leaves,
    lambda below: st.one_of(
        st.fixed_dictionaries({"and": st.lists(below, max_size=3)}),
        st.fixed_dictionaries({"or": st.lists(below, max_size=3)}),
        st.fixed_dictionaries({"not": st.lists(below, max_size=1)}),
    ),
    max_leaves=8,
)


def matching(constraint: Json) -> set[int]:
    """The ranks of NODES that match."""
    parsed = constraints.parse(constraint)
    return {rank for host, rank, names in NODES if parsed.match(host, rank, names)}


@given(trees)
def test_the_nodes_that_a_constraint_selects_are_those_that_match(
    constraint: Json,
) -> None:
    names = {name for _, _, having in NODES for name in having}
    states = NodeStates(
        tuple(host for host, _, _ in NODES),
        frozenset(),
        {},
        {n: frozenset(h for h, _, having in NODES if n in having) for n in names},
        host_of={rank: host for host, rank, _ in NODES},
    )
    selected = states.matching(constraints.parse(constraint))
    ranks = matching(constraint)
    assert selected == {host for host, rank, _ in NODES if rank in ranks}


@pytest.mark.parametrize(
    "constraint",
    [
        {"or": [{"and": []}] * 1000},
        {"or": [{"properties": ["^slow"]}] * 500},
        {"and": [{"not": [{"properties": ["slow"]}]}] * 300},
        {"properties": ["^fast", "slow"] * 500},
    ],
)
def test_the_constraint_of_a_guest_costs_no_more_on_a_large_machine(
    constraint: Json,
) -> None:
    hosts = tuple(f"node{number}" for number in range(11_136))
    having = {"fast": frozenset(hosts[::2]), "slow": frozenset(hosts[::3])}
    states = NodeStates(hosts, frozenset(), {}, having)
    none = {"not": [{}]}
    states.matching(constraints.parse(none))
    parsed = constraints.parse_of_job({"and": [none, constraint]})
    assert count_calls(lambda: states.matching(parsed)) < 15_000


@pytest.mark.parametrize(("constraint", "ranks"), EXAMPLES)
def test_the_examples_of_rfc_31_match(constraint: Json, ranks: set[int]) -> None:
    assert matching(constraint) == ranks


@pytest.mark.parametrize(("constraint", "everything"), EMPTY)
def test_an_operator_without_values_matches_as_rfc_31_says(
    constraint: Json, everything: bool
) -> None:
    assert matching(constraint) == (set(range(5)) if everything else set())


@given(trees)
def test_a_constraint_prints_as_it_was_read(constraint: Json) -> None:
    assert constraints.parse(constraint).to_json() == constraint


@given(trees)
def test_a_normalised_constraint_matches_the_same_nodes(constraint: Json) -> None:
    once = constraints.normalise(constraint)
    assert matching(once) == matching(constraint)
    assert constraints.normalise(once) == once


@given(trees, trees)
def test_a_conjunction_matches_the_nodes_that_both_constraints_match(
    one: Json, other: Json
) -> None:
    both = constraints.conjunction(one, other)
    assert matching(both) == matching(one) & matching(other)


def test_our_exclusions_are_anded_with_the_users_constraint() -> None:
    user = {"or": [{"properties": ["ssd"]}, {"hostlist": ["h[3,1-2]"]}]}
    ours = constraints.exclude_properties(["badrabbit"])
    assert ours == {"properties": ["^badrabbit"]}
    assert constraints.conjunction(user, ours) == {
        "and": [
            {"or": [{"properties": ["ssd"]}, {"hostlist": ["h[1-3]"]}]},
            {"properties": ["^badrabbit"]},
        ]
    }
    assert constraints.conjunction(None, ours) == ours
    assert constraints.conjunction(ours, ours) == ours
    assert constraints.conjunction() == {}


NONE: Json = {"not": []}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (
            constraints.conjunction({"properties": ["b"]}, {"properties": ["a", "^c"]}),
            {"properties": ["^c", "a", "b"]},
        ),
        (constraints.conjunction({"properties": ["a"]}, {"not": [{}]}), NONE),
        (constraints.normalise({"or": [NONE]}), NONE),
        (constraints.normalise({"and": [NONE, {}]}), NONE),
        *((constraints.normalise(each), {}) for each in ({"or": []}, {"and": []}, {})),
        (constraints.only_hosts(["h10", "h9", "h9"]), {"hostlist": ["h[9-10]"]}),
        (constraints.only_hosts([]), NONE),
    ],
)
def test_a_constraint_is_made_as_short_as_it_can_be(
    found: Json, expected: Json
) -> None:
    assert found == expected


@pytest.mark.parametrize(
    ("constraint", "words"),
    [
        (None, "the whole is null, expected an RFC 31 constraint object"),
        ([], "the whole is []"),
        ({"xor": []}, 'the operator of the whole is "xor", expected one of prop'),
        ({"and": [{"nor": []}]}, 'the operator of and[0] is "nor"'),
        ({"and": [], "or": []}, "one operator"),
        ({"and": {}}, "and is {}, expected an array"),
        ({"and": ["a"]}, 'and[0] is "a"'),
        ({"not": [{}, {}]}, "not is [{}, {}], expected an array of one constraint"),
        ({"properties": "a"}, 'properties is "a", expected an array'),
        ({"properties": [1]}, "properties[0] is 1"),
        ({"properties": [""]}, "the name of a property"),
        ({"properties": ["^"]}, "the name of a property"),
        ({"properties": ["^^a"]}, "the name of a property"),
        ({"properties": ["a\udc80"]}, "the name of a property"),
        ({"properties": ["a&b"]}, "the name of a property"),
        ({"or": [{"hostlist": ["h["]}]}, "or[0].hostlist[0] is"),
        ({"hostlist": ["h[0-999999999]"]}, "RFC 29"),
        ({"hostlist": [None]}, "hostlist[0] is null"),
        ({"ranks": ["3-1"]}, "ranks[0] is"),
        ({"ranks": [0]}, "ranks[0] is 0, expected an RFC 22 idset"),
    ],
)
def test_a_malformed_constraint_is_refused_with_its_place(
    constraint: Any, words: str
) -> None:
    with pytest.raises(BadObject) as caught:
        constraints.parse(constraint, "the constraints of job f1")
    assert str(caught.value).startswith("the constraints of job f1: ")
    assert words in str(caught.value)


def test_a_constraint_that_is_nested_without_end_is_refused() -> None:
    constraint: Json = {}
    for _ in range(2000):
        constraint = {"not": [constraint]}
    with pytest.raises(BadObject, match="levels"):
        constraints.parse(constraint)


def random_tree(rng: random.Random, depth: int) -> Json:
    """A constraint in which every operator has values: what Flux 0.88 makes of
    those without is not what RFC 31 defines."""
    kind = rng.choice(["properties", "hostlist", "ranks"] + ["and", "or", "not"] * 2)
    if depth == 0 and kind in ("and", "or", "not"):
        kind = "properties"
    if kind in ("and", "or", "not"):
        count = 1 if kind == "not" else rng.randrange(1, 4)
        return {kind: [random_tree(rng, depth - 1) for _ in range(count)]}
    values = {
        "properties": ["ssd", "^ssd", "huge", "^slowgpu", "foo", "host2"],
        "hostlist": ["host[0-1]", "host[1,1-3]", "other4", "x9"],
        "ranks": ["0", "1-3", "[2,4]", "9"],
    }[kind]
    count = 1 if kind == "ranks" else rng.randrange(1, 3)
    return {kind: [rng.choice(values) for _ in range(count)]}


@needs_flux
def test_flux_matches_the_same_nodes_with_a_constraint() -> None:
    names = {name for _, _, found in NODES for name in found}
    R = {
        "version": 1,
        "execution": {
            "R_lite": [{"rank": "0-4", "children": {"core": "0"}}],
            "nodelist": [host for host, _, _ in NODES],
            "properties": {
                name: ",".join(str(rank) for _, rank, found in NODES if name in found)
                for name in names
            },
        },
    }
    rng = random.Random(31)
    trees = [tree for tree, _ in EXAMPLES]
    trees += [random_tree(rng, 3) for _ in range(500)]
    theirs = of_flux(
        "from flux.resource import ResourceSet",
        "[sorted(ResourceSet(given[0]).copy_constraint(t).ranks) for t in given[1]]",
        [R, trees],
    )
    for tree, ranks in zip(trees, theirs):
        assert matching(tree) == set(ranks), tree
