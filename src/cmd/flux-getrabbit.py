#!/bin/false
# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""flux getrabbit: which Rabbits belong to which compute nodes and jobs."""

from __future__ import annotations

import argparse
import errno
import sys
from functools import partial
from typing import Any, Callable, Iterable, Iterator, Optional

from flux_k8s.command import CommandError, load_mapping, parser, run
from flux_k8s.formats import hostlist
from flux_k8s.objects.mapping import RabbitMapping
from flux_k8s.rules import getrabbit

NAME = "getrabbit"
# The seconds for which the module may be silent, as for flux dws.
PATIENCE = 60.0
DESCRIPTION = """
Write all Rabbits, or the compute nodes of some, or the Rabbits of jobs and of compute
nodes, as a hostlist (RFC 29). Each name is there once, in the order of the arguments,
those of jobs first. Within a batch job or an allocation, what its own instance does not
know is looked up in those around it.
"""


def arguments() -> argparse.Namespace:
    """The arguments of the command line."""
    args = parser(NAME, DESCRIPTION)
    args.add_argument(
        "rabbits",
        metavar="RABBITS",
        nargs="*",
        default=[],
        help="hostlists of Rabbits, whose compute nodes are wanted",
    )
    args.add_argument(
        "-c",
        "--computes",
        metavar="HOSTS",
        nargs="+",
        action="extend",
        help="hostlists of compute nodes, whose Rabbits are wanted",
    )
    args.add_argument(
        "-j",
        "--jobids",
        metavar="JOBID",
        nargs="+",
        action="extend",
        help="jobs, active or not, whose Rabbits are wanted",
    )
    args.add_argument(
        "--mapping",
        metavar="PATH",
        help="a rabbitmapping file (default: rabbit.mapping of the configuration)",
    )
    found = args.parse_args()
    if found.rabbits and (found.computes is not None or found.jobids is not None):
        args.error("argument RABBITS: not allowed with argument -c/--computes or -j")
    return found


def instances() -> Iterator[Any]:
    """The instance that one is in, and those around it."""
    import flux

    handle = flux.Flux()
    yield handle
    while True:
        try:
            parent = handle.attr_get("parent-uri")
        except OSError:
            return
        handle = flux.Flux(parent)
        yield handle


def read_mapping(args: argparse.Namespace) -> RabbitMapping:
    """The mapping that was named, or that of the nearest instance which has one."""
    path = args.mapping
    if path is None:
        paths = (handle.conf_get("rabbit.mapping") for handle in instances())
        path = next((path for path in paths if path is not None), None)
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
    handles = list(instances())
    found: dict[str, None] = {}
    for jobid in jobids:
        found.update(dict.fromkeys(of_job(handles, jobid)))
    return tuple(found)


def of_job(handles: Iterable[Any], text: str) -> tuple[str, ...]:
    """The Rabbits of one job, of the first instance that has it."""
    from flux.job import JobID, job_kvs_lookup

    try:
        jobid = JobID(text)
    except ValueError:
        raise CommandError(f"not the ID of a job: {text}") from None
    for handle in handles:
        # base: or job-info reads the eventlog for each key, to apply its updates.
        lookup = partial(job_kvs_lookup, handle, jobid, base=True)
        try:
            if lookup(keys=["jobspec"], original=True) is None:
                continue
            R = lookup(keys=["R"])
            rabbits = recorded(lookup)
            if not rabbits and R is not None:
                # It is recorded a moment after the storage was placed, and before the
                # job ends.
                rabbits = placed(handle, jobid) or recorded(lookup)
        except PermissionError:
            raise CommandError(f"job {text} is not yours") from None
        return getrabbit.rabbits_of_job(text, rabbits, None if R is None else R["R"])
    raise CommandError(f"job {text} not found")


def recorded(lookup: Callable[..., Optional[dict[str, Any]]]) -> str:
    """The hostlist that is recorded; "" if there is none."""
    found = lookup(keys=[getrabbit.RECORD])
    return "" if found is None else str(found[getrabbit.RECORD])


def placed(handle: Any, jobid: int) -> str:
    """The Rabbits of a job as a hostlist, as the module knows them; "" if it is not
    loaded, or the job has no storage, or has ended."""
    future = handle.rpc("dws.job-show", {"id": int(jobid)})
    try:
        future.wait_for(PATIENCE)
        return str(future.get()["rabbits"])
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.ENOENT):
            return ""
        if error.errno != errno.ETIMEDOUT or future.is_ready():
            raise
    raise CommandError(f"the dws module has not answered for {PATIENCE:g} s")


def main() -> None:
    """Write the answer."""
    args = arguments()
    found: tuple[str, ...]
    if args.jobids is not None or args.computes is not None:
        named = () if args.jobids is None else of_jobs(args.jobids)
        if args.computes is not None:
            computes = decode(args.computes)
            named += getrabbit.rabbits_of(read_mapping(args), computes)
        found = tuple(dict.fromkeys(named))
    elif args.rabbits:
        found = getrabbit.computes_of(read_mapping(args), decode(args.rabbits))
    else:
        found = read_mapping(args).rabbits
    if found:
        print(hostlist.encode(found))


if __name__ == "__main__":
    sys.exit(run(NAME, main))
