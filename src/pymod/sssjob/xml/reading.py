# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Reads job objects from XML, and applies the awarenessPolicy.

*Not understood* (seed 003, section 9) is an element that the rules do not have
at its place, an attribute that the rule of its element does not have, and a value
of an attribute, or an item of a list, that is not among those which the seed
allows. What is done about it says the awarenessPolicy of the element, or else
that of the nearest one around it which has one, or else Reject. For an attribute
it is that of its own element, where it may stand beside the attribute; what is
not understood may say itself that it can be left out.

Reject
    refuses the whole object.
Warn
    leaves it out, and says so once for each element, attribute or value.
Ignore
    leaves it out.

What section 9 implies:

- The policy is looked at everywhere, so nowhere is Reject merely assumed. One that
  is none of the three is refused, or a misspelt Reject would pass as nothing.
- A property is left out as a whole. Without an attribute, a value or an item of a
  list that is not understood, it would say something else: what has op="NOTIN"
  would ask for just the nodes that it rules out. So is a property that contains an
  element which is not understood, unless that says itself that it can be left out.
- Only what no object is without is kept without its attribute: a JobGroup, Job,
  TaskGroup or Task, and the Id that it must have.
- With an element goes all that is in it. An explicit Reject in it counts: it says
  that it is indispensable.
- What is left out does not make the rest wrong. An element of which nothing else is
  left goes as well, and the brackets of an expression stay around what is left in
  them (:mod:`~sssjob.schema.relations`).
- What is understood and wrong is an error under each policy: a value of another
  type, attributes that contradict each other, something that is missing or there
  too often, text among elements, elements with nothing in them.
- A root that is not understood leaves nothing to go on with.
- What is understood may still be more than whoever uses the object supports. So
  the policies stay in the object, for
  :func:`~sssjob.schema.defaults.walk_with_policy`.

Elements and attributes are meant whether they are in no namespace or in that of
the root; those of other namespaces are not understood. Strings are taken as they
are. White space around ids of references and values of other types, and between
elements, does not count.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Callable, Optional, Union

from flux_k8s.errors import show
from sssjob.schema import relations
from sssjob.schema.model import (
    ROOT_RULES,
    Element,
    ObjectError,
    ObjectErrors,
    Origin,
    attribute_of,
    choices_of,
    items_of,
    paths,
    problems_of,
    rule_of,
)
from sssjob.schema.properties import (
    AWARENESS_POLICY,
    ENVIRONMENT,
    REFERENCES,
    REJECT,
    REQUESTED,
    ROOTS,
    WARN,
    Rule,
)
from sssjob.schema.values import SPACE, Datatype, Value
from sssjob.xml.markup import Node, cut, parse

_POLICY = AWARENESS_POLICY.name


class ObjectWarning(UserWarning):
    """Something in a job object was not understood and left out."""


class UnreadableObject(ObjectErrors):
    """A document is no job object.

    Attributes:
        rest: what there is besides what is wrong; None for nothing.
    """

    def __init__(self, errors: list[ObjectError], rest: Optional[Element]) -> None:
        super().__init__(errors)
        self.rest = rest


def _warn(line: str) -> None:
    """Warn the way Python does, each time anew."""
    warnings.warn_explicit(line, ObjectWarning, "job object", 0)


def read(
    document: Union[str, bytes],
    warn: Callable[[str], None] = _warn,
    policy: str = REJECT,
) -> Element:
    """The Job or JobGroup that an XML document contains.

    ``check(read(document))`` holds, and ``read(write(root)) == root``.

    Args:
        warn: is told, in one line each, what is left out with Warn.
        policy: the awarenessPolicy of a root that has none. It is written into the
            root, unless it is Reject.

    Raises:
        ObjectError: it is no XML, no valid job object, or something in it is not
            understood and must be. The message has the line and the path. Where it
            is XML, it is an UnreadableObject, which has all that is wrong.
    """
    root = parse(document)
    path = f"/{root.name}"
    rule = ROOT_RULES.get(root.name)
    if rule is None:
        raise ObjectError(path, f"expected {' or '.join(ROOTS)} here", root.line)
    if policy != REJECT and _POLICY not in dict(root.attributes):
        root.attributes = (*root.attributes, (_POLICY, policy))
    reader = _Reader(warn)
    found = reader.element(root, rule, path, REJECT)
    if reader.errors or found is None:
        raise UnreadableObject(reader.errors, found)
    return found


