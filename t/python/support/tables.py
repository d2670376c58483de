# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Tables of rows in text, for ``pytest.mark.parametrize``."""

from __future__ import annotations

from typing import Any


def rows(text: str, cells: int = 2) -> list[Any]:
    """The rows of a table. Each begins at the margin, and what is indented goes on with
    it; between its cells there is an arrow, and those that it lacks are empty. A line
    that begins with ``# `` is a comment.

    Returns:
        Tuples of texts, or texts where there is one cell.
    """
    found: list[list[str]] = []
    for line in text.split("\n"):
        if line.startswith("# ") or not line.strip():
            continue
        if line[0].isspace():
            found[-1].append(line.strip())
        else:
            found.append([line.rstrip()])
    split = [f" {' '.join(lines)} ".split(" -> ") for lines in found]
    assert all(len(row) <= cells for row in split), split
    table = [
        tuple(cell.strip() for cell in row) + ("",) * (cells - len(row))
        for row in split
    ]
    return table if cells > 1 else [row[0] for row in table]
