# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Job objects to XML: one text for all objects that are equal."""

from __future__ import annotations

from typing import Iterator

from sssjob.schema.model import Element, check
from sssjob.schema.values import to_text

DECLARATION = '<?xml version="1.0" encoding="UTF-8"?>'

_INDENT = "  "

# A parser makes a line feed of a carriage return, and spaces of both and of tabs
# in attributes, unless they are written as references.
# A terminal may take the control characters that XML can hold for commands, and others
# end a line or turn the order of letters.
_MARKS = (0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
_CONTROLS = {chr(code): f"&#{code};" for code in (*range(0x7F, 0xA0), *_MARKS)}
_IN_TEXT = str.maketrans(
    {**_CONTROLS, "&": "&amp;", "<": "&lt;", ">": "&gt;", "\r": "&#13;"}
)
_IN_ATTRIBUTE = str.maketrans(
    {
        **_CONTROLS,
        "&": "&amp;",
        "<": "&lt;",
        ">": "&gt;",
        '"': "&quot;",
        "\t": "&#9;",
        "\n": "&#10;",
        "\r": "&#13;",
    }
)


def write(root: Element) -> str:
    """A Job or JobGroup as an XML document.

    ``read(write(root)) == root``, as long as it is within the bounds of
    :mod:`~sssjob.xml.markup`. The text is the same for all objects that are
    equal.

    Raises:
        ObjectError: it is not valid.
    """
    check(root)
    return "\n".join([DECLARATION, *_lines(root, "")]) + "\n"


def _lines(inner: Element, indent: str) -> Iterator[str]:
    tag = inner.name + "".join(
        f' {name}="{to_text(value).translate(_IN_ATTRIBUTE)}"'
        for name, value in inner.attributes
    )
    if inner.value is not None:
        text = to_text(inner.value).translate(_IN_TEXT)
        yield f"{indent}<{tag}>{text}</{inner.name}>" if text else f"{indent}<{tag}/>"
    elif inner.contents:
        yield f"{indent}<{tag}>"
        for child in inner.contents:
            yield from _lines(child, indent + _INDENT)
        yield f"{indent}</{inner.name}>"
    else:
        yield f"{indent}<{tag}/>"
