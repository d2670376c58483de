# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Standard output, its abilities and the options about them; and lines of standard
error, as Flux's own commands write them."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from dataclasses import dataclass
from typing import Iterable

from dwscli import units
from flux_k8s.command import write_message

RED, GREEN, YELLOW, BLUE, GREY = "01;31", "01;32", "01;33", "01;34", "37"
"""Colours, as in ``flux jobs``."""

WHEN = ("auto", "always", "never")
UNKNOWN_WIDTH, UNKNOWN_HEIGHT = 80, 24
"""The size of a page that is not for a terminal, or for one that has none."""


@dataclass(frozen=True)
class Screen:
    """The abilities of standard output.

    Attributes:
        width, height: columns and lines.
        is_terminal: whether what was written can be written over.
        has_color, has_unicode: whether it has colours, and letters beyond ASCII.
    """

    width: int = UNKNOWN_WIDTH
    height: int = UNKNOWN_HEIGHT
    is_terminal: bool = False
    has_color: bool = False
    has_unicode: bool = True

    def paint(self, text: str, color: str) -> str:
        """A text in a colour."""
        if not (self.has_color and color and text):
            return text
        return f"\033[{color}m{text}\033[0;0m"


def screen(color: str = "auto") -> Screen:
    """The abilities of standard output now: a terminal's size may change."""
    is_terminal = sys.stdout.isatty()
    size = shutil.get_terminal_size((UNKNOWN_WIDTH, UNKNOWN_HEIGHT))
    is_known = is_terminal or "COLUMNS" in os.environ
    return Screen(
        # Python 3.9 gives the 0 of a terminal that has no size, as under expect.
        width=(is_known and size.columns) or UNKNOWN_WIDTH,
        height=size.lines or UNKNOWN_HEIGHT,
        is_terminal=is_terminal and os.environ.get("TERM") != "dumb",
        has_color=color == "always" or (color == "auto" and is_terminal),
        has_unicode=units.is_utf8(),
    )


def add_color(args: argparse.ArgumentParser) -> None:
    """Add the option ``--color``, as Flux's commands have it."""
    args.add_argument(
        "--color",
        nargs="?",
        const="always",
        default="never" if os.environ.get("NO_COLOR") else "auto",
        choices=WHEN,
        metavar="WHEN",
        help="Use color; WHEN can be 'never', 'always' or 'auto' (default)",
    )


def write(lines: Iterable[str]) -> None:
    """Write lines to standard output. A letter that its encoding lacks is written as an
    escape sequence of Python."""
    text = "".join(f"{line}\n" for line in lines)
    encoding = sys.stdout.encoding or "ascii"
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
    sys.stdout.flush()


# Standard error

NAME = "dws"
"""The command is ``flux dws``."""

MOMENT = 2
"""Seconds after which a user wonders what a command waits for."""

KUBERNETES = "waiting for the dws module, which asks Kubernetes"


def warn(message: str) -> None:
    """Write a warning to standard error."""
    write_message(NAME, "WARNING", message)


class Notice:
    """Says once what a command waits for, unless the answer comes within a moment."""

    def __init__(self, message: str) -> None:
        self._message = message
        self._ticks = 0

    def tick(self) -> None:
        """About a second has passed."""
        self._ticks += 1
        if self._ticks == MOMENT:
            warn(self._message)


def complain(message: str) -> None:
    """Write an error to standard error."""
    write_message(NAME, "ERROR", message)
