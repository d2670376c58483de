# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Label and field selectors."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Callable, Optional

from flux_k8s.ports import Json
from rabbitsim.kube.errors import bad_request

Selector = Callable[[Json], bool]

_KEY = r"(?:[A-Za-z0-9.-]+/)?[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?"
_SET = re.compile(rf"({_KEY})\s+(in|notin)\s*\(([^()]*)\)")
_EQUALITY = re.compile(rf"({_KEY})\s*(==|=|!=)\s*([A-Za-z0-9_.-]*)")
_EXISTS = re.compile(rf"(!?)\s*({_KEY})")
_FIELD = re.compile(r"([A-Za-z0-9.]+)(==|=|!=)(.*)")
# A comma between requirements, not one within the parentheses of a set.
_COMMA = re.compile(r",(?![^()]*\))")

_Requirement = Callable[[Mapping[str, str]], bool]


def label_selector(text: str) -> Optional[Selector]:
    """Parse a label selector; None for one that selects everything.

    Raises:
        ApiError: 400 when it cannot be parsed.
    """
    if not text.strip():
        return None
    requirements = [_label_requirement(part.strip()) for part in _COMMA.split(text)]

    def matches(obj: Json) -> bool:
        labels = obj["metadata"].get("labels") or {}
        return all(requirement(labels) for requirement in requirements)

    return matches


def _label_requirement(text: str) -> _Requirement:
    match = _SET.fullmatch(text)
    if match:
        key, operator, values = match.groups()
        wanted = {value.strip() for value in values.split(",")}
        if operator == "in":
            return lambda labels: labels.get(key) in wanted
        return lambda labels: labels.get(key) not in wanted
    match = _EQUALITY.fullmatch(text)
    if match:
        key, operator, value = match.groups()
        if operator == "!=":
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value
    match = _EXISTS.fullmatch(text)
    if match:
        absent, key = match.groups()
        if absent:
            return lambda labels: key not in labels
        return lambda labels: key in labels
    raise bad_request(f"unable to parse requirement: {text!r} is not a label selector")


def field_selector(text: str, selectable: Sequence[str]) -> Optional[Selector]:
    """Parse a field selector; ``selectable`` are the paths it may name besides
    ``metadata.name`` and ``metadata.namespace``.

    Raises:
        ApiError: 400 when it cannot be parsed or names another field.
    """
    if not text.strip():
        return None
    requirements = []
    for part in text.split(","):
        match = _FIELD.fullmatch(part.strip())
        if not match:
            raise bad_request(f"invalid field selector: {part!r} is not field=value")
        path, operator, value = match.groups()
        if path not in ("metadata.name", "metadata.namespace", *selectable):
            raise bad_request(f"field label not supported: {path}")
        requirements.append((path.split("."), operator != "!=", value))

    def matches(obj: Json) -> bool:
        return all(
            (str(look_up(obj, path, "")) == value) is equal
            for path, equal, value in requirements
        )

    return matches


def look_up(obj: Any, path: Sequence[str], default: Any = None) -> Any:
    """The value at ``path``, or ``default`` when there is none."""
    for step in path:
        if not isinstance(obj, dict) or obj.get(step) is None:
            return default
        obj = obj[step]
    return obj


def both(first: Optional[Selector], second: Optional[Selector]) -> Optional[Selector]:
    if first is None or second is None:
        return first or second
    one, other = first, second
    return lambda obj: one(obj) and other(obj)
