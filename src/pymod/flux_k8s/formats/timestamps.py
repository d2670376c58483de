# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Kubernetes' time stamps (RFC 3339, in UTC), UNIX time, and durations as Go writes
them."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from functools import lru_cache
from types import MappingProxyType
from typing import Mapping, Optional

_STAMP = re.compile(
    r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d{1,18})?(Z|[+-]\d\d:\d\d)", re.ASCII
)

_END = 253402300800.0
"""The UNIX time of the first moment that :func:`format_timestamp` cannot write."""

_GO_UNITS: Mapping[str, float] = MappingProxyType(
    {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
)
_GO_TERM = re.compile(r"([0-9.]+)(h|ms|m|s|us|µs|ns)")

_GO_LONGEST = 64
"""Characters of a duration: Go writes ``2562047h47m16.854775807s`` at most."""


@lru_cache(maxsize=8192)  # each version of an object has the same ones again
def parse_timestamp(text: str) -> Optional[float]:
    """UNIX time from ``2026-11-21T02:30:40.003340Z``; None if ``text`` is no time
    stamp, or one before 1970 or after 9999 in UTC."""
    match = _STAMP.fullmatch(text)
    if match is None:
        return None
    zone = "+00:00" if match.group(3) == "Z" else match.group(3)
    try:
        whole = datetime.fromisoformat(match.group(1) + zone)
    except ValueError:
        return None
    time = whole.timestamp() + float(match.group(2) or 0)
    return time if 0.0 <= time < _END else None


@lru_cache(maxsize=8192)  # a Workflow has the same ones with each request again
def format_timestamp(time: float) -> str:
    """The time stamp of a UNIX time, with microseconds."""
    stamp = datetime.fromtimestamp(time, timezone.utc)
    return stamp.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def format_seconds(time: float) -> str:
    """The time stamp of a UNIX time, without a fraction, for a person."""
    return format_timestamp(time)[:19] + "Z"


def parse_go_duration(text: str) -> Optional[float]:
    """Seconds from a Go duration such as ``2m3.5s``; None if ``text`` is none."""
    if len(text) > _GO_LONGEST:
        return None
    terms = _GO_TERM.findall(text)
    if not terms or "".join(number + unit for number, unit in terms) != text:
        return None
    try:
        return sum(float(number) * _GO_UNITS[unit] for number, unit in terms)
    except ValueError:
        return None
