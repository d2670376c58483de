# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Bars of letters, in the style "vertbars" of ``flux.progress``."""

from __future__ import annotations

BLOCKS = " ▏▎▍▌▋▊▉█"
"""A column that is filled to so many eighths."""


def bar(fraction: float, width: int, has_unicode: bool = True) -> str:
    """A bar that takes ``fraction`` of ``width`` columns, without blanks at its end.
    Anything but 0 is seen."""
    fraction = min(1.0, max(0.0, fraction))
    if not has_unicode:
        return "#" * max(round(fraction * width), 1 if fraction and width else 0)
    eighths = max(int(fraction * width * 8), 1 if fraction and width else 0)
    return (BLOCKS[-1] * (eighths // 8) + BLOCKS[eighths % 8]).rstrip()


def gauge(fraction: float, width: int, has_unicode: bool) -> str:
    """A bar in a frame, which takes ``width`` columns in all; empty if there is no room
    for it."""
    if width < 4:
        return ""
    edge = "│" if has_unicode else "|"
    return f"{edge}{bar(fraction, width - 2, has_unicode):<{width - 2}}{edge}"
