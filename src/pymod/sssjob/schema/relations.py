# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The relations between the properties in a Requested (the specification, section 8.1).

``conj`` relates each element to the one before it, whatever property that is: And
(the default), Or, Nand (and not), Nor (or not). A positive ``group`` opens so many
brackets before its element, a negative one closes so many behind it. The ``conj`` of
an element that opens brackets is about the outermost of them.

The specification gives neither And nor Or precedence, so an expression in which both
stand side by side without brackets has no meaning.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Collection, Iterator, NamedTuple, Optional, Sequence, Union

from flux_k8s.formats.constraints import AND, MAX_CONSTRAINT_DEPTH, OR
from sssjob.schema.model import Element

CONJ = "conj"
GROUP = "group"

RELATIONS = {
    "And": (AND, False),
    "Or": (OR, False),
    "Nand": (AND, True),
    "Nor": (OR, True),
}
_NAMES = {relation: name for name, relation in RELATIONS.items()}


class Unclear(ValueError):
    """The relations of some elements have no meaning.

    Attributes:
        index: of the element at which that shows.
    """

    def __init__(self, index: int, problem: str) -> None:
        super().__init__(problem)
        self.index = index


class Link(NamedTuple):
    """The relation of an element to the elements around it."""

    conj: str
    group: int


@dataclass(frozen=True)
class Leaf:
    """The element of this index; or, ``negated``, what it does not ask for."""

    index: int
    negated: bool = False


@dataclass(frozen=True)
class Bracket:
    """All of the ``parts`` (``and``), or any of them (``or``); or, ``negated``, the
    opposite."""

    operator: str
    parts: tuple[Tree, ...]
    negated: bool = False


Tree = Union[Leaf, Bracket]


def link_of(element: Element) -> Link:
    """The relation of an element to the others."""
    group = element.attribute(GROUP)
    conj = str(element.attribute(CONJ) or "And")
    return Link(conj, group if isinstance(group, int) else 0)


def parse(links: Sequence[Link]) -> Bracket:
    """The whole of the elements that are linked so.

    Raises:
        Unclear: it has no meaning.
    """
    stack = [_Open(0)]
    for index, (conj, group) in enumerate(links):
        operator, negated = RELATIONS[conj]
        if index == 0 and operator == OR:
            raise Unclear(0, f'conj="{conj}" relates it to an element before it')
        depth = len(stack) - 1 + group
        if depth > MAX_CONSTRAINT_DEPTH:
            problem = f"group opens {depth} brackets within each other"
            raise Unclear(index, f"{problem}, expected at most {MAX_CONSTRAINT_DEPTH}")
        for _ in range(group):
            stack.append(_Open(index, operator, negated))
            operator, negated = AND, False
        stack[-1].add(Leaf(index, negated), operator, index)
        if -group >= len(stack):
            raise Unclear(index, "group closes more brackets than are open")
        for _ in range(-group):
            done = stack.pop()
            stack[-1].add(done.bracket(), done.operator, index)
    if len(stack) > 1:
        problem = f"group opens {len(stack) - 1} brackets that stay open"
        raise Unclear(stack[1].index, problem)
    return stack[0].bracket()


class _Open:
    """A bracket of which the end has not been read.

    Attributes:
        index: of the element that opens it.
        operator, negated: how it relates to what is before it.
    """

    def __init__(self, index: int, operator: str = AND, negated: bool = False) -> None:
        self.index = index
        self.operator = operator
        self.negated = negated
        self._inner: Optional[str] = None
        self._parts: list[Tree] = []

    def add(self, part: Tree, operator: str, index: int) -> None:
        """Add what is next in it.

        Args:
            operator: relates the part to the one before it.
            index: of the element that is read.
        """
        if self._parts:
            if self._inner not in (None, operator):
                raise Unclear(
                    index,
                    "conj has And and Or side by side: group has to tell which goes"
                    " first",
                )
            self._inner = operator
        self._parts.append(part)

    def bracket(self) -> Bracket:
        return Bracket(self._inner or AND, tuple(self._parts), self.negated)


def leaves(tree: Tree) -> Iterator[int]:
    """The indices of the elements in a tree."""
    if isinstance(tree, Leaf):
        yield tree.index
        return
    for part in tree.parts:
        yield from leaves(part)


def without(links: Sequence[Link], removed: Collection[int]) -> list[Link]:
    """The links of the elements that are left when some are removed, so that what is
    left relates as it did: brackets stay around what is left in them.

    Args:
        links: of which :func:`parse` knows the meaning.

    Raises:
        Unclear: no links say it.
    """
    left: list[Link] = []
    opened, outer = 0, "And"  # brackets of which all was removed so far
    for index, (conj, group) in enumerate(links):
        negated = RELATIONS[conj][1]
        if index not in removed:
            if opened:
                group += opened
                conj = _joined(index, outer, negated, alone=group <= 0)
            left.append(Link(conj if left else _first(conj), group))
            opened = 0
        elif group > 0:
            if opened and negated:
                raise _unwritable(index)
            outer = outer if opened else conj
            opened += group
        else:
            empty = min(opened, -group)
            opened -= empty
            if group + empty:
                left[-1] = left[-1]._replace(group=left[-1].group + group + empty)
    return left


def _joined(index: int, outer: str, negated: bool, alone: bool) -> str:
    """The conj of an element that is now the first in its brackets.

    Args:
        outer: what relates the brackets to what is before them.
        alone: nothing else is left in them.
    """
    if not negated:
        return outer
    if not alone:
        raise _unwritable(index)
    operator, outside = RELATIONS[outer]
    return _NAMES[operator, not outside]


def _first(conj: str) -> str:
    """The conj of an element that is now the first of all."""
    return _NAMES[AND, RELATIONS[conj][1]]


def _unwritable(index: int) -> Unclear:
    return Unclear(index, "conj and group cannot be kept without what is left out")
