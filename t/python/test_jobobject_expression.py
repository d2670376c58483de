# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Expressions of Requested (the specification, section 8.1), RFC 31 constraints."""

from __future__ import annotations

import json
from typing import Any, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.formats import constraints
from sssjob import Element, element, read, write
from sssjob.expression import from_elements, to_elements
from support.expressions import CONSTRAINTS, FEATURES, HOSTS, NODES, matches
from support.tables import rows


def strict(index: int, problem: str) -> None:
    raise AssertionError(f"{index}: {problem}")


def constraint_of(*expression: Element) -> Any:
    """The constraint of an expression of which nothing is left out."""
    return from_elements(expression, strict)


def matched(constraint: Any) -> list[bool]:
    parsed = constraints.parse(constraint or {})
    return [parsed.match(host, 0, features) for host, features in NODES]


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
    assert matched(constraint_of(*expression)) == expected
    requested = element("Requested", None, element("NodeCount", 1), *expression)
    assert write(element("Job", None, element("Id", "1"), requested))


TERMS = st.one_of(
    st.builds(
        lambda name, op: {"tag": "Feature", "value": name, "op": op},
        st.sampled_from(FEATURES),
        st.sampled_from([None, "EQ", "NE"]),
    ),
    st.builds(
        lambda name, op: {"tag": "Node", "value": name, "op": op},
        st.sampled_from(HOSTS),
        st.sampled_from([None, "EQ", "NE"]),
    ),
    st.just({"tag": "Node", "value": "h[1-2]", "op": None, "aggregation": "Range"}),
    st.just({"tag": "Node", "value": "h1,x", "op": "NE", "aggregation": "List"}),
)


def written(tree: Any, conj: Optional[str]) -> list[dict[str, Any]]:
    """The elements of a random tree: a term, or a list of at least two with an
    operator."""
    if isinstance(tree, dict):
        return [{**tree, "conj": conj, "group": 0}]
    operator, parts = tree
    found: list[dict[str, Any]] = []
    for index, part in enumerate(parts):
        inner = written(part, None if index == 0 else operator)
        if not isinstance(part, dict):
            inner[0]["group"] += 1
            inner[-1]["group"] -= 1
        found += inner
    found[0]["conj"] = conj
    return found


TREES = st.recursive(
    TERMS,
    lambda inner: st.tuples(
        st.sampled_from(["And", "Or"]), st.lists(inner, min_size=2, max_size=3)
    ),
    max_leaves=8,
)


@given(TREES)
def test_brackets_and_conjunctions_mean_what_they_say(tree: Any) -> None:
    items = written(tree, None)
    expression = tuple(
        element(
            item["tag"],
            item["value"],
            op=item["op"],
            aggregation=item.get("aggregation"),
            conj=item["conj"],
            group=item["group"] or None,
        )
        for item in items
    )
    expected = [matches(expression, host, features) for host, features in NODES]
    assert matched(constraint_of(*expression)) == expected


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
UNCERTAIN = r"""
<Feature group='1'>a</Feature> -> group opens 1 brackets that stay open
<Feature group='-1'>a</Feature> -> group closes more brackets than are open
<Feature group='2'>a</Feature><Feature group='-3'>b</Feature>
  -> group closes more brackets than are open
<Feature>a</Feature><Feature conj='Or'>b</Feature><Feature>c</Feature>
  -> group has to tell which goes first
<Feature group='60'>a</Feature><Feature group='5'>b</Feature>
  <Feature group='-65'>c</Feature>
  -> group opens 65 brackets within each other, expected at most 64
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


@pytest.mark.parametrize(("said", "message"), rows(UNCERTAIN))
def test_an_expression_that_says_nothing_certain_is_refused(
    said: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        constraint_of(*parsed(said))


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
