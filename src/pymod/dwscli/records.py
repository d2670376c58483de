# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The records that the module leaves in the KVS of a job, each a JSON text. A text that
is none, or has values of other types, counts as no record: an older or a newer module
may have written it."""

from __future__ import annotations

import json
from typing import Any, Optional

from dwscli.reading import number, objects, part, text
from flux_k8s.objects import datamovement
from flux_k8s.ports import Json


def json_value(document: Optional[str]) -> Any:
    """The value of a JSON text, None for other texts."""
    try:
        return json.loads(document or "")
    except (ValueError, RecursionError):
        return None


def json_object(document: Optional[str]) -> Json:
    """The object that JSON says, or an empty one."""
    return part({"value": json_value(document)}, "value")


def json_number(document: Optional[str]) -> Optional[float]:
    """The number that JSON says, None for other texts."""
    return number({"value": json_value(document)}, "value")


def movements(found: Any) -> list[Json]:
    """NnfDataMovements as ``dws.job-show`` has them, with the state that each belongs
    to (``phase``), and when it began and ended."""
    items = found if isinstance(found, list) else []
    return [_movement(item) for item in items if isinstance(item, dict)]


def _movement(item: Json) -> Json:
    movement = datamovement.parse(item)
    return {
        **movement.to_json(),
        "phase": movement.phase,
        "begun": movement.begun,
        "ended": movement.ended,
    }


def transfers(document: Optional[str]) -> list[Json]:
    """The data that was moved in each state, by ``rabbit_moved``."""
    return [
        {
            "phase": text(each, "phase"),
            "movements": _amount(each, "movements"),
            "bytes": _amount(each, "bytes"),
            "begun": number(each, "begun"),
            "ended": number(each, "ended"),
        }
        for each in objects({"": json_value(document)}, "")
    ]


def allocations(document: Optional[str]) -> list[Json]:
    """The allocations by ``rabbit_allocations``, as ``dws.job-show`` has them."""
    found: list[Json] = []
    for each in objects({"": json_value(document)}, ""):
        entry: Json = {"label": text(each, "label"), "size": _amount(each, "size") or 0}
        if "type" in each:
            entry["type"] = text(each, "type")
        counts = part(each, "rabbits")
        rabbits = {name: _amount(counts, name) or 0 for name in counts}
        found.append({**entry, "rabbits": rabbits})
    return found


def allocated(document: Optional[str]) -> Optional[dict[str, int]]:
    """The bytes on each Rabbit by ``rabbit_allocations``; None without that record."""
    if not isinstance(json_value(document), list):
        return None
    sizes: dict[str, int] = {}
    for each in allocations(document):
        for rabbit, count in each["rabbits"].items():
            sizes[rabbit] = sizes.get(rabbit, 0) + int(each["size"] * count)
    return sizes


def _amount(answer: Json, key: str) -> Optional[float]:
    """A number that is not negative, None where there is none."""
    value = number(answer, key)
    return value if value is not None and value >= 0 else None
