# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""RFC 22: sets of non-negative integers as strings, like ``0-3,7``."""

from __future__ import annotations

import re
from typing import Iterable

from flux_k8s.json_reader import Reader
from flux_k8s.text import quoted

MAX_ID = 2**32 - 3
"""The largest id that Flux can hold: it keeps ids in 32 bits and reserves the
last two values."""

MAX_SIZE = 2**20
"""More ids than this in one set are taken for a mistake."""

_ELEMENT = re.compile(r"(0|[1-9][0-9]{0,17})(?:-(0|[1-9][0-9]{0,17}))?\Z", re.ASCII)


def decode(text: str, most: int = MAX_SIZE) -> tuple[int, ...]:
    """The ids of an idset string, ascending. Square brackets are optional.

    Raises:
        ValueError: for anything that RFC 22 does not allow (ids out of order
            or repeated, leading zeros, blanks), for a set beyond ``MAX_ID``, and
            for one of more than ``most`` ids.
    """
    found = spans(text)
    if sum(last - first + 1 for first, last in found) > most:
        raise ValueError(f"idset {quoted(text)}: more than {most} ids")
    return tuple(id for first, last in found for id in range(first, last + 1))


def read(reader: Reader, path: str) -> tuple[int, ...]:
    """The ids of a field that has an idset.

    Raises:
        BadObject: it is none.
    """
    try:
        return decode(reader.text(path))
    except ValueError as error:
        raise reader.bad(path, f"an RFC 22 idset ({error})") from None


def spans(text: str) -> tuple[tuple[int, int], ...]:
    """The first and the last id of each element of an idset string, ascending. The
    cost grows with the length of the text, and not with the size of the set.

    Raises:
        ValueError: as :func:`decode`; a set may have more than ``MAX_SIZE`` ids.
    """
    body = text
    if text.startswith("[") and text.endswith("]"):
        body = text[1:-1]
    if not body:
        return ()
    found: list[tuple[int, int]] = []
    for element in body.split(","):
        match = _ELEMENT.match(element)
        if match is None:
            raise ValueError(
                f"idset {quoted(text)}: {quoted(element)} is neither an id nor a"
                " range like 0-3"
            )
        first = int(match[1])
        last = first if match[2] is None else int(match[2])
        if match[2] is not None and last <= first:
            raise ValueError(
                f"idset {quoted(text)}: the range {element} is not ascending"
            )
        if found and first <= found[-1][1]:
            raise ValueError(f"idset {quoted(text)}: {first} is not in ascending order")
        if last > MAX_ID:
            raise ValueError(f"idset {quoted(text)}: {last} is above {MAX_ID}")
        found.append((first, last))
    return tuple(found)


def encode(ids: Iterable[int]) -> str:
    """The shortest idset string for ``ids``, which may come in any order. The string
    has no brackets, and is empty for no ids.

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
