# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Typed reading of JSON from outside.

A :class:`Reader` is a JSON object with its name and its place. Each method takes the
dotted path of a field, and returns the field's value with the type that the method is
named after, or raises :class:`~flux_k8s.errors.BadObject` with the full path and the
value found::

    breakdown = Reader("DirectiveBreakdown default/fluxjob-1-0", obj)
    breakdown.boolean("status.ready")
    for entry in breakdown.objects("status.storage.allocationSets"):
        entry.integer("minimumCapacity", minimum=1)

A method whose name begins with ``optional_`` returns None (or an empty tuple) for a
field that is missing or null. Kubernetes treats the two alike.

Objects that are watched in numbers are decoded by ``msgspec``
(:mod:`flux_k8s.objects.decoding`); what is looked at once stays a dictionary. This
module needs no package: ``sched-rabbit`` runs in Flux's own Python.
"""

from __future__ import annotations

import math
import sys
from typing import Any, Collection, Mapping, Optional, Union

from flux_k8s.errors import BadObject
from flux_k8s.limits import LEVELS, VALUES

INT64_MAX = 2**63 - 1
"""The largest integer of Kubernetes' ``int64`` and of Flux's JSON."""


class _Missing:
    """The value of a field that is missing, in error messages ``missing``."""

    def __repr__(self) -> str:
        return "missing"


MISSING = _Missing()


class Reader:
    """A JSON object, or an object within it, with the words for error messages.

    Attributes:
        name: the whole object, as in ``Workflow default/fluxjob-1``.
        path: the place of ``value`` in the whole object; empty for the whole.
        value: the object itself, unchanged.

    Raises:
        BadObject: from the constructor, when ``value`` is no JSON object.
    """

    def __init__(self, name: str, value: Any, path: str = "") -> None:
        if not isinstance(value, dict):
            raise BadObject(name, path or "the whole", value, "an object")
        self.name = name
        self.path = path
        self.value: dict[str, Any] = value

    def bad(self, path: str, expected: str) -> BadObject:
        """The error to raise when the field at ``path`` is not ``expected``."""
        return BadObject(self.name, self._full(path), self._find(path), expected)

    def has(self, path: str) -> bool:
        """Whether there is a value other than null at ``path``."""
        return self._find(path) not in (MISSING, None)

    def string(self, path: str, choices: Optional[Collection[str]] = None) -> str:
        """A string that is not empty, or one of ``choices``."""
        value = self._find(path)
        if isinstance(value, str) and (value if choices is None else value in choices):
            return value
        if choices is None:
            raise self.bad(path, "a string that is not empty")
        raise self.bad(path, f"one of {', '.join(choices)}")

    def text(self, path: str) -> str:
        """A string, which may be empty."""
        return str(self._typed(path, str, "a string"))

    def integer(
        self, path: str, minimum: int = -INT64_MAX - 1, maximum: int = INT64_MAX
    ) -> int:
        """An integer from ``minimum`` to ``maximum``. Booleans are no integers."""
        value = self._find(path)
        if is_integer(value) and minimum <= value <= maximum:
            return int(value)
        raise self.bad(path, _limits("an integer", minimum, maximum))

    def number(self, path: str, minimum: float = -math.inf) -> float:
        """A finite number of at least ``minimum``. Booleans are no numbers."""
        value = self._find(path)
        if is_number(value) and value >= minimum:
            return float(value)
        limit = "" if minimum == -math.inf else f" of at least {minimum:g}"
        raise self.bad(path, f"a number{limit}")

    def boolean(self, path: str) -> bool:
        """True or false."""
        return bool(self._typed(path, bool, "true or false"))

    def object(self, path: str) -> Reader:
        """An object."""
        return Reader(self.name, self._typed(path, dict, "an object"), self._full(path))

    def list(self, path: str) -> tuple[Any, ...]:
        """An array of anything."""
        return tuple(self._typed(path, (list, tuple), "an array"))

    def objects(self, path: str) -> tuple[Reader, ...]:
        """An array of objects."""
        full = self._full(path)
        return tuple(
            Reader(self.name, item, f"{full}[{index}]")
            for index, item in enumerate(self.list(path))
        )

    def strings(self, path: str) -> tuple[str, ...]:
        """An array of strings."""
        values = self.list(path)
        for index, item in enumerate(values):
            if not isinstance(item, str):
                place = f"{self._full(path)}[{index}]"
                raise BadObject(self.name, place, item, "a string")
        return values

    def optional_string(
        self, path: str, choices: Optional[Collection[str]] = None
    ) -> Optional[str]:
        return self.string(path, choices) if self.has(path) else None

    def optional_text(self, path: str) -> Optional[str]:
        return self.text(path) if self.has(path) else None

    def optional_integer(
        self, path: str, minimum: int = -INT64_MAX - 1, maximum: int = INT64_MAX
    ) -> Optional[int]:
        return self.integer(path, minimum, maximum) if self.has(path) else None

    def optional_number(self, path: str, minimum: float = -math.inf) -> Optional[float]:
        return self.number(path, minimum) if self.has(path) else None

    def optional_boolean(self, path: str) -> Optional[bool]:
        return self.boolean(path) if self.has(path) else None

    def optional_object(self, path: str) -> Optional[Reader]:
        return self.object(path) if self.has(path) else None

    def optional_objects(self, path: str) -> tuple[Reader, ...]:
        return self.objects(path) if self.has(path) else ()

    def optional_strings(self, path: str) -> tuple[str, ...]:
        return self.strings(path) if self.has(path) else ()

    def _typed(self, path: str, type: Any, expected: str) -> Any:
        value = self._find(path)
        if isinstance(value, type):
            return value
        raise self.bad(path, expected)

    def _full(self, path: str) -> str:
        return f"{self.path}.{path}" if self.path else path

    def _find(self, path: str) -> Any:
        """The value at ``path``; MISSING when the field, or an object around it, is
        missing or null.

        Raises:
            BadObject: a value on the way to ``path`` is no object.
        """
        if "." not in path:
            return self.value.get(path, MISSING)
        value: Any = self.value
        keys = path.split(".")
        for number, key in enumerate(keys):
            if value is MISSING or value is None:
                return MISSING
            if not isinstance(value, dict):
                place = self._full(".".join(keys[:number]))
                raise BadObject(self.name, place, value, "an object")
            value = value.get(key, MISSING)
        return value


def is_integer(value: Any) -> bool:
    """Whether a JSON value is an integer. Booleans are no integers."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Whether a JSON value is a finite number that a float can hold. Booleans are no
    numbers."""
    number = is_integer(value) or isinstance(value, float)
    return number and abs(value) <= sys.float_info.max


def check_extent(name: str, path: str, value: Any) -> None:
    """Refuse a value with more levels of arrays and objects than ``LEVELS``, or more
    values in them than ``VALUES``. Python can read deeper JSON than it can write.

    Raises:
        BadObject: ``value``, at ``path`` of the object ``name``, has more.
    """
    level, count = [value], 0
    for _ in range(LEVELS):
        level = [
            item
            for container in level
            if isinstance(container, (dict, list))
            for item in (
                container.values() if isinstance(container, dict) else container
            )
        ]
        if not level:
            return
        count += len(level)
        if count > VALUES:
            raise BadObject(name, path, value, f"at most {VALUES} values")
    raise BadObject(name, path, value, f"at most {LEVELS} levels")


def read_string(part: Mapping[str, Any], key: str) -> str:
    """The string at ``key``, for a field that is no reason to refuse the object; an
    empty one where there is none."""
    value = part.get(key)
    return value if isinstance(value, str) else ""


def decimal(text: str, digits: int = 20) -> Optional[int]:
    """The number that ``text`` has in at most ``digits`` ASCII digits; None for any
    other text. (Python refuses to read numbers of thousands of digits.)"""
    if len(text) <= digits and text.isascii() and text.isdecimal():
        return int(text)
    return None


def _limits(what: str, minimum: int, maximum: Union[int, float]) -> str:
    """The words for "``what`` between the limits". The limits of a 64-bit integer are
    left out."""
    if minimum <= -INT64_MAX:
        return what if maximum >= INT64_MAX else f"{what} of at most {maximum}"
    if maximum >= INT64_MAX:
        return f"{what} of at least {minimum} and below 2^63"
    return str(minimum) if minimum == maximum else f"{what} from {minimum} to {maximum}"
