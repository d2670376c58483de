# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""A picture of rectangles, lines and texts, as SVG.

Nothing in it is more than a shape: texts of users are printable and escaped.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from xml.sax.saxutils import escape, quoteattr

from flux_k8s.text import SHOWN, printable

FONT = "system-ui, sans-serif"


@dataclass
class Picture:
    """What is drawn, in pixels from the upper left corner."""

    width: int
    height: int
    parts: list[str] = field(default_factory=list)

    def rectangle(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        color: str,
        title: str = "",
    ) -> None:
        """Draw a rectangle. A reader who points at it sees the title."""
        place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
        shape = f'<rect {place} fill="{color}"'
        inner = f"<title>{_text(title)}</title>" if title else ""
        self.parts.append(f"{shape}>{inner}</rect>" if inner else f"{shape}/>")

    def line(self, x: float, y: float, to_x: float, to_y: float, color: str) -> None:
        ends = f'x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}"'
        self.parts.append(f'<line {ends} stroke="{color}"/>')

    def area(self, points: list[tuple[float, float]], color: str) -> None:
        """Draw a filled polygon."""
        corners = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(f'<polygon points="{corners}" fill="{color}"/>')

    def text(self, x: float, y: float, text: str, anchor: str = "start") -> None:
        """Write a text.

        Args:
            anchor: ``start``, ``middle`` or ``end``: what of the text is at ``x``.
        """
        place = f'x="{x:.1f}" y="{y:.1f}" text-anchor={quoteattr(anchor)}'
        self.parts.append(f"<text {place}>{_text(text)}</text>")

    def svg(self) -> str:
        """The picture as an SVG document."""
        size = f'width="{self.width}" height="{self.height}"'
        box = f'viewBox="0 0 {self.width} {self.height}"'
        style = f'font-family="{FONT}" font-size="11" fill="#222"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {box} {style}>'
        white = '<rect width="100%" height="100%" fill="#fff"/>'
        return "\n".join([head, white, *self.parts, "</svg>", ""])


def _text(text: str) -> str:
    return escape(printable(text, SHOWN))
