# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Constraints on nodes: RFC 31, and the expressions of Requested (section 8.1).

An expression is a sequence of Feature and Node. ``conj`` relates each to the one
before: And (the default), Or, Nand (and not), Nor (or not). A positive ``group``
opens so many brackets before the element, a negative one closes so many behind it;
a ``conj`` on an element that opens brackets is about what is in the outermost of
them. ``op`` NE is for nodes that lack the feature, or are not among those named.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Iterable, Iterator, Optional, Sequence, Union

from flux_k8s import constraints, hostlist
from flux_k8s.constraints import (
    AND,
    HOSTLIST,
    MAX_DEPTH,
    NOT,
    OR,
    PROPERTIES,
    Constraint,
)
from flux_k8s.errors import BadObject
from flux_k8s.jobobject.model import Element, element
from flux_k8s.jobobject.values import unwritable

FEATURE = "Feature"
NODE = "Node"

_OPPOSITE = {AND: OR, OR: AND}
_CONJ = {
    (AND, False): None,
    (OR, False): "Or",
    (AND, True): "Nand",
    (OR, True): "Nor",
}
_RANGE = re.compile(r"[^\[\],]+\[[^\[\]]+\]")


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
    for index, part in enumerate(tree.parts):
        if index == 0 and isinstance(part, _Group) and part.negated:
            part = _inside_out(part)
        here = conj
        if index:
            negated = isinstance(part, _Group) and part.negated
            here = _CONJ[tree.operator, negated]
        # A group turned inside out may have the operator of the one around it.
        inner = int(isinstance(part, _Group))
        before = inner + (opened if index == 0 else 0)
        behind = inner + (closed if index == last else 0)
        yield from _elements(part, here, before, behind)


def _inside_out(group: _Group) -> _Group:
    """The same nodes, as a group that is not negated."""
    parts = tuple(replace(part, negated=not part.negated) for part in group.parts)
    return _Group(_OPPOSITE[group.operator], parts)


def _with(term: _Term, conj: Optional[str], group: int) -> Element:
    """The element of a term, with its place in the expression."""
    added = {"op": "NE" if term.negated else None, "conj": conj, "group": group or None}
    attributes = {**dict(term.element.attributes), **added}
    return element(term.element.name, term.element.value, **attributes)


# ---- from expressions ------------------------------------------------------------

_RELATIONS = {
    "And": (AND, False),
    "Or": (OR, False),
    "Nand": (AND, True),
    "Nor": (OR, True),
}

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
    stack = [_Open()]
    for index, item in enumerate(elements):
        operator, negated = _RELATIONS[str(item.attribute("conj") or "And")]
        group = int(item.attribute("group") or 0)
        if group > MAX_DEPTH:
            at_most = f"expected {MAX_DEPTH} at most"
            raise ValueError(f"group opens {group} brackets, {at_most}")
        constraint = _constraint(item, index, leave_out)
        for _ in range(group):
            stack.append(_Open(operator, negated))
            operator, negated = AND, False
        stack[-1].add(constraint, operator, negated)
        for _ in range(-group):
            if len(stack) == 1:
                raise ValueError("group closes more brackets than are open")
            done = stack.pop()
            stack[-1].add(done.constraint(), done.operator, done.negated)
    if len(stack) > 1:
        raise ValueError(f"group opens {len(stack) - 1} brackets that stay open")
    whole = stack[0].constraint()
    try:
        return None if whole is None else constraints.normalise(whole)
    except BadObject as error:
        raise ValueError(str(error)) from None


@dataclass
class _Open:
    """What was read of the inside of a bracket.

    Attributes:
        operator, negated: how the bracket relates to what is before it.
        inner: how the constraints in it relate to each other; None for less than
            two.
        count: how many there are, with those that were left out.
    """

    operator: str = AND
    negated: bool = False
    inner: Optional[str] = None
    count: int = 0
    found: list[dict[str, Any]] = field(default_factory=list)

    def add(
        self, constraint: Optional[dict[str, Any]], operator: str, negated: bool
    ) -> None:
        """Add what is next in the bracket; None is left out."""
        if self.count and self.inner not in (None, operator):
            raise ValueError(
                "conj has And and Or side by side: group has to tell which goes first"
            )
        self.inner = operator if self.count else None
        self.count += 1
        if constraint is not None:
            self.found.append({NOT: [constraint]} if negated else constraint)

    def constraint(self) -> Optional[dict[str, Any]]:
        if len(self.found) < 2:
            return self.found[0] if self.found else None
        return {self.inner or AND: self.found}


def _constraint(
    item: Element, index: int, leave_out: LeaveOut
) -> Optional[dict[str, Any]]:
    """What an element says by itself; None when it was left out."""
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


def _names(item: Element) -> list[str]:
    """The names in an element: a hostlist where it is a Node that has a Range."""
    text = str(item.value).strip()
    aggregation = item.attribute("aggregation")
    if aggregation == "Range":
        return [text]
    names = [text]
    if aggregation == "List":
        delimiter = str(item.attribute("delimiter") or ",")
        names = [name.strip() for name in text.split(delimiter)]
    for name in names:
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
