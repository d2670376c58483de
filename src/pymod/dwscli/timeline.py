# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""``flux dws timeline``: a picture of the states of jobs over time."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Iterator, Optional, Sequence

from dwscli import selection, spans
from dwscli.chart import draw
from dwscli.details import look_up
from dwscli.instance import Instance, Refused, job_id
from dwscli.picture import png, svg
from dwscli.reading import number
from dwscli.selection import HOURS, active, ended_since
from dwscli.spans import JobSpans
from dwscli.terminal import complain, write
from flux_k8s.command import STDIN, CommandError
from flux_k8s.ports import Json

DESCRIPTION = """
Draw the states of jobs' storage over time, and the rate at which data was moved, as SVG
or PNG: of the jobs that are named, or of the user's active jobs and those that
have ended since a time.
"""


def add_arguments(args: argparse.ArgumentParser) -> None:
    """Add what ``flux dws timeline`` takes."""
    args.description = DESCRIPTION
    add = args.add_argument
    add("jobids", metavar="JOBID", nargs="*", help="the jobs, active or not")
    add(
        "--since",
        metavar="WHEN",
        help=f"Draw jobs that have ended since WHEN (default: {HOURS} hours ago)",
    )
    add("-A", action="store_true", help="Draw the jobs of all users")
    add(
        "-o",
        "--output",
        metavar="FILE",
        default=STDIN,
        help="Write the picture to FILE, as PNG if it is called .png, else as SVG"
        " (default: standard output)",
    )
    args.set_defaults(function=timeline)


def timeline(args: argparse.Namespace, instance: Instance) -> Optional[int]:
    """Draw the jobs of an instance; the exit status, if it is not 0.

    Raises:
        CommandError: there is none.
    """
    since, status = selection.since(args, HOURS), None
    if args.jobids:
        found = [*named(instance, args.jobids)]
    else:
        user = None if args.A else instance.userid
        found, status = recent(instance, user, since)
    moment = max([number(answer, "now") or 0.0 for answer in found], default=0.0)
    drawn = [spans.of_job(answer, moment or time.time()) for answer in found]
    jobs: list[JobSpans] = [one for one in drawn if one is not None]
    if not jobs:
        raise CommandError("there is no job with storage to be drawn")
    picture = draw(sorted(jobs, key=lambda one: (one.begin, one.job)))
    if args.output == STDIN:
        write([svg(picture).rstrip("\n")])
    elif args.output.endswith(".png"):
        Path(args.output).write_bytes(png(picture))
    else:
        Path(args.output).write_text(svg(picture), encoding="utf-8")
    return status


def recent(
    instance: Instance, user: Optional[int], since: float
) -> tuple[list[Json], Optional[int]]:
    """Active jobs and those that have ended since a time, and the exit status.

    Raises:
        Refused: the module does not answer, and no job has ended.
    """
    refusal = None
    jobs: list[Json] = []
    try:
        jobs = active(instance, user)[0]
    except Refused as error:
        refusal = error
    past = ended_since(instance, user, since, jobs)
    if refusal is None:
        return jobs + past, None
    if not past:
        raise refusal
    complain(str(refusal))
    return past, 1


def named(instance: Instance, words: Sequence[str]) -> Iterator[Json]:
    """The jobs of the command line."""
    for id in dict.fromkeys(job_id(instance, word) for word in words):
        yield look_up(instance, id)[0]
