# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What users may ask for: ``rabbit.policy`` and its neighbours."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.config.policy import check_request
from flux_k8s.config.table import Config
from flux_k8s.dws.directives import parse_attribute
from flux_k8s.dws.storagerequest import StorageRequest
from flux_k8s.errors import DirectiveError
from support.service import LIFE, exceptions, jobspec, names, settle, started

OWNER = 500
USER = 4711
XFS = "#DW jobdw type=xfs capacity={} name={}"
LUSTRE = "#DW jobdw type=lustre capacity={} name={}"
KEEP = "#DW create_persistent type=lustre capacity={} name={}"


def limits(**maximums: float) -> dict[str, Any]:
    return {"policy": {"maximums": maximums}}


def check(
    dw: Any, table: dict[str, Any], nodes: Any = 2, userid: int = USER, **other: Any
) -> None:
    config = Config.parse({"restrict_persistent_creation": False, **table})
    resources = [{"type": "node", "count": nodes, "with": []}]
    request = StorageRequest(
        userid, parse_attribute(dw, config.presets), other.get("resources", resources)
    )
    check_request(request, config, OWNER)


@pytest.mark.parametrize(
    ("dw", "nodes", "note"),
    [
        (
            XFS.format("11GiB", "a"),
            4,
            "asks for 11 GiB of xfs per node; the limit is 10 GiB per node "
            "(rabbit.policy.maximums.xfs)",
        ),
        (
            LUSTRE.format("100GiB", "a"),
            4,
            "asks for 25 GiB of lustre per node, on 4 nodes; the limit is 20 GiB "
            "per node (rabbit.policy.maximums.lustre)",
        ),
        (
            LUSTRE.format("100GiB", "a"),
            {"min": 4, "max": 100},
            "asks for 25 GiB of lustre per node, on 4 nodes; the limit is 20 GiB "
            "per node (rabbit.policy.maximums.lustre)",
        ),
        (
            KEEP.format("100GiB", "a"),
            1,
            "asks for 100 GiB of lustre per node; the limit is 20 GiB "
            "per node (rabbit.policy.maximums.lustre)",
        ),
    ],
)
def test_a_directive_over_the_maximum_is_refused_with_limit_and_key(
    dw: str, nodes: Any, note: str
) -> None:
    with pytest.raises(DirectiveError) as caught:
        check(dw, limits(xfs=10, lustre=20), nodes)
    assert str(caught.value) == f"{dw}: {note}"


@pytest.mark.parametrize(
    ("dw", "nodes"),
    [
        (XFS.format("10GiB", "a"), 1),
        (LUSTRE.format("80GiB", "a"), 4),
        (LUSTRE.format("20GiB", "a"), 1),
        ("#DW jobdw type=raw capacity=100TiB name=a", 1),  # no limit is set
        ("#DW persistentdw name=a", 1),
        ("#DW create_persistent type=lustre name=a", 1),  # external: no capacity
        ("#DW destroy_persistent name=a", 1),
    ],
)
def test_directives_within_the_maximum_are_allowed(dw: str, nodes: int) -> None:
    check(dw, limits(xfs=10, lustre=20), nodes)


def test_directives_of_one_type_count_together() -> None:
    dw = [XFS.format("6GiB", "a"), XFS.format("6GiB", "b")]
    with pytest.raises(DirectiveError) as caught:
        check(dw, limits(xfs=10))
    assert str(caught.value) == (
        f"{dw[1]}: asks for 6 GiB of xfs per node, 12 GiB with those before it; "
        "the limit is 10 GiB per node (rabbit.policy.maximums.xfs)"
    )


def test_directives_of_other_types_do_not_count() -> None:
    dw = [XFS.format("6GiB", "a"), "#DW jobdw type=gfs2 capacity=6GiB name=b"]
    check(dw, limits(xfs=10, gfs2=10))


def test_create_persistent_counts_with_jobdw() -> None:
    dw = [LUSTRE.format("30GiB", "a"), KEEP.format("30GiB", "b")]
    with pytest.raises(DirectiveError, match="30 GiB with those before it"):
        check(dw, limits(lustre=20), 2)


def test_a_preset_is_no_way_around_the_maximum() -> None:
    table = {**limits(xfs=10), "presets": {"big": XFS.format("1TiB", "a")}}
    with pytest.raises(DirectiveError, match="1024 GiB of xfs per node"):
        check("big", table)


