# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Writes out the defaults of elements and the awarenessPolicy in effect.

JobDefaults hold for all jobs of a group, TaskGroupDefaults for all task groups of a
job, TaskDefaults for all tasks of a task group (the specification, sections 5 to 7).
:func:`effective` writes them out.

*Properties override by name.* As soon as a job has one Hold, it takes none of the Holds
of the JobDefaults. The name of a Resource, a ResourceLimit or an Extension is that of
its ``name`` and ``type`` attributes: these are how section 5.1 makes properties that
have no element of their own. An Environment is one property. So are the task groups of
a job.

*Requested and Delivered are envelopes* (section 8), not properties: what is in them
overrides by name as well. Whether a property is enveloped is a matter of style where
there is only a request, so what a job has plain or in Requested overrides what the
defaults have plain or in Requested. Delivered is only about Delivered.

*Expressions in Requested are overridden as a whole.* All elements of a name
belong together, and so do those within one pair of brackets (``group``) and
those that ``conj`` relates with Or or Nor to the one before. What overrides one
of them overrides all: of (User and Account) or (User and Account), as in section
8.1, nothing that makes sense is left without the Accounts. Elements that are
related with And or Nand are conditions of their own.

*Identities are not inherited.* An Id or GlobalId of defaults names no job, task group
or task.

*Implicit task groups and tasks* (section 3): a job with TaskGroupDefaults and without
task groups gets one with what the defaults say, a task group with TaskDefaults and
without tasks one task. Where nothing is left to say of a task group or task, as of one
with no more than an Id in its defaults, it is left out.

*What is written out is bounded*: each of many jobs gets all of many defaults.

*An element that moves keeps the policy* that was in effect where it stood. Where that
is not the one in effect at its new place, it gets an awarenessPolicy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Iterable, Iterator, Optional

from sssjob.schema.model import Element, ObjectError, paths
from sssjob.schema.properties import (
    AWARENESS_POLICY,
    DELIVERED,
    JOB,
    JOB_DEFAULTS,
    JOB_GROUP,
    REJECT,
    REQUESTED,
    TASK,
    TASK_DEFAULTS,
    TASK_GROUP,
    TASK_GROUP_DEFAULTS,
)
from sssjob.schema.relations import GROUP, link_of
from sssjob.schema.values import Value

MAX_ADDED = 1_000_000
"""The largest number of elements that defaults may add to an object in all."""

Key = tuple[Optional[Value], ...]

_LEVELS = {
    JOB_GROUP: (JOB_DEFAULTS, JOB),
    JOB: (TASK_GROUP_DEFAULTS, TASK_GROUP),
    TASK_GROUP: (TASK_DEFAULTS, TASK),
}
# What may be in an element and in its defaults, and has defaults to merge.
_NESTED = (TASK_GROUP_DEFAULTS, TASK_DEFAULTS)
_IDENTITIES = ("Id", "GlobalId")
_NAMED = {
    "Resource": ("name", "type"),
    "ResourceLimit": ("name", "type"),
    "Extension": ("name", "type"),
}
# What makes an element an alternative to the one before.
_RELATING = ("Or", "Nor")


def walk_with_policy(
    root: Element, path: str = "", inherited: str = REJECT
) -> Iterator[tuple[str, Element, str]]:
    """All elements with their paths and the awarenessPolicy in effect at each
    (section 9), each before what it contains.

    Args:
        path: that of ``root``.
        inherited: the policy around ``root``.
    """
    path = path or f"/{root.name}"
    policy = root.policy(inherited)
    yield path, root, policy
    for inner_path, inner in paths(root.contents, path):
        yield from walk_with_policy(inner, inner_path, policy)


def effective(root: Element) -> Element:
    """A valid job object with all defaults written out, and no JobDefaults,
    TaskGroupDefaults or TaskDefaults left.

    What is only referred to stays as it is. The result is valid, and its own
    ``effective``.

    Raises:
        ObjectError: the defaults add more than ``MAX_ADDED`` elements.
    """
    return _Writer(root).resolved(root, REJECT)


def key_of(element: Element) -> Key:
    """By which properties override each other."""
    attributes = _NAMED.get(element.name, ())
    return (element.name, *(element.attribute(name) for name in attributes))


