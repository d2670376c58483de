# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""A picture of rectangles, areas and texts, as SVG, or as PNG, for where no SVG can be
shown. It needs nothing but Python.

Nothing in it is more than a shape: texts of users are printable and escaped.
"""

from __future__ import annotations

import struct
import zlib
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


# PNG

SIGNATURE = b"\x89PNG\r\n\x1a\n"
ADVANCE = 6
"""Pixels from one letter to the next."""

ROWS = 7
"""Pixels of the height of a letter."""

_FIRST = " "
_GLYPHS = bytes.fromhex(
    "0000000000 00005f0000 0007000700 147f147f14 242a7f2a12 2313086462 3649552250"
    "0005030000 001c224100 0041221c00 082a1c2a08 08083e0808 0050300000 0808080808"
    "0060600000 2010080402 3e5149453e 00427f4000 4261514946 2141454b31 1814127f10"
    "2745454539 3c4a494930 0171090503 3649494936 064949291e 0036360000 0056360000"
    "0814224100 1414141414 0041221408 0201510906 324979413e 7e1111117e 7f49494936"
    "3e41414122 7f4141221c 7f49494941 7f09090901 3e41495a3a 7f0808087f 00417f4100"
    "2040413f01 7f08142241 7f40404040 7f020c027f 7f0408107f 3e4141413e 7f09090906"
    "3e4151215e 7f09192946 4649494931 01017f0101 3f4040403f 1f2040201f 3f4038403f"
    "6314081463 0708700807 6151494543 007f414100 0204081020 0041417f00 0402010204"
    "4040404040 0001020400 2054545478 7f48444438 3844444420 384444487f 3854545418"
    "087e090102 0c5252523e 7f08040478 00447d4000 2040443d00 7f10284400 00417f4000"
    "7c04180478 7c08040478 3844444438 7c14141408 081414187c 7c08040408 4854545420"
    "043f444020 3c4040207c 1c2040201c 3c4030403c 4428102844 0c5050503c 4464544c44"
    "0008364100 00007f0000 0041360800 0804081008"
)
"""The letters of ASCII from the blank on: five columns each, whose lowest bit is the
upper pixel."""


def png(picture: Picture) -> bytes:
    """A picture as a PNG file with three bytes for each pixel."""
    canvas = Canvas(picture.width, picture.height)
    for shape in picture.shapes:
        if isinstance(shape, Rectangle):
            canvas.fill(shape)
        elif isinstance(shape, Area):
            for part in shape.rectangles():
                if part.height:
                    canvas.fill(part)
        else:
            canvas.write(shape)
    header = struct.pack(">IIBBBBB", picture.width, picture.height, 8, 2, 0, 0, 0)
    lines = b"".join(b"\0" + row for row in canvas.rows)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(lines, 6)), (b"IEND", b"")]
    return SIGNATURE + b"".join(_chunk(name, data) for name, data in chunks)


def _chunk(name: bytes, data: bytes) -> bytes:
    checksum = struct.pack(">I", zlib.crc32(name + data))
    return struct.pack(">I", len(data)) + name + data + checksum


class Canvas:
    """Rows of pixels, white at first."""

    def __init__(self, width: int, height: int) -> None:
        self.rows = [bytearray(b"\xff" * 3 * width) for _ in range(height)]
        self._width = width

    def fill(self, shape: Rectangle) -> None:
        """Fill a rectangle, at least one pixel of it."""
        left, top = max(0, round(shape.x)), max(0, round(shape.y))
        right = min(self._width, max(left + 1, round(shape.x + shape.width)))
        bottom = min(len(self.rows), max(top + 1, round(shape.y + shape.height)))
        pixels = bytes.fromhex(shape.color[1:]) * max(0, right - left)
        for row in self.rows[top:bottom]:
            row[3 * left : 3 * right] = pixels

    def write(self, shape: Text) -> None:
        """Write a text. Letters beyond ASCII are question marks, but ``ƒ``."""
        text = shape.text.replace("ƒ", "f")
        width = ADVANCE * len(text)
        x = round(shape.x) - {MIDDLE: width // 2, END: width}.get(shape.anchor, 0)
        top = round(shape.y) - ROWS
        for index, letter in enumerate(text):
            code = ord(letter) - ord(_FIRST)
            if not 0 <= code < len(_GLYPHS) // 5:
                code = ord("?") - ord(_FIRST)
            for column, bits in enumerate(_GLYPHS[5 * code : 5 * code + 5]):
                self._draw_column(x + ADVANCE * index + column, top, bits)

    def _draw_column(self, x: int, top: int, bits: int) -> None:
        if not 0 <= x < self._width:
            return
        pixel = bytes.fromhex(BLACK[1:])
        for y in range(ROWS):
            if bits >> y & 1 and 0 <= top + y < len(self.rows):
                self.rows[top + y][3 * x : 3 * x + 3] = pixel
