# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The requests in a job object, and those that Flux cannot express.

A job and its task group say things one after the other, and both hold. What is in a
Requested is one expression: the elements that it joins with And are taken one by one,
and Features and Nodes may be related in any way. Other alternatives, and Queues that a
job must not be in, are more than a jobspec says.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Callable, Iterable, Iterator, Optional, Sequence

from flux_k8s.errors import show
from flux_k8s.formats.constraints import AND
from sssjob.schema import relations
from sssjob.schema.model import Element, ObjectError, ObjectErrors, paths, walk
from sssjob.schema.properties import (
    AWARENESS_POLICY,
    DELIVERED,
    IGNORE,
    JOB,
    REJECT,
    REQUESTED,
    TASK,
    TASK_GROUP,
)
from sssjob.schema.relations import Bracket, Leaf, Tree
from sssjob.schema.values import Value, to_text
from sssjob.to_jobspec.handling import (
    ASKS_NOTHING,
    CONVERTED_ATTRIBUTES,
    HANDLING,
    HINTS,
    Kind,
)

Warn = Callable[[str], None]

MAX_NAMES = 2**18
"""The largest number of nodes and features that all jobs of an object may name."""

NODES = ("Feature", "Node")
"""The properties that Flux can be told alternatives and exceptions of."""


