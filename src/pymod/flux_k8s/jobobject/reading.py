# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""XML to job objects: what is valid, and what is not understood.

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
- With an element goes all that is in it, policies included: what is
  indispensable to something that is left out is not needed any more.
- Without the rest of a list, what is understood of it still counts.
- What is understood and wrong is an error under each policy: a value of another
  type, attributes that contradict each other, something that is missing or there
  too often, text among elements, elements with nothing (left) in them.
- A root that is not understood leaves nothing to go on with.
- What is understood may still be more than whoever uses the object supports. So
  the policies stay in the object, for
  :func:`~flux_k8s.jobobject.defaults.walk_with_policy`.

Elements and attributes are meant whether they are in no namespace or in that of
the root; those of other namespaces are not understood. Strings are taken as they
are. White space around ids of references and values of other types, and between
elements, does not count.
"""

from __future__ import annotations

import warnings
from typing import Callable, Iterator, Optional, Union

from flux_k8s.errors import show
from flux_k8s.jobobject.markup import Node, cut, parse
from flux_k8s.jobobject.model import (
    ROOT_RULES,
    Element,
    ObjectError,
    attribute_of,
    check_element,
    choices_of,
    items_of,
    paths,
    rule_of,
)
from flux_k8s.jobobject.properties import (
    AWARENESS_POLICY,
    REJECT,
    ROOTS,
    WARN,
    Attribute,
    Rule,
)
from flux_k8s.jobobject.values import SPACE, Datatype, Value


class ObjectWarning(UserWarning):
    """Something in a job object was not understood and left out."""


def _warn(line: str) -> None:
    """Warn the way Python does, each time anew."""
    warnings.warn_explicit(line, ObjectWarning, "job object", 0)


def read(document: Union[str, bytes], warn: Callable[[str], None] = _warn) -> Element:
    """The Job or JobGroup that an XML document contains.

    ``check(read(document))`` holds, and ``read(write(root)) == root``.

    Args:
        warn: is told, in one line each, what is left out with Warn.

    Raises:
        ObjectError: it is no XML, no valid job object, or something in it is not
            understood and must be. The message has the line and the path.
    """
    root = parse(document)
    path = f"/{root.name}"
    rule = ROOT_RULES.get(root.name)
    if rule is None:
        raise ObjectError(path, f"expected {' or '.join(ROOTS)} here", root.line)
    found = _Reader(warn).element(root, rule, path, REJECT)
    assert found is not None  # only lists may have nothing left
    return found


class _Place:
    """An element that is being read.

    Attributes:
        policy: in effect there.
    """

    def __init__(self, node: Node, path: str, inherited: str) -> None:
        self._node = node
        self.path = path
        name = AWARENESS_POLICY.name
        self.policy = dict(node.attributes).get(name, inherited)
        choices = AWARENESS_POLICY.choices
        if self.policy not in choices:
            raise self.error(
                f"{name} is {show(self.policy)}, expected {choices_of(choices)}"
            )

    def error(self, problem: str) -> ObjectError:
        return ObjectError(self.path, problem, self._node.line)


class _Reader:
    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn

    def element(
        self, node: Node, rule: Rule, path: str, inherited: str
    ) -> Optional[Element]:
        """The element; None when nothing that is understood is left of it."""
        place = _Place(node, path, inherited)
        attributes = tuple(self._attributes(node, rule, place))
        contents = tuple(self._contents(node, path, place))
        value: Optional[Value]
        if rule.datatype is None:
            value = node.text.strip(SPACE) or None
        else:
            text = self._understood(node.text, rule.choices, True, place, "is")
            if text is None:
                return None
            value = _parsed(rule.datatype, text, place, "is")
        found = Element(rule.name, value, attributes, contents)
        try:
            check_element(found, rule, path)
        except ObjectError as error:
            raise place.error(error.problem) from None
        return found

    def _attributes(
        self, node: Node, rule: Rule, place: _Place
    ) -> Iterator[tuple[str, Value]]:
        for name, text in node.attributes:
            attribute = attribute_of(rule, name)
            if attribute is None:
                problem = f"may have no attribute {cut(name)}, which is not understood"
                self._not_understood(problem, place)
                continue
            value = self._attribute(attribute, text, place)
            if value is not None:
                yield name, value

    def _attribute(
        self, attribute: Attribute, text: str, place: _Place
    ) -> Optional[Value]:
        verb = f"{attribute.name} is"
        known = self._understood(text, attribute.choices, attribute.listed, place, verb)
        return (
            None if known is None else _parsed(attribute.datatype, known, place, verb)
        )

    def _contents(self, node: Node, path: str, place: _Place) -> Iterator[Element]:
        for inner_path, inner in paths(node.contents, path):
            rule = rule_of(node.name, inner.name) if inner.ours else None
            if rule is None:
                inner_place = _Place(inner, inner_path, place.policy)
                problem = f"is not understood, {node.name} may not have it"
                self._not_understood(problem, inner_place)
                continue
            found = self.element(inner, rule, inner_path, place.policy)
            if found is not None:
                yield found

    def _understood(
        self,
        text: str,
        choices: tuple[str, ...],
        listed: bool,
        place: _Place,
        verb: str,
    ) -> Optional[str]:
        """What is understood of a value, as it is written if that is all of it;
        None for nothing."""
        if not choices:
            return text
        items = items_of(text) if listed else [text]
        known = []
        for item in items:
            if item in choices:
                known.append(item)
                continue
            problem = f"{verb} {show(item)}, which is not understood, expected "
            self._not_understood(problem + choices_of(choices), place)
        if len(known) == len(items):
            return text
        return ",".join(known) or None

    def _not_understood(self, problem: str, place: _Place) -> None:
        """Do what the policy says.

        Raises:
            ObjectError: it says Reject.
        """
        if place.policy == REJECT:
            raise place.error(f"{problem}; {AWARENESS_POLICY.name} is {REJECT} here")
        if place.policy == WARN:
            self._warn(str(place.error(f"{problem}; left out")))


def _parsed(datatype: Datatype, text: str, place: _Place, verb: str) -> Value:
    try:
        return datatype.parse(text)
    except ValueError as error:
        raise place.error(f"{verb} {show(text)}, expected {error}") from None
