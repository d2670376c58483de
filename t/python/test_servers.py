# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Where storage goes: breakdowns and an allocation become Servers."""

from __future__ import annotations

from collections import Counter
from typing import Any, Callable, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.errors import AllocationError, BadObject
from flux_k8s.formats import rset
from flux_k8s.formats.directives import GIB
from flux_k8s.objects import mapping
from flux_k8s.ports import Json
from flux_k8s.rules.directivebreakdown.allocation import (
    Allocation,
    beyond_shares,
    colocation_annotations,
    job_allocation,
)
from flux_k8s.rules.directivebreakdown.breakdown import (
    STRATEGIES,
    AllocationSet,
    Breakdown,
    Strategy,
    parse,
)
from flux_k8s.rules.directivebreakdown.resources import gib_per_node
from flux_k8s.rules.directivebreakdown.servers import build_servers
from support.breakdowns import (
    RABBIT,
    across,
    allocation,
    breakdown,
    build_allocation_sets,
    colocated,
    counts,
    per_compute,
    place,
    single,
)
from support.tree import recorded

MGT = ("lustre-mgt",)


def test_every_node_gets_its_allocation_on_its_own_rabbit() -> None:
    (entry,) = build_allocation_sets(
        breakdown(per_compute(11051991040)), allocation({"r10": 1, "r9": 3})
    )
    assert entry == {
        "label": "xfs",
        "allocationSize": 11051991040,
        "storage": [
            {"name": "r9", "allocationCount": 3},
            {"name": "r10", "allocationCount": 1},
        ],
    }


def numbers(text: str) -> dict[str, int]:
    """``a:2 b``: two on a, and one on b."""
    pairs = (word.partition(":") for word in text.split())
    return {name: int(number or 1) for name, _, number in pairs}


def at(text: str, ssd: Any = None, **more: Any) -> Allocation:
    return allocation(numbers(text), ssd, **more)


USED = {"lustre-mgt": frozenset({"a"})}
"""The keys of other jobs, with the Rabbits on which they have storage."""

RABBITS = dict.fromkeys("abc", RABBIT)
TWENTY = at("r1:10 r2:10", 10)
UNEVEN = at("a:4 b:4", {"a": 5, "b": 7})
BROKEN = at("a:4 b", storages={"b": RABBIT})
LABELLED = at("a b", storages={"a": {"x": ""}, "b": {}})
LABELS = ("Rabbit", "firmware_test", "fast")
EXAMPLE = at(
    "r:3 rabbit-node-1 s:3",
    storages={
        "r": dict.fromkeys(LABELS[:2], ""),
        "rabbit-node-1": dict.fromkeys(LABELS, ""),
        "s": dict.fromkeys(LABELS[1:], ""),
    },
)
FULLER = at("a:2 b:2", room={"a": 3 * GIB, "b": 12 * GIB})
LEFT = {"a": 0, "b": 5 * GIB, "c": 9 * GIB}
NETWORK = at("a:2", room=LEFT, storages=RABBITS)
OTHERS: Any = {"room": dict.fromkeys("ab", 20 * GIB), "other_shares": {"a": 14 * GIB}}
"""What other jobs were given is kept for them."""
SPARE = at("", unconnected=("c",), storages={"a": RABBIT}, **OTHERS)
LAST = at("a:5", colocated=USED, storages={"a": RABBIT, "z9": RABBIT, "z10": RABBIT})
NOWHERE = at("", {"a": 5, "b": 9, "c": 8}, unconnected=("n1", "n2"), storages=RABBITS)


