# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Texts by the columns that they take on a terminal.

A wide character (Chinese, Japanese, Korean, most emoji) takes two columns, a combining
mark none.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Iterator

CUT = "+"
"""The last character of a text that is cut, as in ``flux jobs``."""

_PIECES = re.compile(r"[^ ,]*,|[^ ,]+| +")


def columns(text: str) -> int:
    """The columns that a printable text takes."""
    return len(text) if text.isascii() else sum(map(_columns, text))


@lru_cache(maxsize=4096)
def _columns(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def beginning(text: str, width: int) -> str:
    """As many characters from the beginning of a text as fit into ``width`` columns."""
    if text.isascii():
        return text[: max(0, width)]
    room = width
    for index, character in enumerate(text):
        room -= _columns(character)
        if room < 0:
            return text[:index]
    return text


def cut(text: str, width: int, mark: str = CUT) -> str:
    """A text that takes ``width`` columns at most: where it is longer, its beginning
    and the mark."""
    if columns(text) <= width:
        return text
    return beginning(beginning(text, width - columns(mark)) + mark, width)


def padded(text: str, width: int, align: str = "<", fill: str = " ") -> str:
    """A text with as much of ``fill`` around it as makes it ``width`` columns.

    Args:
        align: ``<``, ``>`` or ``^``, as in Python's format strings.
    """
    room = max(0, width - columns(text))
    left = {"<": 0, "^": room // 2}.get(align, room)
    return fill * left + text + fill * (room - left)


def wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """A text as lines of ``width`` columns at most, the second and later ones with an
    indent. Lines end at blanks or behind commas where that is possible."""
    lines: list[str] = []
    line, start = "", 0
    for piece in _fitting(text, max(2, width - columns(indent))):
        if columns(line) + columns(piece.rstrip(" ")) <= width:
            line += piece
            continue
        lines.append(line.rstrip(" "))
        line = indent + piece.lstrip(" ")
        start = len(indent)
    if len(line) > start or not lines:
        lines.append(line.rstrip(" "))
    return lines


def _fitting(text: str, width: int) -> Iterator[str]:
    """The words of a text, and what is between them, in pieces of ``width`` columns at
    most."""
    for piece in _PIECES.findall(text):
        while columns(piece) > width:
            part = beginning(piece, width)
            yield part
            piece = piece[len(part) :]
        yield piece
