# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Constraints, and expressions of job objects that say the same."""

from __future__ import annotations

import itertools
from typing import Any, Optional

from hypothesis import strategies as st

from flux_k8s.formats import hostlist
from sssjob import Element

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
    """Whether a bracket matches a node, by its parts so far."""

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