@pytest.mark.parametrize(
    ("entry", "on", "expected"),
    [
        # scale goes from the fewest that divide as the nodes do to one for each node,
        # of at least a GiB
        (across(200 * GIB, scale=1), TWENTY, "r1 r2"),
        (across(200 * GIB, scale=4), TWENTY, "r1:4 r2:4"),
        (across(200 * GIB, scale=8), TWENTY, "r1:8 r2:8"),
        (across(200 * GIB, scale=10), TWENTY, "r1:10 r2:10"),
        (across(3 * GIB, scale=10), at("r1:10 r2:10", 1), "r1 r2"),
        (across(3 * GIB), at("r1:8 r2:6"), "r1:2 r2"),
        # Without count and scale allocations divide as the nodes do
        (across(30 * GIB), at("a:16 b:8"), "a:2 b"),
        (across(30 * GIB), at("a:5 b:5"), "a b"),
        (across(30 * GIB), at("a:3 b:2"), "a:3 b:2"),
        (across(9 * GIB, count=4), at("a:2 b:2"), "a:2 b:2"),
        (across(GIB, count=3), at("a"), "a:3"),
        (
            AllocationSet("ost", STRATEGIES["AllocatePerServer"], GIB),
            at("a:3 b"),
            "a b",
        ),
        # One allocation where there is room, or most of it
        (single(6 * GIB), UNEVEN, "b"),
        (single(50 * GIB), UNEVEN, "b"),
        (across(GIB, labels=LABELS), EXAMPLE, "rabbit-node-1"),
        # A Rabbit that is not fit for use, and one with the key of another job
        (across(GIB), BROKEN, "b"),
        (single(GIB, colocation=MGT), at("a:5 b", colocated=USED), "b"),
        # Another Rabbit is the last resort for network storage
        (single(GIB, colocation=MGT), LAST, "z9"),
        (single(GIB), LAST, "a"),
        # Nodes without a Rabbit get the emptiest ones
        (across(4 * GIB, count=2), NOWHERE, "b c"),
        (across(4 * GIB, scale=10), NOWHERE, "b c"),
        # No Rabbit takes more than it has left; one of which nothing is known has no
        # limit. Network storage goes to another one when the job's own is full
        (across(12 * GIB, count=4), FULLER, "a b:3"),
        (across(12 * GIB, scale=1), FULLER, "b:2"),
        (single(4 * GIB), NETWORK, "c"),
        (across(4 * GIB, scale=10), NETWORK, "b c"),
        (per_compute(2**60), at("a", room={"b": 1}), "a"),
        # Beyond its share a job takes only of what nobody else was given
        (single(7 * GIB), at("a b", 5, **OTHERS), "b"),
        (single(6 * GIB), at("a", 5, **OTHERS), "a"),
        (single(6 * GIB), SPARE, "a"),
    ],
)
def test_storage_goes_to_the_right_rabbits(
    entry: AllocationSet, on: Allocation, expected: str
) -> None:
    assert place(entry, on) == numbers(expected)


ROOM = dict.fromkeys(("r2", "r3"), GIB + 1)
"""A byte more than one of two nodes needs."""

TAKEN = (
    "mgt needs 1 Rabbit, the job has 0 that may be used: a has another allocation with"
    ' the colocation key "lustre-mgt"'
)


TOO_LITTLE = (
    "Rabbit a, which 2 of the job's nodes need, has 3 GiB left, and an allocation needs"
    " 4 GiB"
)


@pytest.mark.parametrize(
    ("entry", "on", "pcie", "words"),
    [
        (per_compute(GIB), at("a", unconnected=("n",)), 0, "xfs: node n has no Rabbit"),
        (across(GIB), at(""), 0, "no compute nodes"),
        (
            per_compute(GIB, labels=("x",)),
            LABELLED,
            0,
            "Rabbit b, which 1 of the job's nodes need, lacks the label x",
        ),
        (per_compute(GIB), BROKEN, 0, "Rabbit a, .* is not fit for use"),
        (single(GIB, colocation=MGT), at("a:5", colocated=USED), 0, TAKEN),
        (
            across(GIB, count=2, colocation=("x",)),
            at("a:5"),
            0,
            "needs 2 Rabbits, the job has 1",
        ),
        (single(GIB, colocation=MGT), LAST, 1, "Rabbit a, which 5 of the job's nodes"),
        (
            per_compute(2 * GIB),
            FULLER,
            0,
            "^Rabbit a has 3 GiB left, and the job's storage needs 4 GiB there",
        ),
        (per_compute(4 * GIB), FULLER, 0, "xfs: " + TOO_LITTLE),
        (
            across(8 * GIB, count=2),
            at("a:2 b", room=FULLER.room),
            1,
            "ost: " + TOO_LITTLE,
        ),
        (single(10 * GIB), NETWORK, 0, "1 Rabbit, the job has 0 .*: a has 0 GiB left"),
        # A share that the scheduler gave is no more than what is left
        (per_compute(10 * GIB), at("a", 10, room={"a": 9 * GIB}), 0, "has 9 GiB left"),
        (single(7 * GIB), at("a", 5, **OTHERS), 0, "a has 6 GiB left, .* needs 7 GiB"),
        (single(7 * GIB), SPARE, 0, "may be used"),
        # The first by name is named
        (per_compute(GIB), at("r2:2 r3:2", room=ROOM), 0, "^Rabbit r2 has"),
        (per_compute(GIB), at("r3:2 r2:2", room=ROOM), 0, "^Rabbit r2 has"),
    ],
)
def test_storage_that_cannot_be_placed_is_refused(
    entry: AllocationSet, on: Allocation, pcie: bool, words: str
) -> None:
    with pytest.raises(AllocationError, match=words):
        place(entry, on, pcie)


