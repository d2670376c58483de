# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The requests of the subcommands to Flux.

:class:`~dwscli.fluxinstance.FluxInstance` asks a real one. The simulator and tests have
others.
"""

from __future__ import annotations

import errno
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import AbstractSet, Callable, Iterable, Optional

from dwscli.reading import number, objects, part, text, texts
from dwscli.units import f58
from flux_k8s.command import CommandError
from flux_k8s.config.submission import Site
from flux_k8s.formats import hostlist, jobid
from flux_k8s.ports import Json

PORTION = 250
"""The most jobs of one answer."""

PAUSES = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
"""Seconds to wait before a request is sent again that came too soon (EAGAIN)."""

NOT_LOADED = (
    "the dws module is not loaded: an administrator can load it with"
    " 'flux module load dws'"
)
AROUND = (
    "this Flux instance is a job, and 'flux --parent dws' asks the instance that it"
    " runs in"
)
GONE = "the dws module ended before it answered: try again"
LOST = "the connection to Flux is lost: its broker on this node has ended"

Tick = Callable[[], None]


class Refused(CommandError):
    """A request has failed.

    Attributes:
        errno: the error number of the answer.
    """

    def __init__(self, number: Optional[int], message: str) -> None:
        super().__init__(message)
        self.errno = number


@dataclass(frozen=True)
class Nodes:
    """The nodes of an instance.

    Attributes:
        free: those that no job has.
        allocated: those of jobs, a part of which may be free.
        down: those that are down or drained.
    """

    free: AbstractSet[str]
    allocated: AbstractSet[str]
    down: AbstractSet[str]

    @cached_property
    def all(self) -> AbstractSet[str]:
        return self.free | self.allocated | self.down


ATTRIBUTES = [
    "userid",
    "state",
    "result",
    "nnodes",
    "nodelist",
    "annotations",
    "bank",
    "project",
    "exception_occurred",
    "exception_severity",
    "exception_type",
    "exception_note",
    "t_submit",
    "t_run",
    "t_cleanup",
    "t_inactive",
    "waitstatus",
    "expiration",
]
"""What is asked of the jobs in job-list."""

HAVE_NODES, INACTIVE = 48, 64
"""The bits of the states RUN and CLEANUP, and of INACTIVE, in constraints of job-list
(RFC 43)."""


class Instance(ABC):
    """A Flux instance."""

    @property
    @abstractmethod
    def userid(self) -> int:
        """The user who runs the command.

        Raises:
            CommandError: the environment names none that there can be.
        """

    @property
    @abstractmethod
    def is_owner(self) -> bool:
        """Whether that user is the instance owner."""

    @property
    def is_job(self) -> bool:
        """Whether the instance is a job of another one, as that of a batch job is."""
        return False

    @abstractmethod
    def ask(self, topic: str, request: Json, tick: Optional[Tick] = None) -> Json:
        """The answer of a broker module. ``tick`` is called about once a second while
        the answer is awaited.

        Raises:
            OSError: with the error number of the answer and its sentence; ETIMEDOUT
                if the module hangs.
        """

    @abstractmethod
    def sleep(self, seconds: float) -> None:
        """Wait."""

    @abstractmethod
    def site(self) -> Optional[Site]:
        """The facts that a job's directives are checked against; None where jobs get
        no storage."""

    @abstractmethod
    def batch_jobspec(self, script: str, nodes: Optional[int]) -> Json:
        """The jobspec that ``flux batch SCRIPT`` submits.

        Args:
            nodes: the number of nodes, in place of the one in the script.

        Raises:
            DirectiveError: ``flux batch`` refuses a directive of the script.
            ValueError: it refuses the script for another reason; for a person.
            OSError: the file cannot be read.
        """

    def parse_id(self, text: str) -> int:
        """The job ID that a text stands for.

        Raises:
            ValueError: there is none.
        """
        return jobid.decode(text)

    def job(self, id: int) -> Optional[Json]:
        """The entry of a job in job-list, None for an unknown job."""
        try:
            answer = self.ask("job-list.list-id", {"id": id, "attrs": ATTRIBUTES})
        except FileNotFoundError:
            return None
        return dict(answer["job"])

    def ended_jobs(self, userid: Optional[int], since: float, most: int) -> list[Json]:
        """The entries of the jobs that ended last in job-list.

        Args:
            userid: of these jobs; None for those of everybody.
            since: only jobs that ended after this UNIX time.
            most: how many jobs at most.
        """
        wanted: list[Json] = [{"states": [INACTIVE]}]
        if userid is not None:
            wanted.append({"userid": [userid]})
        request = {"attrs": ATTRIBUTES, "since": since, "constraint": {"and": wanted}}
        answer = self.ask("job-list.list", {"max_entries": most, **request})
        return list(answer["jobs"])

    def running_jobs(self) -> list[Json]:
        """The entries of all users' jobs that have nodes in job-list."""
        request = {
            "max_entries": 0,
            "attrs": ["state", "expiration", "annotations", "nnodes", "nodelist"],
            "constraint": {"states": [HAVE_NODES]},
        }
        return list(self.ask("job-list.list", request)["jobs"])

    def nodes(self) -> Nodes:
        """The nodes of the instance."""
        answer = self.ask("resource.sched-status", {})
        all, down, allocated = (
            frozenset(hostlist.decode_all(texts(part(sets, "execution"), "nodelist")))
            for sets in (part(answer, key) for key in ("all", "down", "allocated"))
        )
        up = all - down
        return Nodes(free=up - allocated, allocated=up & allocated, down=all & down)

    def kvs(self, wanted: Iterable[tuple[int, str]]) -> dict[tuple[int, str], str]:
        """The texts under keys of jobs' KVS directories, as far as there are such.

        Raises:
            OSError: EPERM for the job of another user.
        """
        found: dict[tuple[int, str], str] = {}
        for id, key in wanted:
            try:
                found[id, key] = str(self.ask(LOOKUP, lookup(id, key))[key])
            except FileNotFoundError:
                continue
        return found

    def raise_exception(self, id: int, type: str, note: str) -> None:
        """Raise a fatal exception on a job.

        Raises:
            OSError: EPERM for the job of another user, ENOENT for one that ended.
        """
        request = {"id": id, "type": type, "severity": 0, "note": note}
        self.ask("job-manager.raise", request)


