# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""RFC 31 constraints (seed 002) as expressions of Requested (seed 003, 8.1)."""

from __future__ import annotations

import itertools
from typing import Any, Iterator, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.rfc import constraints, hostlist
from sssjob import Element, element, write
from sssjob.expression import to_elements

HOSTS = ("h1", "h2", "h3", "x")
FEATURES = ("a", "b", "c")
NODES = [
    (host, set(features))
    for host in HOSTS
    for size in range(len(FEATURES) + 1)
    for features in itertools.combinations(FEATURES, size)
]
"""All nodes that constraints on these hosts and features can tell apart."""


def matches(expression: tuple[Element, ...], host: str, features: set[str]) -> bool:
    """Whether a node matches: read from the left, bracket by bracket."""
    stack: list[tuple[Optional[str], Said]] = []
    said = Said()
    for item in expression:
        group, conj = int(item.attribute("group") or 0), item.attribute("conj")
        for _ in range(group):
            stack.append((conj, said))
            conj, said = None, Said()
        names = item.name == "Node" and item.attribute("op") != "NE"
        said.add(conj, term(item, host, features), names and conj in (None, "And"))
        for _ in range(-group):
            conj, outer = stack.pop()
            outer.add(conj, said.value())
            said = outer
    assert not stack, "a bracket is open"
    return said.value()


class Said:
    """What a bracket says of a node so far."""

    def __init__(self) -> None:
        self.values: list[bool] = []
        self.named: list[bool] = []  # by Nodes, which are all meant
        self.alternatives: set[bool] = set()

    def add(self, conj: Any, value: bool, names: bool = False) -> None:
        if self.values or self.named:
            self.alternatives.add(conj in ("Or", "Nor"))
            assert len(self.alternatives) == 1, "it is not said which goes first"
        else:
            assert conj is None, "the first of a group relates to nothing"
        (self.named if names else self.values).append(value != (conj in NEGATED))

    def value(self) -> bool:
        if True in self.alternatives:
            return any([*self.values, *self.named])
        return all([*self.values, any(self.named) or not self.named])


NEGATED = ("Nand", "Nor")


def term(item: Element, host: str, features: set[str]) -> bool:
    text = str(item.value)
    if item.name == "Feature":
        found = text in features
    elif item.attribute("aggregation") == "Range":
        found = host in hostlist.decode(text)
    else:
        found = host in text.split(",")
    return not found if item.attribute("op") == "NE" else found


def leaves() -> st.SearchStrategy[Any]:
    names = st.sampled_from([*FEATURES, *(f"^{name}" for name in FEATURES)])
    hosts = st.sampled_from([*HOSTS, "h[1-3]", "h[1,3]", "h1,x"])
    return st.one_of(
        st.builds(lambda v: {"properties": v}, st.lists(names, max_size=3)),
        st.builds(lambda v: {"hostlist": v}, st.lists(hosts, max_size=2)),
        st.just({}),
    )


def branches(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(children, max_size=3)
    return st.one_of(
        st.builds(lambda v: {"and": v}, several),
        st.builds(lambda v: {"or": v}, several),
        st.builds(lambda v: {"not": v}, st.lists(children, max_size=1)),
    )


CONSTRAINTS = st.recursive(leaves(), branches, max_leaves=12)


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
def test_what_an_expression_looks_like(constraint: Any, expression: list[str]) -> None:
    assert list(shown(constraint)) == expression


@pytest.mark.parametrize(
    "constraint",
    [
        {"ranks": ["0"]},
        {"and": [{"properties": ["a"]}, {"ranks": ["0-3"]}]},
        {"not": []},
        {"hostlist": []},
        {"properties": ["a\x01"]},
        {"or": [{"properties": ["a"]}, {"properties": ["^\ud800"]}]},
    ],
)
def test_what_no_expression_says(constraint: Any) -> None:
    assert to_elements(constraint) is None
