# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The formats of ``-o``: Python's format strings with what Flux adds to them.

The language is that of ``flux.util.OutputFormat``: the conversions ``!d !D !F !H !P``,
a ``+`` at the end of a field's format that marks what is cut, an ``h`` that shows a
hyphen for nothing, ``?:`` before a field for a column that is left out where it is
empty, ``+:`` for one that is as wide as its widest text, ``?+:`` for both, and a prefix
``sort:KEY,...``. One conversion is new: ``!B`` shows a number of bytes as a size.

This is an implementation of its own. Flux's counts characters, and would show tables
with wide characters askew; it prints what users have written in names and notes as it
is; it parses each format again for each row; and without Flux (in the simulator, in
tests) there is none. Blanks at the end of lines are left out. A test compares the two.
"""

from __future__ import annotations

import math
import re
import string
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import partial
from typing import (
    Any,
    Callable,
    Generic,
    Iterable,
    Mapping,
    Optional,
    Sequence,
    TypeVar,
)

from dwscli import units
from dwscli.width import beginning, cut, padded
from flux_k8s.command import CommandError
from flux_k8s.text import columns, printable, quoted

Item = TypeVar("Item")

SENTINELS = ("?+:", "?:", "+:")
"""Prefixes of a field, the longest first."""

WIDEST = 512
"""The columns up to which a column grows with its widest text: a user may have written
that, and all lines are as wide. The text itself is not cut."""

EMPTY = ("", "0s", "0.0", "0:00:00")
"""Texts that stand for nothing."""

_SORT = re.compile(r"sort:([^{\s]+) ?")
_SPEC = re.compile(
    r"(?:(?P<fill>[\s\S])?(?P<align>[<>=^]))?(?P<sign>[- +])?(?P<zero>z)?(?P<alt>#)?"
    r"(?P<pad>0)?(?P<width>\d{1,4})?(?P<grouping>[_,])?(?:\.(?P<precision>\d{1,4}))?"
    r"(?P<type>[bcdeEfFgGnosxX%])?(?P<hyphen>h)?(?P<mark>\+)?"
)


@dataclass(frozen=True)
class Field(Generic[Item]):
    """The meaning of a name in a format.

    Attributes:
        heading: the heading of the column.
        value: the value of an item: a text, a number, or None for nothing.
    """

    heading: str
    value: Callable[[Item], Any]


class FormatError(CommandError):
    """A format is wrong."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"Error in user format: {problem}")


@dataclass(frozen=True)
class Spec:
    """A field's format, as in ``{id:>12.12+}``."""

    fill: str = " "
    align: str = ""
    width: int = 0
    precision: int = -1
    number: str = ""
    """The parts of a specification for numbers alone, for Python's own formatting."""
    hyphen: bool = False
    mark: bool = False

    @classmethod
    def parse(cls, text: str) -> Spec:
        match = _SPEC.fullmatch(text)
        if match is None:
            raise FormatError(f"Invalid format specifier: {quoted(text)}")
        part = {key: value or "" for key, value in match.groupdict().items()}
        kind = "" if part["type"] == "s" else part["type"]
        dot = f".{part['precision']}" if part["precision"] else ""
        numeric = part["sign"] + part["zero"] + part["alt"]
        return cls(
            part["fill"] or ("0" if part["pad"] else " "),
            part["align"] or ("=" if part["pad"] else ""),
            int(part["width"] or 0),
            int(part["precision"] or -1),
            numeric + part["grouping"] + (dot + kind if kind else ""),
            bool(part["hyphen"]),
            bool(part["mark"]),
        )

    def widened(self, width: int) -> Spec:
        """The format of a column of this width, in which nothing is cut."""
        precision = max(self.precision, width) if self.precision >= 0 else -1
        return replace(self, width=min(width, WIDEST), precision=precision)

    def apply(self, value: Any) -> str:
        """A value in this format."""
        is_number = isinstance(value, (int, float)) and not self.hyphen
        text = self._number(value) if is_number else printable(str(value))
        if self.hyphen and text in EMPTY:
            text = "-"
        if not is_number and 0 <= self.precision < columns(text):
            text = (cut if self.mark else beginning)(text, self.precision)
        align = self.align or (">" if is_number else "<")
        return padded(text, self.width, align, self.fill)

    def _number(self, value: Any) -> str:
        try:
            return format(value, self.number)
        except (ValueError, OverflowError) as error:
            raise FormatError(str(error)) from None


@dataclass(frozen=True)
class Column:
    """One field of a format, with the text before it."""

    text: str
    name: str = ""
    conversion: str = ""
    sentinel: str = ""
    time: str = ""
    """How a time is written, for the conversion ``!d``."""
    spec: Spec = field(default_factory=Spec)

    @classmethod
    def parse(cls, text: str, name: str, spec: str, conversion: str) -> Column:
        if conversion and conversion not in CONVERSIONS:
            raise FormatError(
                f"Unknown conversion specifier {quoted(conversion)}, expected one of"
                f" {', '.join(CONVERSIONS)}"
            )
        sentinel = next((mark for mark in SENTINELS if text.endswith(mark)), "")
        time = ""
        if conversion == "d":
            time, _, spec = spec.partition("::")
        text = text[: len(text) - len(sentinel)]
        return cls(text, name, conversion, sentinel, time, Spec.parse(spec))

    def converted(self, value: Any) -> Any:
        """A value as the field's conversion has it."""
        if value is None:
            value = ""
        if not self.conversion or (value == "" and self.conversion not in TEXTUAL):
            return value
        if self.conversion == "d":
            return units.timestamp(_number(value), self.time or "%FT%T")
        return CONVERSIONS[self.conversion](value)


