# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Structural schemas: pruning, defaulting and validation in one pass.

The subset of OpenAPI v3 that the CRDs of DWS and NNF use. A node without
``type`` is a string, so that :file:`kinds.yaml` stays short;
:func:`explicit` writes the types out for clients.
"""

from __future__ import annotations

import builtins
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Optional

from flux_k8s.ports import Json

_DATE_TIME = re.compile(
    r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)"
)
_PYTHON_TYPES: Mapping[str, type] = {
    "string": str,
    "integer": int,
    "boolean": bool,
    "object": dict,
    "array": list,
}
_UNCHANGED = object()


@dataclass
class Problem:
    """A problem with one field. ``path`` is built from the inside out."""

    reason: str
    message: str
    path: str = ""

    def below(self, step: str) -> None:
        join = "." if self.path and not self.path.startswith("[") else ""
        self.path = f"{step}{join}{self.path}"

    def cause(self) -> dict[str, str]:
        """The entry of a Status' ``details.causes``."""
        message = self.message.replace("{path}", self.path)
        return {"reason": self.reason, "message": message, "field": self.path}


Problems = list[Problem]


@dataclass
class Schema:
    """One compiled node. ``properties`` None means: keep anything."""

    type: str
    properties: Optional[dict[str, Schema]] = None
    additional: Optional[Schema] = None
    items: Optional[Schema] = None
    required: tuple[str, ...] = ()
    defaults: dict[str, Any] = field(default_factory=dict)
    enum: tuple[str, ...] = ()
    minimum: Optional[int] = None
    maximum: Optional[int] = None
    min_items: int = 0
    date_time: bool = False
    unchecked: Optional[builtins.type] = field(init=False)
    """The type of the values of which nothing else is checked."""

    def __post_init__(self) -> None:
        bounds = (self.minimum, self.maximum)
        checked = self.enum or self.date_time or bounds != (None, None)
        scalar = self.type in ("string", "integer", "boolean")
        self.unchecked = _PYTHON_TYPES[self.type] if scalar and not checked else None

    def conform(self, value: Any, old: Any, problems: Problems) -> Any:
        """``value`` without unknown fields and nulls, with defaults.

        ``old`` is what stood here before and is known to be good: where
        ``value`` is that very object, there is nothing to do. What is wrong is
        appended to ``problems``.
        """
        if value is old and value is not None:
            return value
        if self.type == "int-or-string":
            if type(value) not in (int, str):
                problems.append(_wrong_type(value, "integer,string"))
            return value
        if type(value) is not _PYTHON_TYPES[self.type]:
            problems.append(_wrong_type(value, self.type))
            return value
        return self._conform_typed(value, old, problems)

    def _conform_typed(self, value: Any, old: Any, problems: Problems) -> Any:
        if self.type == "object":
            return self._conform_object(value, old, problems)
        if self.type == "array":
            return self._conform_array(value, problems)
        self._check_scalar(value, problems)
        return value

    def _conform_object(self, value: Json, old: Any, problems: Problems) -> Json:
        if self.properties is None and self.additional is None:
            return value
        before = old if isinstance(old, dict) else {}
        known = self.properties or {}
        result = {}
        for key, item in value.items():
            node = known.get(key, self.additional)
            if node is None or item is None:
                continue
            if type(item) is node.unchecked:  # most of them
                result[key] = item
                continue
            count = len(problems)
            result[key] = node.conform(item, before.get(key, _UNCHANGED), problems)
            for problem in problems[count:]:
                problem.below(key)
        for key, default in self.defaults.items():
            result.setdefault(key, default)
        for key in self.required:
            if key not in result:
                problems.append(Problem("FieldValueRequired", "Required value", key))
        return result

    def _conform_array(self, value: list[Any], problems: Problems) -> list[Any]:
        if len(value) < self.min_items:
            message = f"{{path}} in body should have at least {self.min_items} items"
            problems.append(_invalid(value, message))
        if self.items is None:
            return value
        result = []
        for index, item in enumerate(value):
            count = len(problems)
            result.append(self.items.conform(item, _UNCHANGED, problems))
            for problem in problems[count:]:
                problem.below(f"[{index}]")
        return result

    def _check_scalar(self, value: Any, problems: Problems) -> None:
        if self.enum and value not in self.enum:
            names = ", ".join(json.dumps(name) for name in self.enum)
            message = f"Unsupported value: {_show(value)}: supported values: {names}"
            problems.append(Problem("FieldValueNotSupported", message))
        if self.minimum is not None and value < self.minimum:
            limit = f"should be greater than or equal to {self.minimum}"
            problems.append(_invalid(value, f"{{path}} in body {limit}"))
        if self.maximum is not None and value > self.maximum:
            limit = f"should be less than or equal to {self.maximum}"
            problems.append(_invalid(value, f"{{path}} in body {limit}"))
        if self.date_time and not _DATE_TIME.fullmatch(value):
            message = f"{{path}} in body must be of type date-time: {_show(value)}"
            problems.append(_invalid(value, message))


def compile_schema(node: Mapping[str, Any]) -> Schema:
    """Compile a node of :file:`kinds.yaml`."""
    if node.get("x-kubernetes-int-or-string"):
        return Schema("int-or-string")
    properties = node.get("properties")
    additional = node.get("additionalProperties")
    items = node.get("items")
    return Schema(
        type=node.get("type", "string"),
        properties=None
        if properties is None
        else {key: compile_schema(child) for key, child in properties.items()},
        additional=None if additional is None else compile_schema(additional),
        items=None if items is None else compile_schema(items),
        required=tuple(node.get("required", ())),
        defaults={
            key: child["default"]
            for key, child in (properties or {}).items()
            if "default" in child
        },
        enum=tuple(node.get("enum", ())),
        minimum=node.get("minimum"),
        maximum=node.get("maximum"),
        min_items=node.get("minItems", 0),
        date_time=node.get("format") == "date-time",
    )


def explicit(node: Mapping[str, Any]) -> Json:
    """``node`` with every ``type`` written out, as clients expect it."""
    result: Json = dict(node)
    if "x-kubernetes-int-or-string" not in node:
        result.setdefault("type", "string")
    for key in ("additionalProperties", "items"):
        if key in node:
            result[key] = explicit(node[key])
    if "properties" in node:
        result["properties"] = {
            key: explicit(child) for key, child in node["properties"].items()
        }
    return result


def _show(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 200 else f"{text[:197]}..."


def _invalid(value: Any, message: str) -> Problem:
    return Problem("FieldValueInvalid", f"Invalid value: {_show(value)}: {message}")


def _wrong_type(value: Any, expected: str) -> Problem:
    names = {kind: name for name, kind in _PYTHON_TYPES.items()}
    found = json.dumps(names.get(type(value), "null" if value is None else "number"))
    return Problem(
        "FieldValueTypeInvalid",
        f"Invalid value: {found}: {{path}} in body must be of type {expected}: {found}",
    )
