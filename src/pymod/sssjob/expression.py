# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Constraints on nodes: RFC 31, and the expressions of Requested (section 8.1).

An expression is a sequence of Feature and Node, which
:mod:`~sssjob.schema.relations` puts together. ``op`` NE is for nodes that lack the
feature, or are not among those named.

No node has two names. So Nodes side by side that all hold are the nodes that a job
asks for, as a List of them would be: what RFC 31 calls their union.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, Callable, Iterable, Iterator, Optional, Sequence, Union

from flux_k8s.errors import BadObject
from flux_k8s.formats import constraints, hostlist
from flux_k8s.formats.constraints import (
    AND,
    HOSTLIST,
    NOT,
    OR,
    PROPERTIES,
    Constraint,
)
from sssjob.schema import relations
from sssjob.schema.model import Element, element
from sssjob.schema.relations import Bracket, Leaf, Tree
from sssjob.schema.values import unwritable

FEATURE = "Feature"
NODE = "Node"

MAX_NAME = 255
"""Characters of the name of a node or feature."""

_OPPOSITE = {AND: OR, OR: AND}
_CONJ = {
    (AND, False): None,
    (OR, False): "Or",
    (AND, True): "Nand",
    (OR, True): "Nor",
}
_RANGE = re.compile(r"[^\[\],]+\[[^\[\]]+\]")
_SPAN = re.compile(r"([0-9]{1,18})-([0-9]{1,18})", re.ASCII)


def to_elements(constraint: Any) -> Optional[tuple[Element, ...]]:
    """The expression that the same nodes match as an RFC 31 constraint.

    It may be and-ed with what stands before it: where it is an alternative it has
    brackets around it. None elements say that any node will do. What a constraint
    says in a roundabout way (twice, or with constants) is said in short.

    Returns:
        None for what no expression says: a constraint that names ranks, or that no
        node matches, or a property that XML cannot hold.

    Raises:
        BadObject: it is no constraint.
    """
    short = constraints.parse(constraints.normalise(constraint))
    if short == constraints.ALWAYS:
        return ()
    tree = _tree(short)
    return None if tree is None else tuple(_written(tree))


def nodes_element(hosts: Iterable[str]) -> Element:
    """The element for some nodes, one at least: a Range where that says them all."""
    names = list(hosts)
    if len(names) == 1:
        return element(NODE, names[0])
    text = hostlist.encode(names)
    if _RANGE.fullmatch(text):
        return element(NODE, text, aggregation="Range")
    return element(NODE, ",".join(names), aggregation="List")


@dataclass(frozen=True)
class _Term:
    """Nodes that have a feature, or are named; or, ``negated``, the others."""

    element: Element
    negated: bool = False


@dataclass(frozen=True)
class _Group:
    """What two or more ``parts`` have in common (``and``), or each of them has
    (``or``); or, ``negated``, the other nodes."""

    operator: str
    parts: tuple[_Tree, ...]
    negated: bool = False


_Tree = Union[_Term, _Group]


def _tree(constraint: Constraint) -> Optional[_Tree]:
    """A normalised constraint with one feature or set of nodes in each term."""
    if constraint.operator == PROPERTIES:
        terms = [_feature(name) for name in constraint.names]
        return None if None in terms else _joined(AND, terms)
    if constraint.operator == HOSTLIST:
        return _Term(nodes_element(hostlist.decode(constraint.names[0])))
    if constraint.operator == NOT and constraint.values:
        inner = _tree(constraint.children[0])
        return None if inner is None else replace(inner, negated=not inner.negated)
    if constraint.operator in (AND, OR):
        parts = [_tree(child) for child in constraint.children]
        return None if None in parts else _joined(constraint.operator, parts)
    return None


def _feature(name: str) -> Optional[_Term]:
    bare = name[1:] if name.startswith("^") else name
    if unwritable(bare):
        return None
    return _Term(element(FEATURE, bare), negated=name != bare)


def _joined(operator: str, parts: list[Any]) -> _Tree:
    """The parts as one, those of a part with the same operator in its place."""
    found: list[_Tree] = []
    for part in parts:
        same = isinstance(part, _Group) and part.operator == operator
        found.extend(part.parts if same and not part.negated else [part])
    return found[0] if len(found) == 1 else _Group(operator, tuple(found))


def _written(tree: _Tree) -> Iterator[Element]:
    """The expression for a tree. One that is first cannot be negated as a whole,
    and is turned inside out."""
    if isinstance(tree, _Group) and tree.negated:
        tree = _inside_out(tree)
    brackets = isinstance(tree, _Group) and tree.operator == OR
    yield from _elements(tree, None, int(brackets), int(brackets))


def _elements(
    tree: _Tree, conj: Optional[str], opened: int, closed: int
) -> Iterator[Element]:
    """The elements of a tree, with so many brackets opened before the first and
    closed behind the last."""
    if isinstance(tree, _Term):
        yield _with(tree, conj, opened - closed)
        return
    last = len(tree.parts) - 1
    named = False
    for index, part in enumerate(tree.parts):
        if index == 0 and isinstance(part, _Group) and part.negated:
            part = _inside_out(part)
        here = conj
        if index:
            negated = isinstance(part, _Group) and part.negated
            here = _CONJ[tree.operator, negated]
        if tree.operator == AND and _names_nodes(part):
            if named:
                # Beside the other, it would add to its nodes.
                here, part = "Nand", replace(part, negated=True)
            named = True
        # A group turned inside out may have the operator of the one around it.
        inner = int(isinstance(part, _Group))
        before = inner + (opened if index == 0 else 0)
        behind = inner + (closed if index == last else 0)
        yield from _elements(part, here, before, behind)


