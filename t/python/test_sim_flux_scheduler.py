# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The stand-in's scheduler: who gets which nodes and how much storage."""

from __future__ import annotations

from typing import Optional

from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.formats.directives import GIB
from flux_k8s.objects import mapping
from flux_k8s.ports import Json
from rabbitsim.flux.pool import Grant, Pool, make_nodes
from support.effort import examples
from support.schedpool import core, node, ssd

NODES, CORES, SSDS = 6, 4, 100


def topology() -> mapping.RabbitMapping:
    """Two Rabbits with two nodes each; node4 and node5 have none."""
    return mapping.parse(
        {
            "computes": {f"node{i}": f"rabbit{i // 2}" for i in range(4)},
            "rabbits": {
                f"rabbit{r}": {
                    "capacity": SSDS * GIB,
                    "hostlist": f"node[{2 * r}-{2 * r + 1}]",
                }
                for r in range(2)
            },
        }
    )


def make_pool() -> Pool:
    hosts = [f"node{i}" for i in range(NODES)]
    return Pool(make_nodes(hosts, topology(), CORES, 1, {}), topology())


def slot(*children: Json, count: int = 1, label: str = "task") -> Json:
    return {"type": "slot", "count": count, "label": label, "with": list(children)}


def rabbit(nodes: int, gib: int, per_slot: int = 1) -> Json:
    inner = node(slot(core()), count=per_slot)
    return slot(inner, ssd(gib), count=nodes, label="rabbit")


def allocate(pool: Pool, *resources: Json) -> Optional[Grant]:
    return pool.allocate(list(resources), lambda node: True)


def ranks(grant: Optional[Grant]) -> list[int]:
    assert grant is not None
    return sorted({part.owner for part in grant if part.type == "core"})


def gib(grant: Optional[Grant]) -> dict[int, int]:
    assert grant is not None
    held: dict[int, int] = {}
    for part in grant:
        if part.type == "ssd":
            held[part.owner] = held.get(part.owner, 0) + len(part.ids)
    return held


REQUESTS = st.one_of(
    st.builds(rabbit, st.integers(1, 5), st.integers(0, 60), st.integers(1, 2)),
    st.builds(
        lambda nodes, cores, exclusive: node(
            slot(core(cores)), count=nodes, exclusive=exclusive
        ),
        st.integers(1, 7),
        st.integers(1, 5),
        st.booleans(),
    ),
    st.builds(
        lambda n, c: slot(core(c), count=n), st.integers(1, 9), st.integers(1, 4)
    ),
    st.builds(
        lambda n, gib: {"type": "chassis", "count": n, "with": [ssd(gib)]},
        st.integers(1, 3),
        st.integers(1, 99),
    ),
)


@examples(40)
@given(st.lists(st.tuples(REQUESTS, st.booleans()), max_size=12))
def test_nothing_is_given_to_two_jobs_and_all_of_it_comes_back(
    steps: list[tuple[Json, bool]],
) -> None:
    pool = make_pool()
    held: list[Grant] = []
    for request, give_back in steps:
        grant = allocate(pool, request)
        if grant is not None:
            held.append(grant)
        taken = [
            (part.type, part.owner, id)
            for grant in held
            for part in grant
            for id in part.ids
        ]
        assert len(taken) == len(set(taken))
        assert pool.open_nodes == sum(map(pool.is_open, pool.nodes))
        for chassis in pool.chassis:
            nodes = [pool.nodes[rank] for rank in chassis.ranks]
            assert pool.has_open_nodes(chassis) == any(map(pool.is_open, nodes))
        if give_back and held:
            pool.release(held.pop(0))
    for grant in held:
        pool.release(grant)
    assert all(pool.free("core", rank) == CORES for rank in range(NODES))
    assert all(pool.free("ssd", index) == SSDS for index in range(2))
