# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Answers the queries about Rabbits, and takes Rabbits out of service."""

from __future__ import annotations

import errno
import math
from itertools import islice
from typing import AbstractSet, Any, Coroutine, Optional

from flux_k8s.config.context import Context
from flux_k8s.control.coroutines import Call
from flux_k8s.control.turns import Parts, Shared
from flux_k8s.errors import QueryError
from flux_k8s.jobs.jobqueries import JobIndex
from flux_k8s.json_reader import Reader
from flux_k8s.machine.manager import RabbitManager
from flux_k8s.ports import Json, Sender
from flux_k8s.text import SHOWN, printable, quoted

Action = Coroutine[Call[Any], Any, Json]
"""The work for a query. It returns the answer."""

JOB, ROW = 5, 40
"""Microseconds for the storage of a job, and for the row of a Rabbit."""

NAMES = 4096
"""The most Rabbits that one request may name."""

ROWS, JOBS = 250, 4000
"""The most rows of an answer, and the most jobs in them if there are several rows."""

FRESH = 1.0
"""Seconds for which the rows that were made for one sender serve others."""


class RabbitQueries:
    """Answers ``dws.rabbit-list``, ``dws.rabbit-disable`` and ``dws.rabbit-enable``."""

    def __init__(
        self, context: Context, index: JobIndex, machine: RabbitManager
    ) -> None:
        self._flux = context.flux
        self._settings = context.settings
        self._index = index
        self._machine = machine
        self._rows: list[Json] = []
        self._places: dict[str, int] = {}
        self._made = self._valid_from = -math.inf
        self._making: Optional[Shared[list[Json]]] = None

    def rows(self, payload: Any, sender: Sender) -> Parts[Json]:
        """The rows of Rabbits, those after the one that the payload names. Guests see
        their own jobs, and the number of all.

        Raises:
            BadObject, QueryError: the query is refused.
        """
        after = Reader("dws.rabbit-list", payload).optional_string("after")
        now = self._flux.now()
        if not self._valid_from <= self._made <= now < self._made + FRESH:
            yield from self._make_once(now)
        first = 0 if after is None else self._place_after(after)
        rows = self._rows[first : first + self._portion(first)]
        more = first + len(rows) < len(self._rows)
        if not sender.owner:
            own = frozenset(self._index.of_user(sender.userid))
            rows = [_restricted(row, own) for row in rows]
        return {
            "rabbits": rows,
            "next": rows[-1]["name"] if more else None,
            "gives_ssd": self._settings.scheduler,
            "why_none": self._machine.why_none,
            "disagreement": self._machine.disagreement,
        }

    def _place_after(self, name: str) -> int:
        if name not in self._places:
            raise _unknown(name)
        return self._places[name] + 1

    def _portion(self, first: int) -> int:
        """How many rows fit into an answer."""
        jobs = 0
        for count, row in enumerate(islice(self._rows, first, first + ROWS)):
            jobs += max(row["njobs"], len(row["job_ssds"]))
            if count and jobs > JOBS:
                return count
        return ROWS

    def _make_once(self, now: float) -> Parts[None]:
        """Make the rows, together with other queries that wait for them."""
        making = self._making
        if making is None:
            making = self._making = Shared(self._make())
        try:
            rows = yield from making.wait()
        finally:
            if self._making is making:
                self._making = None
        self._rows, self._made = rows, now
        self._places = {row["name"]: place for place, row in enumerate(rows)}

    def _make(self) -> Parts[list[Json]]:
        jobs: dict[str, dict[int, None]] = {}
        ssds: dict[str, dict[str, int]] = {}
        storage = self._machine.ledger
        for jobid in self._index.walk():
            for servers in storage.usage_of(jobid).values():
                for rabbit in servers.unavailable:
                    jobs.setdefault(rabbit, {})[jobid] = None
            for rabbit, count in self._machine.ssds.of_job(jobid).items():
                ssds.setdefault(rabbit, {})[str(jobid)] = count
            yield JOB
        rows: list[Json] = []
        for row in self._machine.rabbit_rows():
            found = list(jobs.get(row["name"], ()))
            job_ssds = ssds.get(row["name"], {})
            rows.append(
                {
                    **row,
                    "ssds_free": max(0, row["ssds"] - sum(job_ssds.values())),
                    "njobs": len(found),
                    "jobs": found,
                    "job_ssds": job_ssds,
                }
            )
            yield ROW
        return rows

    # Out of service, and back. The payload is read before the coroutine is made.

    def disable(self, payload: Any, sender: Sender) -> Action:
        """Take Rabbits out of service for jobs.

        Raises:
            BadObject, QueryError: the request is refused.
        """
        reader = Reader("dws.rabbit-disable", payload)
        names = self._names(reader, sender)
        reason = printable(reader.text("reason"), SHOWN) if reader.has("reason") else ""
        by = printable(reader.optional_string("by") or str(sender.userid), SHOWN)

        async def act() -> Json:
            notes = (
                (row["name"], row["disabled"]) for row in self._machine.rabbit_rows()
            )
            before = {name: note["reason"] for name, note in notes if note is not None}
            try:
                await self._machine.disable(names, by, reason)
            finally:
                self._changed()
            replaced = {
                name: before[name]
                for name in names
                if before.get(name, reason) != reason
            }
            return {"rabbits": names, "replaced": replaced}

        return act()

    def enable(self, payload: Any, sender: Sender) -> Action:
        """Put Rabbits back into service.

        Raises:
            BadObject, QueryError: the request is refused.
        """
        names = self._names(Reader("dws.rabbit-enable", payload), sender)

        async def act() -> Json:
            try:
                changed = await self._machine.enable(names)
            finally:
                self._changed()
            return {"rabbits": changed}

        return act()

    def _changed(self) -> None:
        """Make rows anew for each sender until the watch of the Storages has surely
        shown the change."""
        self._valid_from = self._flux.now() + FRESH
        self._making = None

    def _names(self, reader: Reader, sender: Sender) -> list[str]:
        """The Rabbits that a request of the instance owner names."""
        if not sender.owner:
            text = f"{reader.name} is for the instance owner"
            raise QueryError(errno.EPERM, text)
        names = list(dict.fromkeys(reader.strings("rabbits")))
        if not 0 < len(names) <= NAMES:
            raise reader.bad("rabbits", f"the names of 1 to {NAMES} Rabbits")
        for name in names:
            self._check_known(name)
        return names

    def _check_known(self, name: str) -> None:
        if not self._machine.is_rabbit(name):
            raise _unknown(name)


def _unknown(name: str) -> QueryError:
    text = f"{quoted(name)} is no Rabbit of rabbit.mapping"
    return QueryError(errno.ENOENT, text)


def _restricted(row: Json, own: AbstractSet[int]) -> Json:
    """The row of a Rabbit with those of its jobs that a guest may see."""
    ssds = row["job_ssds"]
    return {
        **row,
        "jobs": [id for id in row["jobs"] if id in own],
        "job_ssds": {id: count for id, count in ssds.items() if int(id) in own},
    }
