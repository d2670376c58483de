# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The values in an answer. A value of another type than the expected counts as absent:
an answer of an older or a newer module is still shown."""

from __future__ import annotations

from typing import Any, Callable, Mapping, Optional

from flux_k8s.formats import hostlist

Fields = Mapping[str, Any]
"""The fields of an answer, which are only read."""

LARGEST = 2**63 - 1
"""The largest integer of Flux's JSON."""


def text(answer: Fields, key: str) -> str:
    """A text, empty where there is none."""
    value = answer.get(key)
    return value if isinstance(value, str) else ""


def number(answer: Fields, key: str) -> Optional[float]:
    """A finite number, None where there is none."""
    value = answer.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if abs(value) <= LARGEST else None


def text_of(key: str) -> Callable[[Fields], str]:
    """:func:`text` of a key."""
    return lambda answer: text(answer, key)


def number_of(key: str) -> Callable[[Fields], Optional[float]]:
    """:func:`number` of a key."""
    return lambda answer: number(answer, key)


def id_of(answer: Fields) -> int:
    """The ID of the job that an answer is about, 0 where there is none."""
    return max(0, int(number(answer, "id") or 0))


def hosts(
    answer: Fields, key: str, most: int = hostlist.MAX_HOSTS
) -> Optional[tuple[str, ...]]:
    """The hosts of a hostlist, None for a text that is none, or has more than ``most``
    hosts."""
    try:
        return hostlist.decode(text(answer, key), most)
    except ValueError:
        return None


def count_hosts(answer: Fields, key: str) -> Optional[int]:
    """The number of hosts of a hostlist, None for a text that is none."""
    found = hosts(answer, key)
    return None if found is None else len(found)


def part(answer: Fields, key: str) -> dict[str, Any]:
    """An object, empty where there is none."""
    value = answer.get(key)
    return value if isinstance(value, dict) else {}


def objects(answer: Fields, key: str) -> list[dict[str, Any]]:
    """The objects of an array."""
    value = answer.get(key)
    found = value if isinstance(value, list) else []
    return [item for item in found if isinstance(item, dict)]


def texts(answer: Fields, key: str) -> list[str]:
    """The texts of an array."""
    value = answer.get(key)
    found = value if isinstance(value, list) else []
    return [item for item in found if isinstance(item, str)]
