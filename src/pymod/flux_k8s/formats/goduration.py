# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Durations as Go writes them."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import Mapping, Optional

_GO_UNITS: Mapping[str, float] = MappingProxyType(
    {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
)
_GO_TERM = re.compile(r"([0-9.]+)(h|ms|m|s|us|µs|ns)")


_GO_LONGEST = 64
"""Characters of a duration: Go writes ``2562047h47m16.854775807s`` at most."""


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
