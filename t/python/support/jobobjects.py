# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Job objects for tests, made from the rules: random ones, and one with all."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Iterator, Optional

from hypothesis import strategies as st

from sssjob.schema.model import ROOT_RULES, Element
from sssjob.schema.properties import (
    AWARENESS_POLICY,
    CONTENTS,
    JOB,
    JOB_GROUP,
    REFERENCES,
    Attribute,
    Rule,
)
from sssjob.schema.values import SPACE, Datatype, Value, unwritable
from support.tree import TOP

DATA = TOP / "t" / "data" / "jobobject"
EXAMPLES = sorted(DATA.glob("*.xml"))
"""The three examples of section 1.3."""

# What a writer must escape, what a parser may change, and what only looks like it.
_DELICATE = ["<", ">", "&", '"', "'", "]]>", "\r", "\n", "\t", " ", "&amp;", "\u00a0"]
_characters = st.characters(exclude_categories=["Cs"]).filter(
    lambda c: not unwritable(c)
)
strings = st.lists(st.sampled_from(_DELICATE) | _characters, max_size=6).map("".join)
"""All that XML can hold."""
ids = strings.map(lambda text: text.strip(SPACE)).filter(bool)
"""Elements that refer to others."""

VALUES: dict[Datatype, st.SearchStrategy[Any]] = {
    Datatype.STRING: strings,
    Datatype.INTEGER: st.integers(-(2**63), 2**63 - 1),
    Datatype.FLOAT: st.floats(allow_nan=False, allow_infinity=False),
    Datatype.BOOLEAN: st.booleans(),
    Datatype.DATETIME: st.integers(0, 2**32 - 1),
    Datatype.DURATION: st.integers(0, 2**32 - 1),
}


def objects(name: Optional[str] = None) -> st.SearchStrategy[Element]:
    """Valid job objects.

    Args:
        name: of the root, Job or JobGroup; None for either.
    """
    names = sorted(ROOT_RULES) if name is None else [name]
    return st.sampled_from(names).flatmap(lambda name: _containers(ROOT_RULES[name]))


def elements(parent: str, rule: Rule) -> st.SearchStrategy[Element]:
    """Valid elements of a rule, as they may stand in another element."""
    if rule.datatype is not None:
        return st.builds(Element, st.just(rule.name), _texts(rule), _attributes(rule))
    references = st.builds(Element, st.just(rule.name), ids, _attributes(rule))
    if rule.name == JOB_GROUP:
        return references
    if rule.name in REFERENCES:
        return st.one_of(_containers(rule), references)
    return _containers(rule)


def _texts(rule: Rule) -> st.SearchStrategy[Any]:
    if rule.choices:
        return _lists(rule.choices)
    assert rule.datatype is not None
    return VALUES[rule.datatype]


def _lists(choices: tuple[str, ...]) -> st.SearchStrategy[str]:
    items = st.lists(st.sampled_from(choices), min_size=1, max_size=3)
    return st.builds(str.join, st.sampled_from([",", ", ", " ,"]), items)


@st.composite
def _attributes(draw: st.DrawFn, rule: Rule) -> tuple[tuple[str, Value], ...]:
    optional = [AWARENESS_POLICY, *(a for a in rule.attributes if not a.required)]
    chosen = [a for a in rule.attributes if a.required]
    chosen += draw(st.lists(st.sampled_from(optional), max_size=4, unique=True))
    made = {attribute.name: draw(_attribute(attribute)) for attribute in chosen}
    # Section 5.1 has these with another one only.
    if "delimiter" in made:
        made["aggregation"] = "List"
        made["delimiter"] = made["delimiter"] or ";"
    if "code" in made:
        made["condition"] = "OnExit"
    return tuple(made.items())


def _attribute(attribute: Attribute) -> st.SearchStrategy[Any]:
    if attribute.listed:
        return _lists(attribute.choices)
    if attribute.choices:
        return st.sampled_from(attribute.choices)
    return VALUES[attribute.datatype]


@st.composite
def _containers(draw: st.DrawFn, rule: Rule) -> Element:
    rules = list(CONTENTS[rule.name].values())
    chosen = draw(st.lists(st.sampled_from(rules), min_size=1, max_size=5))
    once = {rule.name: rule for rule in (*filter(_is_required, rules), *chosen)}
    several = (rule for rule in chosen if rule.many)
    return Element(
        rule.name,
        None,
        draw(_attributes(rule)),
        tuple(draw(elements(rule.name, r)) for r in (*once.values(), *several)),
    )


def _is_required(rule: Rule) -> bool:
    return rule.required


@lru_cache(maxsize=None)
def complete(name: str) -> Element:
    """A Job or JobGroup with each element that there may be, and each with all
    attributes; where there may be several that have a value, two."""
    return _complete(ROOT_RULES[name])


def _complete(rule: Rule, inner: bool = False) -> Element:
    attributes = tuple(_all_attributes(rule))
    if rule.datatype is not None:
        value = ",".join(rule.choices) or _some(rule.datatype)
        return Element(rule.name, value, attributes)
    if inner and rule.name == JOB_GROUP:
        return Element(rule.name, "group", attributes)
    contents = []
    for each in CONTENTS[rule.name].values():
        contents += [_complete(each, True)] * (2 if each.many and each.datatype else 1)
    if rule.name == JOB_GROUP:
        contents.append(Element(JOB, "job"))
    return Element(rule.name, None, attributes, tuple(contents))


def _all_attributes(rule: Rule) -> Iterator[tuple[str, Value]]:
    for attribute in (*rule.attributes, AWARENESS_POLICY):
        if attribute.listed:
            yield attribute.name, ",".join(attribute.choices)
        elif attribute.name == "condition":
            yield attribute.name, "OnExit"
        else:
            choices = attribute.choices
            yield attribute.name, choices[0] if choices else _some(attribute.datatype)


def _some(datatype: Datatype) -> Value:
    some: dict[Datatype, Value] = {Datatype.STRING: "x", Datatype.BOOLEAN: True}
    return some.get(datatype, 1.5 if datatype is Datatype.FLOAT else 1)
