# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Copies of JSON values. :func:`copy.deepcopy` takes several times as long."""

from __future__ import annotations

from typing import Any

_SCALARS = frozenset((str, int, float, bool, type(None)))


def copy_json(value: Any) -> Any:
    """A deep copy of a JSON value, as plain dictionaries and lists."""
    if isinstance(value, dict):
        return {
            key: item if type(item) in _SCALARS else copy_json(item)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [item if type(item) in _SCALARS else copy_json(item) for item in value]
    return value
