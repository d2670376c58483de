# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The values of a job object (the specification, section 2.2 and appendix A)."""

from __future__ import annotations

import enum
import math
import re
from fractions import Fraction
from types import MappingProxyType
from typing import Callable, Mapping, Union

Value = Union[str, int, float, bool]

UNITS: Mapping[str, int] = MappingProxyType(
    {
        unit: 2 ** (10 * power)
        for power, unit in enumerate(
            ["B", "KB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB", "NB", "DB"]
        )
    }
)
"""Bytes by unit, as appendix A has them: a KB is 1024. The appendix lost the
abbreviations themselves; ``GB`` stands in the examples, and the others are the
initials of its definitions, byte to doggabyte."""

_INTEGER = re.compile(r"[+-]?[0-9]{1,20}")
_FLOAT = re.compile(
    r"[+-]?([0-9]{1,400}(\.[0-9]{0,400})?|\.[0-9]{1,400})([eE][+-]?[0-9]{1,4})?"
)
_BOOLEANS = {"true": True, "false": False, "1": True, "0": False}
_UNWRITABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
SPACE = " \t\r\n"
"""The white space of XML."""


class Datatype(enum.Enum):
    """A type of section 2.2."""

    STRING = "String"
    INTEGER = "Integer"
    FLOAT = "Float"
    BOOLEAN = "Boolean"
    DATETIME = "DateTime"
    """Seconds since 1970, 32 bits without a sign."""
    DURATION = "Duration"
    """Seconds, 32 bits without a sign."""

    @property
    def meaning(self) -> str:
        """The valid texts, for messages."""
        return _MEANINGS[self]

    def parse(self, text: str) -> Value:
        """The value that ``text`` says.

        Strings are taken as they are; around other values white space does not
        count.

        Raises:
            ValueError: it is none of this type. The message says what would be.
        """
        value = _PARSERS[self](text)
        if not self.holds(value):
            raise ValueError(self.meaning)
        return value

    def holds(self, value: object) -> bool:
        """Whether a value is of this type."""
        return _CHECKS[self](value)


def to_text(value: Value) -> str:
    """A value as a job object has it. ``Datatype.parse`` gives the value back."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    return str(value)


_MEANINGS = {
    Datatype.STRING: "text that XML can hold, which has no control characters",
    Datatype.INTEGER: "an integer of 64 bits",
    Datatype.FLOAT: "a number",
    Datatype.BOOLEAN: "true or false",
    Datatype.DATETIME: "seconds since 1970, below 2^32",
    Datatype.DURATION: "an integer of seconds, below 2^32",
}


def unwritable(text: str) -> bool:
    """Whether XML 1.0 has no way to write some character of ``text``."""
    return _UNWRITABLE.search(text) is not None


def in_bytes(amount: float, unit: str) -> int:
    """An amount in a unit of appendix A, in bytes, rounded up.

    Raises:
        ValueError: the unit is unknown; the message says which there are.
    """
    size = UNITS.get(unit)
    if size is None:
        raise ValueError(f"units {unit!r}, expected one of {', '.join(UNITS)}")
    return math.ceil(Fraction(amount) * size)


def _parse_integer(text: str) -> int:
    stripped = text.strip(SPACE)
    if _INTEGER.fullmatch(stripped) is None:
        raise ValueError(Datatype.INTEGER.meaning)
    return int(stripped)


def _parse_float(text: str) -> float:
    stripped = text.strip(SPACE)
    if _FLOAT.fullmatch(stripped) is None:
        raise ValueError(Datatype.FLOAT.meaning)
    return float(stripped)


def _parse_boolean(text: str) -> bool:
    # Section 5.1 writes True where 2.2 says that the literal is "true".
    value = _BOOLEANS.get(text.strip(SPACE).lower())
    if value is None:
        raise ValueError(Datatype.BOOLEAN.meaning)
    return value


_PARSERS: dict[Datatype, Callable[[str], Value]] = {
    Datatype.STRING: str,
    Datatype.INTEGER: _parse_integer,
    Datatype.FLOAT: _parse_float,
    Datatype.BOOLEAN: _parse_boolean,
    Datatype.DATETIME: _parse_integer,
    Datatype.DURATION: _parse_integer,
}


def _is_integer(value: object, low: int, high: int) -> bool:
    return (
        isinstance(value, int) and not isinstance(value, bool) and low <= value < high
    )


_CHECKS: dict[Datatype, Callable[[object], bool]] = {
    Datatype.STRING: lambda v: isinstance(v, str) and not unwritable(v),
    Datatype.INTEGER: lambda v: _is_integer(v, -(2**63), 2**63),
    Datatype.FLOAT: lambda v: isinstance(v, float) and math.isfinite(v),
    Datatype.BOOLEAN: lambda v: isinstance(v, bool),
    Datatype.DATETIME: lambda v: _is_integer(v, 0, 2**32),
    Datatype.DURATION: lambda v: _is_integer(v, 0, 2**32),
}
