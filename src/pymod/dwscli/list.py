# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""``flux dws list``: jobs with storage, one in a line."""

from __future__ import annotations

import argparse
import json
import time
from typing import Collection, Mapping, Optional

from dwscli import ended, selection, table
from dwscli.ended import ENDED, NONE
from dwscli.instance import Instance, Refused, all_jobs, all_rabbits, ask, with_nodes
from dwscli.jobfields import BUILTIN, FIELDS, color
from dwscli.rabbits import chosen, decode
from dwscli.reading import hosts, number, objects, part, text, texts
from dwscli.terminal import complain, warn, write
from dwscli.units import EVERYBODY, f58, size
from flux_k8s.command import CommandError
from flux_k8s.config.table import FILE_SYSTEMS
from flux_k8s.objects.workflowstate import STATES
from flux_k8s.ports import Json
from flux_k8s.text import quoted

DESCRIPTION = """
List jobs with storage on Rabbits: the state of the storage, the time in that state,
nodes, Rabbits, capacity, the data that was moved, and what the storage waits for. Of a
job that has ended, the time is that for which it had storage.
"""

TABLE = table.Table("list", BUILTIN, FIELDS, color)

ACTIVE = "active"
"""The word for all states of active jobs."""

ACTIVE_STATES = (*STATES, NONE)
WORDS = (*ACTIVE_STATES, ACTIVE, ENDED)
"""The values of ``--filter``."""


def add_arguments(args: argparse.ArgumentParser) -> None:
    """Add what ``flux dws list`` takes."""
    args.description = DESCRIPTION
    add = args.add_argument
    add("-a", action="store_true", help="List jobs that have ended as well")
    add("-A", action="store_true", help="List jobs of all users")
    add(
        "-c",
        "--count",
        type=int,
        metavar="N",
        default=1000,
        help="Of jobs that have ended, list the last N (default 1000, 0: all)",
    )
    add(
        "-f",
        "--filter",
        metavar="STATE,...",
        default="",
        help=f"List jobs whose storage is in specific states: {', '.join(WORDS)}",
    )
    add(
        "--since",
        metavar="WHEN",
        help="Include jobs that have ended since WHEN (implies -a if no --filter is"
        " specified)",
    )
    add(
        "-u",
        "--user",
        metavar="[USERNAME|UID]",
        help=f'Limit output to specific username or userid (Specify "{EVERYBODY}" for'
        " all users)",
    )
    add("--rabbit", metavar="HOSTS", help="List jobs with storage on these Rabbits")
    add("--type", metavar="TYPE", help="List jobs with a file system of this type")
    add("--stats", action="store_true", help="Print totals of all jobs before header")
    add(
        "--stats-only",
        action="store_true",
        help="Print totals only. Exits with non-zero status if there is no active job",
    )
    table.add_options(args)
    args.set_defaults(function=list_jobs)


def list_jobs(args: argparse.Namespace, instance: Instance) -> Optional[int]:
    """List jobs of an instance; the exit status, if it is not 0.

    Raises:
        CommandError: an option is wrong, or the module does not answer.
    """
    format = TABLE.format(args)
    if format is None:
        return None
    if args.json and (args.stats or args.stats_only):
        raise CommandError("--json incompatible with --stats or --stats-only")
    if args.stats or args.stats_only:
        answer = ask(instance, "dws.job-list", {"max": 1})
        totals = part(answer, "totals")
        write([stats_line(totals)])
        if args.stats_only:
            table.warn_of_age(answer)
            return 0 if number(totals, "jobs") else 1
    answer, status = search(args, instance)
    jobs = answer["jobs"]
    if args.json:
        rows = [{**row, "jobid": f58(int(row["id"]))} for row in jobs]
        write([json.dumps({**answer, "jobs": rows})])
    else:
        now = number(answer, "now") or time.time()
        TABLE.print(args, format, [{**row, "now": now} for row in jobs])
    return status


