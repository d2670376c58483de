# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The word of a directive that is wrong, shown in a terminal.

::

    capacity=10Gib is not a size: did you mean 10GiB?
      #DW jobdw type=xfs capacity=10Gib name=p1
                                  ^~~~~
"""

from __future__ import annotations

from itertools import accumulate
from typing import Iterable, Optional

from flux_k8s.errors import DirectiveError
from flux_k8s.text import columns, printable

WIDTH = 76
"""The most columns of a directive that is shown, without the margin."""

MARGIN = 2
"""Blanks before the directive and the marks in a message."""

_MORE = "..."


def message(error: DirectiveError, terminal: Optional[int] = None) -> str:
    """The error's sentence, then the directive and the marks. A command may put words
    before the first line.

    Args:
        terminal: its columns; None if they are not known. Marks are below their word
            only where the line fits.
    """
    width = WIDTH if terminal is None else max(1, min(WIDTH, terminal - MARGIN))
    lines = [" " * MARGIN + line for line in marked(error, width)]
    return "\n".join([error.sentence, *lines])


def marked(error: DirectiveError, width: int = WIDTH) -> list[str]:
    """The directive, cut to ``width`` columns around its word that is wrong, and marks
    below that word, all printable; nothing of an empty directive."""
    line = error.line
    if not line:
        return []
    start = min(max(error.start, 0), len(line) - 1)
    # A character takes a column at least, but for those that are drawn onto others.
    low, high = max(start - width, 0), min(start + width, len(line))
    end = min(max(error.end, start + 1), high) - low
    start -= low
    cells = [" " if c.isspace() else printable(c) for c in line[low:high]]
    fits = len(cells) == len(line) and _width(cells) <= width
    room = width if fits else width - 2 * len(_MORE)
    until = start + max(1, _fitting(cells[start:end], room))
    room -= _width(cells[start:until])
    first = start - _fitting(cells[:start][::-1], room)
    room -= _width(cells[first:start])
    last = until + _fitting(cells[until:], room)
    before = _MORE if low + first > 0 else ""
    after = _MORE if low + last < len(line) else ""
    indent = " " * (len(before) + _width(cells[first:start]))
    marks = "~" * (_width(cells[start:until]) - 1)
    return [f"{before}{''.join(cells[first:last])}{after}", f"{indent}^{marks}"]


def _fitting(cells: Iterable[str], room: int) -> int:
    """How many characters, from the first on, fit into so many columns."""
    return sum(used <= room for used in accumulate(map(columns, cells)))


def _width(cells: Iterable[str]) -> int:
    return sum(map(columns, cells))
