# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The XML Schema (XSD 1.0) of what :func:`~sssjob.xml.writing.write`
writes, made of the rules. ``doc/jobobject.xsd`` is a copy of it, written by::

    PYTHONPATH=t/python .venv/bin/python -c 'from support.xsd import schema
    print(schema(), end="")' > doc/jobobject.xsd
"""

from __future__ import annotations

from itertools import groupby
from typing import Iterable, Iterator
from xml.etree import ElementTree

from sssjob.schema.properties import (
    AWARENESS_POLICY,
    CONSUMABLE,
    CONTENTS,
    DELIVERED,
    DELIVERY_ATTRIBUTES,
    ENVIRONMENT,
    FILES,
    IN_ORDER,
    JOB_GROUP,
    REFERENCES,
    REQUEST_ATTRIBUTES,
    REQUESTED,
    ROOTS,
    Attribute,
    Rule,
)
from sssjob.schema.values import Datatype

_HEAD = """\
<?xml version="1.0" encoding="UTF-8"?>
<!-- Copyright 2026 the flux-dws developers -->
<!-- SPDX-License-Identifier: LGPL-3.0-only -->
"""

_LIMITS = """
SSS job objects 3.1 as flux-dws writes them. Reading is more liberal: elements may
come in any order, numbers may have white space around them, and awarenessPolicy may
allow what is not here.

