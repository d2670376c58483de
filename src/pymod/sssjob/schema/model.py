# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The model: elements, and whether they make up a valid job object.

A job object is a tree of :class:`Element`. Which elements there are, and what they may
contain, is the business of :mod:`~sssjob.schema.properties`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import (
    Any,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    NamedTuple,
    Optional,
    Protocol,
    TypeVar,
)

from flux_k8s.errors import DWSError, show
from flux_k8s.text import printable
from sssjob.schema.properties import (
    AWARENESS_POLICY,
    CONTENTS,
    ENVIRONMENT,
    FILES,
    IN_ORDER,
    JOB_GROUP,
    REFERENCES,
    REJECT,
    ROOTS,
    Attribute,
    Rule,
)
from sssjob.schema.values import SPACE, Datatype, Value, to_text

Attributes = tuple[tuple[str, Value], ...]


class ObjectError(DWSError):
    """A job object is not what the specification prescribes.

    Attributes:
        path: the element, as in ``/JobGroup/Job[2]/Requested/Memory``; where
            there are several of a name in an element, they are counted from 1.
        problem: what is wrong with it, and what would be right.
        line: where it begins, counted from 1; None when it was not read.
    """

    def __init__(self, path: str, problem: str, line: Optional[int] = None) -> None:
        place = "" if line is None else f"line {line}: "
        super().__init__(printable(f"{place}{path}: {problem}"))
        self.path = path
        self.problem = problem
        self.line = line


class ObjectErrors(ObjectError):
    """A job object is wrong for one or more reasons.

    Attributes:
        errors: all of them. ``path`` and ``problem`` are those of the first; the
            message has a line for each of the first ``MAX_SHOWN``.
    """

    MAX_SHOWN = 200

    def __init__(self, errors: Iterable[ObjectError]) -> None:
        self.errors = tuple(errors)
        first = self.errors[0]
        super().__init__(first.path, first.problem, first.line)
        lines = list(dict.fromkeys(map(str, self.errors)))
        if len(lines) > self.MAX_SHOWN:
            lines[self.MAX_SHOWN :] = [f"and {len(lines) - self.MAX_SHOWN} more errors"]
        self.args = ("\n".join(lines),)


class Origin(NamedTuple):
    """The place of an element in the document that it was read from."""

    path: str
    line: int


@dataclass(frozen=True)
class Element:
    """An element of a job object. Make one with :func:`element`.

    Attributes:
        name: as in XML.
        value: what its text says, of the type that its rule has; None for an
            element that consists of others. Of a Job, TaskGroup... that is only
            referred to, its id.
        attributes: their names and values, sorted by name.
        contents: the elements in it, in canonical order.
        origin: where it was read; None where it was made. It does not matter for
            what the element says.
    """

    name: str
    value: Optional[Value] = None
    attributes: Attributes = ()
    contents: tuple[Element, ...] = ()
    origin: Optional[Origin] = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        # Two elements that say the same are equal, however they were made.
        object.__setattr__(self, "contents", _in_order(self.name, self.contents))
        by_name = sorted(self.attributes, key=lambda attribute: attribute[0])
        object.__setattr__(self, "attributes", tuple(by_name))

    def attribute(self, name: str) -> Optional[Value]:
        """The value of an attribute; None where it is not there."""
        return dict(self.attributes).get(name)

    def find(self, name: str) -> Optional[Element]:
        """The first element of a name in this one."""
        return next(self.all(name), None)

    def all(self, name: str) -> Iterator[Element]:
        """The elements of a name in this one."""
        return (element for element in self.contents if element.name == name)

    def text(self, name: str) -> Optional[str]:
        """The text of the first element of a name in this one, as in XML."""
        found = self.find(name)
        if found is None or found.value is None:
            return None
        return to_text(found.value)

    def policy(self, inherited: str = REJECT) -> str:
        """The awarenessPolicy in effect here (section 9).

        Args:
            inherited: that of the element which this one stands in.
        """
        own = self.attribute(AWARENESS_POLICY.name)
        return inherited if own is None else str(own)

    @cached_property
    def size(self) -> int:
        """The number of elements: this one and those in it."""
        return 1 + sum(inner.size for inner in self.contents)

    @property
    def is_reference(self) -> bool:
        """Whether it only names a job group, job, task group or task."""
        return self.name in REFERENCES and self.value is not None


