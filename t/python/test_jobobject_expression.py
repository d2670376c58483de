# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Expressions of Requested (the specification, section 8.1), RFC 31 constraints."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sssjob import Element, read
from sssjob.expression import from_elements, to_elements
from support.tables import rows


def strict(index: int, problem: str) -> None:
    raise AssertionError(f"{index}: {problem}")


def constraint_of(*expression: Element) -> Any:
    """The constraint of an expression of which nothing is left out."""
    return from_elements(expression, strict)


def parsed(said: str) -> list[Element]:
    """The elements of a Requested."""
    requested = read(f"<Job><Id>1</Id><Requested>{said}</Requested></Job>").find(
        "Requested"
    )
    assert requested is not None
    return list(requested.contents)


FROM_ELEMENTS = r"""
<Feature>a</Feature> -> {"properties": ["a"]}
<Feature op='NE'>a</Feature> -> {"properties": ["^a"]}
# The example of section 5.1: a node has all of them.
<Feature aggregation='List'>feature1,feature2</Feature>
  -> {"properties": ["feature1", "feature2"]}
<Feature aggregation='List' delimiter=';' op='NE'>a; b</Feature>
  -> {"properties": ["^a", "^b"]}
<Node>h1</Node> -> {"hostlist": ["h1"]}
<Node aggregation='List'>h2, h1,x</Node> -> {"hostlist": ["h[1-2],x"]}
<Node aggregation='Range' op='NE'>fr[5-7,9]</Node>
  -> {"not": [{"hostlist": ["fr[5-7,9]"]}]}
<Feature>a</Feature><Feature conj='Nand'>b</Feature><Node>h1</Node>
  -> {"and": [{"hostlist": ["h1"]}, {"properties": ["^b", "a"]}]}
<Feature>a</Feature><Feature conj='Nor'>b</Feature>
  -> {"or": [{"properties": ["a"]}, {"properties": ["^b"]}]}
<Node>h1</Node><Feature conj='Nand' group='1'>a</Feature><Feature group='-1'>b</Feature>
  -> {"and": [{"hostlist": ["h1"]}, {"not": [{"properties": ["a", "b"]}]}]}
"""
TO_ELEMENTS = r"""
{"properties": ["b", "a", "^c"]} -> c op=NE; a; b
{"hostlist": ["h[1-3]"]} -> h[1-3] aggregation=Range
{"hostlist": ["h3,h1"]} -> h[1,3] aggregation=Range
{"hostlist": ["h1,x"]} -> h1,x aggregation=List
{"hostlist": ["h1"]} -> h1
{"not": [{"hostlist": ["h1"]}]} -> h1 op=NE
{"or": [{"properties": ["a"]}, {"properties": ["b", "c"]}]}
  -> a group=1; b conj=Or group=1; c group=-2
{"and": [{"hostlist": ["x"]}, {"not": [{"properties": ["a", "b"]}]}]}
  -> x; a conj=Nand group=1; b group=-1
{"or": [{"hostlist": ["x"]}, {"not": [{"properties": ["a", "b"]}]}]}
  -> x group=1; a conj=Nor group=1; b group=-2
{"not": [{"properties": ["a", "b"]}]} -> a group=1 op=NE; b conj=Or group=-1 op=NE
{"or": []} ->
{} ->
# What no expression says.
{"ranks": ["0"]} -> None
{"and": [{"properties": ["a"]}, {"ranks": ["0-3"]}]} -> None
{"not": []} -> None
{"hostlist": []} -> None
{"properties": ["a\u0001"]} -> None
{"or": [{"properties": ["a"]}, {"properties": ["^\u0002"]}]} -> None
"""
UNKNOWN = r"""
<Node aggregation='Pattern'>fr15.*</Node> -> not patterns of them
<Feature op='Match'>a.*</Feature> -> not patterns of them
<Feature op='GT'>a</Feature> -> op="GT": Flux does not order names
<Feature>a|b</Feature> -> Flux knows no such name
<Feature>^a</Feature> -> nodes that lack a feature
<Feature aggregation='List'>a,,b</Feature> -> '' is not one name
<Node>h[1-2]</Node> -> 'h[1-2]' is not one name
<Node aggregation='Range'>h[2-1]</Node> -> Flux knows no such name
<Node></Node> -> '' is not one name
"""


@pytest.mark.parametrize(("said", "constraint"), rows(FROM_ELEMENTS))
def test_an_expression_has_the_constraint_of_its_elements(
    said: str, constraint: str
) -> None:
    assert constraint_of(*parsed(said)) == json.loads(constraint)
    assert constraint_of() is None


@pytest.mark.parametrize(("constraint", "expression"), rows(TO_ELEMENTS))
def test_a_constraint_has_the_expected_elements(
    constraint: str, expression: str
) -> None:
    found = to_elements(json.loads(constraint))
    assert (found is None) == (expression == "None")
    if found is not None:
        said = (
            " ".join([str(e.value), *(f"{key}={value}" for key, value in e.attributes)])
            for e in found
        )
        assert "; ".join(said) == expression


@pytest.mark.parametrize(("said", "message"), rows(UNKNOWN))
def test_parts_that_cannot_be_expressed_are_left_out_of_the_expression(
    said: str, message: str
) -> None:
    told: list[tuple[int, str]] = []
    expression = parsed(f"<Feature>x</Feature>{said}<Feature>y</Feature>")
    constraint = from_elements(expression, lambda *what: told.append(what))
    assert constraint == {"properties": ["x", "y"]}
    ((index, problem),) = told
    assert index == 1 and message in problem