LOOKUP = "job-info.lookup"


def lookup(id: int, key: str) -> Json:
    """The payload of ``LOOKUP`` for one key of a job's KVS directory."""
    return {"id": id, "keys": [key], "flags": 0}


def ask(
    instance: Instance, topic: str, request: Json, tick: Optional[Tick] = None
) -> Json:
    """The answer of the dws module. A request that comes too soon is sent again.

    Raises:
        Refused: the request has failed.
    """
    for pause in (*PAUSES, None):
        try:
            return instance.ask(topic, request, tick)
        except OSError as error:
            if error.errno == errno.ENOSYS and instance.is_job:
                text = f"the dws module is not loaded: {AROUND}"
                raise Refused(errno.ENOSYS, text) from None
            if error.errno != errno.EAGAIN or pause is None:
                raise _localized(refusal(error), request) from None
            instance.sleep(pause)
    raise AssertionError("the last attempt returns or raises")


def refusal(error: OSError) -> Refused:
    """The error for a person."""
    message = error.strerror or str(error)
    if error.errno == errno.ENOSYS:
        message = NOT_LOADED
    elif error.errno == errno.EHOSTUNREACH:
        message = GONE
    elif error.errno in (errno.EPIPE, errno.ECONNRESET):
        message = LOST
    return Refused(error.errno, message)


def _localized(refused: Refused, request: Json) -> Refused:
    """An error about the job of a request, with the job ID as this locale has it: the
    module, which does not know the locale, writes it in ASCII."""
    id = request.get("id")
    if id is None:
        return refused
    message = str(refused).replace(f"job {jobid.f58(id)}", f"job {f58(id)}")
    return Refused(refused.errno, message)


def all_jobs(instance: Instance, request: Json) -> Json:
    """The answer of dws.job-list, with the jobs of all portions.

    Raises:
        Refused: a request has failed.
    """
    portion = {**request, "after": 0, "max": PORTION}
    return _all_rows(instance, "dws.job-list", "jobs", portion)


def all_rabbits(instance: Instance) -> Json:
    """The answer of dws.rabbit-list, with the rows of all portions.

    Raises:
        Refused: a request has failed.
    """
    return _all_rows(instance, "dws.rabbit-list", "rabbits", {})


def _all_rows(instance: Instance, topic: str, key: str, request: Json) -> Json:
    """The last portion's answer to a query, with the rows of all portions."""
    rows: list[Json] = []
    while True:
        answer = ask(instance, topic, request)
        rows += objects(answer, key)
        last = answer.pop("next", None)
        if last in (None, request.get("after")) or not objects(answer, key):
            return {**answer, key: rows}
        request = {**request, "after": last}


def job_id(instance: Instance, word: str) -> int:
    """The job ID of a word of the command line.

    Raises:
        CommandError: the word is no job ID.
    """
    try:
        return instance.parse_id(word)
    except ValueError:
        raise CommandError(f"not the ID of a job: {word}") from None


def unknown_job(instance: Instance, id: int) -> Refused:
    where = f": {AROUND}" if instance.is_job else ""
    return Refused(errno.ENOENT, f"job {f58(id)} not found{where}")


# The nodes of jobs, from Flux where the module does not know them: it reads them in a
# job's prolog, and one that is loaded later knows the nodes of no job that runs.


def with_nodes(instance: Instance, rows: list[Json]) -> list[Json]:
    """Rows of ``dws.job-list``, or answers of ``dws.job-show``, with the nodes that
    Flux knows. It is asked once for all, and only where nodes are missing."""
    lacking = [row["id"] for row in rows if _lacks_nodes(row)]
    if not lacking:
        return rows
    one = instance.job(rows[0]["id"]) if len(rows) == 1 else None
    listed = instance.running_jobs() if len(rows) > 1 else filter(None, [one])
    jobs = {job["id"]: job for job in listed}
    return [
        _with_nodes(row, jobs.get(row["id"], {})) if _lacks_nodes(row) else row
        for row in rows
    ]


def _lacks_nodes(row: Json) -> bool:
    """Whether a job may have nodes that its row does not have."""
    return not number(row, "nnodes") and text(row, "wants") in ("ready", "released")


def _with_nodes(row: Json, job: Json) -> Json:
    nnodes = number(job, "nnodes")
    return {**row, "nodes": text(job, "nodelist"), "nnodes": nnodes} if nnodes else row