@dataclass
class _Unit:
    """Elements of some defaults that are overridden together.

    Attributes:
        elements: each with its index among those around it.
    """

    elements: list[tuple[int, Element]]
    size: int = 0


class _Units:
    """Elements of some defaults.

    Attributes:
        policy: in effect around them.
    """

    def __init__(self, contents: Iterable[Element], policy: str) -> None:
        self.policy = policy
        elements = tuple(contents)
        self._of_key: dict[Key, _Unit] = {}
        self._all: list[_Unit] = []
        units: dict[int, _Unit] = {}
        for index, number in enumerate(_expressions(elements)):
            if number not in units:
                units[number] = _Unit([])
                self._all.append(units[number])
            unit = units[number]
            unit.elements.append((index, elements[index]))
            unit.size += elements[index].size
            self._of_key[key_of(elements[index])] = unit

    def left(self, taken: Iterable[Key]) -> tuple[int, list[Element]]:
        """How many elements are not overridden by those of some keys, and which."""
        gone = {id(self._of_key[key]) for key in taken if key in self._of_key}
        left = [unit for unit in self._all if id(unit) not in gone]
        found = sorted(
            (item for unit in left for item in unit.elements), key=lambda item: item[0]
        )
        return sum(unit.size for unit in left), [element for _, element in found]


class _Defaults:
    """Defaults, as they are needed for each of those that they are for.

    Attributes:
        policy: in effect at them.
    """

    def __init__(self, defaults: Element, inherited: str) -> None:
        self.policy = policy = defaults.policy(inherited)
        plain = (e for e in _plain(defaults) if e.name not in _IDENTITIES)
        self.plain = _Units(plain, policy)
        self.requested = _units_in(defaults, REQUESTED, policy)
        self.delivered = _units_in(defaults, DELIVERED, policy)
        self.nested = {name: defaults.find(name) for name in _NESTED}
        self._of_nested = {
            name: _Defaults(nested, policy)
            for name, nested in self.nested.items()
            if nested is not None
        }

    def of(self, name: str) -> _Defaults:
        """The defaults of this name in them."""
        return self._of_nested[name]


class _Writer:
    """Writes defaults out, and counts what they add."""

    def __init__(self, root: Element) -> None:
        self._root = root
        self._added = 0

    def resolved(self, owner: Element, inherited: str) -> Element:
        if owner.name not in _LEVELS or owner.is_reference:
            return owner
        defaults_name, member_name = _LEVELS[owner.name]
        policy = owner.policy(inherited)
        found = owner.find(defaults_name)
        members = tuple(owner.all(member_name))
        if found is not None:
            defaults = _Defaults(found, policy)
            members = tuple(
                self._merged(member, member.policy(policy), defaults)
                for member in members or (Element(member_name),)
            )
        names = (defaults_name, member_name)
        others = (e for e in owner.contents if e.name not in names)
        resolved = (self.resolved(member, policy) for member in members)
        # Where the defaults say nothing but their Id, an implicit one has nothing to
        # say.
        left = (member for member in resolved if member.contents or member.is_reference)
        return replace(owner, contents=(*others, *left))

    def _merged(self, own: Element, policy: str, defaults: _Defaults) -> Element:
        """``own`` with what the ``defaults`` add.

        Args:
            policy: in effect at ``own``.
        """
        if own.is_reference:
            return own
        contents = list(own.contents)
        taken = {key_of(element) for element in _plain(own)}
        taken.update(key_of(element) for element in _enveloped(own, REQUESTED))
        delivered = {key_of(element) for element in _enveloped(own, DELIVERED)}
        plain = self._left(defaults.plain, taken)
        contents += (_moved(element, defaults.policy, policy) for element in plain)
        for name, units, keys in (
            (REQUESTED, defaults.requested, taken),
            (DELIVERED, defaults.delivered, delivered),
        ):
            _add(contents, policy, name, self._left(units, keys), units.policy)
        for name, default in defaults.nested.items():
            mine = own.find(name)
            if mine is not None and default is not None:
                contents.remove(mine)
                inner = defaults.of(name)
                contents.append(self._merged(mine, mine.policy(policy), inner))
            elif default is not None:
                self._count(default.size)
                contents.append(_moved(default, defaults.policy, policy))
        return replace(own, contents=tuple(contents))

    def _left(self, units: _Units, taken: set[Key]) -> list[Element]:
        size, elements = units.left(taken)
        self._count(size)
        return elements

    def _count(self, size: int) -> None:
        self._added += size
        if self._added > MAX_ADDED:
            line = None if self._root.origin is None else self._root.origin.line
            problem = f"has defaults that add more than {MAX_ADDED} elements in all"
            raise ObjectError(f"/{self._root.name}", problem, line)


