# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Durations, times, sizes and job IDs, as Flux's commands write them."""

from __future__ import annotations

import locale
import math
import os
import time

from flux_k8s.formats import jobid

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_LATEST = 253402300799
"""The last second of the year 9999, which is the last that can be written."""


def duration(seconds: float) -> str:
    """A number of seconds as a Flux Standard Duration (RFC 23) of four digits, as
    ``flux jobs`` writes it."""
    if math.isinf(seconds):
        return "inf"
    if seconds < 1e-3:
        return "0s"
    if seconds < 10:
        return f"{seconds:.3f}s"
    for unit, length, limit in (("s", 1, 60), ("m", 60, 3600), ("h", 3600, 86400)):
        if seconds < limit:
            return f"{seconds / length:.4g}{unit}"
    return f"{seconds / 86400:.4g}d"


def size(amount: float) -> str:
    """A number of bytes with three digits and a unit: ``10GiB``, ``1.5TiB``."""
    for unit in _UNITS:
        if amount < 1000 or unit == _UNITS[-1]:
            break
        amount /= 1024
    return f"{amount:.3g}{unit}" if amount < 999.5 else f"{amount:.0f}{unit}"


def timestamp(moment: float, format: str = "%FT%T") -> str:
    """A UNIX time as local time; empty for 0 and for one that no calendar has."""
    if not 0 < moment <= _LATEST:
        return ""
    return time.strftime(format, time.localtime(moment))


def is_utf8() -> bool:
    """Whether the locale's characters are those of Unicode."""
    return locale.nl_langinfo(locale.CODESET) == "UTF-8"


def f58(id: int) -> str:
    """A job ID in F58 (RFC 19), with ``ƒ`` where the locale has this letter."""
    text = jobid.f58(id)
    if is_utf8() and "FLUX_F58_FORCE_ASCII" not in os.environ:
        return "ƒ" + text[1:]
    return text
