# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""RFC 22: sets of non-negative integers as strings, like ``0-3,7``."""

from __future__ import annotations

import re
from typing import Iterable

MAX_ID = 2**32 - 3
"""The largest id that Flux can hold: it keeps ids in 32 bits and reserves the
last two values."""

MAX_SIZE = 2**20
"""More ids than this in one set are taken for a mistake."""

_ELEMENT = re.compile(r"(0|[1-9][0-9]*)(?:-(0|[1-9][0-9]*))?\Z", re.ASCII)


def decode(text: str) -> tuple[int, ...]:
    """The ids of an idset string, ascending. Square brackets are optional.

    Raises:
        ValueError: for anything that RFC 22 does not allow (ids out of order
            or repeated, leading zeros, blanks), and for a set beyond
            ``MAX_ID`` or ``MAX_SIZE``.
    """
    body = text
    if text.startswith("[") and text.endswith("]"):
        body = text[1:-1]
    if not body:
        return ()
    ids: list[int] = []
    for element in body.split(","):
        match = _ELEMENT.match(element)
        if match is None:
            raise ValueError(
                f"idset {text!r}: {element!r} is neither an id nor a range like 0-3"
            )
        first = int(match[1])
        last = first if match[2] is None else int(match[2])
        if match[2] is not None and last <= first:
            raise ValueError(f"idset {text!r}: the range {element} is not ascending")
        if ids and first <= ids[-1]:
            raise ValueError(f"idset {text!r}: {first} is not in ascending order")
        if last > MAX_ID:
            raise ValueError(f"idset {text!r}: {last} is above {MAX_ID}")
        if len(ids) + last - first >= MAX_SIZE:
            raise ValueError(f"idset {text!r}: more than {MAX_SIZE} ids")
        ids.extend(range(first, last + 1))
    return tuple(ids)


def encode(ids: Iterable[int]) -> str:
    """The shortest idset string for ``ids``, given in any order, without
    brackets; empty for no ids.

    Raises:
        ValueError: for an id outside of 0 to ``MAX_ID``.
    """
    ranges: list[tuple[int, int]] = []
    for id in sorted(set(ids)):
        if not 0 <= id <= MAX_ID:
            raise ValueError(f"id {id} is not between 0 and {MAX_ID}")
        if ranges and ranges[-1][1] == id - 1:
            ranges[-1] = (ranges[-1][0], id)
        else:
            ranges.append((id, id))
    return ",".join(
        str(first) if first == last else f"{first}-{last}" for first, last in ranges
    )
