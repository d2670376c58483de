# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Job states (RFC 21) and eventlog entries (RFC 18)."""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass, field
from typing import Iterable, Optional

from flux_k8s.ports import Json
from flux_k8s.reasons import Reason, read_reason

PRIORITY_MIN = 0
PRIORITY_MAX = 4294967295
URGENCY_HOLD = 0
URGENCY_DEFAULT = 16
URGENCY_EXPEDITE = 31


class JobState(enum.IntEnum):
    """Job states, with the values that Flux gives them in messages."""

    NEW = 1
    DEPEND = 2
    PRIORITY = 4
    SCHED = 8
    RUN = 16
    CLEANUP = 32
    INACTIVE = 64

    @property
    def topic(self) -> str:
        """The jobtap topic of a transition to this state."""
        return f"job.state.{self.name.lower()}"


@dataclass(frozen=True)
class Event:
    """One entry of an eventlog. ``timestamp`` is UNIX time in seconds. ``reason`` is
    that of an exception that the service raises, or has the plugin raise: in an
    eventlog there is no place for it."""

    timestamp: float
    name: str
    context: Optional[Json] = field(default=None, hash=False)
    reason: Optional[Reason] = field(default=None, compare=False)

    def as_json(self) -> Json:
        entry: Json = {"timestamp": round(self.timestamp, 6), "name": self.name}
        if self.context is not None:
            entry["context"] = self.context
        return entry


def given_reason(message: Json) -> Optional[Reason]:
    """The reason in a message of the service, which few have."""
    reason = message.get("reason")
    return None if reason is None else read_reason(reason)


def encode_entries(entries: Iterable[Json]) -> str:
    """An eventlog as it is stored in the KVS (RFC 18): one JSON object a line."""
    return "".join(json.dumps(entry, separators=(",", ":")) + "\n" for entry in entries)


def encode_eventlog(events: Iterable[Event]) -> str:
    return encode_entries(event.as_json() for event in events)
