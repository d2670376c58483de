# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Texts, and bars of letters, by the columns that they take on a terminal."""

from __future__ import annotations

import re
from typing import Iterator

from flux_k8s.text import columns

CUT = "+"
"""The last character of a text that is cut, as in ``flux jobs``."""

_PIECES = re.compile(r"[^ ,]*,|[^ ,]+| +")


def beginning(text: str, width: int) -> str:
    """As many characters from the beginning of a text as fit into ``width`` columns."""
    if text.isascii():
        return text[: max(0, width)]
    room = width
    for index, character in enumerate(text):
        room -= columns(character)
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


# Bars, in the style "vertbars" of ``flux.progress``

BLOCKS = " ▏▎▍▌▋▊▉█"
"""A column that is filled to so many eighths."""


def bar(fraction: float, width: int, has_unicode: bool = True) -> str:
    """A bar that takes ``fraction`` of ``width`` columns, without blanks at its end.
    Anything but 0 is seen."""
    fraction = min(1.0, max(0.0, fraction))
    if not has_unicode:
        return "#" * max(round(fraction * width), 1 if fraction and width else 0)
    eighths = max(int(fraction * width * 8), 1 if fraction and width else 0)
    return (BLOCKS[-1] * (eighths // 8) + BLOCKS[eighths % 8]).rstrip()


def gauge(fraction: float, width: int, has_unicode: bool) -> str:
    """A bar in a frame, which takes ``width`` columns in all; empty if there is no room
    for it."""
    if width < 4:
        return ""
    edge = "│" if has_unicode else "|"
    return f"{edge}{bar(fraction, width - 2, has_unicode):<{width - 2}}{edge}"