def search(args: argparse.Namespace, instance: Instance) -> tuple[Json, Optional[int]]:
    """The answer of ``dws.job-list`` with the jobs that the options ask for, and the
    exit status, if it is not to be 0.

    Raises:
        CommandError: an option is wrong, or there is no job, and no such Rabbit.
        Refused: the module does not answer, and only it knows.
    """
    most, since = selection.count(args), selection.since(args)
    states, user = wanted_states(args), wanted_user(args, instance)
    rabbits = decode([args.rabbit] if args.rabbit else [], "--rabbit: ") or ()
    kind, places = wanted_type(args), frozenset(rabbits)

    def keep(row: Json) -> bool:
        return (
            number(row, "id") is not None
            and text(row, "state") in states
            and (not kind or kind in texts(row, "types"))
            and (not places or not places.isdisjoint(hosts(row, "rabbits") or ()))
        )

    answer: Json = {"jobs": []}
    status = None
    if not states <= {ENDED}:
        request = {
            "userid": user,
            "state": only(states - {ENDED}),
            "rabbit": only(rabbits),
            "type": kind or None,
        }
        try:
            answer = active(instance, request)
        except Refused as error:
            if ENDED not in states:
                raise
            complain(str(error))
            status = 1
    found = [*filter(keep, answer["jobs"])]
    if ENDED in states:
        owner = user if instance.is_owner else instance.userid
        past = ended.last(instance, ended.ROW, owner, since, most + 1)
        past = selection.counted(past, most, args.no_header)
        found += filter(keep, ended.without(found, past))
    if rabbits and not found:
        check_rabbits(instance, rabbits)
    return {**answer, "jobs": found}, status


def only(values: Collection[str]) -> Optional[str]:
    """The value, if there is one and no other."""
    return next(iter(values)) if len(values) == 1 else None


def active(instance: Instance, wanted: Json) -> Json:
    """The answer of ``dws.job-list``, with the nodes of the jobs. A guest who asks for
    the jobs of others is told why there are none.

    Args:
        wanted: the payload; what is None is left out.
    """
    request = {key: wanted[key] for key in wanted if wanted[key] is not None}
    answer = all_jobs(instance, request)
    table.warn_of_age(answer)
    if request.get("userid") != instance.userid and not instance.is_owner:
        totals = stats_line(part(answer, "totals"))
        warn(f"jobs of other users are shown to the instance owner only; all: {totals}")
    return {**answer, "jobs": with_nodes(instance, answer["jobs"])}


def check_rabbits(instance: Instance, names: tuple[str, ...]) -> None:
    """A Rabbit that is no longer in the mapping may have had jobs, but without any its
    name is wrong."""
    try:
        known = objects(all_rabbits(instance), "rabbits")
    except Refused:
        return
    chosen(known, names)


def wanted_states(args: argparse.Namespace) -> set[str]:
    """The states that the options ask for.

    Raises:
        CommandError: a word of ``--filter`` is no state.
    """
    if not args.filter:
        return {*ACTIVE_STATES, ENDED} if args.a or args.since else {*ACTIVE_STATES}
    if args.a:
        warn("Both -a and --filter specified, ignoring -a")
    names = {word.lower(): word for word in WORDS}
    states = set()
    for word in filter(None, args.filter.split(",")):
        name = names.get(word.strip().lower())
        if name is None:
            raise CommandError(
                f"--filter: {quoted(word)} is no state, expected {', '.join(WORDS)}"
            )
        states |= {*ACTIVE_STATES} if name == ACTIVE else {name}
    return states


def wanted_type(args: argparse.Namespace) -> str:
    """The type of file system that the options ask for, empty for all.

    Raises:
        CommandError: there is no such type.
    """
    if args.type and args.type not in FILE_SYSTEMS:
        known = ", ".join(FILE_SYSTEMS)
        raise CommandError(f"--type: {quoted(args.type)} is no type, expected {known}")
    return args.type or ""


def wanted_user(args: argparse.Namespace, instance: Instance) -> Optional[int]:
    """The user whose jobs are listed; None for those of everybody.

    Raises:
        CommandError: there is no such user, or a guest asks for another one.
    """
    if args.user is not None:
        return selection.user(args.user, instance)
    return None if args.A else instance.userid


def stats_line(totals: Mapping[str, object]) -> str:
    """The totals of all active jobs in one line."""
    jobs = number(totals, "jobs") or 0
    states = part(totals, "states")
    counts = [
        f"{number(states, name):.0f} {name}"
        for name in ACTIVE_STATES
        if number(states, name)
    ]
    capacity = size(number(totals, "capacity") or 0)
    return ", ".join([f"{jobs:.0f} jobs", *counts, f"{capacity} of storage"])
