# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Expressions of Requested (seed 003, section 8.1) as RFC 31 constraints (seed
002)."""

from __future__ import annotations

import re
from typing import Any, Optional

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from flux_k8s.rfc import constraints
from sssjob import Element, element
from sssjob.expression import from_elements, to_elements
from support.expressions import CONSTRAINTS, FEATURES, HOSTS, NODES, matches


def strict(index: int, problem: str) -> None:
    raise AssertionError(f"{index}: {problem}")


def constraint_of(*expression: Element) -> Any:
    """The constraint of an expression of which nothing is left out."""
    return from_elements(expression, strict)


def matched(constraint: Any) -> list[bool]:
    parsed = constraints.parse(constraint or {})
    return [parsed.match(host, 0, features) for host, features in NODES]


@given(CONSTRAINTS)
def test_a_constraint_and_what_comes_back_match_the_same_nodes(constraint: Any) -> None:
    expression = to_elements(constraint)
    assume(expression is not None)
    assert matched(constraint_of(*(expression or ()))) == matched(constraint)


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


def feature(name: str, **attributes: Any) -> Element:
    return element("Feature", name, **attributes)


def node(name: str, **attributes: Any) -> Element:
    return element("Node", name, **attributes)


@pytest.mark.parametrize(
    ("expression", "constraint"),
    [
        ([], None),
        ([feature("a")], {"properties": ["a"]}),
        ([feature("a", op="NE")], {"properties": ["^a"]}),
        # The example of section 5.1: a node has all of them.
        (
            [feature("feature1,feature2", aggregation="List")],
            {"properties": ["feature1", "feature2"]},
        ),
        (
            [feature("a; b", aggregation="List", delimiter=";", op="NE")],
            {"properties": ["^a", "^b"]},
        ),
        ([node("h1")], {"hostlist": ["h1"]}),
        ([node("h2, h1,x", aggregation="List")], {"hostlist": ["h[1-2],x"]}),
        (
            [node("fr[5-7,9]", aggregation="Range", op="NE")],
            {"not": [{"hostlist": ["fr[5-7,9]"]}]},
        ),
        (
            [feature("a"), feature("b", conj="Nand"), node("h1")],
            {"and": [{"hostlist": ["h1"]}, {"properties": ["^b", "a"]}]},
        ),
        (
            [feature("a"), feature("b", conj="Nor")],
            {"or": [{"properties": ["a"]}, {"properties": ["^b"]}]},
        ),
        (
            [node("h1"), feature("a", conj="Nand", group=1), feature("b", group=-1)],
            {
                "and": [
                    {"hostlist": ["h1"]},
                    {"not": [{"properties": ["a", "b"]}]},
                ]
            },
        ),
    ],
)
def test_an_expression_has_the_constraint_of_its_elements(
    expression: list[Element], constraint: Any
) -> None:
    assert constraint_of(*expression) == constraint


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ([feature("a", group=1)], "group opens 1 brackets that stay open"),
        ([feature("a", group=-1)], "group closes more brackets than are open"),
        (
            [feature("a", group=2), feature("b", group=-3)],
            "group closes more brackets than are open",
        ),
        (
            [feature("a"), feature("b", conj="Or"), feature("c")],
            "group has to tell which goes first",
        ),
        (
            [feature("a", group=1), *[feature("b", group=1)] * 70, *[feature("c")]]
            + [feature("d", group=-71)],
            "group opens 65 brackets within each other, expected at most 64",
        ),
    ],
)
def test_an_expression_that_says_nothing_certain_is_refused(
    expression: list[Element], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        constraint_of(*expression)


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (node("fr15.*", aggregation="Pattern"), "not patterns of them"),
        (feature("a.*", op="Match"), "not patterns of them"),
        (feature("a", op="GT"), 'op="GT": Flux does not order names'),
        (feature("a|b"), "Flux knows no such name"),
        (feature("^a"), "nodes that lack a feature"),
        (feature("a,,b", aggregation="List"), "'' is not one name"),
        (node("h[1-2]"), r"'h\[1-2\]' is not one name"),
        (node("h[2-1]", aggregation="Range"), "Flux knows no such name"),
        (node(""), "'' is not one name"),
    ],
)
def test_parts_that_cannot_be_expressed_are_left_out_of_the_expression(
    item: Element, message: str
) -> None:
    told: list[tuple[int, str]] = []
    expression = [feature("x"), item, feature("y")]
    constraint = from_elements(expression, lambda *what: told.append(what))
    assert constraint == {"properties": ["x", "y"]}
    ((index, problem),) = told
    assert index == 1
    assert re.search(message, problem)
