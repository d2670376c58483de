# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What Servers hold on Rabbits: one count for all who ask."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.errors import BadObject
from flux_k8s.objects import storageusage
from flux_k8s.objects.servers import Servers
from flux_k8s.objects.storageusage import (
    WORKFLOW_LABEL,
    StorageUsage,
    beyond_annotation,
)
from flux_k8s.ports import Json
from support.tree import recorded

Sizes = dict[str, int]

ASKED = {"r1": 10, "r2": 5}


def parse(servers: Json) -> StorageUsage:
    return storageusage.parse(Servers.read(servers))


def asking(sizes: dict[str, tuple[int, int]]) -> Json:
    """A ``spec`` that asks for allocations: their size and their number."""
    return {
        "allocationSets": [
            {
                "label": f"set{index}",
                "allocationSize": size,
                "storage": [{"name": rabbit, "allocationCount": count}],
            }
            for index, (rabbit, (size, count)) in enumerate(sizes.items())
        ]
    }


def status(made: Sizes, ready: bool) -> Json:
    storage = {r: {"allocationSize": size, "ready": ready} for r, size in made.items()}
    return {
        "ready": ready,
        "allocationSets": [{"label": "set0", "storage": storage}],
    }


def servers(
    spec: Json, *, status: Any = None, gone: bool = False, **labels: str
) -> Json:
    metadata: Json = {"namespace": "default", "name": "s", "labels": labels}
    if gone:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return {"metadata": metadata, "spec": spec, "status": status}


SPEC = asking({"r1": (5, 2), "r2": (5, 1)})


@pytest.mark.parametrize(
    ("obj", "made", "held"),
    [
        (servers({}), {}, {}),
        (servers(SPEC), {}, ASKED),
        (servers(SPEC, status=status({"r1": 0, "r2": 0}, False)), {}, ASKED),
        (servers(SPEC, status=status({"r1": 10, "r2": 0}, False)), {"r1": 10}, ASKED),
        (servers(SPEC, status=status(ASKED, True)), ASKED, ASKED),
        (servers(SPEC, status=status({"r1": 0, "r2": 5}, True)), {"r2": 5}, {"r2": 5}),
        (servers(SPEC, status=status({"r1": 0, "r2": 0}, True)), {}, {}),
        (servers(SPEC, gone=True), {}, {}),
        (servers(SPEC, status=status(ASKED, False), gone=True), ASKED, ASKED),
    ],
    ids=[
        "in Proposal",
        "asked for",
        "in Setup",
        "partly made",
        "complete",
        "partly removed",
        "removed",
        "deleted before it was made",
        "deleted and still there",
    ],
)
def test_servers_hold_the_right_bytes_at_each_point_of_their_life(
    obj: Json, made: Sizes, held: Sizes
) -> None:
    found = parse(obj)
    assert (found.allocated, found.unavailable) == (made, held)


@pytest.mark.parametrize(
    ("workflow", "jobid"), [("fluxjob-7", 7), ("slurm-7", None), (None, None)]
)
def test_storage_goes_with_the_workflow_that_it_is_labelled_with(
    workflow: Any, jobid: Any
) -> None:
    found = parse(servers(SPEC, **({WORKFLOW_LABEL: workflow} if workflow else {})))
    assert (found.workflow, found.jobid) == (workflow, jobid)


@pytest.mark.parametrize("beyond", [{"r1": 3}, {}])
def test_what_a_job_takes_beyond_its_share_is_read_as_it_was_written(
    beyond: Sizes,
) -> None:
    obj = servers(SPEC)
    obj["metadata"]["annotations"] = {
        key: value
        for key, value in beyond_annotation(beyond).items()
        if value is not None  # which removes it
    }
    assert parse(obj).beyond == beyond


@pytest.mark.parametrize("size", [-1, "7", 1.5, True])
def test_a_size_against_the_schema_is_refused_with_its_place(size: Any) -> None:
    with pytest.raises(BadObject) as caught:
        parse(servers({}, status=status({"r.1": size}, True)))
    assert str(caught.value).startswith(
        "Servers default/s: status.allocationSets[0].storage.r.1.allocationSize is"
    )


def check(life: list[StorageUsage]) -> None:
    """Nobody else can have what is made now or later, and what is removed is
    free."""
    for index, usage in enumerate(life):
        for later in life[index:]:
            for rabbit, size in later.allocated.items():
                assert usage.unavailable.get(rabbit, 0) >= size


rabbits = st.sampled_from(["r1", "r2", "r.3"])


@given(
    st.dictionaries(rabbits, st.tuples(st.integers(1, 99), st.integers(1, 4))),
    st.data(),
)
def test_a_rabbit_never_promises_what_is_taken_and_always_what_is_free(
    asked: dict[str, tuple[int, int]], data: st.DataObject
) -> None:
    """NNF makes and removes storage on one Rabbit after the other."""
    spec, made = asking(asked), dict.fromkeys(asked, 0)
    sizes = {rabbit: size * count for rabbit, (size, count) in asked.items()}
    free = dict.fromkeys(asked, 1000)
    life = [parse(servers(spec))]

    def show(ready: bool, gone: bool = False) -> None:
        found = parse(servers(spec, status=status(made, ready), gone=gone))
        assert all(free[r] + found.allocated.get(r, 0) == 1000 for r in asked)
        life.append(found)

    order = data.draw(st.permutations(list(asked)))
    number = data.draw(st.integers(0, len(order)))  # Teardown may come early
    for rabbit in order[:number]:
        made[rabbit] = sizes[rabbit]
        free[rabbit] -= sizes[rabbit]
        show(ready=False)
    ready = number == len(order) and data.draw(st.booleans())
    show(ready)
    for rabbit in data.draw(st.permutations(list(asked))):
        free[rabbit] += made[rabbit]
        made[rabbit] = 0
        show(ready)
        if ready:
            assert life[-1].unavailable == life[-1].allocated
    show(ready, gone=True)
    check(life)
    assert life[-1].unavailable == {}


NAMES = ["xfs", "gfs2", "raw", "lustre", "create-persistent", "cancel-in-proposal"]


@pytest.mark.parametrize("name", NAMES)
def test_recorded_servers_hold_the_right_bytes_at_each_point_of_their_life(
    name: str,
) -> None:
    shown = recorded(name, "Servers")
    asked = [obj for obj in shown if obj["spec"].get("allocationSets")]
    life = [parse(obj) for obj in asked]
    assert life and life[0].unavailable and not life[0].allocated
    check(life)
    made = max(sum(found.allocated.values()) for found in life)
    assert made == (
        0 if name.startswith("cancel") else sum(life[0].unavailable.values())
    )
    assert (life[-1].unavailable == {}) == (name != "create-persistent")
