# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""``flux dws report``: a web page about the storage of the machine, now and in the last
hours."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from dwscli import selection, spans
from dwscli.instance import Instance, all_rabbits
from dwscli.rabbits import chosen
from dwscli.reading import number, objects, part
from dwscli.selection import HOURS, active, ended_since
from dwscli.terminal import write
from dwscli.webpage import Report, web_page
from flux_k8s.command import STDIN

DESCRIPTION = """
Write a web page about the storage of the machine: the Rabbits with what of them is
used and what is out of service, jobs over time, the rate of data movement, and failures
by their reasons. The page needs no network and has no scripts. Guests see the jobs of
their own.
"""


def add_arguments(args: argparse.ArgumentParser) -> None:
    """Add what ``flux dws report`` takes."""
    args.description = DESCRIPTION
    add = args.add_argument
    add(
        "--since",
        metavar="WHEN",
        help=f"Include jobs that have ended since WHEN (default: {HOURS} hours ago)",
    )
    add(
        "-o",
        "--output",
        metavar="FILE",
        default=STDIN,
        help="Write the page to FILE (default: standard output)",
    )
    args.set_defaults(function=report)


def report(args: argparse.Namespace, instance: Instance) -> None:
    """Write the page about an instance.

    Raises:
        Refused: the module does not answer.
    """
    page = web_page(gather(instance, selection.since(args, HOURS)))
    if args.output == STDIN:
        write([page.rstrip("\n")])
    else:
        Path(args.output).write_text(page, encoding="utf-8")


def gather(instance: Instance, since: float) -> Report:
    """The contents of the page.

    Raises:
        Refused: the module does not answer.
    """
    rabbits = all_rabbits(instance)
    user = None if instance.is_owner else instance.userid
    jobs, answer = active(instance, user)
    past = ended_since(instance, user, since, jobs)
    now = number(answer, "now") or time.time()
    drawn = [spans.of_job(job, now) for job in (*jobs, *past)]
    return Report(
        now=now,
        since=min(since, now),
        situation=rabbits,
        is_owner=instance.is_owner,
        totals=part(answer, "totals"),
        rabbits=chosen(objects(rabbits, "rabbits"), None),
        active=jobs,
        ended=past,
        spans=[one for one in drawn if one is not None],
    )
