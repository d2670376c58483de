# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""From the JSON of an object to a typed structure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Annotated, Any, TypeVar

import msgspec

from flux_k8s.errors import BadObject
from flux_k8s.json_reader import INT64_MAX, MISSING, read_string
from flux_k8s.ports import Encoded

T = TypeVar("T")

Filled = Annotated[str, msgspec.Meta(min_length=1)]
"""A string that is not empty."""

Natural = Annotated[int, msgspec.Meta(ge=0, le=INT64_MAX)]
"""A number that is not negative."""

_PLACE = " - at `$"
_STEP = re.compile(r"\.?([^.\[\]]+)|\[(\d+|\.\.\.)\]")
_EXPECTED = re.compile(r"Expected `([^`]*)`([^,]*)")
_LACKING = re.compile(r"Object missing required field `([^`]*)`")

_TYPES = {
    "array": ("an array", list),
    "bool": ("true or false", bool),
    "int": ("an integer", int),
    "null": ("null", type(None)),
    "object": ("an object", dict),
    "str": ("a string", str),
}
"""Types of JSON by their names in the errors of msgspec."""


def decode(kind: type[T], object: Encoded, name: str) -> T:
    """Read an object.

    Args:
        name: the object in messages, as in ``Servers {reference}``.

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
    place = [read_string(known, key) for key in ("namespace", "name")]
    return name.format(reference="/".join(filter(None, place)), name=place[1])


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
    steps = [key or index for key, index in _STEP.findall(place.strip("`"))]
    lacking, expected = _LACKING.match(problem), _EXPECTED.match(problem)
    if lacking is not None:
        found, words = [*_find(value, [*steps, lacking[1]])], "a value"
    elif expected is not None:
        types = [_TYPES[each] for each in expected[1].split(" | ") if each in _TYPES]
        words = " or ".join(text for text, type in types if text != "null")
        more = expected[2].replace("of length >= 1", "that is not empty")
        words += more.replace(">=", "of at least").replace("<=", "of at most")
        kinds = {type for _, type in types}
        found = [each for each in _find(value, steps) if _is_wrong(each[1], kinds)]
    else:
        found, words = [*_find(value, steps)], "another value"
    path, wrong = found[0] if found else ("", value)
    return BadObject(named(name, value), path or "the whole", wrong, words)


def _is_wrong(value: Any, types: Collection[type]) -> bool:
    """Whether a value that is to be of these types, filled and natural, is not."""
    if type(value) is int and int in types:
        return not 0 <= value <= INT64_MAX
    return type(value) not in types or value == ""


def _find(
    value: Any, steps: Sequence[str], path: str = ""
) -> Iterator[tuple[str, Any]]:
    """Path and value of what an error may be about, which does not say which item of an
    object with any keys it is."""
    if not steps:
        yield path, value
        return
    step, *rest = steps
    if isinstance(value, list):
        if step.isdigit() and int(step) < len(value):
            yield from _find(value[int(step)], rest, f"{path}[{step}]")
    elif step == "..." and isinstance(value, dict):
        for key, item in value.items():
            yield from _find(item, rest, f"{path}.{key}")
    elif isinstance(value, dict):
        found = value.get(step, MISSING)
        yield from _find(found, rest, f"{path}.{step}".lstrip("."))