def element(
    tag: str, content: Any = None, /, *contents: Optional[Element], **attributes: Any
) -> Element:
    """An element, for instance ``element("Memory", 2.0, units="GB")`` or
    ``element("Job", None, element("Id", "1"))``.

    Contents and attributes that are None are left out.
    """
    return Element(
        tag,
        content,
        tuple((key, value) for key, value in attributes.items() if value is not None),
        tuple(item for item in contents if item is not None),
    )


def rule_of(parent: str, name: str) -> Optional[Rule]:
    """The rule for an element in another; None where it may not stand."""
    return CONTENTS.get(parent, {}).get(name)


def attribute_of(rule: Rule, name: str) -> Optional[Attribute]:
    """The rule of an attribute of an element; None for an unknown attribute."""
    return AWARENESS_POLICY if name == AWARENESS_POLICY.name else rule.attribute(name)


ROOT_RULES: Mapping[str, Rule] = {name: Rule(name, None) for name in ROOTS}
"""The rules for what stands alone."""


def check(root: Element) -> None:
    """Whether this is a valid job object.

    Raises:
        ObjectError: it is not.
    """
    rule = ROOT_RULES.get(root.name)
    if rule is None:
        raise ObjectError(f"/{root.name}", f"expected {' or '.join(ROOTS)} here")
    _check(root, rule, f"/{root.name}")


def walk(root: Element, path: str = "") -> Iterator[tuple[str, Element]]:
    """All elements with their paths, each before what it contains."""
    path = path or f"/{root.name}"
    yield path, root
    for inner_path, inner in paths(root.contents, path):
        yield from walk(inner, inner_path)


class _Named(Protocol):
    @property
    def name(self) -> str: ...


_N = TypeVar("_N", bound=_Named)


def paths(contents: Iterable[_N], parent: str) -> Iterator[tuple[str, _N]]:
    """The elements in one, each with its path."""
    contents = tuple(contents)
    totals = Counter(inner.name for inner in contents)
    seen: Counter[str] = Counter()
    for inner in contents:
        seen[inner.name] += 1
        number = f"[{seen[inner.name]}]" if totals[inner.name] > 1 else ""
        yield f"{parent}/{inner.name}{number}", inner


def check_element(inner: Element, rule: Rule, path: str) -> None:
    """Whether an element is what its rule says, leaving out what the elements in
    it are.

    Args:
        inner: contains only elements that may stand in it.

    Raises:
        ObjectError: it is not.
    """
    for problem in problems_of(inner, rule, path.count("/") == 1):
        raise ObjectError(path, problem)


def problems_of(
    inner: Element, rule: Rule, root: bool, lost: Collection[str] = ()
) -> Iterator[str]:
    """How an element is not what its rule says, leaving out what the elements in it
    are.

    Args:
        inner: contains only elements that may stand in it.
        root: it stands alone.
        lost: the names of elements that were in it, and are not looked at.
    """
    yield from _attribute_problems(inner, rule)
    if inner.is_reference:
        yield from _reference_problems(inner)
    elif rule.datatype is not None:
        yield from _value_problems(rule.datatype, inner.value, "is")
        yield from _choice_problems(inner.value, rule.choices, True, "is")
    elif inner.value is not None:
        yield "may have no text, only elements"
    elif inner.name == JOB_GROUP and not root:
        yield "within a job, expected only a job group's id"
    else:
        yield from _content_problems(inner, lost)


