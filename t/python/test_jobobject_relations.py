# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""How properties relate (the specification, section 8.1): what is left of an expression
of which parts are left out. What each becomes in Flux is in test_jobobject_requests.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sssjob.schema import relations
from sssjob.schema.relations import Bracket, Leaf, Link, Tree, Unclear


def trees() -> st.SearchStrategy[Any]:
    return st.recursive(
        st.booleans(),
        lambda inner: st.tuples(
            st.sampled_from(["and", "or"]),
            st.lists(inner, min_size=2, max_size=4),
            st.booleans(),
        ),
        max_leaves=12,
    ).filter(lambda tree: isinstance(tree, tuple))


NAMES = {
    ("and", False): "And",
    ("or", False): "Or",
    ("and", True): "Nand",
    ("or", True): "Nor",
}


def linked(tree: Any, conj: str) -> list[Link]:
    """The links of a random tree: its leaves are booleans, true where negated."""
    if isinstance(tree, bool):
        return [Link(conj, 0)]
    operator, parts, _ = tree
    found: list[Link] = []
    for index, part in enumerate(parts):
        negated = part if isinstance(part, bool) else part[2]
        inner = linked(part, NAMES[operator, negated] if index else "And")
        if not isinstance(part, bool):
            inner[0] = inner[0]._replace(group=inner[0].group + 1)
            inner[-1] = inner[-1]._replace(group=inner[-1].group - 1)
        found += inner
    return [found[0]._replace(conj=conj), *found[1:]]


def pruned(tree: Tree, removed: set[int]) -> Any:
    """What is left of a tree: nested tuples, without brackets around one part."""
    if isinstance(tree, Leaf):
        return None if tree.index in removed else (tree.index, tree.negated)
    parts = [pruned(part, removed) for part in tree.parts]
    parts = [part for part in parts if part is not None]
    if len(parts) < 2:
        return negated(parts[0]) if parts and tree.negated else next(iter(parts), None)
    return (tree.operator, tuple(parts), tree.negated)


def negated(part: Any) -> Any:
    return (*part[:-1], not part[-1])


def renumbered(part: Any, indices: list[int]) -> Any:
    if part is None or len(part) == 2:
        return part and (indices[part[0]], part[1])
    return (part[0], tuple(renumbered(p, indices) for p in part[1]), part[2])


@given(trees(), st.data())
def test_the_rest_of_an_expression_keeps_its_tree(
    tree: Any, data: st.DataObject
) -> None:
    links = linked(tree, "And")
    whole = relations.parse(links)
    removed = data.draw(st.sets(st.integers(0, len(links) - 1)))
    try:
        left = relations.without(links, removed)
    except Unclear:
        return
    kept = [index for index in range(len(links)) if index not in removed]
    assert len(left) == len(kept)
    again = pruned(relations.parse(left), set()) if left else None
    assert renumbered(again, kept) == pruned(whole, removed)


def test_a_whole_is_and_of_its_parts() -> None:
    whole = relations.parse([Link("And", 0), Link("Nand", 0)])
    assert whole == Bracket("and", (Leaf(0), Leaf(1, negated=True)))
