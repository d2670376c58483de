# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What sched-rabbit reads of a jobspec, which a guest has written."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.errors import BadObject
from flux_k8s.formats.constraints import JOB_CHARACTERS, JOB_MEMBERS, JOB_VALUES
from flux_k8s.formats.count import Count
from flux_k8s.limits import VALUES
from flux_k8s.ports import Json
from flux_k8s.scheduler.pool import Infeasible
from flux_k8s.scheduler.request import Group, Need, check_has_nodes, parse
from support.effort import examples
from support.schedpool import chassis, core, make_pool, node, slot, ssd

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=10,
)
COUNTS = (
    st.integers(0, 9)
    | st.sampled_from(["2-4", "1+", "1,3", "x", {"min": 1}, 2**62, 2**70, None])
    | JSON
)
TYPES = st.sampled_from(["node", "slot", "core", "gpu", "ssd", "chassis", "memory", 3])
VERTICES = st.recursive(
    st.fixed_dictionaries({"type": TYPES, "count": COUNTS}),
    lambda inner: st.fixed_dictionaries(
        {"type": TYPES, "count": COUNTS, "with": st.lists(inner, max_size=3)},
        optional={"exclusive": st.booleans() | JSON},
    ),
    max_leaves=8,
)
JOBSPECS = st.fixed_dictionaries(
    {"resources": st.lists(VERTICES | JSON, max_size=3) | JSON},
    optional={
        "attributes": JSON
        | st.fixed_dictionaries(
            {"system": st.fixed_dictionaries({"duration": JSON, "constraints": JSON})}
        )
    },
)


def groups(*resources: Json) -> tuple[Group, ...]:
    request = parse({"resources": list(resources)})
    return tuple(place.group for place in request.places)


@examples(100)
@given(JOBSPECS | JSON)
def test_each_jobspec_is_placed_or_waits_or_is_refused(jobspec: Any) -> None:
    pool = make_pool()
    with contextlib.suppress(BadObject, Infeasible):
        request = parse(jobspec)
        pool.check(request)
        assert pool.allocate(1, request) is not None


GPU = {"type": "gpu", "count": 1}


@pytest.mark.parametrize(
    ("resource", "group"),
    [
        # the cores and GPUs of all slots of a node
        (
            node(slot(core(2), GPU, count=3), count=4),
            Group(Count.fixed(4), 1, Need(6, 3), slots=3),
        ),
        # a node in a slot, and an exclusive slot, are the job's as a whole
        (
            slot(node(slot(core(2))), ssd(10), count=4),
            Group(Count.fixed(4), 1, Need(2, 0, True), 10, True, 1),
        ),
        (
            {**slot(core(2), count=3), "exclusive": True},
            Group(Count.fixed(3), 1, Need(2, 0, True), slots=1),
        ),
    ],
)
def test_a_request_is_for_groups_of_nodes(resource: Json, group: Group) -> None:
    assert groups(resource) == (group,)


@pytest.mark.parametrize("exclusive", [False, True])
def test_a_chassis_has_all_that_is_below_it(exclusive: bool) -> None:
    below = chassis(2, slot(node(slot(core())), ssd(5)))
    (place,) = parse({"resources": [{**below, "exclusive": exclusive}]}).places
    assert (place.chassis, place.exclusive) == (Count.fixed(2), exclusive)
    assert place.group.below_one and place.group.ssd == 5


@pytest.mark.parametrize(
    ("resource", "slots"),
    [
        (slot(core(2), count=3), 1),
        (node(slot(core(), count=4), count=2), 4),
        (node(slot(core(), count=4), slot(core(2), count=3)), 7),
        (node(core(4)), 0),
        (slot(node(slot(core(), count=4)), ssd(1), count="2-3"), 4),
        (slot(node(core(4), count=2), ssd(1)), 1),
        (slot(slot(core(), count=2), slot(core(), count=3)), 5),
        (slot(ssd(1)), 0),
        (ssd(1), 0),
        (chassis(2, slot(node(slot(core(), count=2), count=3), ssd(1))), 6),
    ],
)
def test_slots_are_those_in_which_tasks_are_started(resource: Json, slots: int) -> None:
    """Those with no slot in them; storage starts none."""
    assert [group.slots for group in groups(resource)] == [slots]


@pytest.mark.parametrize(
    "resources", [[ssd(1)], [slot(ssd(1)), ssd(1)], [chassis(1, slot(ssd(1)))]]
)
def test_a_request_for_storage_alone_is_refused(resources: list[Json]) -> None:
    with pytest.raises(BadObject, match="a core or a node"):
        check_has_nodes(parse({"resources": resources}))
    for beside in (node(slot(core())), slot(core())):
        check_has_nodes(parse({"resources": [*resources[:1], beside]}))


def nested(levels: int) -> Json:
    inner = core()
    for _ in range(levels):
        inner = slot(inner)
    return inner


@pytest.mark.parametrize(
    "resource", [nested(32), node(nested(31)), slot(node(nested(30)))]
)
def test_a_request_may_have_32_levels_below_its_first(resource: Json) -> None:
    assert groups(resource)


@pytest.mark.parametrize(
    "resources, path",
    [
        ([], "resources"),
        ([{"type": "memory", "count": 1}], "type"),
        ([node(slot(core()), ssd(5))], "type"),
        ([core()], "type"),
        ([node()], "with"),
        ([slot({"type": "gpu", "count": 1})], "with"),
        ([slot(node(slot(core())), node(slot(core())))], "with"),
        ([chassis(1)], "with"),
        ([chassis(1, node(slot(core())), ssd(5))], "with"),
        ([chassis(1, chassis(1, node(slot(core()))))], "type"),
        ([node(slot(core()), exclusive="yes")], "exclusive"),
        ([nested(40)], "levels"),
        ([nested(900)], "levels"),
        ([slot(*[core()] * VALUES)], "values"),
        ([core()] * VALUES, "values"),
        ([slot(core(2**31))], "count"),
        ([slot(core(2**30), core(2**30))], "count"),
        ([ssd(1)] * 3, "groups"),
    ],
)
def test_a_request_that_no_node_can_satisfy_is_refused(
    resources: Any, path: str
) -> None:
    with pytest.raises(BadObject, match=path):
        parse({"resources": resources})


@pytest.mark.parametrize(
    "constraint, what",
    [
        # None of them is made: a guest may submit hundreds of such jobs in a second.
        ({"hostlist": [f"node[1-{JOB_MEMBERS + 1}]"]}, r"hosts\)"),
        ({"ranks": [f"0-{JOB_MEMBERS}"]}, r"ids\)"),
        ({"ranks": [f"1-{JOB_MEMBERS}", "0"]}, "hosts and ranks"),
        ({"properties": ["^a"] * (JOB_VALUES + 1)}, "values"),
        ({"or": [{"not": [{"hostlist": []}]}] * (JOB_VALUES // 2 + 1)}, "values"),
        ({"hostlist": ["node," * JOB_CHARACTERS]}, "characters"),
        ({"or": [{"properties": ["x" * JOB_CHARACTERS]}, {"ranks": ["1"]}]}, "charac"),
    ],
)
def test_a_constraint_of_excessive_size_is_refused(constraint: Json, what: str) -> None:
    resources = [node(slot(core()))]
    system = {"constraints": constraint}
    with pytest.raises(BadObject, match=f"more than .* {what}"):
        parse({"resources": resources, "attributes": {"system": system}})
