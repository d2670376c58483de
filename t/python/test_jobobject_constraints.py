# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""RFC 31 constraints (seed 002) as expressions of Requested (seed 003, 8.1)."""

from __future__ import annotations

from typing import Any, Iterator

import pytest
from hypothesis import given

from flux_k8s.rfc import constraints
from sssjob import element, write
from sssjob.expression import to_elements
from support.expressions import (
    CONSTRAINTS,
    NODES,
    matches,
)


@given(CONSTRAINTS)
def test_an_expression_and_its_constraint_match_the_same_nodes(constraint: Any) -> None:
    parsed = constraints.parse(constraint)
    expected = [parsed.match(host, 0, features) for host, features in NODES]
    expression = to_elements(constraint)
    if expression is None:
        assert not any(expected), "only what matches nothing cannot be said"
        return
    assert [matches(expression, *node) for node in NODES] == expected
    # Behind other properties of Requested it says the same: it stands for itself.
    more = (element("Feature", "there"), *expression)
    assert [matches(more, host, {"there", *f}) for host, f in NODES] == expected


@given(CONSTRAINTS)
def test_an_expression_is_valid_in_requested(constraint: Any) -> None:
    expression = to_elements(constraint) or ()
    requested = element("Requested", None, element("NodeCount", 1), *expression)
    assert write(element("Job", None, element("Id", "1"), requested))


def shown(constraint: Any) -> Iterator[str]:
    for item in to_elements(constraint) or ():
        attributes = "".join(f" {key}={value}" for key, value in item.attributes)
        yield f"{item.value}{attributes}"


@pytest.mark.parametrize(
    ("constraint", "expression"),
    [
        ({"properties": ["b", "a", "^c"]}, ["c op=NE", "a", "b"]),
        ({"hostlist": ["h[1-3]"]}, ["h[1-3] aggregation=Range"]),
        ({"hostlist": ["h3,h1"]}, ["h[1,3] aggregation=Range"]),
        ({"hostlist": ["h1,x"]}, ["h1,x aggregation=List"]),
        ({"hostlist": ["h1"]}, ["h1"]),
        ({"not": [{"hostlist": ["h1"]}]}, ["h1 op=NE"]),
        (
            {"or": [{"properties": ["a"]}, {"properties": ["b", "c"]}]},
            ["a group=1", "b conj=Or group=1", "c group=-2"],
        ),
        (
            {"and": [{"hostlist": ["x"]}, {"not": [{"properties": ["a", "b"]}]}]},
            ["x", "a conj=Nand group=1", "b group=-1"],
        ),
        (
            {"or": [{"hostlist": ["x"]}, {"not": [{"properties": ["a", "b"]}]}]},
            ["x group=1", "a conj=Nor group=1", "b group=-2"],
        ),
        (
            {"not": [{"properties": ["a", "b"]}]},
            ["a group=1 op=NE", "b conj=Or group=-1 op=NE"],
        ),
        ({"or": []}, []),
        ({}, []),
    ],
)
def test_an_expression_has_the_expected_elements(
    constraint: Any, expression: list[str]
) -> None:
    assert list(shown(constraint)) == expression


@pytest.mark.parametrize(
    "constraint",
    [
        {"ranks": ["0"]},
        {"and": [{"properties": ["a"]}, {"ranks": ["0-3"]}]},
        {"not": []},
        {"hostlist": []},
        {"properties": ["a\x01"]},
        {"or": [{"properties": ["a"]}, {"properties": ["^\x02"]}]},
    ],
)
def test_constraints_without_an_expression_are_refused(constraint: Any) -> None:
    assert to_elements(constraint) is None
