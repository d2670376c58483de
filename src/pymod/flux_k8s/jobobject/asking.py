# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What a job object asks for, and what of it Flux cannot be told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Iterable, Iterator, Optional

from flux_k8s.errors import show
from flux_k8s.jobobject.defaults import key_of
from flux_k8s.jobobject.handling import (
    ASKS_NOTHING,
    HANDLING,
    SAID_ATTRIBUTES,
    Kind,
)
from flux_k8s.jobobject.model import Element, ObjectError, paths
from flux_k8s.jobobject.properties import (
    AWARENESS_POLICY,
    DELIVERED,
    IGNORE,
    JOB,
    REJECT,
    REQUESTED,
    TASK,
    TASK_GROUP,
)
from flux_k8s.jobobject.values import Value, to_text

Warn = Callable[[str], None]


class ObjectErrors(ObjectError):
    """A job object cannot be submitted, for one or more reasons.

    Attributes:
        errors: all of them. ``path`` and ``problem`` are those of the first; the
            message has a line for each.
    """

    def __init__(self, errors: Iterable[ObjectError]) -> None:
        self.errors = tuple(errors)
        first = self.errors[0]
        super().__init__(first.path, first.problem, first.line)
        self.args = ("\n".join(dict.fromkeys(map(str, self.errors))),)


@dataclass(frozen=True)
class Ask:
    """An element that asks for something.

    Attributes:
        policy: the awarenessPolicy in effect at it.
        vague: it has attributes that Flux cannot be told. What is left of it may
            contradict others, and gives way.
    """

    path: str
    element: Element
    policy: str
    vague: bool = False

    @property
    def value(self) -> Value:
        """What it says."""
        return "" if self.element.value is None else self.element.value

    @property
    def text(self) -> str:
        return str(self.value)

    def attribute(self, name: str) -> Optional[str]:
        value = self.element.attribute(name)
        return None if value is None else str(value)


class Problems:
    """Collects what is wrong, so that all of it is told at once."""

    def __init__(self, warn: Warn) -> None:
        self._warn = warn
        self._errors: list[ObjectError] = []

    def wrong(self, path: str, problem: str) -> None:
        """Something is wrong, whatever the policy."""
        self._errors.append(ObjectError(path, problem))

    def cannot(self, ask: Ask, problem: str, instead: str = "left out") -> None:
        """Flux cannot be told something: what now says the policy (section 9).

        Args:
            instead: what is done where the policy lets it.
        """
        if ask.policy == REJECT:
            self.wrong(ask.path, problem)
        elif ask.policy != IGNORE:
            self._warn(f"{ask.path}: {problem}; {instead}")

    def tell(self, path: str, message: str) -> None:
        """Tell something that is not wrong."""
        self._warn(f"{path}: {message}")

    def check(self) -> None:
        """Go on only if nothing was wrong.

        Raises:
            ObjectErrors: something was.
        """
        if self._errors:
            raise ObjectErrors(self._errors)


class Asks:
    """What a job asks for, in elements that are said to Flux.

    Attributes:
        path: that of the job.
        id: its Id.
    """

    def __init__(self, path: str, job: Element, asks: Iterable[Ask]) -> None:
        self.path = path
        self.id = job.text("Id") or ""
        self._asks = tuple(asks)

    def all(self, *names: str) -> list[Ask]:
        """The elements of these names, in their order."""
        return [ask for ask in self._asks if ask.element.name in names]

    def one(
        self, name: str, problems: Problems, ops: tuple[str, ...] = ("EQ",)
    ) -> Optional[Ask]:
        """The one element of a name. It may stand plain and in Requested, and say
        the same."""
        first: Optional[Ask] = None
        for ask in self.all(name):
            op = ask.attribute("op") or "EQ"
            if op not in ops:
                problems.cannot(ask, f'op="{op}" is not for a {name} that Flux knows')
            elif first is None:
                first = ask
            elif ask.value != first.value and not (ask.vague or first.vague):
                problems.wrong(
                    ask.path,
                    f"is {show(ask.value)}, but {first.path} is {show(first.value)}",
                )
        return first