XML Schema 1.0 cannot say, and flux-dws checks as well, that a JobGroup, Job,
TaskGroup or Task has either an id as its text or elements in it; that the elements
which contain others are not empty, but for Environment; that delimiter goes with
aggregation List only and is not empty, and code with condition OnExit only.
"""

_SIMPLE = {
    Datatype.STRING: "xs:string",
    Datatype.INTEGER: "xs:long",
    Datatype.FLOAT: "Finite",
    Datatype.BOOLEAN: "xs:boolean",
    Datatype.DATETIME: "xs:unsignedInt",
    Datatype.DURATION: "xs:unsignedInt",
}

_CATEGORIES = {REQUESTED: REQUEST_ATTRIBUTES, DELIVERED: DELIVERY_ATTRIBUTES}

# Attributes that many elements have, and the names of their groups.
_GROUPS = {
    "Any": (AWARENESS_POLICY,),
    "Consumable": CONSUMABLE,
    "Requests": REQUEST_ATTRIBUTES,
    "Deliveries": DELIVERY_ATTRIBUTES,
}

_OWN = {
    name: rule.attributes
    for rules in CONTENTS.values()
    for name, rule in rules.items()
    if name in CONTENTS
}
"""The attributes of elements that contain others."""


def schema() -> str:
    """The schema, with the same text each time."""
    documentation = _tag("documentation")
    documentation.text = _LIMITS
    root = _tag("schema", _tag("annotation", documentation))
    root.set("xmlns:xs", "http://www.w3.org/2001/XMLSchema")
    root.extend(_tag("element", name=name, type=name) for name in ROOTS)
    root.append(_finite())
    for name, attributes in _GROUPS.items():
        root.append(_tag("attributeGroup", *map(_attribute, attributes), name=name))
    root.extend(_texts().values())
    groups: dict[tuple[Rule, ...], str] = {}
    for name, by_name in CONTENTS.items():
        rules = tuple(by_name.values())
        if groups.setdefault(rules, name) == name:
            root.append(_tag("group", _contents(name, rules), name=name))
        root.append(_container(name, groups[rules]))
    ElementTree.indent(root)
    return f"{_HEAD}{ElementTree.tostring(root, encoding='unicode')}\n"


def _tag(
    tag: str, *contents: ElementTree.Element, **attributes: str
) -> ElementTree.Element:
    made = ElementTree.Element(f"xs:{tag}", attributes)
    made.extend(contents)
    return made


def _finite() -> ElementTree.Element:
    # xs:double has INF and NaN, which are no amounts.
    restriction = _restriction("xs:double", "pattern", ["[^IN]*"])
    return _tag("simpleType", restriction, name="Finite")


def _restriction(base: str, facet: str, values: Iterable[str]) -> ElementTree.Element:
    return _tag(
        "restriction", *(_tag(facet, value=value) for value in values), base=base
    )


def _choices(choices: tuple[str, ...], listed: bool) -> ElementTree.Element:
    """The restriction to these, or to lists of them."""
    if not listed:
        return _restriction("xs:string", "enumeration", choices)
    item = rf"\s*({'|'.join(choices)})\s*"
    return _restriction("xs:string", "pattern", [f"{item}(,{item})*"])


def _attribute(attribute: Attribute) -> ElementTree.Element:
    made = _tag("attribute", name=attribute.name)
    if attribute.choices:
        restriction = _choices(attribute.choices, attribute.listed)
        made.append(_tag("simpleType", restriction))
    else:
        made.set("type", _SIMPLE[attribute.datatype])
    if attribute.required:
        made.set("use", "required")
    return made


def _attributes(attributes: tuple[Attribute, ...]) -> Iterator[ElementTree.Element]:
    """These attributes, by group where all of a group are among them."""
    attributes = (*attributes, AWARENESS_POLICY)
    groups = {
        name: group for name, group in _GROUPS.items() if set(group) <= set(attributes)
    }
    if "Requests" in groups:
        # Theirs is the same.
        groups.pop("Deliveries", None)
    grouped = {attribute for group in groups.values() for attribute in group}
    for attribute in attributes:
        if attribute not in grouped:
            yield _attribute(attribute)
    for name in groups:
        yield _tag("attributeGroup", ref=name)


def _type_of(parent: str, rule: Rule) -> str:
    """The name of the type of an element in another."""
    if rule.datatype is None and rule.name != JOB_GROUP:
        return rule.name
    if rule.datatype is None:
        return Datatype.STRING.value  # only its id
    category = _CATEGORIES.get(parent, ())
    plain = rule.attributes == category and not rule.choices
    name = rule.datatype.value if plain else rule.name
    return f"{parent}.{name}" if category else name


def _texts() -> dict[str, ElementTree.Element]:
    """The types of elements that have text, by name."""
    types: dict[str, ElementTree.Element] = {}
    for parent, rules in CONTENTS.items():
        for rule in rules.values():
            name = _type_of(parent, rule)
            if name in types or name in CONTENTS:
                continue
            base = _SIMPLE[rule.datatype or Datatype.STRING]
            if rule.choices:
                base = f"{name}.List"
                types[base] = _tag(
                    "simpleType", _choices(rule.choices, True), name=base
                )
            extension = _tag("extension", *_attributes(rule.attributes), base=base)
            content = _tag("simpleContent", extension)
            types[name] = _tag("complexType", content, name=name)
    return types


def _container(name: str, group: str) -> ElementTree.Element:
    """The type of an element that contains those of a group."""
    contents = _tag("group", ref=group)
    made = _tag("complexType", contents, *_attributes(_OWN.get(name, ())), name=name)
    if name in REFERENCES:
        # Or an id alone.
        made.set("mixed", "true")
    if name in (*REFERENCES, ENVIRONMENT):
        contents.set("minOccurs", "0")
    if name in IN_ORDER:
        contents.set("maxOccurs", "unbounded")
    return made


def _contents(parent: str, rules: tuple[Rule, ...]) -> ElementTree.Element:
    """The contents of an element, in canonical order."""
    if parent in IN_ORDER:
        # How often is a matter of the type that has these contents.
        return _tag("choice", *(_once(parent, rule) for rule in rules))
    made = _tag("sequence")
    for together, some in groupby(rules, lambda rule: rule.name in FILES):
        if together:
            made.append(_in_any_order(parent, tuple(some)))
        else:
            made.extend(_element(parent, rule) for rule in some)
    return made


def _once(parent: str, rule: Rule) -> ElementTree.Element:
    return _tag("element", name=rule.name, type=_type_of(parent, rule))


def _element(parent: str, rule: Rule) -> ElementTree.Element:
    made = _once(parent, rule)
    if not rule.required:
        made.set("minOccurs", "0")
    if rule.many:
        made.set("maxOccurs", "unbounded")
    return made


def _in_any_order(parent: str, rules: tuple[Rule, ...]) -> ElementTree.Element:
    """Each of these once at most. By the first, it is known what may follow."""
    made = _tag("choice", minOccurs="0")
    for rule in rules:
        rest = tuple(other for other in rules if other is not rule)
        first = _once(parent, rule)
        made.append(
            _tag("sequence", first, _in_any_order(parent, rest)) if rest else first
        )
    return made
