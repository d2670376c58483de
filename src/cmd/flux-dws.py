#!/bin/false
# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""flux dws: jobs with storage on Rabbits.

Each subcommand is a module of :mod:`dwscli`. Only the module of the subcommand that is
called is imported.
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from typing import NoReturn, Sequence

from flux_k8s.command import parser, run
from flux_k8s.version import version

NAME = "dws"
DESCRIPTION = """
Show jobs with storage on Rabbits and the Rabbits, and exchange jobs and their storage
with other systems as job objects: XML documents of the Scalable Systems Software Job
Object Specification.
"""

SUBCOMMANDS = {
    "list": ("list", "list jobs with storage"),
    "show": ("show", "show all about the storage of a job"),
    "wait": ("show", "wait until the storage of a job is gone"),
    "rescue": ("rescue", "have data copied again that could not be copied out"),
    "free": ("free", "let a job go whose storage does not get on"),
    "check": ("check", "show what would become of directives"),
    "rabbits": ("rabbits", "list Rabbits"),
    "timeline": ("timeline", "draw the states of jobs over time"),
    "usage": ("usage", "show the storage that jobs had"),
    "report": ("report", "write a web page about the storage of the machine"),
    "disable": ("disable", "take Rabbits out of service"),
    "enable": ("disable", "put Rabbits back into service"),
    "metrics": ("metrics", "print metrics for Prometheus"),
    "job-object": ("jobobject", "write jobs as a job object"),
    "submit-object": ("submitobject", "submit the jobs of a job object"),
}
"""The module of each subcommand, and what the subcommand does."""


def arguments(words: Sequence[str]) -> argparse.Namespace:
    """What the command line says. ``function`` of it is the subcommand's."""
    args = parser(NAME, DESCRIPTION)
    args.add_argument("--version", action="version", version=f"flux-dws {version()}")
    commands = args.add_subparsers(dest="command", required=True)
    for name, (module, purpose) in SUBCOMMANDS.items():
        command = commands.add_parser(name, help=purpose, allow_abbrev=False)
        if list(words[:1]) == [name]:
            import_module(f"dwscli.{module}").add_arguments(command)
    if not words:
        args.print_help(sys.stderr)
        sys.exit(2)
    if not words[0].startswith("-") and words[0] not in SUBCOMMANDS:
        refuse(args, words[0])
    return args.parse_args(words)


def refuse(args: argparse.ArgumentParser, word: str) -> NoReturn:
    """End with an error that names the subcommand that is meant."""
    from flux_k8s.formats.directives import closest
    from flux_k8s.text import quoted

    meant = closest(word, SUBCOMMANDS)
    if meant is None:
        args.error(f"{quoted(word)} is no subcommand: flux dws lists them")
    args.error(f"{quoted(word)} is no subcommand: did you mean {meant}?")


def main() -> None:
    """Do what the subcommand says."""
    args = arguments(sys.argv[1:])
    from dwscli.fluxinstance import FluxInstance

    status = args.function(args, FluxInstance())
    if status:
        sys.exit(status)


if __name__ == "__main__":
    sys.exit(run(NAME, main))