@dataclass(frozen=True)
class Request:
    """An element that asks for something.

    Attributes:
        path: where it was read, also if it has moved since.
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
        """The value of the element."""
        return "" if self.element.value is None else self.element.value

    @property
    def text(self) -> str:
        return str(self.value)

    def attribute(self, name: str) -> Optional[str]:
        value = self.element.attribute(name)
        return None if value is None else str(value)

    def inside(self) -> Iterator[Request]:
        """The elements in it."""
        return within(self.path, self.element, self.policy)

    def content(self) -> tuple[object, ...]:
        """The value, and the attributes that are converted in any place."""
        said = CONVERTED_ATTRIBUTES.get(self.element.name, frozenset()) - {"op"}
        attributes = [item for item in self.element.attributes if item[0] in said]
        return self.value, *attributes


class Problems:
    """Collects problems, so that all of them are reported at once."""

    def __init__(self, warn: Warn, root: Optional[Element] = None) -> None:
        """``root`` is the object: where an element of it was read goes into
        messages."""
        self._warn = warn
        self._errors: list[ObjectError] = []
        inner = () if root is None else walk(root)
        origins = (element.origin for _, element in inner)
        self._lines = {origin.path: origin.line for origin in origins if origin}
        self._names = 0

    def line(self, path: str) -> Optional[int]:
        """The line of an element, or of the nearest one around it that was read."""
        while path and path not in self._lines:
            path = path.rpartition("/")[0]
        return self._lines.get(path)

    def wrong(self, path: str, problem: str) -> None:
        """Note an error that no policy permits."""
        self._errors.append(ObjectError(path, problem, self.line(path)))

    def unsupported(
        self, request: Request, problem: str, instead: str = "left out"
    ) -> None:
        """Note a request that Flux does not support: an error or a warning, by its
        policy (section 9), and by an explicit Reject in an element inside.

        Args:
            instead: the treatment of the request where its policy permits that.
        """
        if request.policy == REJECT:
            self.wrong(request.path, problem)
            return
        if request.policy != IGNORE:
            self.warn(request.path, f"{problem}; {instead}")
        for path, inner in walk(request.element, request.path):
            if inner.attribute(AWARENESS_POLICY.name) == REJECT:
                path = inner.origin.path if inner.origin else path
                self.wrong(path, f"may not be left out with {request.path}: {problem}")

    def unsupported_any(
        self, requests: Sequence[Request], at: Request, problem: str
    ) -> None:
        """Note requests whose relation Flux does not support. The problem is that of
        the request ``at``. All of the requests are left out, if the policy of each
        permits that."""
        if any(request.policy == REJECT for request in requests):
            self.wrong(at.path, problem)
            return
        for request in requests:
            self.unsupported(request, problem)

    def warn(self, path: str, message: str) -> None:
        """Report a problem that is no error."""
        self._warn(str(ObjectError(path, message, self.line(path))))

    def has_room_for(self, names: int) -> bool:
        """Whether the object may name so many nodes and features more, which it
        does."""
        self._names += names
        return self._names <= MAX_NAMES

    def check(self) -> None:
        """Go on only if nothing was wrong.

        Raises:
            ObjectErrors: something was.
        """
        if self._errors:
            raise ObjectErrors(self._errors)


@dataclass(frozen=True)
class Nodes:
    """The requests of a job, or of its task group, for nodes.

    Attributes:
        plain: Features and Nodes that are in no Requested.
        tree: how those in the Requested relate; None for none.
        requested: what is in the Requested, by the indices in ``tree``. None for what
            is left out.
    """

    plain: tuple[Request, ...] = ()
    tree: Optional[Bracket] = None
    requested: tuple[Optional[Request], ...] = ()


class Requests:
    """The requests of a job that Flux can express.

    Attributes:
        path: that of the job.
        id: its Id.
        nodes: which nodes it asks for. All of these hold.
    """

    def __init__(
        self,
        path: str,
        job: Element,
        requests: Iterable[Request],
        nodes: Sequence[Nodes],
    ) -> None:
        self.path = path
        self.id = job.text("Id") or ""
        self.nodes = tuple(nodes)
        self._requests = tuple(requests)

    def all(self, *names: str) -> list[Request]:
        """The elements of these names, in their order."""
        return [request for request in self._requests if request.element.name in names]

    def one(
        self, name: str, problems: Problems, ops: tuple[str, ...] = ("EQ",)
    ) -> Optional[Request]:
        """The one element of a name. It may stand plain and in Requested, and of the
        job and of its task group, and say the same."""
        first: Optional[Request] = None
        for request in self.all(name):
            op = request.attribute("op") or "EQ"
            if op not in ops:
                problems.unsupported(
                    request, f'op="{op}" is not for a {name} that Flux knows'
                )
            elif first is None:
                first = request
            elif request.content() != first.content() and not (
                request.vague or first.vague
            ):
                problem = f"is {show(request.value)}, but {first.path} is"
                if request.value == first.value:
                    problem = (
                        f"is {show(request.value)} in another way than {first.path}:"
                    )
                problems.wrong(request.path, f"{problem} {show(first.value)}")
        return first


def requests_of(
    path: str, job: Element, inherited: str, problems: Problems
) -> Requests:
    """The requests of a job.

    Args:
        job: without defaults (see :func:`~sssjob.schema.defaults.effective`).
        inherited: the awarenessPolicy around it.
        problems: gets what Flux cannot be told.
    """
    own = list(within(path, job, job.policy(inherited)))
    groups = [request for request in own if request.element.name == TASK_GROUP]
    levels = [_level(own, problems)]
    for group in groups[:1]:
        if group.element.is_reference:
            problems.unsupported(group, "refers to a task group that is not here")
        inner = [request for request in group.inside() if not _is_its_own(request)]
        levels.append(_level(inner, problems))
    for group in groups[1:]:
        problems.unsupported(group, "a job has one kind of tasks in jobspec version 1")
    requests = [request for level in levels for request in level.requests]
    return Requests(path, job, requests, [level.nodes for level in levels])


def within(path: str, parent: Element, policy: str) -> Iterator[Request]:
    """The elements in one.

    Args:
        path: that of ``parent``.
        policy: in effect there.
    """
    for inner_path, inner in paths(parent.contents, path):
        place = inner.origin.path if inner.origin else inner_path
        yield Request(place, inner, inner.policy(policy))


def _is_its_own(request: Request) -> bool:
    """Whether this is about a task group only, as its Id and its Name are: they are
    not those of the job."""
    handling = HANDLING[TASK_GROUP][request.element.name]
    return handling.kind is Kind.PASSED_OVER


@dataclass(frozen=True)
class _Level:
    """The requests of a job, or of its task group."""

    requests: list[Request] = field(default_factory=list)
    nodes: Nodes = field(default_factory=Nodes)


def _level(own: Sequence[Request], problems: Problems) -> _Level:
    """The properties that Flux can express, of those in ``own`` and of those in a
    Requested in ``own``."""
    envelopes = (REQUESTED, DELIVERED, TASK_GROUP)
    plain = [request for request in own if request.element.name not in envelopes]
    requested = [
        inner
        for request in own
        if request.element.name == REQUESTED
        for inner in request.inside()
    ]
    parts = _parts(requested, problems)
    said = {index for part in parts for index in relations.leaves(part)}
    requests = [*plain, *(requested[index] for index in sorted(said))]
    checked = [_checked_request(request, problems) for request in requests]
    left = _without_alternatives(checked)
    of_nodes = [part for part in parts if _is_of_nodes(part, requested)]
    by_index = dict(zip(sorted(said), left[len(plain) :]))
    nodes = Nodes(
        tuple(a for a in left[: len(plain)] if a and a.element.name in NODES),
        Bracket(AND, tuple(of_nodes)) if of_nodes else None,
        tuple(by_index.get(index) for index in range(len(requested))),
    )
    return _Level([request for request in left if request is not None], nodes)


def _parts(requests: Sequence[Request], problems: Problems) -> list[Tree]:
    """The conditions of a Requested, all of which hold: single elements, and
    expressions of Features and Nodes."""
    try:
        whole = relations.parse(
            [relations.link_of(request.element) for request in requests]
        )
    except relations.Unclear as error:
        problems.unsupported_any(requests, requests[error.index], str(error))
        return []
    parts: list[Tree] = []
    waiting: list[Tree] = [whole]
    while waiting:
        part = waiting.pop()
        if _is_of_nodes(part, requests) and part is not whole or _is_single(part):
            parts.append(part)
        elif isinstance(part, Bracket) and part.operator == AND and not part.negated:
            waiting.extend(reversed(part.parts))
        elif _is_of_nodes(part, requests):
            parts.append(part)
        else:
            inside = [requests[index] for index in relations.leaves(part)]
            problem = "conj and group: alternatives and exceptions are for Feature and"
            problems.unsupported_any(inside, inside[0], f"{problem} Node only in Flux")
    return parts


def _is_single(tree: Tree) -> bool:
    return isinstance(tree, Leaf) and not tree.negated


def _is_of_nodes(tree: Tree, requests: Sequence[Request]) -> bool:
    return all(
        requests[index].element.name in NODES for index in relations.leaves(tree)
    )


def _checked_request(request: Request, problems: Problems) -> Optional[Request]:
    """The request that remains of an element; None for none."""
    element = request.element
    if element.name == TASK:
        _judge_task(request, problems)
        return request
    handling = _OF_PROPERTIES[element.name]
    if handling.kind is Kind.PASSED_OVER or element.attribute("context") == "Used":
        return None
    if handling.kind is Kind.UNSUPPORTED:
        problems.unsupported(request, f"cannot be told to Flux: {handling.reason}")
        return None
    unsupported = [
        (name, value)
        for name, value in element.attributes
        if not _is_supported(element.name, name, value)
    ]
    if not unsupported:
        return request
    texts = (f"{name}={show(to_text(value))}" for name, value in unsupported)
    problems.unsupported(request, f"Flux cannot be told {', '.join(texts)}")
    if any(name not in HINTS for name, _ in unsupported):
        return None  # without these it would ask for something else
    return Request(request.path, element, request.policy, vague=True)


def _without_alternatives(
    requests: Sequence[Optional[Request]],
) -> list[Optional[Request]]:
    """These, of which None are left out already. Of elements of a name that
    ``preference`` makes alternatives, the one that is preferred most is enough. Where
    it is negative, the job runs with none of them (section 8.1)."""
    best: dict[object, tuple[int, int]] = {}
    left = list(requests)
    for index, request in enumerate(requests):
        weight = None if request is None else request.element.attribute("preference")
        if request is None or not isinstance(weight, int):
            continue
        key = (request.element.name, request.attribute("name"))
        if weight < 0 or (key in best and best[key][0] >= weight):
            left[index] = None
            continue
        if key in best:
            left[best[key][1]] = None
        best[key] = (weight, index)
    return left


def _judge_task(request: Request, problems: Problems) -> None:
    """A Task may tell where it ran, and ask for nothing."""
    inside = list(request.inside())
    requested = [inner for inner in inside if inner.element.name == REQUESTED]
    for inner in [*inside, *(one for outer in requested for one in outer.inside())]:
        handling = HANDLING[TASK][inner.element.name]
        if handling.kind is Kind.UNSUPPORTED:
            problems.unsupported(inner, f"cannot be told to Flux: {handling.reason}")


def _is_supported(element: str, name: str, value: Value) -> bool:
    """Whether an attribute is converted, or asks for nothing."""
    return (
        name in (AWARENESS_POLICY.name, relations.CONJ, relations.GROUP)
        or name in CONVERTED_ATTRIBUTES.get(element, ())
        or value in ASKS_NOTHING.get(name, ())
    )


_OF_PROPERTIES = {**HANDLING[TASK_GROUP], **HANDLING[JOB]}
