# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Moments on the command line, as ``flux jobs --since`` takes them."""

from __future__ import annotations

import re
from datetime import datetime

from flux_k8s.command import CommandError
from flux_k8s.text import quoted

_DURATION = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)(ms|s|m|h|d|)", re.ASCII)
_SECONDS = {"ms": 1e-3, "": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def parse(text: str, now: float) -> float:
    """The UNIX time that a text stands for: ``-1h`` (a Flux Standard Duration ago), a
    UNIX time, an ISO date with or without a time, or, where Flux's own modules are,
    what people say, such as ``yesterday``.

    Raises:
        CommandError: it is no moment, or in the future.
    """
    moment = _parse(text, now)
    if moment > now:
        raise CommandError(f"--since={text} appears to be in the future")
    return moment


def _parse(text: str, now: float) -> float:
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