class _Place:
    """An element that is being read.

    Attributes:
        policy: in effect there.
        explicit: it has a policy of its own.
    """

    def __init__(self, node: Node, path: str, inherited: str) -> None:
        own = dict(node.attributes).get(_POLICY)
        self.node = node
        self.path = path
        self.explicit = own is not None
        self.policy = inherited if own is None else own

    def error(self, problem: str) -> ObjectError:
        return ObjectError(self.path, problem, self.node.line)


class _Reader:
    """Reads a document as far as it can.

    Attributes:
        errors: what is wrong with it.
    """

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self.errors: list[ObjectError] = []

    def element(
        self, node: Node, rule: Rule, path: str, inherited: str
    ) -> Optional[Element]:
        """The element; None where it is left out, is wrong, or nothing is left of
        it."""
        place = self._place(node, path, inherited)
        before = len(self.errors)
        unknown, attributes = self._attributes(node, rule, place)
        if rule.datatype is not None:
            unknown += _unknown_items(node.text, rule.choices, True, "is")
            unknown += self._unknown_contents(node, place)
        kept = rule.name in REFERENCES or rule.required
        if unknown:
            self._not_understood(unknown, place, whole=not kept)
            if not kept:
                self._leave_out(node, path)
                return None
        contents: tuple[Element, ...] = ()
        lost: set[str] = set()
        if rule.datatype is not None:
            value = self._parsed(rule.datatype, node.text, place, "is")
            if len(self.errors) > before:
                return None
        else:
            value = node.text.strip(SPACE) or None
            contents, lost = self._contents(node, place)
            if lost and not contents and value is None and rule.name != ENVIRONMENT:
                return None
        found = Element(rule.name, value, attributes, contents, Origin(path, node.line))
        problems = list(problems_of(found, rule, path.count("/") == 1, lost))
        for problem in problems:
            self._error(place, problem)
        return None if problems and rule.datatype is not None else found

    def _place(self, node: Node, path: str, inherited: str) -> _Place:
        place = _Place(node, path, inherited)
        choices = AWARENESS_POLICY.choices
        if place.policy not in choices:
            problem = f"{_POLICY} is {show(place.policy)}"
            self._error(place, f"{problem}, expected {choices_of(choices)}")
            place.policy = inherited
        return place

    def _attributes(
        self, node: Node, rule: Rule, place: _Place
    ) -> tuple[list[str], tuple[tuple[str, Value], ...]]:
        """The attributes that are not understood, and those that are."""
        unknown: list[str] = []
        found: list[tuple[str, Value]] = []
        for name, text in node.attributes:
            attribute = attribute_of(rule, name)
            if attribute is None:
                unknown.append(
                    f"may have no attribute {cut(name)}, which is not understood"
                )
                continue
            choices = () if name == _POLICY else attribute.choices
            verb = f"{name} is"
            not_known = _unknown_items(text, choices, attribute.listed, verb)
            unknown += not_known
            if not not_known:
                value = self._parsed(attribute.datatype, text, place, verb)
                if value is not None:
                    found.append((name, value))
        return unknown, tuple(found)

    def _unknown_contents(self, node: Node, place: _Place) -> list[str]:
        """What is not understood in an element that has text. An element in it that
        has a policy of its own says itself what becomes of it."""
        unknown: list[str] = []
        for inner_path, inner in paths(node.contents, place.path):
            inner_place = self._place(inner, inner_path, place.policy)
            if inner_place.explicit:
                self._unknown_element(node, inner, inner_place)
            else:
                unknown.append(f"has {inner.name} in it, which is not understood")
        return unknown

    def _unknown_element(self, node: Node, inner: Node, place: _Place) -> None:
        problem = f"is not understood, {node.name} may not have it"
        self._not_understood([problem], place, whole=False)
        self._leave_out(inner, place.path)

    def _contents(
        self, node: Node, place: _Place
    ) -> tuple[tuple[Element, ...], set[str]]:
        """The elements in one, and the names of those that are lost."""
        lost: set[str] = set()
        found: list[Optional[Element]] = []
        for inner_path, inner in paths(node.contents, place.path):
            rule = rule_of(node.name, inner.name) if inner.ours else None
            if rule is None:
                inner_place = self._place(inner, inner_path, place.policy)
                self._unknown_element(node, inner, inner_place)
                lost.add(inner.name)
                continue
            element = self.element(inner, rule, inner_path, place.policy)
            if element is None:
                lost.add(inner.name)
            found.append(element)
        if node.name == REQUESTED and None in found:
            return self._related(node, found, place), lost
        return tuple(element for element in found if element is not None), lost

    def _related(
        self, node: Node, found: list[Optional[Element]], place: _Place
    ) -> tuple[Element, ...]:
        """The remaining contents of a Requested, with the same relations."""
        left = [element for element in found if element is not None]
        known = (inner for inner in node.contents if rule_of(node.name, inner.name))
        links = [_link_of(inner) for inner in known if inner.ours]
        if all(link == _UNRELATED for link in links):
            return tuple(left)
        removed = {index for index, element in enumerate(found) if element is None}
        try:
            relations.parse(links)
            kept = relations.without(links, removed)
        except relations.Unclear as error:
            self._not_understood([str(error)], place, whole=True)
            self._leave_out(node, place.path)
            return ()
        return tuple(
            element if link == relations.link_of(element) else _linked(element, link)
            for element, link in zip(left, kept)
        )

    def _leave_out(self, node: Node, path: str) -> None:
        """Look for what may not be left out with an element."""
        for inner_path, inner in paths(node.contents, path):
            place = self._place(inner, inner_path, WARN)
            if place.explicit and place.policy == REJECT:
                outer = path.rpartition("/")[2]
                problem = f"is in {outer}, which is not understood"
                self._not_understood([problem], place, whole=False)
            self._leave_out(inner, inner_path)

    def _not_understood(self, problems: list[str], place: _Place, whole: bool) -> None:
        """Do what the policy says.

        Args:
            whole: the element is left out, not just what is not understood of it.
        """
        left_out = "the element is left out" if whole else "left out"
        for problem in problems:
            if place.policy == REJECT:
                self._error(place, f"{problem}; {_POLICY} is {REJECT} here")
            elif place.policy == WARN:
                self._warn(str(place.error(f"{problem}; {left_out}")))

    def _parsed(
        self, datatype: Datatype, text: str, place: _Place, verb: str
    ) -> Optional[Value]:
        try:
            return datatype.parse(text)
        except ValueError as error:
            self._error(place, f"{verb} {show(text)}, expected {error}")
            return None

    def _error(self, place: _Place, problem: str) -> None:
        self.errors.append(place.error(problem))


_UNRELATED = relations.Link("And", 0)


def _link_of(node: Node) -> relations.Link:
    """How an element relates to others, as far as that is understood."""
    said = dict(node.attributes)
    conj = said.get(relations.CONJ, "And")
    try:
        group = int(Datatype.INTEGER.parse(said.get(relations.GROUP, "0")))
    except ValueError:
        group = 0
    return relations.Link(conj if conj in relations.RELATIONS else "And", group)


def _linked(element: Element, link: relations.Link) -> Element:
    """The element, related to others in another way."""
    said = {
        **dict(element.attributes),
        relations.CONJ: None if link.conj == "And" else link.conj,
        relations.GROUP: link.group or None,
    }
    left = tuple((name, value) for name, value in said.items() if value is not None)
    return replace(element, attributes=left)


def _unknown_items(
    text: str, choices: tuple[str, ...], listed: bool, verb: str
) -> list[str]:
    """The part of a value, or of a list, that is not understood."""
    if not choices:
        return []
    expected = f"which is not understood, expected {choices_of(choices)}"
    items = items_of(text) if listed else [text]
    return [f"{verb} {show(item)}, {expected}" for item in items if item not in choices]
