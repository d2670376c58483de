# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Tables as ``flux jobs`` prints them, with the same options."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Callable, Generic, Iterable, Mapping, Optional, TypeVar

from dwscli import namedformats
from dwscli.formats import Field, Format
from dwscli.namedformats import Formats
from dwscli.page import old_sentence
from dwscli.terminal import Screen, add_color, screen, warn, write
from dwscli.width import wrapped
from flux_k8s.ports import Json

Item = TypeVar("Item")

INDENT = "    "
"""The beginning of a continued line."""


def add_options(args: argparse.ArgumentParser) -> None:
    """Add the options that all tables have."""
    add = args.add_argument
    add(
        "-n",
        "--no-header",
        action="store_true",
        help="Suppress printing of header line",
    )
    add(
        "-o",
        "--format",
        default=namedformats.DEFAULT,
        metavar="FORMAT",
        help="Specify output format using Python's string format syntax or a defined"
        " format by name (use 'help' to get a list of names)",
    )
    add("--sort", default="", metavar="KEY,...", help="Specify sort order")
    add(
        "-w",
        "--width",
        type=int,
        default=-1,
        const=0,
        metavar="N",
        nargs="?",
        help="Truncate output at width N. If N=0 (default if N omitted) and stdout is"
        " connected to a terminal, use terminal width",
    )
    add(
        "--json",
        action="store_true",
        help="Output in JSON instead of formatted output",
    )
    add_color(args)


@dataclass(frozen=True)
class Table(Generic[Item]):
    """The table of a subcommand.

    Attributes:
        name: that of the subcommand.
        builtin: its named formats.
        fields: those of an item.
        color: the colour of an item, or an empty text.
    """

    name: str
    builtin: Formats
    fields: Mapping[str, Field[Item]]
    color: Callable[[Item], str] = lambda item: ""

    def format(self, args: argparse.Namespace) -> Optional[Format[Item]]:
        """The format that the options ask for. None if they ask for the formats that
        there are, or how one of them is written: that is printed."""
        answer = namedformats.answer(self.name, args.format, self.builtin)
        if answer:
            write([answer])
            return None
        text = namedformats.format_text(self.name, args.format, self.builtin)
        found = Format(text, self.fields)
        if args.sort:
            found.sort_by(args.sort)
        return found

    def print(
        self, args: argparse.Namespace, format: Format[Item], items: Iterable[Item]
    ) -> None:
        """Print items as the options ask for. On a terminal, lines that are not cut and
        do not fit are continued on the next one."""
        output = screen(args.color)
        lines = format.lines(items, not args.no_header, _width(args.width, output))
        is_wrapped = output.is_terminal and args.width < 0
        write(
            part if item is None else output.paint(part, self.color(item))
            for line, item in lines
            for part in (wrapped(line, output.width, INDENT) if is_wrapped else [line])
        )


def warn_of_age(answer: Json) -> None:
    """Write a warning where Kubernetes is out of reach, since when, and why, or where
    the module does not know all jobs."""
    line = old_sentence(answer)
    if line:
        warn(line)


def _width(width: int, output: Screen) -> int:
    """The columns at which lines are cut; 0 for never."""
    if width == 0:
        return output.width if output.is_terminal else 0
    return max(0, width)
