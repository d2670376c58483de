# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The jobs that options of subcommands select: some that have ended, or those of now
and of the last hours."""

from __future__ import annotations

import argparse
import errno
import time
from typing import Iterable, Iterator, Optional

from dwscli import ended, units
from dwscli.details import TOPIC
from dwscli.instance import Instance, Refused, all_jobs, ask, with_nodes
from dwscli.terminal import warn
from dwscli.units import user_id
from flux_k8s.command import CommandError
from flux_k8s.ports import Json
from flux_k8s.text import quoted


def count(args: argparse.Namespace) -> int:
    """How many jobs that have ended are considered at most (``--count``). 0 is any
    number, as in ``flux jobs``.

    Raises:
        CommandError: the number is negative.
    """
    if args.count < 0:
        raise CommandError(f"--count: {args.count} is negative, expected 0 or more")
    return int(args.count) or ended.LARGEST_LIST


def counted(found: list[Json], most: int, no_header: bool) -> list[Json]:
    """As many jobs as ``--count`` wants, with a warning where there are more: as in
    ``flux jobs``, it belongs to the header."""
    if len(found) > most and not no_header:
        warn(f"output truncated at {most} jobs that have ended: see --count, --since")
    return found[:most]


def since(args: argparse.Namespace, hours: int = 0) -> float:
    """The UNIX time since when jobs have ended (``--since``); without the option so
    many hours ago, 0 for all.

    Raises:
        CommandError: the option is no moment, or in the future.
    """
    now = time.time()
    if args.since:
        return units.moment_of(args.since, now)
    return now - hours * 3600 if hours else 0.0


def user(text: str, instance: Instance) -> Optional[int]:
    """The user ID of ``--user``; None for ``EVERYBODY``.

    Raises:
        CommandError: there is no such user, or a guest asks for another one.
    """
    found = user_id(text)
    if found not in (None, instance.userid) and not instance.is_owner:
        raise CommandError(f"the jobs of user {quoted(text)} are not yours")
    return found


HOURS = 24
"""The hours of jobs that ended, by default."""

DETAILED = 200
"""Of more active jobs than this only the last state is known."""


def active(instance: Instance, user: Optional[int]) -> tuple[list[Json], Json]:
    """The active jobs, and the answer of ``dws.job-list``.

    Args:
        user: of these jobs; None for those of everybody.

    Returns: answers of ``dws.job-show``; of many jobs, rows of ``dws.job-list``.
    """
    answer = all_jobs(instance, {} if user is None else {"userid": user})
    rows = answer["jobs"]
    if len(rows) > DETAILED:
        warn(f"of {len(rows)} active jobs, only the last state is drawn")
        found = [{**row, "now": answer.get("now")} for row in rows]
    else:
        found = [*_details(instance, rows)]
    return with_nodes(instance, found), answer


def _details(instance: Instance, rows: Iterable[Json]) -> Iterator[Json]:
    """All about jobs, without those that have ended meanwhile."""
    for row in rows:
        try:
            yield ask(instance, TOPIC, {"id": row["id"]})
        except Refused as error:
            if error.errno != errno.ENOENT:
                raise


def ended_since(
    instance: Instance, user: Optional[int], since: float, active: Iterable[Json]
) -> list[Json]:
    """The jobs that ended since a time, as answers of ``dws.job-show``. Guests have
    their own jobs only. A job that ends after the active ones were asked for is found
    here."""
    owner = user if instance.is_owner else instance.userid
    past = ended.last(instance, ended.DETAILS, owner, since, ended.LARGEST_LIST)
    return ended.without(active, past)
