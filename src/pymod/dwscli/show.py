# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""``flux dws show`` and ``flux dws wait``: all about the storage of a job, now or until
it is gone."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Union

from dwscli.details import look_up
from dwscli.follow import follow
from dwscli.instance import Instance, job_id
from dwscli.page import page
from dwscli.painters import JsonLines, Page, Painter, Plain, StatusLine, to_json
from dwscli.terminal import add_color, screen, write

WAIT = "wait"
SHOW_DESCRIPTION = """
Show the storage of a job: its directives, allocations, Rabbits and nodes, the seconds
in each state, data movement, mounts, time limits that run, and exceptions. The job may
have ended.
"""
WAIT_DESCRIPTION = """
Wait until a job has ended and its storage is gone. The exit status is 0 if the storage
was as the job asked for it and all data was copied out, and 1 if the storage has failed
or data is lost.
"""


def add_arguments(args: argparse.ArgumentParser) -> None:
    """Add what ``flux dws show`` and ``flux dws wait`` take."""
    waits = args.prog.split()[-1] == WAIT
    args.description = WAIT_DESCRIPTION if waits else SHOW_DESCRIPTION
    add = args.add_argument
    add("jobid", metavar="JOBID", help="the job, active or not")
    if waits:
        add("--json", action="store_true", help="Output each change in JSON, on a line")
    else:
        add("--json", action="store_true", help="Output in JSON")
        add(
            "--follow",
            action="store_true",
            help="Show each change until the storage is gone. The exit status is that"
            " of flux dws wait",
        )
    add_color(args)
    args.set_defaults(function=show)


def show(args: argparse.Namespace, instance: Instance) -> None:
    """Show a job of an instance, or wait for it.

    Raises:
        CommandError: the job cannot be shown, or is followed, and its storage fails, or
            data is lost.
    """
    id = job_id(instance, args.jobid)
    if args.command == WAIT:
        follow(instance, id, painter(args, StatusLine))
    elif args.follow:
        follow(instance, id, painter(args, Page))
    else:
        answer, _ = look_up(instance, id)
        output = screen(args.color)
        write([to_json(answer)] if args.json else page(answer, output))


def painter(
    args: argparse.Namespace, live: Union[type[Page], type[StatusLine]]
) -> Painter:
    """The painter of a job that is followed."""
    if args.json:
        return JsonLines()
    return live(partial(screen, args.color)) if screen().is_terminal else Plain()