def _plain(owner: Element) -> Iterator[Element]:
    envelopes = (REQUESTED, DELIVERED, *_NESTED)
    return (element for element in owner.contents if element.name not in envelopes)


def _enveloped(owner: Element, name: str) -> tuple[Element, ...]:
    envelope = owner.find(name)
    return () if envelope is None else envelope.contents


def _units_in(defaults: Element, name: str, inherited: str) -> _Units:
    envelope = defaults.find(name)
    if envelope is None:
        return _Units((), inherited)
    return _Units(envelope.contents, envelope.policy(inherited))


def _expressions(contents: tuple[Element, ...]) -> list[int]:
    """For each element the number of its expression, which has all of its name. Only
    those of a Requested are related to each other as well."""
    joined = list(range(len(contents)))

    def number(index: int) -> int:
        while joined[index] != index:
            joined[index] = joined[joined[index]]
            index = joined[index]
        return index

    first: dict[Key, int] = {}
    depth = 0
    for index, element in enumerate(contents):
        link = link_of(element)
        if depth != 0 or (index > 0 and link.conj in _RELATING):
            joined[number(index - 1)] = number(index)
        joined[number(first.setdefault(key_of(element), index))] = number(index)
        depth += link.group
    return [number(index) for index in range(len(contents))]


def _add(
    contents: list[Element],
    inherited: str,
    name: str,
    moved: list[Element],
    theirs: str,
) -> None:
    """Append to the envelope of this name, which is made if need be.

    Args:
        inherited: the policy around the envelope.
        theirs: the policy around what is moved, where it stood.
    """
    if not moved:
        return
    envelope = next((e for e in contents if e.name == name), None)
    if envelope is None:
        envelope = Element(name)
    else:
        contents.remove(envelope)
    policy = envelope.policy(inherited)
    added = [_moved(element, theirs, policy) for element in moved]
    own = list(envelope.contents)
    if own and name == REQUESTED:
        own, added = _bracketed(own), _bracketed(added)
        if _relates_to_none(added[0]) and not _relates_to_none(own[0]):
            own, added = added, own
    contents.append(replace(envelope, contents=(*own, *added)))


def _relates_to_none(first: Element) -> bool:
    """Whether the first of a Requested is said to be an alternative. What comes first
    stays so: it has no meaning, and must not get one."""
    return link_of(first).conj in _RELATING


def _bracketed(elements: list[Element]) -> list[Element]:
    """The same expression, which others can be and-ed with."""
    links = [link_of(element) for element in elements]
    depths = list(accumulate((link.group for link in links), initial=0))
    alternatives = any(
        depth == 0 and link.conj in _RELATING
        for depth, link in zip(depths[1:], links[1:])
    )
    if not alternatives or depths[-1] != 0:
        return elements
    first, *others = elements
    opened = _with(first, GROUP, links[0].group + 1)
    return [opened, *others[:-1], _with(others[-1], GROUP, links[-1].group - 1)]


def _moved(element: Element, theirs: str, inherited: str) -> Element:
    """An element for another place.

    Args:
        theirs: the policy around it where it stood.
        inherited: the policy around it where it goes.
    """
    policy = element.policy(theirs)
    if policy == element.policy(inherited):
        return element
    return _with(element, AWARENESS_POLICY.name, policy)


def _with(element: Element, name: str, value: Value) -> Element:
    others = (item for item in element.attributes if item[0] != name)
    return replace(element, attributes=(*others, (name, value)))