def test_the_sets_of_a_job_share_what_is_left() -> None:
    both = [breakdown(per_compute(2 * GIB)), breakdown(single(3 * GIB))]
    build_servers(both, at("a", room={"a": 5 * GIB}))
    words = "mgt needs 1 Rabbit, .* a has 2 GiB left, and an allocation needs 3 GiB"
    with pytest.raises(AllocationError, match=words):
        build_servers(both, at("a", room={"a": 4 * GIB}))


def test_each_of_a_jobs_servers_has_the_bytes_beyond_the_share() -> None:
    on = at("a b", 5)
    two = [breakdown(single(8 * GIB)), breakdown(single(4 * GIB))]
    specs = build_servers(two, on)
    assert beyond_shares(specs, on) == [{"a": 3 * GIB}, {}]
    assert beyond_shares([specs[0], specs[0]], on) == [{"a": 3 * GIB}, {"a": 8 * GIB}]


EIGHT = dict.fromkeys("ab", 8 * GIB)


@pytest.mark.parametrize(
    ("later", "first", "on", "places"),
    [
        # b has room for the shared set only because a's is taken by its nodes
        (
            across(6 * GIB, scale=1),
            per_compute(2 * GIB),
            at("a:2 b", {"a": 4, "b": 8}),
            ("b:3", "a:2 b"),
        ),
        # a has another allocation with the key
        (
            across(6 * GIB, count=1),
            single(6 * GIB, colocation=MGT),
            at("a b:2", room=EIGHT, colocated=USED),
            ("a", "b"),
        ),
        # The number of the later one is our choice
        (across(8 * GIB), single(8 * GIB), at("a b", room=EIGHT), ("b", "a")),
    ],
)
def test_sets_with_less_choice_are_placed_first(
    later: AllocationSet, first: AllocationSet, on: Allocation, places: tuple[str, str]
) -> None:
    made = build_allocation_sets(breakdown(later, first), on)
    assert [counts(entry) for entry in made] == [numbers(text) for text in places]


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("other", [single, across])
def test_a_set_whose_number_is_our_choice_leaves_rabbits_to_others_of_its_key(
    first: bool, other: Callable[..., AllocationSet]
) -> None:
    sets = [across(9 * GIB, colocation=MGT), other(GIB, colocation=MGT)]
    on = allocation({"a": 2, "b": 2, "c": 2})
    made = build_allocation_sets(breakdown(*(sets if first else sets[::-1])), on)
    places = [rabbit for entry in made for rabbit in counts(entry)]
    assert sorted(places) == ["a", "b", "c"]
    assert {len(counts(entry)) for entry in made} == {1, 2}


def test_a_set_that_may_use_one_rabbit_only_gets_it() -> None:
    anywhere = single(GIB, colocation=MGT)
    on_a = single(GIB, colocation=MGT, labels=("x",))
    on = allocation({"a": 5, "b": 1}, storages={"a": {"x": ""}, "b": {}})
    one, other = build_allocation_sets(breakdown(anywhere, on_a), on)
    assert counts(one) == {"b": 1} and counts(other) == {"a": 1}


def test_different_colocation_keys_may_share_a_rabbit() -> None:
    sets = (single(GIB, colocation=("a",)), single(GIB, colocation=("",)))
    made = build_allocation_sets(breakdown(*sets), allocation({"a": 1}))
    assert [counts(entry) for entry in made] == [{"a": 1}, {"a": 1}]


def test_storage_that_nodes_must_reach_is_on_each_of_their_rabbits() -> None:
    on = allocation({"a": 10, "b": 1, "c": 1}, 10)
    made = place(across(3 * GIB, scale=1), on, pcie=True)
    assert set(made) == {"a", "b", "c"}
    assert place(across(3 * GIB, scale=1), on) == {"a": 3}
    made = place(
        across(24 * GIB, scale=10), allocation({"a": 6, "b": 5, "c": 1}, 2), True
    )
    assert made == {"a": 6, "b": 5, "c": 1}


