# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""From the JSON of an object to a typed structure."""

from __future__ import annotations

import re
from typing import Annotated, Any, TypeVar

import msgspec

from flux_k8s.errors import BadObject
from flux_k8s.json_reader import MISSING, read_string
from flux_k8s.ports import Encoded

T = TypeVar("T")

Filled = Annotated[str, msgspec.Meta(min_length=1)]
"""A string that is not empty."""

_PLACE = " - at `$"
_STEP = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]")
_EXPECTED = re.compile(r"Expected `([^`]*)`([^,]*)")
_LACKING = re.compile(r"Object missing required field `([^`]*)`")

_WORDS = {
    "array": "an array",
    "bool": "true or false",
    "int": "an integer",
    "object": "an object",
    "str": "a string",
}
"""Types of JSON by their names in the errors of msgspec."""


def decode(kind: type[T], object: Encoded, name: str) -> T:
    """Read an object.

    Args:
        name: the object in messages, as in ``Servers {namespace}/{name}``.

    Raises:
        BadObject: it is malformed.
    """
    try:
        if isinstance(object, dict):
            return msgspec.convert(object, kind)
        return msgspec.json.decode(object, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _bad_object(name, plain(object), str(error)) from None


def named(name: str, object: Any) -> str:
    """The name of an object in messages."""
    metadata = object.get("metadata") if isinstance(object, dict) else None
    known = metadata if isinstance(metadata, dict) else {}
    return name.format(
        namespace=read_string(known, "namespace"), name=read_string(known, "name")
    )


def plain(object: Encoded) -> Any:
    """An object as dictionaries and lists. Its ``managedFields`` are left out: they may
    be half of the object, and nobody reads them.

    Raises:
        BadObject: it is no JSON, or too deep.
    """
    if isinstance(object, dict):
        return object
    try:
        value = msgspec.json.decode(object)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadObject("an object", "the whole", MISSING, f"JSON: {error}") from None
    if isinstance(value, dict) and isinstance(value.get("metadata"), dict):
        value["metadata"].pop("managedFields", None)
    return value


def _bad_object(name: str, value: Any, error: str) -> BadObject:
    """The error with the value that is wrong, for an error of msgspec."""
    problem, _, place = error.partition(_PLACE)
    path, values, _ = place.strip("`.").partition("[...]")
    lacking, expected = _LACKING.match(problem), _EXPECTED.match(problem)
    words = "a value"
    if lacking is not None:
        path = f"{path}.{lacking[1]}".lstrip(".")
    elif values:
        words = "an object with strings"
    elif expected is not None:
        types = [type for type in expected[1].split(" | ") if type != "null"]
        words = " or ".join(_WORDS.get(type, type) for type in types)
        words += expected[2].replace("of length >= 1", "that is not empty")
    return BadObject(named(name, value), path or "the whole", _find(value, path), words)


def _find(value: Any, path: str) -> Any:
    """The value at a path; MISSING where there is none."""
    for key, index in _STEP.findall(path):
        if index:
            value = value[int(index)]
        elif isinstance(value, dict):
            value = value.get(key, MISSING)
    return value
