# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Tables: what ``kubectl get`` prints."""

from __future__ import annotations

import calendar
import time
from collections.abc import Iterable
from typing import Any

from flux_k8s.ports import Json
from rabbitsim.kube.kinds import Column, Resource
from rabbitsim.kube.selectors import look_up
from rabbitsim.kube.watch import Stored


def table(
    resource: Resource, items: Iterable[Stored], now: float, include: str, meta: Json
) -> Json:
    """``items`` as a ``Table``.

    ``include`` is the query parameter ``includeObject``: None, Metadata or
    Object; ``meta`` becomes the table's metadata.
    """
    name = {
        "name": "Name",
        "type": "string",
        "format": "name",
        "description": "",
        "priority": 0,
    }
    columns = [
        {
            "name": column.name,
            "type": column.type,
            "format": "",
            "description": "",
            "priority": 1 if column.wide else 0,
        }
        for column in resource.columns
    ]
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": meta,
        "columnDefinitions": [name, *columns],
        "rows": [_row(resource, obj, now, include) for obj in items],
    }


def _row(resource: Resource, obj: Stored, now: float, include: str) -> Json:
    cells = [obj["metadata"]["name"]]
    cells += [_cell(column, obj, now) for column in resource.columns]
    row: Json = {"cells": cells}
    if include == "Object":
        row["object"] = obj
    elif include != "None":
        row["object"] = {
            "kind": "PartialObjectMetadata",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": obj["metadata"],
        }
    return row


def _cell(column: Column, obj: Stored, now: float) -> Any:
    value = look_up(obj, column.path)
    if column.type == "date":
        return None if value is None else age(str(value), now)
    if column.type == "string" and value is not None:
        return str(value)
    return value


def age(stamp: str, now: float) -> str:
    """How long ago an RFC 3339 time was, in one or two units, as kubectl's
    columns have it: ``95s``, ``5m``, ``3h12m``, ``4d``."""
    try:
        then = calendar.timegm(time.strptime(stamp[:19], "%Y-%m-%dT%H:%M:%S"))
    except ValueError:
        return "<invalid>"
    seconds = int(now - then)
    if seconds < 0:
        return "0s" if seconds > -2 else "<invalid>"
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return _two(minutes, "m", seconds % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _two(days, "d", hours % 24, "h")
    return f"{days}d"


def _two(large: int, large_unit: str, small: int, small_unit: str) -> str:
    tail = f"{small}{small_unit}" if small else ""
    return f"{large}{large_unit}{tail}"
