# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""A plot of bars that are made of parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping, Sequence

from dwscli.chart import AXIS
from dwscli.picture import END, Picture, Rectangle, Text
from rabbitsim.day.plots import LEFT, TOP, WIDTH, legend, short

LABELS, TOTALS = 190, 80
"""Pixels of what is written on the left and on the right of a bar."""

HEIGHT, GAP = 20, 8


@dataclass(frozen=True)
class Bar:
    """A bar.

    Attributes:
        label: what it is about.
        parts: the value of each part; none for a heading of the bars below it.
    """

    label: str
    parts: Mapping[str, float]


def draw(title: str, bars: Sequence[Bar], colors: Mapping[str, str]) -> Picture:
    """Bars below each other, of which each part has its color, and the sum of each."""
    picture = Picture(WIDTH, TOP + len(bars) * (HEIGHT + GAP) + GAP)
    picture.draw(Text(LEFT, TOP - 24, title))
    used = {name: color for name, color in colors.items() if _is_used(name, bars)}
    legend(picture, used, TOP - 18)
    scale = (WIDTH - LABELS - TOTALS) / max(sum(bar.parts.values()) for bar in bars)
    for index, bar in enumerate(bars):
        x, y = float(LABELS), TOP + GAP + index * (HEIGHT + GAP)
        feet = y + 0.7 * HEIGHT
        if not bar.parts:
            picture.draw(Text(LEFT, feet, bar.label))
            continue
        picture.draw(Text(LABELS - 8, feet, bar.label, END))
        for name, color in used.items():
            value = bar.parts.get(name, 0.0)
            tip = f"{name}: {short(value)}"
            picture.draw(Rectangle(x, y, value * scale, HEIGHT, color, tip))
            x += value * scale
        picture.draw(Text(x + 6, feet, short(sum(bar.parts.values()))))
        picture.draw(Rectangle(LABELS, y - GAP / 2, 1, HEIGHT + GAP, AXIS))
    return picture


def _is_used(name: str, bars: Sequence[Bar]) -> bool:
    return any(bar.parts.get(name) for bar in bars)
