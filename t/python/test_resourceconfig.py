# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Resources from Flux's configuration (flux-config-resource(5))."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from flux_k8s.errors import BadObject
from flux_k8s.formats import resourceconfig
from flux_k8s.ports import Json

EXAMPLE: Json = {
    "resource": {
        "noverify": True,
        "config": [
            {"hosts": "test[1-100]", "cores": "0-7"},
            {"hosts": "test[1,2]", "gpus": "0-1"},
            {"hosts": "test[1-89]", "properties": ["batch"]},
            {"hosts": "test[90-100]", "properties": ["debug"]},
        ],
    }
}


def with_(place: str, value: Any) -> Json:
    """The example with another value at a dotted place."""
    tables = copy.deepcopy(EXAMPLE)
    *parents, last = place.split(".")
    target: Any = tables
    for key in parents:
        target = target[int(key)] if isinstance(target, list) else target[key]
    target[last] = value
    return tables


def test_the_resource_table_of_the_manual_is_read_as_flux_reads_it() -> None:
    found = resourceconfig.parse(EXAMPLE, "resource.toml")
    assert found.resources.to_json() == {
        "version": 1,
        "execution": {
            "R_lite": [
                {"rank": "0-1", "children": {"core": "0-7", "gpu": "0-1"}},
                {"rank": "2-99", "children": {"core": "0-7"}},
            ],
            "nodelist": ["test[1-100]"],
            "properties": {"batch": "0-88", "debug": "89-99"},
        },
    }
    assert found.excluded == frozenset()


def test_ranks_are_in_the_order_in_which_hosts_are_first_listed() -> None:
    entries = [
        {"hosts": "b2,a9", "cores": "0"},
        {"hosts": "a[8-9],b2", "cores": "1", "properties": ["x"]},
    ]
    found = resourceconfig.parse(with_("resource.config", entries), "c").resources
    assert found.hosts == ("b2", "a9", "a8")
    assert [target.children["core"] for target in found.targets] == ["0-1", "0-1", "1"]
    assert found.properties == {"x": (0, 1, 2)}


def test_with_a_bootstrap_table_ranks_are_those_of_its_hosts() -> None:
    tables = {
        **with_("resource.config", [{"hosts": "n[1-3]", "cores": "0-3"}]),
        "bootstrap": {"hosts": [{"host": "mgmt"}, {"host": "n[3,1-2]", "bind": "x"}]},
    }
    found = resourceconfig.parse(tables, "c").resources
    assert found.ranks == (1, 2, 3)
    assert found.hosts == ("n3", "n1", "n2")


@pytest.mark.parametrize("exclude", ["0,98-99", "test[1,99-100]", "test1 test[99-100]"])
def test_hosts_are_excluded_by_rank_or_by_name(exclude: str) -> None:
    found = resourceconfig.parse(with_("resource.exclude", exclude), "c")
    assert found.excluded == {"test1", "test99", "test100"}
    assert len(found.resources.hosts) == 100


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        ("resource", {}, "resource.config is missing, expected an array"),
        ("resource.config", [], "resource.config is [], expected at least one entry"),
        ("resource.config", [{"hosts": "a", "gpus": "0"}], "a has none"),
        ("resource.config.0.hosts", "test[", "an RFC 29 hostlist"),
        ("resource.config.0.hosts", ",", "at least one host"),
        ("resource.config.0.cores", "a", 'config[0].cores is "a", expected an RFC 22'),
        ("resource.config.0.cores", 8, "config[0].cores is 8, expected a string"),
        ("resource.config.1.gpu", "0", 'a key of resource.config[1] is "gpu"'),
        ("resource.config.2.properties", ["a|b"], "config[2].properties is"),
        ("resource.config.2.properties", [""], "config[2].properties is"),
        ("resource.config.2.properties", "batch", "expected an array"),
        ("resource.exclude", "100", "not rank 100"),
        ("resource.exclude", "test[99-101]", "not test101"),
        ("resource.exclude", "test[", "an RFC 29 hostlist"),
        ("resource.exclude", 3, "resource.exclude is 3, expected a string"),
        ("bootstrap", {"hosts": [{"host": "test[1-99]"}]}, "test100 is not there"),
    ],
)
def test_a_wrong_resource_table_is_refused_with_its_place(
    place: str, value: Any, words: str
) -> None:
    with pytest.raises(BadObject) as caught:
        resourceconfig.parse(with_(place, value), "resource.toml")
    assert str(caught.value).startswith("resource.toml: ")
    assert words in str(caught.value)