def asks_of(path: str, job: Element, inherited: str, problems: Problems) -> Asks:
    """What a job asks for.

    Args:
        job: without defaults (see :func:`~flux_k8s.jobobject.defaults.effective`).
        inherited: the awarenessPolicy around it.
        problems: gets what Flux cannot be told.
    """
    plain = list(_within(path, job, job.policy(inherited)))
    groups = [ask for ask in plain if ask.element.name == TASK_GROUP]
    asks = _flat(plain)
    if groups:
        group = groups[0]
        own = [ask for ask in _flat(_inside(group)) if not _is_its_own(ask)]
        if group.element.is_reference:
            problems.cannot(group, "refers to a task group that is not here")
        taken = {key_of(ask.element) for ask in own}
        asks = [ask for ask in asks if key_of(ask.element) not in taken] + own
    for group in groups[1:]:
        problems.cannot(group, "a job has one kind of tasks in jobspec version 1")
    judged = [_judged(ask, problems) for ask in asks]
    return Asks(path, job, _without_alternatives(ask for ask in judged if ask))


def _within(path: str, parent: Element, policy: str) -> Iterator[Ask]:
    for inner_path, inner in paths(parent.contents, path):
        yield Ask(inner_path, inner, inner.policy(policy))


def _inside(ask: Ask) -> Iterator[Ask]:
    return _within(ask.path, ask.element, ask.policy)


def _is_its_own(ask: Ask) -> bool:
    """Whether this is about a task group only, as its Id and its Name are: they are
    not those of the job."""
    handling = HANDLING[TASK_GROUP][ask.element.name]
    return handling.kind is Kind.PASSED_OVER


def _flat(asks: Iterable[Ask]) -> list[Ask]:
    """The properties among these, and those in a Requested among them."""
    found: list[Ask] = []
    for ask in asks:
        if ask.element.name == REQUESTED:
            found.extend(_inside(ask))
        elif ask.element.name not in (DELIVERED, TASK_GROUP):
            found.append(ask)
    return found


def _judged(ask: Ask, problems: Problems) -> Optional[Ask]:
    """What is left of an element that asks for something; None for nothing."""
    element = ask.element
    if element.name == TASK:
        _judge_task(ask, problems)
        return ask
    handling = _OF_PROPERTIES[element.name]
    if handling.kind is Kind.PASSED_OVER or element.attribute("context") == "Used":
        return None
    if handling.kind is Kind.UNSAYABLE:
        problems.cannot(ask, f"cannot be told to Flux: {handling.reason}")
        return None
    unsayable = [
        (name, value)
        for name, value in element.attributes
        if not _sayable(element.name, name, value)
    ]
    if not unsayable:
        return ask
    texts = (f"{name}={show(to_text(value))}" for name, value in unsayable)
    problems.cannot(ask, f"Flux cannot be told {', '.join(texts)}")
    # Without these it would ask for something else.
    if any(name in ("conj", "op") for name, _ in unsayable):
        return None
    return Ask(ask.path, element, ask.policy, vague=True)


def _without_alternatives(asks: Iterable[Ask]) -> Iterator[Ask]:
    """Of elements that ``preference`` makes alternatives, the first is enough. Where
    it is negative, the job runs with none of them (section 8.1)."""
    preferred = set()
    for ask in asks:
        preference = ask.element.attribute("preference")
        if isinstance(preference, int):
            key = key_of(ask.element)
            if preference < 0 or key in preferred:
                continue
            preferred.add(key)
        yield ask


def _judge_task(ask: Ask, problems: Problems) -> None:
    """A Task may tell where it ran, and ask for nothing."""
    for inner in _flat(_inside(ask)):
        handling = HANDLING[TASK][inner.element.name]
        if handling.kind is Kind.UNSAYABLE:
            problems.cannot(inner, f"cannot be told to Flux: {handling.reason}")


def _sayable(element: str, name: str, value: Value) -> bool:
    """Whether an attribute is said to Flux, or asks for nothing."""
    return (
        name == AWARENESS_POLICY.name
        or name in SAID_ATTRIBUTES.get(element, ())
        or value in ASKS_NOTHING.get(name, ())
    )


_OF_PROPERTIES = {**HANDLING[TASK_GROUP], **HANDLING[JOB]}