def _number(value: Any) -> float:
    if isinstance(value, (int, float)):
        return value
    raise FormatError(f"{quoted(str(value))} is neither a time nor a number")


def _clock(value: Any) -> str:
    """Seconds as hours, minutes and seconds; anything but 0 is one second at least."""
    seconds = _number(value)
    seconds = 1 if 0 < seconds < 1 else round(seconds)
    days, rest = divmod(seconds, 86400)
    clock = f"{rest // 3600}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days} day{'' if days == 1 else 's'}, {clock}" if days else clock


def _percentage(value: Any) -> str:
    percent = _number(value) * 100
    return f"{percent:.2f}%" if 0 < percent < 1 else f"{percent:.3g}%"


TEXTUAL = "sra"
"""The conversions of Python itself, which are for texts as well."""

CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "s": str,
    "r": repr,
    "a": ascii,
    "d": str,
    "D": lambda value: units.timestamp(_number(value)),
    "F": lambda value: units.duration(_number(value)),
    "H": _clock,
    "P": _percentage,
    "B": lambda value: units.size(_number(value)),
}


class Format(Generic[Item]):
    """A format for items of one type.

    Attributes:
        names: the fields that the format shows or sorts by.

    Raises:
        FormatError: from the constructor, when the text is no format.
    """

    def __init__(self, text: str, fields: Mapping[str, Field[Item]]) -> None:
        self._fields = fields
        self._keys: list[tuple[str, bool]] = []
        match = _SORT.match(text)
        if match is not None:
            self.sort_by(match.group(1))
            text = text[match.end() :]
        try:
            parts = list(string.Formatter().parse(text))
        except ValueError as error:
            raise FormatError(str(error)) from None
        self._columns = [
            Column(text)
            if name is None
            else Column.parse(text, self._known(name), spec or "", conversion or "")
            for text, name, spec, conversion in parts
        ]

    @property
    def names(self) -> set[str]:
        shown = {column.name for column in self._columns if column.name}
        return shown | {name for name, _ in self._keys}

    def _known(self, name: str) -> str:
        if name in self._fields:
            return name
        raise FormatError(f"Unknown format field: {self._with_hint(name)}")

    def _with_hint(self, name: str) -> str:
        """A name that is no field, and the field that it may stand for."""
        guess = get_close_matches(name, self._fields, n=1)
        return printable(name) + (f" (did you mean {guess[0]}?)" if guess else "")

    def sort_by(self, keys: str) -> None:
        """Sort by ``KEY,...``; a key with a hyphen before it sorts backwards.

        Raises:
            CommandError: a key is no field.
        """
        self._keys = []
        for key in filter(None, map(str.strip, keys.split(","))):
            name = key.lstrip("-") if key.startswith("-") else key
            if name not in self._fields:
                raise CommandError(f"Invalid sort key: {self._with_hint(name)}")
            self._keys.append((name, key.startswith("-")))

    def lines(
        self, items: Iterable[Item], header: bool = True, width: int = 0
    ) -> list[tuple[str, Optional[Item]]]:
        """The lines of a table, each with its item: a header, which has none, and one
        line for each item that has something to show.

        Args:
            width: the columns of a line at most; 0 for any number.
        """
        rows = self._sorted(items)
        shown = self._fitted(rows, header)
        found: list[tuple[str, Optional[Item]]] = []
        if header:
            found.append((_joined(shown, self._heading), None))
        for row in rows:
            line = _joined(shown, partial(self._cell, row=row))
            if line and not line.isspace():
                found.append((line, row))
        if width > 0:
            found = [(cut(line, width), row) for line, row in found]
        return found

    def _sorted(self, items: Iterable[Item]) -> list[Item]:
        rows = list(items)
        for name, backwards in reversed(self._keys):
            rows.sort(key=self._key(name), reverse=backwards)
        return rows

    def _key(self, name: str) -> Callable[[Item], Any]:
        value = self._fields[name].value
        return lambda item: _order(value(item))

    def _fitted(self, rows: Sequence[Item], header: bool) -> list[Column]:
        """The columns that are shown, each as wide as it is to be."""
        found = []
        for column in self._columns:
            if column.sentinel:
                widest = self._widest(column, rows)
                if widest == 0 and "?" in column.sentinel:
                    continue
                if "+" in column.sentinel:
                    heading = self._fields[column.name].heading if header else ""
                    width = max(widest, column.spec.width, columns(heading))
                    column = replace(column, spec=column.spec.widened(width))
            found.append(column)
        return found

    def _widest(self, column: Column, rows: Sequence[Item]) -> int:
        """The columns of the longest text in a column; 0 where all are empty."""
        value = self._fields[column.name].value
        texts = {str(column.converted(value(row))) for row in rows}
        return max((columns(printable(t)) for t in texts if t not in EMPTY), default=0)

    def _heading(self, column: Column) -> str:
        align = column.spec.align.replace("=", ">") or "<"
        return padded(self._fields[column.name].heading, column.spec.width, align)

    def _cell(self, column: Column, row: Item) -> str:
        value = self._fields[column.name].value(row)
        return column.spec.apply(column.converted(value))


def _joined(shown: Iterable[Column], cell: Callable[[Column], str]) -> str:
    """A line, with what ``cell`` has for each field."""
    texts = (each.text + (cell(each) if each.name else "") for each in shown)
    return "".join(texts).rstrip(" ")


def _order(value: Any) -> tuple[int, Any]:
    """A sort key for values of several types: nothing, then numbers, then texts."""
    if value is None or value in ("", "-"):
        return 0, 0
    try:
        number = float(value)
    except (ValueError, OverflowError):
        number = math.nan
    return (2, str(value)) if math.isnan(number) else (1, number)
