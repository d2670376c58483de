# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""HTML elements. A text is no markup unless it is a :class:`Markup`."""

from __future__ import annotations

from html import escape
from typing import Iterable, Union

from flux_k8s.text import SHOWN, printable


class Markup(str):
    """A text that is HTML."""


EMPTY = frozenset({"meta"})
"""Elements without an end tag."""

Part = Union[str, Markup]


def element(tag: str, *parts: Part, **attributes: str) -> Markup:
    """An HTML element. Texts in it are printable, cut to ``SHOWN`` characters, and
    escaped, and so are the values of attributes.

    Args:
        attributes: the name of each without a ``_`` at its end, with ``-`` for others.
    """
    words = [tag]
    for key, value in attributes.items():
        name = key.rstrip("_").replace("_", "-")
        words.append(f'{name}="{_escaped(value)}"')
    head = f"<{' '.join(words)}>"
    if tag in EMPTY:
        return Markup(head)
    return Markup(f"{head}{join(parts)}</{tag}>")


def join(parts: Iterable[Part], between: str = "") -> Markup:
    """Texts and elements, one behind the other."""
    return Markup(
        between.join(
            part if isinstance(part, Markup) else _escaped(part) for part in parts
        )
    )


def _escaped(text: str) -> str:
    return escape(printable(text, SHOWN))
