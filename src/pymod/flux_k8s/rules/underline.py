# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The word of a directive that is wrong, shown in a terminal.

::

    capacity=10Gib is not a size: did you mean 10GiB?
      #DW jobdw type=xfs capacity=10Gib name=p1
                                  ^~~~~
"""

from __future__ import annotations

import unicodedata
from typing import Iterable, NamedTuple, Optional, Sequence

from flux_k8s.errors import DirectiveError
from flux_k8s.text import printable

WIDTH = 76
"""The most columns of a directive that is shown, without the margin."""

MARGIN = 2
"""Blanks before the directive and the marks in a message."""

_MORE = "..."


class Cell(NamedTuple):
    """A character as it is shown, and the columns that it takes."""

    text: str
    columns: int


def message(error: DirectiveError, columns: Optional[int] = None) -> str:
    """The error's sentence, then the directive and the marks. A command may put words
    before the first line.

    Args:
        columns: those of the terminal; None if they are not known. Marks are below
            their word only where the line fits.
    """
    width = WIDTH if columns is None else max(1, min(WIDTH, columns - MARGIN))
    lines = [" " * MARGIN + line for line in marked(error, width)]
    return "\n".join([error.sentence, *lines])


def marked(error: DirectiveError, width: int = WIDTH) -> list[str]:
    """The directive, cut to ``width`` columns around its word that is wrong, and marks
    below that word, all printable; nothing of an empty directive."""
    line = error.line
    if not line:
        return []
    start = min(max(error.start, 0), len(line) - 1)
    end = min(max(error.end, start + 1), len(line))
    # A character takes a column at least, but for those that are drawn onto others.
    low, high = max(start - width, 0), min(start + width, len(line))
    cells = [_cell(character) for character in line[low:high]]
    fits = low == 0 and high == len(line) and _columns(cells) <= width
    room = width if fits else width - 2 * len(_MORE)
    first, until, last = _window(cells, start - low, end - low, room)
    before = _MORE if low + first > 0 else ""
    after = _MORE if low + last < len(line) else ""
    shown = "".join(text for text, _ in cells[first:last])
    indent = " " * (len(before) + _columns(cells[first : start - low]))
    marks = "~" * (_columns(cells[start - low : until]) - 1)
    return [f"{before}{shown}{after}", f"{indent}^{marks}"]


def _window(
    cells: Sequence[Cell], start: int, end: int, room: int
) -> tuple[int, int, int]:
    """The cells that are shown in ``room`` columns, around those from ``start`` to
    ``end``.

    Returns:
        the first, the end of those that are marked, and the end of all.
    """
    last = start + 1
    room -= cells[start].columns
    while last < min(end, len(cells)) and cells[last].columns <= room:
        room -= cells[last].columns
        last += 1
    until, first = last, start
    while first > 0 and cells[first - 1].columns <= room:
        first -= 1
        room -= cells[first].columns
    while last < len(cells) and cells[last].columns <= room:
        room -= cells[last].columns
        last += 1
    return first, until, last


def _columns(cells: Iterable[Cell]) -> int:
    return sum(cell.columns for cell in cells)


def _cell(character: str) -> Cell:
    if character.isspace():
        return Cell(" ", 1)
    shown = printable(character)
    if len(shown) > 1:
        return Cell(shown, len(shown))
    if unicodedata.category(character) in ("Mn", "Me"):
        return Cell(shown, 0)
    return Cell(shown, 2 if unicodedata.east_asian_width(character) in "WF" else 1)
