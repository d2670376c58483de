# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Durations, times, sizes, job IDs and users, as Flux's commands write and take
them."""

from __future__ import annotations

import locale
import math
import os
import pwd
import re
import time
from datetime import datetime
from functools import lru_cache
from typing import Optional

from flux_k8s.command import CommandError
from flux_k8s.formats import jobid
from flux_k8s.text import quoted

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


EVERYBODY = "all"
"""The user whose jobs are everybody's, as in ``flux jobs -u all``."""


@lru_cache(maxsize=None)
def user_name(userid: int) -> Optional[str]:
    """The name of a user, None for one that this machine does not know."""
    try:
        return pwd.getpwuid(userid).pw_name
    except (KeyError, OverflowError):
        return None


def user_of(userid: Optional[float]) -> str:
    """The name of a job's user, or the number of one without a name; empty where that
    is not known."""
    return "" if userid is None else user_name(int(userid)) or str(userid)


def user_id(text: str) -> Optional[int]:
    """The user ID of a user's name or number; None for ``EVERYBODY``.

    Raises:
        CommandError: there is no such user.
    """
    if text == EVERYBODY:
        return None
    try:
        return pwd.getpwnam(text).pw_uid
    except (KeyError, ValueError):
        pass
    if text.isascii() and text.isdecimal() and len(text) < 11:
        return int(text)
    raise CommandError(f"--user: there is no user {quoted(text)}")


_DURATION = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)(ms|s|m|h|d|)", re.ASCII)
_SECONDS = {"ms": 1e-3, "": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def moment_of(text: str, now: float) -> float:
    """The UNIX time that a text stands for: ``-1h`` (a Flux Standard Duration ago), a
    UNIX time, an ISO date with or without a time, or, where Flux's own modules are,
    what people say, such as ``yesterday``.

    Raises:
        CommandError: it is no moment, or in the future.
    """
    moment = _moment_of(text, now)
    if moment > now:
        raise CommandError(f"--since={text} appears to be in the future")
    return moment


def _moment_of(text: str, now: float) -> float:
    match = _DURATION.fullmatch(text[1:] if text.startswith("-") else text)
    if match is not None and text.startswith("-"):
        return now - float(match[1]) * _SECONDS[match[2]]
    if match is not None and not match[2]:
        return float(match[1])
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        pass
    try:
        from flux.util import parse_datetime

        return float(parse_datetime(text).timestamp())
    except (ImportError, ValueError, OverflowError):
        raise CommandError(
            f"--since: {quoted(text)} is no moment: expected one like -2h, 2026-11-22,"
            " '2026-11-22 10:30' or a UNIX time"
        ) from None
