# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""``flux dws usage``: the storage that jobs had and the data that they moved.

The numbers are those of jobs that ended, from job-list and the jobs' KVS. Storage
counts from the request for Setup to the end of the job, with the bytes that were
allocated on each Rabbit. Where these are not recorded, it is the capacity that the
directives ask for, of which the job's Rabbits have equal shares.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass
from typing import Any, Callable, Iterable, Mapping, Optional

from dwscli import ended, selection, table
from dwscli.formats import Field
from dwscli.instance import Instance
from dwscli.namedformats import Formats
from dwscli.reading import hosts, number, part, text
from dwscli.terminal import write
from dwscli.units import EVERYBODY, user_of
from flux_k8s.formats.directives import GIB
from flux_k8s.ports import Json
from flux_k8s.text import SHOWN, printable

DESCRIPTION = """
Show the storage of jobs that have ended, in GiB times hours, and the data that they
moved, by user, bank, project or Rabbit. Guests see their own jobs.
"""
UNKNOWN = "-"
"""The name for jobs without a bank, a project or Rabbits."""

BUILTIN: Formats = {
    "default": (
        "Default flux dws usage format string",
        "+:{name:<10} {njobs:>6} {gibh:>12.2f} {moved!B:>9h} {nfailed:>6}",
    ),
}


@dataclass
class Usage:
    """The storage of some jobs.

    Attributes:
        gibh: GiB times hours.
        moved: bytes, as far as data movements are recorded; None where none is.
        nfailed: jobs whose storage has failed.
    """

    name: str
    njobs: int = 0
    gibh: float = 0.0
    moved: Optional[float] = None
    nfailed: int = 0


FIELDS: Mapping[str, Field[Usage]] = {
    "name": Field("NAME", lambda usage: printable(usage.name, SHOWN)),
    "njobs": Field("NJOBS", lambda usage: usage.njobs),
    "gibh": Field("GIB-HOURS", lambda usage: usage.gibh),
    "moved": Field("MOVED", lambda usage: usage.moved),
    "nfailed": Field("FAILED", lambda usage: usage.nfailed),
}

TABLE = table.Table("usage", BUILTIN, FIELDS)

Shares = Callable[[Json], Mapping[str, float]]
"""The names that a job counts for, and the share of each. Together they are 1."""


def _user(row: Json) -> Mapping[str, float]:
    return {user_of(number(row, "userid")) or UNKNOWN: 1.0}


def _name(key: str) -> Shares:
    return lambda row: {text(row, key) or UNKNOWN: 1.0}


def _rabbits(row: Json) -> Mapping[str, float]:
    sizes = part(row, "allocated")
    if not any(sizes.values()):
        sizes = dict.fromkeys(hosts(row, "rabbits") or (UNKNOWN,), 1)
    total = sum(sizes.values())
    return {name: size / total for name, size in sizes.items()}


BY: Mapping[str, Shares] = {
    "user": _user,
    "bank": _name("bank"),
    "project": _name("project"),
    "rabbit": _rabbits,
}


def add_arguments(args: argparse.ArgumentParser) -> None:
    """Add what ``flux dws usage`` takes."""
    args.description = DESCRIPTION
    add = args.add_argument
    add("--by", choices=[*BY], default="user", help="what a line is about (user)")
    add("--since", metavar="WHEN", help="Include jobs that have ended since WHEN")
    add(
        "-c",
        "--count",
        type=int,
        metavar="N",
        default=0,
        help="Include the last N jobs (default: all)",
    )
    add(
        "-u",
        "--user",
        metavar="[USERNAME|UID]",
        default=EVERYBODY,
        help="Include the jobs of one user only",
    )
    table.add_options(args)
    args.set_defaults(function=show_usage)


def show_usage(args: argparse.Namespace, instance: Instance) -> None:
    """Show the storage that jobs of an instance had."""
    format = TABLE.format(args)
    if format is None:
        return
    since = selection.since(args)
    user = selection.user(args.user, instance)
    if not instance.is_owner:
        user = instance.userid
    most = selection.count(args)
    recorded = ended.recorded_jobs(instance, user, since)
    jobs = selection.counted(recorded, most, args.no_header)
    found = totals(ended.all_of(instance, ended.ROW, jobs), BY[args.by])
    if args.json:
        write([json.dumps({"by": args.by, "usage": [asdict(one) for one in found]})])
        return
    TABLE.print(args, format, found)


def totals(rows: Iterable[Json], shares: Shares) -> list[Usage]:
    """The storage of jobs by name, the largest first."""
    found: dict[str, Usage] = {}
    for row in rows:
        for name, share in shares(row).items():
            one = found.setdefault(name, Usage(name))
            one.njobs += 1
            one.gibh += gib_hours(row) * share
            moved = number(row, "moved")
            if moved is not None:
                one.moved = (one.moved or 0.0) + moved * share
            one.nfailed += bool(text(row, "waits"))
    return sorted(found.values(), key=lambda one: (-one.gibh, one.name))


def gib_hours(row: Json) -> float:
    """The storage of a job, in GiB times hours."""
    held: Optional[Any] = number(row, "held")
    return (number(row, "capacity") or 0) / GIB * (held or 0) / 3600
