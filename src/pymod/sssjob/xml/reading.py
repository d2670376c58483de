# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Reads job objects from XML, and applies the awarenessPolicy.

An element is *not understood* (the specification, section 9) if the rules do not have
it at its place; an attribute, if the rule of its element does not have it; a value of
an attribute or an item of a list, if the specification does not allow it. The
awarenessPolicy decides what the reader does about it. An element without a policy of
its own has that of the nearest element around it that has one, or else Reject. The
policy of an attribute or a value is that of its element. An element that is not
understood may have a policy of its own, too.

Reject
    The reader refuses the whole object.
Warn
    The reader leaves out the element, attribute or value, and warns of each once.
Ignore
    The reader leaves it out.

Section 9 implies these rules:

- The reader looks at the policies of all elements, and refuses a policy that is none of
  the three: a misspelt Reject would have no effect.
- A property with an attribute, a value or an item of a list that is not understood is
  left out as a whole: without only that part the property would have another meaning.
  Without op="NOTIN", for example, it would ask for just the nodes that it rules out. A
  property that contains an element which is not understood is left out, too, unless
  that element has Warn or Ignore as its own policy.
- An element that no object can do without is kept, and loses the attribute only: a
  JobGroup, Job, TaskGroup or Task, and its Id.
- An element is left out with all its contents. If an element in it has Reject as its
  own policy, the reader refuses the object.
- The rest of the object stays valid. An element that becomes empty is left out, and the
  brackets of an expression stay around the elements that are left
  (:mod:`~sssjob.schema.relations`).
- An element that is understood but invalid is an error under each policy: a value of
  another type, attributes that contradict each other, elements that are missing or too
  many, text among elements, elements without contents.
- A root that is not understood is an error under each policy.
- The policies stay in the object, for :func:`~sssjob.schema.defaults.walk_with_policy`:
  a program that uses the object may support less than the reader understands.

Elements and attributes are recognised in no namespace and in that of the root. In
another namespace they are not understood. Strings are not changed. White space around
ids of references, around values of other types and between elements does not count.
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
        rest: the object without the parts that are wrong; None if nothing is left.
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
        warn: is called with a line for each element, attribute or value that is left
            out with Warn.
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
        """The problems of the elements in an element that may have text only. An
        element in it that has a policy of its own is handled by that policy."""
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
        """Refuse to leave out elements in ``node`` whose own policy is Reject."""
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
