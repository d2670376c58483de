# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""RFC 14 and 45: how many of a resource a jobspec asks for."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from typing import Mapping, Optional

from flux_k8s.formats import idset
from flux_k8s.json_reader import Reader, is_integer

MAX_LENGTH = 1024
"""More characters than this in a ``count`` are taken for a mistake."""

# RFC 45: min-max:operand:operator or min+:operand:operator
_RANGE = re.compile(
    r"([1-9][0-9]{0,17})(?:-([1-9][0-9]{0,17})|\+)(?::([1-9][0-9]{0,17})(?::([+*^]))?)?\Z",
    re.ASCII,
)


@dataclass(frozen=True)
class Count:
    """The numbers that a ``count`` accepts.

    Attributes:
        least: the least of them.
        most: an upper bound; None without one.
        operator, operand: how each number follows from the one before.
        spans: the first and the last number of each element of an idset; empty for any
            other count.
        is_fixed: the count is written as one number.
    """

    least: int
    most: Optional[int]
    operator: str = "+"
    operand: int = 1
    spans: tuple[tuple[int, int], ...] = ()
    is_fixed: bool = False

    @classmethod
    def fixed(cls, number: int) -> Count:
        return cls(number, number, is_fixed=True)

    def largest(self, available: int) -> int:
        """The largest number of the count that is not above ``available``; 0 if there
        is none."""
        top = available if self.most is None else min(available, self.most)
        if top < self.least:
            return 0
        if self.spans:
            return min(self.spans[bisect_right(self.spans, (top + 1, 0)) - 1][1], top)
        if self.operator == "+":
            return top - (top - self.least) % self.operand
        number = self.least
        while number > 1 or self.operator == "*":
            following = (
                number * self.operand
                if self.operator == "*"
                else _power(number, self.operand, top)
            )
            if following > top:
                break
            number = following
        return number


def _power(base: int, exponent: int, top: int) -> int:
    """``base`` to the power of ``exponent``, or a number above ``top``."""
    result = 1
    for _ in range(exponent):
        result *= base
        if result > top:
            break
    return result


def parse(vertex: Reader) -> Count:
    """The ``count`` of a resource vertex: an integer, a range object, or a string with
    an RFC 45 range or an RFC 22 idset.

    Raises:
        BadObject: it is none of these, or accepts numbers below 1.
    """
    value = vertex.value.get("count")
    if isinstance(value, Mapping):
        return _range(vertex.object("count"))
    if isinstance(value, str):
        return _string(vertex, value)
    if not is_integer(value):
        raise vertex.bad("count", "a positive integer, or a range of them")
    return Count.fixed(vertex.integer("count", minimum=1))


def _range(count: Reader) -> Count:
    least = count.integer("min", minimum=1)
    most = count.optional_integer("max", minimum=least)
    operator = count.optional_string("operator", ("+", "*", "^")) or "+"
    operand = count.optional_integer("operand", minimum=1 if operator == "+" else 2)
    if operand is None and operator != "+":
        return Count(least, least)  # by RFC 14 the operand is 1
    return Count(least, most, operator, operand or 1)


def _string(vertex: Reader, text: str) -> Count:
    if len(text) > MAX_LENGTH:
        raise vertex.bad("count", f"at most {MAX_LENGTH} characters")
    expected = "a count: a number, an RFC 45 range like 2-8, or an RFC 22 idset"
    body = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    match = _RANGE.match(body)
    if match is not None:
        low, high, operand, operator = match.groups()
        if (high is not None and int(high) < int(low)) or (
            operator in ("*", "^") and int(operand) < 2
        ):
            raise vertex.bad("count", expected)
        most = None if high is None else int(high)
        return Count(int(low), most, operator or "+", int(operand or 1))
    try:
        spans = idset.spans(text)
    except ValueError:
        spans = ()
    if not spans or spans[0][0] == 0:
        raise vertex.bad("count", expected)
    return Count(spans[0][0], spans[-1][1], spans=spans)