def test_a_maximum_of_zero_forbids_a_type() -> None:
    with pytest.raises(DirectiveError, match="the limit is 0 GiB per node"):
        check(XFS.format("1KB", "a"), limits(xfs=0))


@pytest.mark.parametrize(
    "dw",
    [
        "#DW create_persistent type=lustre name=a",
        [XFS.format("1GiB", "a"), "#DW create_persistent type=lustre name=b"],
    ],
)
def test_a_maximum_of_zero_forbids_a_type_without_a_capacity_too(dw: Any) -> None:
    with pytest.raises(DirectiveError) as caught:
        check(dw, limits(lustre=0, xfs=1))
    assert caught.value.problem == (
        "no job gets storage of this type (rabbit.policy.maximums.lustre)"
    )
    error = caught.value
    assert error.line[error.start : error.end] == "lustre"
    check(XFS.format("1GiB", "a"), limits(lustre=0, xfs=1))


def test_maximums_hold_for_the_instance_owner_too() -> None:
    with pytest.raises(DirectiveError):
        check(XFS.format("11GiB", "a"), limits(xfs=10), userid=OWNER)


def test_the_right_to_create_persistent_storage_is_the_owners() -> None:
    restricted = {"restrict_persistent_creation": True}
    check(KEEP.format("1GiB", "a"), restricted, userid=OWNER)
    with pytest.raises(DirectiveError, match="rabbit.restrict_persistent_creation"):
        check(KEEP.format("1GiB", "a"), restricted)


def test_a_job_without_whole_nodes_counts_as_one_node() -> None:
    resources = [{"type": "slot", "count": 8, "label": "task", "with": []}]
    with pytest.raises(DirectiveError, match="100 GiB of lustre per node; the limit"):
        check(LUSTRE.format("100GiB", "a"), limits(lustre=20), resources=resources)


def test_a_fraction_over_the_maximum_can_be_seen_in_the_note() -> None:
    with pytest.raises(DirectiveError, match=r"asks for 10\.00000\d+ GiB"):
        check(XFS.format("10737419KB", "a"), limits(xfs=10))


@given(
    st.lists(
        st.tuples(st.sampled_from([XFS, LUSTRE]), st.integers(0, 100)), min_size=1
    ),
    st.integers(1, 10),
    st.integers(0, 50),
)
def test_allowed_directives_never_exceed_the_maximum(
    asked: list[tuple[str, int]], nodes: int, maximum: int
) -> None:
    dw = [text.format(f"{n}GiB", f"n{i}") for i, (text, n) in enumerate(asked)]
    xfs = sum(n for text, n in asked if text == XFS)
    lustre = sum(n for text, n in asked if text == LUSTRE)
    fits = maximum > 0 and xfs <= maximum and lustre <= maximum * nodes
    try:
        check(dw, limits(xfs=maximum, lustre=maximum), nodes)
    except DirectiveError:
        assert not fits
    else:
        assert fits


@pytest.mark.parametrize("dw", ["big", XFS.format("11GiB", "a")])
def test_a_job_over_the_maximum_gets_the_note_and_no_workflow(dw: str) -> None:
    presets = {"presets": {"big": XFS.format("11GiB", "a")}}
    system = started(config=Config.parse({**limits(xfs=10), **presets}))
    before = system.store.version
    jobid = system.instance.submit(jobspec(dw), userid=USER)
    settle(system)
    (exception,) = exceptions(system, jobid)
    assert exception["note"].startswith(XFS.format("11GiB", "a") + ": asks for 11 GiB")
    assert "(rabbit.policy.maximums.xfs)" in exception["note"]
    assert system.store.version == before


def test_a_new_maximum_holds_from_the_reload_on() -> None:
    system = started()
    first = system.instance.submit(jobspec(XFS.format("11GiB", "p1")))
    settle(system)
    assert system.service is not None
    system.service.reconfigure(Config.parse(limits(xfs=10)))
    second = system.instance.submit(jobspec(XFS.format("11GiB", "p1")))
    settle(system)
    assert names(system, first) == LIFE
    assert "rabbit.policy.maximums.xfs" in exceptions(system, second)[0]["note"]
