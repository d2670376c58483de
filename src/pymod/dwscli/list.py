# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""``flux dws list``: jobs with storage, one in a line."""

from __future__ import annotations

import argparse
import json
import time
from typing import Callable, Iterable, Mapping, Optional

from dwscli import ended, selection, table
from dwscli.ended import ENDED, NONE
from dwscli.instance import Instance, Refused, all_jobs, all_rabbits, with_nodes
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

PAGING = ("jobs", "next")
"""The keys of an answer that are about one portion."""

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
    if TABLE.print_formats(args.format):
        return None
    if args.json and (args.stats or args.stats_only):
        raise CommandError("--json incompatible with --stats or --stats-only")
    format = TABLE.format(args)
    if args.stats or args.stats_only:
        totals = next(all_jobs(instance, {}))
        write([stats_line(part(totals, "totals"))])
        if args.stats_only:
            table.warn_of_age(totals)
            return 0 if number(part(totals, "totals"), "jobs") else 1
    found = Search(args, instance)
    found.run()
    if args.json:
        rows = [{**row, "jobid": f58(int(row["id"]))} for row in found.rows]
        write([json.dumps({**found.answer, "jobs": rows})])
    else:
        now = number(found.answer, "now") or time.time()
        jobs = [{**row, "now": now} for row in found.rows]
        TABLE.print(args, format, jobs)
    return found.status


class Search:
    """The jobs that the options ask for.

    Attributes:
        rows: the jobs as rows of ``dws.job-list``.
        answer: the last answer of the module without its jobs.
        status: the exit status, if it is not to be 0.
    """

    def __init__(self, args: argparse.Namespace, instance: Instance) -> None:
        self._instance = instance
        self._no_header = args.no_header
        self._count = selection.count(args)
        self._since = selection.since(args)
        self._states = wanted_states(args)
        self._user = wanted_user(args, instance)
        words = [args.rabbit] if args.rabbit else []
        self._rabbits = decode(words, "--rabbit: ") or ()
        self._type = wanted_type(args)
        self.rows: list[Json] = []
        self.answer: Json = {}
        self.status: Optional[int] = None

    def run(self) -> None:
        """Find the jobs.

        Raises:
            CommandError: there is no job, and no such Rabbit.
            Refused: the module does not answer, and only it knows.
        """
        keep = self._filter()
        if not self._states <= {ENDED}:
            try:
                self.rows += filter(keep, self._active())
            except Refused as error:
                if ENDED not in self._states:
                    raise
                complain(str(error))
                self.status = 1
        if ENDED in self._states:
            rest = ended.without(self.rows, self._ended())
            self.rows += filter(keep, rest)
        if self._rabbits and not self.rows:
            self._check_rabbits()

    def _check_rabbits(self) -> None:
        """A Rabbit that is no longer in the mapping may have had jobs, but without any
        its name is wrong."""
        try:
            known = objects(all_rabbits(self._instance), "rabbits")
        except Refused:
            return
        chosen(known, self._rabbits)

    def _active(self) -> Iterable[Json]:
        request: Json = {}
        if self._user is not None:
            request["userid"] = self._user
        states = self._states - {ENDED}
        if len(states) == 1:
            (request["state"],) = states
        if len(self._rabbits) == 1:
            (request["rabbit"],) = self._rabbits
        if self._type:
            request["type"] = self._type
        rows: list[Json] = []
        for answer in all_jobs(self._instance, request):
            rows += objects(answer, "jobs")
            self.answer = {key: answer[key] for key in answer if key not in PAGING}
        table.warn_of_age(self.answer)
        self._warn_of_others()
        return with_nodes(self._instance, rows)

    def _warn_of_others(self) -> None:
        """A guest who asks for the jobs of others is told why there are none."""
        if self._user == self._instance.userid or self._instance.is_owner:
            return
        totals = stats_line(part(self.answer, "totals"))
        warn(f"jobs of other users are shown to the instance owner only; all: {totals}")

    def _ended(self) -> list[Json]:
        user = self._user
        if not self._instance.is_owner:
            user = self._instance.userid
        most = self._count
        found = ended.last(self._instance, ended.ROW, user, self._since, most + 1)
        return selection.counted(found, most, self._no_header)

    def _filter(self) -> Callable[[Json], bool]:
        """Whether a row is what the options ask for."""
        rabbits = set(self._rabbits)

        def keep(row: Json) -> bool:
            return (
                number(row, "id") is not None
                and text(row, "state") in self._states
                and (not self._type or self._type in texts(row, "types"))
                and (not rabbits or bool(rabbits & {*(hosts(row, "rabbits") or ())}))
            )

        return keep


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