def test_an_allocation_in_one_piece_may_exceed_what_is_held() -> None:
    lustre = breakdown(
        across(50 * GIB, scale=5), across(5 * GIB, "mgtmdt", count=1, colocation=MGT)
    )
    ssd = gib_per_node([lustre], 2)
    on = allocation({"a": 1, "b": 1}, ssd)
    ost, mgtmdt = build_allocation_sets(lustre, on)
    assert counts(ost) == {"a": 1, "b": 1} and counts(mgtmdt) == {"a": 1}


def test_servers_tell_later_jobs_which_keys_they_occupy() -> None:
    lustre = breakdown(across(GIB), across(GIB, "mgtmdt", count=1, colocation=MGT))
    servers = {
        "metadata": {
            "name": "keep1",
            "annotations": colocation_annotations(lustre),
        },
        "spec": {"allocationSets": build_allocation_sets(lustre, allocation({"a": 1}))},
    }
    bare: Json = {"metadata": {"name": "x"}, "spec": {}}
    assert colocated(servers) == {"lustre-mgt": frozenset({"a"})}
    assert colocated(bare) == {}
    assert colocation_annotations(breakdown(across(GIB))) == {}


@pytest.mark.parametrize("text", ["x", "1", "[1]", '[["a", 2]]', "null"])
def test_a_malformed_annotation_of_servers_is_refused(text: str) -> None:
    annotations = dict.fromkeys(
        colocation_annotations(breakdown(single(1, colocation=MGT))), text
    )
    servers = {"metadata": {"name": "x", "annotations": annotations}}
    with pytest.raises(BadObject, match="Servers x: .*a JSON array of arrays"):
        colocated(servers)


def test_an_allocation_comes_from_r_and_the_mapping() -> None:
    system = mapping.parse(
        {
            "computes": {"h1": "r1", "h2": "r2", "h3": "r2"},
            "rabbits": {
                "r1": {"capacity": 1, "hostlist": "h1"},
                "r2": {"capacity": 1, "hostlist": "h[2-3]"},
            },
        }
    )
    R = {
        "version": 1,
        "execution": {
            "R_lite": [{"rank": "0-4", "children": {"core": "0"}}],
            "nodelist": ["h[1-3],h3,login"],
        },
    }
    assert job_allocation(rset.parse(R), system) == Allocation(
        hosts=("h1", "h2", "h3", "login"),
        nodes_per_rabbit={"r1": 1, "r2": 2},
        unconnected=("login",),
        gib_per_rabbit={"r1": None, "r2": None},
    )


# Properties, over random topologies, breakdowns and allocations

capacities = st.integers(1, 2**20) | st.integers(1, 2**45)
keys = st.sets(st.sampled_from(["", "k", "mgt"]), max_size=1).map(tuple)
labels = st.sets(st.sampled_from(["x", "y=1"]), max_size=1).map(tuple)


def strategy_of(*names: str) -> st.SearchStrategy[Strategy]:
    return st.sampled_from([STRATEGIES[name] for name in names])


shared_sets = st.builds(
    AllocationSet,
    label=st.just("ost"),
    strategy=strategy_of("AllocateAcrossServers", "AllocateSingleServer"),
    minimum_capacity=capacities,
    labels=labels,
    colocation=keys,
    count=st.none() | st.integers(1, 6),
    scale=st.none() | st.integers(1, 10),
)
own_sets = st.builds(
    AllocationSet,
    label=st.just("xfs"),
    strategy=strategy_of("AllocatePerCompute", "AllocatePerServer"),
    minimum_capacity=capacities,
    labels=labels,
)
jobs = st.lists(
    st.builds(
        lambda sets, pcie: breakdown(*sets, pcie=pcie),
        st.lists(shared_sets | own_sets, min_size=1, max_size=3),
        st.booleans(),
    ),
    min_size=1,
    max_size=3,
)
systems = st.dictionaries(
    st.integers(0, 30).map(lambda n: f"r{n}"), st.integers(0, 20), min_size=1
).filter(lambda nodes: any(nodes.values()))


@st.composite
def allocations(draw: st.DrawFn, found: list[Breakdown]) -> Allocation:
    nodes = draw(systems)
    total = sum(nodes.values())
    held: Optional[int] = draw(
        st.sampled_from([None, 1, gib_per_node(found, total), 2**20])
    )
    names = [*nodes, "spare1", "spare2"]
    storages = {
        name: {"x": "", "y": draw(st.sampled_from(["1", "1", "2"]))} for name in names
    }
    colocated = draw(
        st.dictionaries(
            st.sampled_from(["", "k", "mgt"]),
            st.sets(st.sampled_from(names), max_size=2).map(frozenset),
        )
    )
    room = draw(st.dictionaries(st.sampled_from(names), capacities))
    return allocation(nodes, held, room=room, storages=storages, colocated=colocated)


