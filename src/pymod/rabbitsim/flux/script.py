# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Submission directives in a batch script (RFC 36): its ``#FLUX:`` lines.

Only these lines are read. A ``#DW`` line in a script is a comment to ``flux
batch``, and so it is here: storage is asked for with ``-S dw=...``, whose value
may go over several lines in triple quotes.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import Optional

_SENTINEL = re.compile(r"(\W*)(flux:|FLUX:)(.*)")
_TRIPLE = ('"""', "'''")


class ScriptError(ValueError):
    """A script that cannot be submitted: one line that says where and why."""


@dataclass(frozen=True)
class Directive:
    """The options of one directive, and the number of its (first) line."""

    line: int
    args: tuple[str, ...]


@dataclass
class _Quote:
    """A triple-quoted value that goes over several lines."""

    line: int
    start: str
    mark: str
    indent: str
    lines: list[str]


def read_directives(text: str, name: str) -> list[Directive]:
    """The directives of a script.

    Args:
        name: the script's name, for errors.

    Raises:
        ScriptError: a directive is misplaced, or its quotes do not match.
    """
    return _Reader(name).read(text)


class _Reader:
    """Reads a script from top to bottom."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._sentinel: Optional[str] = None
        self._prefix = ""
        self._closed_at: Optional[int] = None
        self._quote: Optional[_Quote] = None
        self._directives: list[Directive] = []

    def read(self, text: str) -> list[Directive]:
        for number, line in enumerate(text.splitlines(), 1):
            match = _SENTINEL.match(line)
            if match is None:
                self._other_line(number, line)
            else:
                self._check_sentinel(number, match.group(1), match.group(2))
                self._value(number, match.group(3))
        if self._quote is not None:
            raise self._unterminated(self._quote.line)
        return self._directives

    def _error(self, number: int, problem: str) -> ScriptError:
        return ScriptError(f"{self._name}: line {number}: {problem}")

    def _unterminated(self, number: int) -> ScriptError:
        assert self._quote is not None
        return self._error(
            number,
            f"the quote {self._quote.mark} of line {self._quote.line} is not closed:"
            f" `{self._quote.start}'",
        )

    def _other_line(self, number: int, line: str) -> None:
        """A line that is no directive. Directives end with the first that is
        neither blank nor a comment like they are."""
        if self._quote is not None:
            raise self._unterminated(number)
        if self._sentinel is None or self._closed_at is not None or not line.strip():
            return
        if not line.startswith(self._prefix.rstrip()):
            self._closed_at = number

    def _check_sentinel(self, number: int, prefix: str, tag: str) -> None:
        if self._closed_at is not None:
            raise self._error(
                number,
                f"{tag} directive after the script's first command"
                f" (line {self._closed_at}); move it up",
            )
        sentinel = prefix + tag
        if self._sentinel is None:
            self._sentinel, self._prefix = sentinel, prefix
        elif sentinel != self._sentinel:
            raise self._error(
                number,
                f"directive starts with '{sentinel}', those above with"
                f" '{self._sentinel}'; to disable one, write '{self._sentinel} #'",
            )

    def _value(self, number: int, value: str) -> None:
        if self._quote is not None:
            self._continue_quote(value)
            return
        value = self._quote_inline(number, value)
        if value.endswith(_TRIPLE):
            indent = value[: len(value) - len(value.lstrip())]
            self._quote = _Quote(number, value.strip(), value[-3:], indent, [])
            self._quote.lines.append(value[:-3].lstrip())
        elif value:
            self._add(number, value)

    def _continue_quote(self, value: str) -> None:
        quote = self._quote
        assert quote is not None
        if value.startswith(quote.indent):
            value = value[len(quote.indent) :]
        if not value.endswith(quote.mark):
            quote.lines.append(value)
            return
        quote.lines.append(value[:-3])
        self._quote = None
        self._add(quote.line, quote.lines[0] + shlex.quote("\n".join(quote.lines[1:])))

    def _quote_inline(self, number: int, value: str) -> str:
        """Turn a triple-quoted value within one line into what a shell reads."""
        for mark in _TRIPLE:
            count = value.count(mark)
            if count and count % 2 == 0:
                parts = value.split(mark)
                parts[1::2] = [shlex.quote(part) for part in parts[1::2]]
                return "".join(parts)
        if re.search("(\"{3}|'{3}).", value):
            raise self._error(number, f"unclosed triple quote: {value.strip()}")
        return value

    def _add(self, number: int, value: str) -> None:
        lexer = shlex.shlex(value, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        lexer.escapedquotes = "\"'"
        try:
            args = tuple(lexer)
        except ValueError as error:
            problem = f"{error} in `{value.strip()}'"
            raise self._error(number, problem) from None
        if args and not args[0].startswith("-"):
            raise self._error(
                number, f"expected an option like -N2, not '{value.strip()}'"
            )
        if args:
            self._directives.append(Directive(number, args))
