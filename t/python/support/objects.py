# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Objects that differ from others in one place."""

from __future__ import annotations

import copy
from typing import Any

from flux_k8s.ports import Json


def changed(obj: Json, place: str, value: Any) -> Json:
    """A copy of ``obj`` with another value at a dotted place; numbers are
    indices of arrays, and ``...`` as value takes the field away."""
    obj = copy.deepcopy(obj)
    keys = [int(key) if key.isdigit() else key for key in place.split(".")]
    parent: Any = obj
    for key in keys[:-1]:
        parent = parent[key]
    if value is ...:
        del parent[keys[-1]]
    else:
        parent[keys[-1]] = value
    return obj
