# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What elements have by default, and which awarenessPolicy is in effect.

JobDefaults hold for all jobs of a group, TaskGroupDefaults for all task groups
of a job, TaskDefaults for all tasks of a task group (seed 003, sections 5 to 7).
:func:`effective` writes them out.

*Properties override by name.* As soon as a job has one Hold, it takes none of
the Holds of the JobDefaults. The name of a Resource or a ResourceLimit is that of
its ``name`` attribute, the name of an Extension that and its ``type``: these
are how section 5.1 makes properties that have no element of their own. An
Environment is one property. So are the task groups of a job.

*Requested and Delivered are envelopes* (section 8), not properties: what is in
them overrides by name as well. Whether a property is enveloped is a matter of
style where there is only a request, so what a job has plain or in Requested
overrides what the defaults have plain or in Requested. Delivered is only about
Delivered.

*Expressions in Requested are overridden as a whole.* All elements of a name
belong together, and so do those within one pair of brackets (``group``) and
those that ``conj`` relates with Or or Nor to the one before. What overrides one
of them overrides all: of (User and Account) or (User and Account), as in section
8.1, nothing that makes sense is left without the Accounts. Elements that are
related with And or Nand are conditions of their own.

*Identities are not inherited.* An Id or GlobalId of defaults names no job, task
group or task.

*Implicit task groups and tasks* (section 3): a job with TaskGroupDefaults and
without task groups gets one with what the defaults say, a task group with
TaskDefaults and without tasks one task. Where nothing is left to say of a task
group or task, as of one with no more than an Id in its defaults, it is left out.

*An element that moves keeps the policy* that was in effect where it stood. Where
that is not the one in effect at its new place, it gets an awarenessPolicy.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Iterator, Optional

from flux_k8s.jobobject.model import Element, paths
from flux_k8s.jobobject.properties import (
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
from flux_k8s.jobobject.values import Value

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
    "Resource": ("name",),
    "ResourceLimit": ("name",),
    "Extension": ("name", "type"),
}
_CONJ = "conj"
# What relates an element to the one before, and what is left of it where there is
# none before.
_RELATING = {"Or": "And", "Nor": "Nand"}


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
    """
    return _resolved(root, REJECT)


def _resolved(owner: Element, inherited: str) -> Element:
    if owner.name not in _LEVELS or owner.is_reference:
        return owner
    defaults_name, member_name = _LEVELS[owner.name]
    policy = owner.policy(inherited)
    defaults = owner.find(defaults_name)
    members = tuple(owner.all(member_name))
    if defaults is not None:
        theirs = defaults.policy(policy)
        members = tuple(
            _merged(member, member.policy(policy), defaults, theirs)
            for member in members or (Element(member_name),)
        )
    others = (e for e in owner.contents if e.name not in (defaults_name, member_name))
    resolved = (_resolved(member, policy) for member in members)
    # Where the defaults say nothing but their Id, an implicit one has nothing to say.
    left = (member for member in resolved if member.contents or member.is_reference)
    return replace(owner, contents=(*others, *left))


def _merged(own: Element, policy: str, defaults: Element, theirs: str) -> Element:
    """``own`` with what the ``defaults`` add.

    Args:
        policy: in effect at ``own``.
        theirs: in effect at ``defaults``.
    """
    if own.is_reference:
        return own
    contents = list(own.contents)
    taken = {key_of(element) for element in _plain(own)}
    taken.update(key_of(element) for element in _enveloped(own, REQUESTED))
    contents += (
        _moved(element, theirs, policy)
        for element in _plain(defaults)
        if key_of(element) not in taken and element.name not in _IDENTITIES
    )
    delivered = {key_of(element) for element in _enveloped(own, DELIVERED)}
    _add(contents, policy, REQUESTED, _requests(defaults, taken, theirs))
    _add(contents, policy, DELIVERED, _deliveries(defaults, delivered, theirs))
    for name in _NESTED:
        mine, default = own.find(name), defaults.find(name)
        if mine is not None and default is not None:
            contents.remove(mine)
            contents.append(
                _merged(mine, mine.policy(policy), default, default.policy(theirs))
            )
        elif default is not None:
            contents.append(_moved(default, theirs, policy))
    return replace(own, contents=tuple(contents))


def key_of(element: Element) -> Key:
    """By which properties override each other."""
    attributes = _NAMED.get(element.name, ())
    return (element.name, *(element.attribute(name) for name in attributes))


def _plain(owner: Element) -> Iterator[Element]:
    envelopes = (REQUESTED, DELIVERED, *_NESTED)
    return (element for element in owner.contents if element.name not in envelopes)


def _enveloped(owner: Element, name: str) -> tuple[Element, ...]:
    envelope = owner.find(name)
    return () if envelope is None else envelope.contents


def _requests(
    defaults: Element, taken: set[Key], inherited: str
) -> list[tuple[Element, str]]:
    """What of the defaults' Requested is not overridden, with the policy around
    it."""
    envelope = defaults.find(REQUESTED)
    if envelope is None:
        return []
    expressions = list(zip(_expressions(envelope.contents), envelope.contents))
    overridden = {number for number, element in expressions if key_of(element) in taken}
    policy = envelope.policy(inherited)
    return [
        (element, policy) for number, element in expressions if number not in overridden
    ]


def _deliveries(
    defaults: Element, taken: set[Key], inherited: str
) -> list[tuple[Element, str]]:
    """What of the defaults' Delivered is not overridden, with the policy around
    it."""
    envelope = defaults.find(DELIVERED)
    if envelope is None:
        return []
    policy = envelope.policy(inherited)
    return [
        (element, policy)
        for element in envelope.contents
        if key_of(element) not in taken
    ]


def _expressions(contents: tuple[Element, ...]) -> list[int]:
    """For each element of a Requested the number of its expression."""
    joined = list(range(len(contents)))

    def number(index: int) -> int:
        while joined[index] != index:
            joined[index] = joined[joined[index]]
            index = joined[index]
        return index

    first: dict[Key, int] = {}
    depth = 0
    for index, element in enumerate(contents):
        if depth != 0 or (index > 0 and element.attribute(_CONJ) in _RELATING):
            joined[number(index - 1)] = number(index)
        joined[number(first.setdefault(key_of(element), index))] = number(index)
        group = element.attribute("group")
        depth += group if isinstance(group, int) else 0
    return [number(index) for index in range(len(contents))]


def _add(
    contents: list[Element], inherited: str, name: str, moved: list[tuple[Element, str]]
) -> None:
    """Append to the envelope of this name, which is made if need be.

    Args:
        inherited: the policy around the envelope.
        moved: each with the policy around it where it stood.
    """
    if not moved:
        return
    envelope = next((e for e in contents if e.name == name), None)
    if envelope is None:
        envelope = Element(name)
    else:
        contents.remove(envelope)
    policy = envelope.policy(inherited)
    added = [_moved(element, theirs, policy) for element, theirs in moved]
    if envelope.contents:
        added[0] = _not_first(added[0])
    contents.append(replace(envelope, contents=(*envelope.contents, *added)))


def _not_first(element: Element) -> Element:
    """An element of which the conj related it to none, and would now."""
    conj = _RELATING.get(str(element.attribute(_CONJ)))
    return element if conj is None else _with(element, _CONJ, conj)


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


def _with(element: Element, name: str, value: str) -> Element:
    others = (item for item in element.attributes if item[0] != name)
    return replace(element, attributes=(*others, (name, value)))
