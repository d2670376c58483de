# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""A picture of rectangles and texts, as SVG.

Nothing in it is more than a shape: texts of users are printable and escaped.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Mapping, Union
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
class Text:
    """A text on one line, whose feet are at ``y``."""

    x: float
    y: float
    text: str
    anchor: str = START


@dataclass
class Picture:
    """The parts of the picture, in pixels from the upper left corner."""

    width: int
    height: int
    shapes: list[Union[Rectangle, Text]] = field(default_factory=list)

    def draw(self, shape: Union[Rectangle, Text]) -> None:
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


def _element(shape: Union[Rectangle, Text], classes: Mapping[str, str] = {}) -> str:
    place = f'x="{shape.x:.1f}" y="{shape.y:.1f}"'
    if isinstance(shape, Text):
        return f'<text {place} text-anchor="{shape.anchor}">{_text(shape.text)}</text>'
    size = f'width="{shape.width:.1f}" height="{shape.height:.1f}"'
    title = f"<title>{_text(shape.title)}</title>" if shape.title else ""
    name = classes.get(shape.color)
    color = f'class="{name}"' if name else f'fill="{shape.color}"'
    return f"<rect {place} {size} {color}>{title}</rect>"


def _text(text: str) -> str:
    return escape(printable(text, SHOWN))