def _content_problems(parent: Element, lost: Collection[str]) -> Iterator[str]:
    """Where an element does not contain enough, or something too often."""
    rules = CONTENTS[parent.name]
    counts = Counter(child.name for child in parent.contents)
    for name, count in counts.items():
        if count > 1 and not rules[name].many:
            yield f"has {count} {name}, expected one at most"
    for name, rule in rules.items():
        if rule.required and not counts[name] and name not in lost:
            yield f"has no {name}, which it must have"
    if not counts and not lost and parent.name != ENVIRONMENT:
        yield "is empty, expected at least one element in it"


def _check(inner: Element, rule: Rule, path: str) -> None:
    children = []
    for inner_path, child in paths(inner.contents, path):
        inner_rule = rule_of(inner.name, child.name)
        if inner_rule is None:
            raise ObjectError(inner_path, f"may not stand in {inner.name}")
        children.append((child, inner_rule, inner_path))
    check_element(inner, rule, path)
    for child, inner_rule, inner_path in children:
        _check(child, inner_rule, inner_path)


def _attribute_problems(inner: Element, rule: Rule) -> Iterator[str]:
    for name, count in Counter(name for name, _ in inner.attributes).items():
        if count > 1:
            yield f"has {count} attributes {name}, expected one"
    for name, value in inner.attributes:
        attribute = attribute_of(rule, name)
        if attribute is None:
            yield f"may not have an attribute {name}"
            continue
        yield from _value_problems(attribute.datatype, value, f"{name} is")
        choices, listed = attribute.choices, attribute.listed
        yield from _choice_problems(value, choices, listed, f"{name} is")
    has = dict(inner.attributes)
    for attribute in rule.attributes:
        if attribute.required and attribute.name not in has:
            yield f"has no attribute {attribute.name}"
    # What section 5.1 says of more than one of them.
    if "delimiter" in has and has.get("aggregation") != "List":
        yield "delimiter is for aggregation List only"
    if "delimiter" in has and not has["delimiter"]:
        yield "delimiter is empty, expected one character or more"
    if "code" in has and has.get("condition") != "OnExit":
        yield "code is for condition OnExit only"


def _reference_problems(inner: Element) -> Iterator[str]:
    yield from _value_problems(Datatype.STRING, inner.value, "refers to")
    text = str(inner.value)
    if not text or text != text.strip(SPACE):
        yield f"refers to {show(text)}, expected an id"
    if inner.contents:
        yield "has an id as its text, and elements in it"


def _value_problems(datatype: Datatype, value: Any, verb: str) -> Iterator[str]:
    if not datatype.holds(value):
        yield f"{verb} {show(value)}, expected {datatype.meaning}"


def _choice_problems(
    value: Any, choices: tuple[str, ...], listed: bool, verb: str
) -> Iterator[str]:
    if not in_choices(value, choices, listed):
        yield f"{verb} {show(value)}, expected {choices_of(choices)}"


def items_of(text: str) -> list[str]:
    """The items of a comma-separated list."""
    return [item.strip(SPACE) for item in text.split(",")]


def in_choices(value: Any, choices: tuple[str, ...], listed: bool) -> bool:
    """Whether a value is one of these, or a list of them; all are where there
    are none."""
    if not choices:
        return True
    items = items_of(str(value)) if listed else [value]
    return all(item in choices for item in items)


def choices_of(choices: tuple[str, ...]) -> str:
    """The valid values, for messages."""
    return f"one of {', '.join(choices)}"


def _in_order(parent: str, contents: tuple[Element, ...]) -> tuple[Element, ...]:
    if parent in IN_ORDER or parent not in CONTENTS:
        return contents
    ranks = _RANKS[parent]
    return tuple(sorted(contents, key=lambda e: ranks.get(e.name, len(ranks))))


def _ranks(rules: Mapping[str, Rule]) -> dict[str, int]:
    ranks = {name: rank for rank, name in enumerate(rules)}
    together = [ranks[name] for name in FILES if name in ranks]
    return {
        name: min(together) if name in FILES else rank for name, rank in ranks.items()
    }


_RANKS = {parent: _ranks(rules) for parent, rules in CONTENTS.items()}