def _names_nodes(tree: _Tree) -> bool:
    return isinstance(tree, _Term) and tree.element.name == NODE and not tree.negated


def _inside_out(group: _Group) -> _Group:
    """A group that is not negated, for the same nodes."""
    parts = tuple(replace(part, negated=not part.negated) for part in group.parts)
    return _Group(_OPPOSITE[group.operator], parts)


def _with(term: _Term, conj: Optional[str], group: int) -> Element:
    """The element of a term, with its place in the expression."""
    added = {"op": "NE" if term.negated else None, "conj": conj, "group": group or None}
    attributes = {**dict(term.element.attributes), **added}
    return element(term.element.name, term.element.value, **attributes)


# ---- from expressions ------------------------------------------------------------

LeaveOut = Callable[[int, str], None]
"""Is told the index of an element that no constraint can express, and why."""


def from_elements(
    elements: Sequence[Element], leave_out: LeaveOut
) -> Optional[dict[str, Any]]:
    """The RFC 31 constraint, normalised, that the same nodes match as an expression.

    ``from_elements(to_elements(c))`` matches what ``c`` does, where ``to_elements``
    knows an expression.

    Args:
        elements: Feature and Node, in their order.
        leave_out: is called for what has to be left out. It may raise.

    Returns:
        None where nothing is left to say.

    Raises:
        ValueError: the brackets do not match or are far too many, or And and Or
            are mixed without brackets that tell which goes first.
    """
    tree = relations.parse([relations.link_of(item) for item in elements])
    return from_tree(tree, elements, leave_out)


def from_tree(
    tree: Tree, elements: Sequence[Optional[Element]], leave_out: LeaveOut
) -> Optional[dict[str, Any]]:
    """The same for a tree, with the elements by the indices in it. None among these
    are left out already."""
    whole = _of_tree(tree, elements, leave_out)
    try:
        return None if whole is None else constraints.normalise(whole)
    except BadObject as error:
        raise ValueError(str(error)) from None


def _of_tree(
    tree: Tree, elements: Sequence[Optional[Element]], leave_out: LeaveOut
) -> Optional[dict[str, Any]]:
    """The constraint that a tree says, without what is left out of it."""
    found: Optional[dict[str, Any]]
    if isinstance(tree, Leaf):
        item = elements[tree.index]
        found = None if item is None else _constraint(item, tree.index, leave_out)
    else:
        parts = [(part, _of_tree(part, elements, leave_out)) for part in tree.parts]
        found = _of_parts(tree, parts)
    return {NOT: [found]} if found is not None and tree.negated else found


def _of_parts(
    tree: Bracket, parts: list[tuple[Tree, Optional[dict[str, Any]]]]
) -> Optional[dict[str, Any]]:
    """The constraint for the parts of a bracket. Those beside each other that name
    nodes name them together."""
    names: list[str] = []
    found: list[dict[str, Any]] = []
    for part, constraint in parts:
        adds = tree.operator == AND and isinstance(part, Leaf)
        if adds and constraint is not None and HOSTLIST in constraint:
            if not names:
                found.append({HOSTLIST: names})
            names += constraint[HOSTLIST]
        elif constraint is not None:
            found.append(constraint)
    if len(found) < 2:
        return found[0] if found else None
    return {tree.operator: found}


def _constraint(
    item: Element, index: int, leave_out: LeaveOut
) -> Optional[dict[str, Any]]:
    """The constraint of one element; None when it was left out."""
    op = item.attribute("op") or "EQ"
    if item.attribute("aggregation") == "Pattern" or op == "Match":
        leave_out(index, "Flux knows names of nodes and features, not patterns of them")
        return None
    if op not in ("EQ", "NE"):
        leave_out(index, f'op="{op}": Flux does not order names')
        return None
    try:
        return _of_names(item.name, _names(item), op == "NE")
    except (BadObject, ValueError) as error:
        leave_out(index, f"Flux knows no such name: {error}")
        return None


def names_in(item: Element) -> int:
    """An upper bound of the number of names in an element."""
    text = str(item.value)
    delimiter = str(item.attribute("delimiter") or ",")
    spans = _SPAN.findall(text) if item.attribute("aggregation") == "Range" else ()
    between = sum(max(0, int(last) - int(first)) for first, last in spans)
    return 1 + text.count(delimiter) + between


def _names(item: Element) -> list[str]:
    """The names in an element: a hostlist where it is a Node that has a Range."""
    text = str(item.value).strip()
    aggregation = item.attribute("aggregation")
    if aggregation == "Range":
        if len(text.partition("[")[0]) > MAX_NAME:
            raise ValueError(f"a name of more than {MAX_NAME} characters")
        return [text]
    names = [text]
    if aggregation == "List":
        delimiter = str(item.attribute("delimiter") or ",")
        names = [name.strip() for name in text.split(delimiter)]
    for name in names:
        if len(name) > MAX_NAME:
            raise ValueError(f"a name of more than {MAX_NAME} characters")
        if not name or (item.name == NODE and set("[], \t") & set(name)):
            raise ValueError(f"{name!r} is not one name")
    return names


def _of_names(kind: str, names: list[str], lacking: bool) -> dict[str, Any]:
    """The constraint for nodes that have all of these features, or are any of these
    nodes; ``lacking``, for those that have none of them, or are none."""
    if kind == FEATURE:
        if any(name.startswith("^") for name in names):
            raise ValueError("^ is what Flux writes for nodes that lack a feature")
        sign = "^" if lacking else ""
        constraint: dict[str, Any] = {PROPERTIES: [sign + name for name in names]}
    else:
        constraint = {HOSTLIST: names}
        constraint = {NOT: [constraint]} if lacking else constraint
    constraints.parse(constraint)
    return constraint
