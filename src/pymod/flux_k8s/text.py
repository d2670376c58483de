# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Text from guests and from Kubernetes, made safe for logs and terminals.

Such text may have an escape sequence that changes the reader's terminal, a line feed
that begins a false line of the log, or a mark that reverses the order of letters.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Optional

SHOWN = 400
"""The most characters that a message repeats of one text."""

NOTE = 4096
"""The most characters of an exception's note, or of a memo."""

LINE = 1800
"""The most bytes of a line of the log. ``flux_log`` cuts a line with its header after
2048 bytes, and may cut a character in two."""

USER_ERROR = "User error"
"""In messages of DWS about an error in the request of a job."""

_STEP = re.compile(r"; flux dws show \S+ says more\Z")


def printable(text: str, limit: Optional[int] = None) -> str:
    r"""``text`` on one line, cut to ``limit`` characters. Characters that are not
    printable are written as in a Python string: ``\n``, ``\x1b``, ``\u202e``.

    A printable text is not changed, unless it is cut.
    """
    if limit is not None and len(text) > limit:
        text = text[: limit - 3] + "..."
    if text.isprintable():
        return text
    return printable("".join(map(_escaped, text)), limit)


def printable_bytes(text: str, size: int) -> bytes:
    """``text`` on one line, printable, cut to ``size`` bytes."""
    line = printable(text).encode()
    if len(line) > size:
        line = line[: size - 3].decode(errors="ignore").encode() + b"..."
    return line


def columns(text: str) -> int:
    """The columns that a printable text takes on a terminal: a wide character (Chinese,
    Japanese, Korean, most emoji) takes two, a combining mark none."""
    return len(text) if text.isascii() else sum(map(_columns, text))


@lru_cache(maxsize=4096)
def _columns(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def quoted(text: str) -> str:
    """``text`` in quotation marks for a message: printable, cut to ``SHOWN``
    characters."""
    return repr(printable(text, SHOWN))


def printable_lines(text: str) -> str:
    """``text``, which may have several lines, with each line printable."""
    return "\n".join(map(printable, text.split("\n")))


def with_next_step(note: str, job: str) -> str:
    """The note of an exception of ``job``, printable, and where the job's owner learns
    more. A note about an error in the job's request is complete, and stays as it is."""
    if USER_ERROR in note:
        return printable(note, NOTE)
    step = f"; flux dws show {job} says more"
    return printable(note, NOTE - len(step)) + step


def without_next_step(note: str) -> str:
    """The note of an exception as :func:`with_next_step` was given it: for those who
    read it with this command."""
    return _STEP.sub("", note)


@lru_cache(maxsize=8192)
def _escaped(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode("ascii")
