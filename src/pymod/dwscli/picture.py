# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""A picture of rectangles, areas and texts, as SVG.

Nothing in it is more than a shape: texts of users are printable and escaped.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby
from typing import Iterator, Mapping, Sequence, Union
from xml.sax.saxutils import escape

from flux_k8s.text import SHOWN, printable

FONT = "system-ui, sans-serif"
BLACK = "#222222"

START, MIDDLE, END = "start", "middle", "end"
"""The part of a text that is at its place."""


@dataclass(frozen=True)
class Rectangle:
    """A filled rectangle. A reader who points at it sees the title."""

    x: float
    y: float
    width: float
    height: float
    color: str
    title: str = ""


@dataclass(frozen=True)
class Area:
    """Rectangles of one color side by side, in one shape.

    Attributes:
        x: the left edge of the first.
        width: that of each.
        spans: the top and the bottom of each.
    """

    x: float
    width: float
    spans: Sequence[tuple[float, float]]
    color: str

    def rectangles(self) -> Iterator[Rectangle]:
        """The rectangles; those that follow each other with the same span are one."""
        index = 0
        for (top, bottom), same in groupby(self.spans):
            count = sum(1 for _ in same)
            x, width = self.x + index * self.width, count * self.width
            yield Rectangle(x, top, width, bottom - top, self.color)
            index += count


@dataclass(frozen=True)
class Text:
    """A text on one line, whose feet are at ``y``."""

    x: float
    y: float
    text: str
    anchor: str = START


Shape = Union[Rectangle, Area, Text]


@dataclass
class Picture:
    """The parts of the picture, in pixels from the upper left corner."""

    width: int
    height: int
    shapes: list[Shape] = field(default_factory=list)

    def draw(self, shape: Shape) -> None:
        """Draw a shape over what is there."""
        self.shapes.append(shape)


def svg(picture: Picture) -> str:
    """A picture as an SVG document."""
    size = f'width="{picture.width}" height="{picture.height}"'
    box = f'viewBox="0 0 {picture.width} {picture.height}"'
    style = f'font-family="{FONT}" font-size="11" fill="{BLACK}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {box} {style}>'
    white = '<rect width="100%" height="100%" fill="#ffffff"/>'
    return "\n".join([head, white, *map(_element, picture.shapes), "</svg>", ""])


def inline_svg(picture: Picture, classes: Mapping[str, str]) -> str:
    """A picture as a part of an HTML page.

    Args:
        classes: for colours that the style of the page is to choose, the class of
            rectangles that have them here.
    """
    size = f'width="{picture.width}" height="{picture.height}"'
    box = f'viewBox="0 0 {picture.width} {picture.height}"'
    head = f'<svg {size} {box} role="img">'
    shapes = (_element(shape, classes) for shape in picture.shapes)
    return "\n".join([head, *shapes, "</svg>"])


def _element(shape: Shape, classes: Mapping[str, str] = {}) -> str:
    if isinstance(shape, Area):
        return f'<path d="{_outline(shape)}" fill="{shape.color}"/>'
    place = f'x="{shape.x:.1f}" y="{shape.y:.1f}"'
    if isinstance(shape, Text):
        return f'<text {place} text-anchor="{shape.anchor}">{_text(shape.text)}</text>'
    size = f'width="{shape.width:.1f}" height="{shape.height:.1f}"'
    title = f"<title>{_text(shape.title)}</title>" if shape.title else ""
    name = classes.get(shape.color)
    color = f'class="{name}"' if name else f'fill="{shape.color}"'
    return f"<rect {place} {size} {color}>{title}</rect>"


def _outline(area: Area) -> str:
    """The edge of an area: along all tops, and back along the bottoms."""
    parts = list(area.rectangles())
    there = "".join(f"V{part.y:.1f}H{part.x + part.width:.1f}" for part in parts)
    back = "".join(
        f"V{part.y + part.height:.1f}H{part.x:.1f}" for part in reversed(parts)
    )
    return f"M{area.x:.1f} {parts[0].y:.1f}{there}{back}Z" if parts else ""


def _text(text: str) -> str:
    return escape(printable(text, SHOWN))
