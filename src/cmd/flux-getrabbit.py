#!/bin/false
# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""flux getrabbit: which Rabbits belong to which compute nodes and jobs."""

from __future__ import annotations

import argparse
import sys
from typing import Any, Iterable

from flux_k8s import hostlist, lookup
from flux_k8s.command import CommandError, load_mapping, parser, run
from flux_k8s.mapping import RabbitMapping

NAME = "getrabbit"
DESCRIPTION = """
Write all Rabbits, or the compute nodes of some, or the Rabbits of compute nodes or
jobs, as a hostlist (RFC 29). Each name is there once, in the order of the
arguments.
"""


def arguments() -> argparse.Namespace:
    """What the command line says."""
    args = parser(NAME, DESCRIPTION)
    which = args.add_mutually_exclusive_group()
    which.add_argument(
        "rabbits",
        metavar="RABBITS",
        nargs="*",
        default=[],
        help="hostlists of Rabbits, whose compute nodes are wanted",
    )
    which.add_argument(
        "-c",
        "--computes",
        metavar="HOSTS",
        nargs="+",
        help="hostlists of compute nodes, whose Rabbits are wanted",
    )
    which.add_argument(
        "-j",
        "--jobids",
        metavar="JOBID",
        nargs="+",
        help="jobs, active or not, whose Rabbits are wanted",
    )
    args.add_argument(
        "--mapping",
        metavar="PATH",
        help="a rabbitmapping file (default: rabbit.mapping of the configuration)",
    )
    return args.parse_args()


def read_mapping(args: argparse.Namespace) -> RabbitMapping:
    """The mapping that was named, or the instance's."""
    path = args.mapping
    if path is None:
        import flux

        path = flux.Flux().conf_get("rabbit.mapping")
    if path is None:
        raise CommandError(
            "rabbit.mapping is not set in Flux's configuration, and --mapping not given"
        )
    return load_mapping(path)


def decode(hostlists: Iterable[str]) -> tuple[str, ...]:
    """The hosts that were given."""
    try:
        return hostlist.decode_all(hostlists)
    except ValueError as error:
        raise CommandError(str(error)) from None


def of_jobs(jobids: Iterable[str]) -> tuple[str, ...]:
    """The Rabbits of some jobs."""
    import flux

    handle = flux.Flux()
    found: dict[str, None] = {}
    for jobid in jobids:
        found.update(dict.fromkeys(of_job(handle, jobid)))
    return tuple(found)


def of_job(handle: Any, text: str) -> tuple[str, ...]:
    """The Rabbits of one job."""
    from flux.job import JobID, job_kvs_lookup

    try:
        jobid = JobID(text)
    except ValueError:
        raise CommandError(f"not the ID of a job: {text}") from None
    try:
        log = job_kvs_lookup(handle, jobid, keys=["eventlog"])
        R = job_kvs_lookup(handle, jobid, keys=["R"])
    except PermissionError:
        raise CommandError(f"job {text} is not yours") from None
    if log is None:
        raise CommandError(f"job {text} not found")
    return lookup.rabbits_of_job(text, log["eventlog"], None if R is None else R["R"])


def main() -> None:
    """Write the answer."""
    args = arguments()
    if args.jobids is not None:
        found = of_jobs(args.jobids)
    elif args.computes is not None:
        found = lookup.rabbits_of(read_mapping(args), decode(args.computes))
    elif args.rabbits:
        found = lookup.computes_of(read_mapping(args), decode(args.rabbits))
    else:
        found = read_mapping(args).rabbits
    if found:
        print(hostlist.encode(found))


if __name__ == "__main__":
    sys.exit(run(NAME, main))
