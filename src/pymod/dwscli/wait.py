# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""``flux dws wait``: wait until the storage of a job is gone."""

from __future__ import annotations

import argparse

from dwscli import fluxinstance
from dwscli.follow import follow
from dwscli.instance import Instance, job_id
from dwscli.painters import StatusLine
from dwscli.show import painter
from dwscli.terminal import add_color

DESCRIPTION = """
Wait until a job has ended and its storage is gone. The exit status is 0 if the storage
was as the job asked for it and all data was copied out, and 1 if the storage has failed
or data is lost.
"""


def add_arguments(args: argparse.ArgumentParser) -> None:
    """Add what ``flux dws wait`` takes."""
    args.description = DESCRIPTION
    add = args.add_argument
    add("jobid", metavar="JOBID", help="the job, active or not")
    add("--json", action="store_true", help="Output each change in JSON, on a line")
    add_color(args)
    args.set_defaults(function=main)


def main(args: argparse.Namespace) -> None:
    """Wait for a job."""
    wait(args, fluxinstance.FluxInstance())


def wait(args: argparse.Namespace, instance: Instance) -> None:
    """Wait for a job of an instance.

    Raises:
        CommandError: its storage has failed, or data is lost.
    """
    follow(instance, job_id(instance, args.jobid), painter(args, StatusLine))
