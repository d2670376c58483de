# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Seed 002, RFC 31 "Job Constraints": its examples, section by section."""

from __future__ import annotations

import pytest

from flux_k8s.ports import Json
from flux_k8s.rfc import constraints

NODES = {
    "host0": {"ssd"},
    "host1": {"ssd", "slowgpu"},
    "host2": {"huge"},
    "host3": {"foo", "bar"},
    "host4": {"foo"},
}


def chosen(constraint: Json) -> list[str]:
    """The nodes, of ranks 0 to 4, that satisfy a constraint; that of its
    normal form must be the same."""
    found = []
    for form in (constraint, constraints.normalise(constraint)):
        parsed = constraints.parse(form)
        found.append(
            [
                host
                for rank, (host, properties) in enumerate(NODES.items())
                if parsed.match(host, rank, properties)
            ]
        )
    assert found[0] == found[1]
    return found[0]


def without(*hosts: str) -> list[str]:
    return [host for host in NODES if host not in hosts]


def test_representation_not_excludes_those_that_have_all_attributes() -> None:
    assert chosen({"not": [{"properties": ["foo", "bar"]}]}) == without("host3")


def test_representation_or_takes_those_that_have_either() -> None:
    either = {"or": [{"properties": ["foo"]}, {"properties": ["bar"]}]}
    assert chosen(either) == ["host3", "host4"]


@pytest.mark.parametrize("constraint", [{"or": []}, {"and": []}, {}])
def test_representation_an_empty_constraint_matches_every_node(
    constraint: Json,
) -> None:
    assert chosen(constraint) == list(NODES)
    assert constraints.normalise(constraint) == {}


def test_representation_the_negation_of_an_empty_constraint_matches_no_node() -> None:
    assert chosen({"not": []}) == []
    assert constraints.normalise({"and": [{"not": []}, {}]}) == {"not": []}


@pytest.mark.parametrize(
    ("constraint", "expected"),
    [
        ({"properties": ["ssd"]}, ["host0", "host1"]),
        ({"properties": ["^slowgpu"]}, without("host1")),
        ({"not": [{"properties": ["slowgpu"]}]}, without("host1")),
        (
            {"or": [{"properties": ["ssd"]}, {"properties": ["huge"]}]},
            ["host0", "host1", "host2"],
        ),
        ({"hostlist": ["host[0-1]"]}, ["host0", "host1"]),
        ({"not": [{"hostlist": ["host[0-1]"]}]}, without("host0", "host1")),
        (
            {"and": [{"hostlist": ["host[0-1]"]}, {"properties": ["ssd"]}]},
            ["host0", "host1"],
        ),
        ({"ranks": ["0"]}, ["host0"]),
    ],
)
def test_the_examples_match_the_nodes_of_the_text(
    constraint: Json, expected: list[str]
) -> None:
    assert chosen(constraint) == expected
    assert constraints.parse(constraint).to_json() == constraint
