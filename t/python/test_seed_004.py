# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Seed 004, RFC 20 "Resource Set Specification": its rules, key by key."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from flux_k8s.errors import BadObject
from flux_k8s.ports import Json
from flux_k8s.rfc import rset

# "ranks 19 through 22 ... correspond to the nodes node186 through node189. Each
# of the nodes contains 48 cores (0-47) and 8 gpus (0-7). There are 32 slots in
# total ... valid for about 30 minutes on February 16, 2023"
EXAMPLE: Json = {
    "version": 1,
    "execution": {
        "R_lite": [{"rank": "19-22", "children": {"core": "0-47", "gpu": "0-7"}}],
        "nodelist": ["node[186-189]"],
        "nslots": 32,
        "starttime": 1676560542,
        "expiration": 1676562342,
    },
}


def changed(**execution: Any) -> Json:
    obj = copy.deepcopy(EXAMPLE)
    obj["execution"].update(execution)
    return obj


def test_the_example_is_read_and_printed() -> None:
    found = rset.parse(EXAMPLE)
    assert found.ranks == (19, 20, 21, 22)
    assert found.hosts == ("node186", "node187", "node188", "node189")
    assert all(t.children == {"core": "0-47", "gpu": "0-7"} for t in found.targets)
    assert found.nslots == 32
    assert found.starttime is not None and found.expiration is not None
    assert found.expiration - found.starttime == 30 * 60
    assert found.to_json() == EXAMPLE


def test_version_is_always_1() -> None:
    with pytest.raises(BadObject, match="version is 2, expected 1"):
        rset.parse({**EXAMPLE, "version": 2})


def test_r_lite_entries_need_not_be_in_order() -> None:
    entries = [
        {"rank": "22", "children": {"core": "0"}},
        {"rank": "19-21", "children": {"core": "1"}},
    ]
    found = rset.parse(changed(R_lite=entries))
    assert [t.children["core"] for t in found.targets] == ["1", "1", "1", "0"]


def test_nodelist_is_in_the_order_of_the_sorted_ranks() -> None:
    entries = [
        {"rank": "22", "children": {"core": "0"}},
        {"rank": "19-21", "children": {"core": "1"}},
    ]
    found = rset.parse(changed(R_lite=entries, nodelist=["a", "b[3,1]", "c"]))
    assert list(zip(found.ranks, found.hosts)) == [
        (19, "a"),
        (20, "b3"),
        (21, "b1"),
        (22, "c"),
    ]


def test_nslots_must_be_greater_than_0() -> None:
    for nslots in (0, -1, "32"):
        with pytest.raises(BadObject, match="execution.nslots is"):
            rset.parse(changed(nslots=nslots))
    obj = copy.deepcopy(EXAMPLE)
    del obj["execution"]["nslots"]
    assert rset.parse(obj).nslots is None


@pytest.mark.parametrize("char", [*"!&'\"^`|()", "\udc80"])
def test_properties_may_not_have_illegal_characters(char: str) -> None:
    with pytest.raises(BadObject, match="execution.properties is"):
        rset.parse(changed(properties={f"a{char}b": "19"}))


def test_properties_with_a_suffix_apply_to_the_ranks_unchanged() -> None:
    properties = {"amd-mi50@gpu": "19-20", "amd-mi50": "19-20"}
    found = rset.parse(changed(properties=properties))
    assert _properties_of(found, 19) == {"amd-mi50@gpu", "amd-mi50"}
    assert _properties_of(found, 21) == set()
    assert found.to_json()["execution"]["properties"] == properties


def test_starttime_and_expiration_of_0_are_unset() -> None:
    found = rset.parse(changed(starttime=0.0, expiration=0.0))
    assert (found.starttime, found.expiration) == (None, None)


def test_expiration_must_be_greater_than_starttime() -> None:
    with pytest.raises(BadObject, match="execution.expiration is"):
        rset.parse(changed(starttime=10.0, expiration=10.0))


def test_scheduling_rides_along_with_fluxion_as_its_writer_by_default() -> None:
    scheduling = {"graph": {"nodes": [], "edges": []}, "more": [1, {"x": None}]}
    found = rset.parse({**EXAMPLE, "scheduling": scheduling})
    assert found.writer == "fluxion"
    assert found.to_json()["scheduling"] == scheduling
    other = rset.parse({**EXAMPLE, "scheduling": {"writer": "mine:v2", "blob": "x"}})
    assert other.writer == "mine:v2"
    assert other.to_json()["scheduling"] == {"writer": "mine:v2", "blob": "x"}


def _properties_of(found: rset.ResourceSet, rank: int) -> set[str]:
    return {name for name, ranks in found.properties.items() if rank in ranks}