def carries(entry: AllocationSet, found: Any) -> bool:
    return "y=1" not in entry.labels or found["y"] == "1"


@given(st.data(), jobs)
def test_built_servers_keep_all_promises_of_the_docstring(
    data: Any, job: list[Breakdown]
) -> None:
    on = data.draw(allocations(job))
    try:
        made = build_servers(job, on)
    except AllocationError:
        return
    assert on.storages is not None
    living = {key: list(names) for key, names in on.colocated.items()}
    used: Counter[str] = Counter()
    assert [len(sets) for sets in made] == [len(b.allocation_sets) for b in job]
    for item, sets in zip(job, made):
        for wanted, entry in zip(item.allocation_sets, sets):
            found = counts(entry)
            number = sum(found.values())
            assert entry["label"] == wanted.label
            assert all(count > 0 for count in found.values())
            if wanted.strategy.name == "AllocatePerCompute":
                assert found == {r: n for r, n in on.nodes_per_rabbit.items() if n}
                assert entry["allocationSize"] == wanted.minimum_capacity
            elif wanted.strategy.name == "AllocatePerServer":
                assert set(found.values()) == {1}
                assert entry["allocationSize"] == wanted.minimum_capacity
            else:
                size = entry["allocationSize"]
                assert size * number >= wanted.minimum_capacity
                assert (size - 1) * number < wanted.minimum_capacity
            if wanted.strategy.name == "AllocateSingleServer":
                assert number == 1
            elif wanted.strategy.name == "AllocateAcrossServers" and wanted.count:
                assert number == wanted.count
            for rabbit in found:
                assert carries(wanted, on.storages[rabbit])
                used[rabbit] += found[rabbit] * entry["allocationSize"]
            for key in wanted.colocation:
                assert set(found.values()) == {1}
                living.setdefault(key, []).extend(found)
    for names in living.values():
        assert len(names) == len(set(names))
    for rabbit, size in used.items():
        share = on.gib_per_rabbit.get(rabbit)
        assert share is not None or size <= on.room.get(rabbit, size)


plain_jobs = st.lists(
    st.lists(
        st.builds(
            AllocationSet,
            label=st.just("ost"),
            strategy=strategy_of("AllocatePerCompute", "AllocateAcrossServers"),
            minimum_capacity=capacities,
            scale=st.none() | st.integers(1, 10),
        ),
        min_size=1,
        max_size=3,
    ).map(lambda sets: breakdown(*sets)),
    min_size=1,
    max_size=3,
)


@given(plain_jobs, systems)
def test_servers_never_exceed_the_storage_that_the_job_requested(
    job: list[Breakdown], nodes: dict[str, int]
) -> None:
    ssd = gib_per_node(job, sum(nodes.values()))
    on = allocation(nodes, ssd)
    used = dict.fromkeys(nodes, 0)
    for sets in build_servers(job, on):
        for entry in sets:
            for rabbit, count in counts(entry).items():
                used[rabbit] += count * entry["allocationSize"]
    for rabbit, count in nodes.items():
        assert used[rabbit] <= ssd * count * GIB


@pytest.mark.parametrize("name", ["xfs", "gfs2", "raw", "lustre", "create-persistent"])
def test_a_recorded_breakdown_gives_servers_of_the_recorded_shape(name: str) -> None:
    found = parse(recorded(name, "DirectiveBreakdown")[0])
    on = allocation(
        {"kind-worker2": 3, "kind-worker3": 1},
        gib_per_node([found], 4),
        storages={"kind-worker2": RABBIT, "kind-worker3": RABBIT},
    )
    made = build_allocation_sets(found, on)
    specs = (obj["spec"] for obj in recorded(name, "Servers"))
    accepted = next(filter(None, (spec.get("allocationSets") for spec in specs)))
    assert len(made) == len(accepted)
    for ours, theirs, wanted in zip(made, accepted, found.allocation_sets):
        assert ours.keys() == theirs.keys()
        assert ours["label"] == theirs["label"]
        assert ours["storage"][0].keys() == theirs["storage"][0].keys()
        size = sum(counts(ours).values()) * ours["allocationSize"]
        assert size >= wanted.minimum_capacity
