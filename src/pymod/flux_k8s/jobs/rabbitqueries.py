# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Answers the queries about Rabbits, and takes Rabbits out of service."""

from __future__ import annotations

import errno
import math
from typing import AbstractSet, Any, Iterator, Optional

from flux_k8s.config.context import Context
from flux_k8s.control.coroutines import Answer, Call, Turns, drive
from flux_k8s.errors import QueryError
from flux_k8s.formats import hostlist
from flux_k8s.jobs.jobtable import JobTable
from flux_k8s.json_reader import Reader
from flux_k8s.machine.manager import RabbitManager
from flux_k8s.machine.storages import UNKNOWN, Disabled, annotate
from flux_k8s.objects.mapping import RabbitMapping
from flux_k8s.ports import Json, Sender
from flux_k8s.text import SHOWN, printable, quoted

JOBS_AT_A_TIME, ROWS_AT_A_TIME = 200, 25
"""Jobs whose storage is looked at, and rows that are made, in one turn of the
reactor."""

NAMES = 4096
"""The most Rabbits that one request may name."""

ROWS, JOBS = 250, 4000
"""The most rows of an answer, and the most jobs in them if there are several rows."""

FRESH = 1.0
"""Seconds for which the rows that were made for one sender serve others."""


class RabbitQueries:
    """Answers ``dws.rabbit-list``, ``dws.rabbit-disable`` and ``dws.rabbit-enable``."""

    def __init__(
        self, context: Context, jobs: JobTable, machine: RabbitManager, turns: Turns
    ) -> None:
        self._flux = context.flux
        self._kube = context.kube
        self._settings = context.settings
        self._jobs = jobs
        self._machine = machine
        self._turns = turns
        self._rows: list[Json] = []
        self._made = self._valid_from = -math.inf
        self._waiting: list[Answer] = []

    async def rows(self, payload: Any, sender: Sender) -> Json:
        """The rows of Rabbits, those after the one that the payload names. Guests see
        their own jobs, and the number of all.

        Raises:
            BadObject, QueryError: the query is refused.
        """
        after = Reader("dws.rabbit-list", payload).optional_string("after")
        now = self._flux.now()
        if not self._valid_from <= self._made <= now < self._made + FRESH:
            await Call[None](self._wait_for_rows)
            await self._turns.next()  # many queries may have waited
        rest = self._rows_after(after)
        rows = rest[: _portion(rest)]
        more = len(rows) < len(rest)
        if not sender.owner:
            own = frozenset(self._jobs.after(-1, sender.userid))
            rows = [_restricted(row, own) for row in rows]
        return {
            "rabbits": rows,
            "next": rows[-1]["name"] if more else None,
            "gives_ssd": self._settings.scheduler,
            "why_none": self._machine.why_none,
            "disagreement": self._machine.disagreement,
        }

    def _rows_after(self, name: Optional[str]) -> list[Json]:
        if name is None:
            return self._rows
        names = [row["name"] for row in self._rows]
        if name not in names:
            raise _unknown(name)
        return self._rows[names.index(name) + 1 :]

    def _wait_for_rows(self, answer: Answer) -> None:
        """Have the rows made, once for all queries that come meanwhile."""
        self._waiting.append(answer)
        if len(self._waiting) > 1:
            return
        waiting, begun = self._waiting, self._flux.now()

        def done(rows: Any) -> None:
            if self._waiting is waiting:
                self._waiting = []
            failed = isinstance(rows, Exception)
            if not failed:
                self._rows, self._made = rows, begun
            for each in waiting:
                each(rows if failed else None)

        drive(self._make(), done, (Exception,))

    async def _make(self) -> list[Json]:
        jobs: dict[str, list[int]] = {}
        ledger, each = self._machine.ledger, self._turns.each
        known = set[int]()
        async for jobid in each(self._jobs.after(-1), JOBS_AT_A_TIME):
            known.add(jobid)
            for rabbit in ledger.rabbits_of(jobid):
                jobs.setdefault(rabbit, []).append(jobid)
        rows: list[Json] = []
        rabbits = rabbit_rows(self._machine, self._settings.mapping)
        async for row in each(rabbits, ROWS_AT_A_TIME):
            found = jobs.get(row["name"], [])
            ssds = self._machine.ssds.of_jobs(row["name"])
            job_ssds = {str(id): count for id, count in ssds.items() if id in known}
            free = max(0, row["ssds"] - sum(job_ssds.values()))
            own = {"njobs": len(found), "jobs": found, "job_ssds": job_ssds}
            rows.append({**row, "ssds_free": free, **own})
        return rows

    # Out of service, and back

    async def disable(self, payload: Any, sender: Sender) -> Json:
        """Take Rabbits out of service for jobs.

        Raises:
            BadObject, QueryError: the request is refused.
        """
        reader = Reader("dws.rabbit-disable", payload)
        names = self._names(reader, sender)
        reason = printable(reader.text("reason"), SHOWN) if reader.has("reason") else ""
        by = printable(reader.optional_string("by") or str(sender.userid), SHOWN)

        states = ((name, self._machine.rabbits.state(name)) for name in names)
        before = {
            name: state.disabled.reason
            for name, state in states
            if state is not None and state.disabled is not None
        }
        note = Disabled(by, self._flux.now(), reason)
        try:
            await annotate(self._kube, self._settings.namespace, names, note)
        finally:
            self._changed()
        replaced = {
            name: before[name] for name in names if before.get(name, reason) != reason
        }
        return {"rabbits": names, "replaced": replaced}

    async def enable(self, payload: Any, sender: Sender) -> Json:
        """Put Rabbits back into service.

        Raises:
            BadObject, QueryError: the request is refused.
        """
        names = self._names(Reader("dws.rabbit-enable", payload), sender)
        states = ((name, self._machine.rabbits.state(name)) for name in names)
        # Those that are out of service, and those of which that is not known.
        found = [name for name, state in states if state is None or state.disabled]
        try:
            await annotate(self._kube, self._settings.namespace, found, None)
        finally:
            self._changed()
        return {"rabbits": found}

    def _changed(self) -> None:
        """Make rows anew for each sender until the watch of the Storages has surely
        shown the change."""
        self._valid_from = self._flux.now() + FRESH
        self._waiting = []

    def _names(self, reader: Reader, sender: Sender) -> list[str]:
        """The Rabbits that a request of the instance owner names."""
        if not sender.owner:
            text = f"{reader.name} is for the instance owner"
            raise QueryError(errno.EPERM, text)
        names = list(dict.fromkeys(reader.strings("rabbits")))
        if not 0 < len(names) <= NAMES:
            raise reader.bad("rabbits", f"the names of 1 to {NAMES} Rabbits")
        for name in names:
            if not self._machine.is_rabbit(name):
                raise _unknown(name)
        return names


def _portion(rows: list[Json]) -> int:
    """How many of the rows fit into an answer."""
    jobs = 0
    for count, row in enumerate(rows[:ROWS]):
        jobs += max(row["njobs"], len(row["job_ssds"]))
        if count and jobs > JOBS:
            return count
    return ROWS


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


def rabbit_rows(machine: RabbitManager, mapping: RabbitMapping) -> Iterator[Json]:
    """The row of each Rabbit of the mapping, and of those of the resource graph that
    the mapping lacks, without its jobs."""
    ledger, disagreements = machine.ledger, machine.disagreements
    free, withheld = ledger.left(()), ledger.withheld
    avoided = machine.system_status.disabled_by_others
    for name in (*mapping.rabbits, *disagreements.unmapped):
        state = machine.rabbits.state(name) or UNKNOWN
        is_known = state is not UNKNOWN and ledger.counted
        disabled = state.disabled
        sentence = disagreements.sentence(name)
        ssds = machine.ssds.on(name)
        hosts = mapping.hosts_of(name)
        off = hostlist.encode([host for host in hosts if host in avoided])
        yield {
            "name": name,
            "state": printable(state.reported or state.status, SHOWN),
            "reason": printable(machine.why_not(name), SHOWN),
            **({"disagreement": printable(sentence, SHOWN)} if sentence else {}),
            "capacity": mapping.capacity(name),
            "free": free.get(name, 0) if is_known else None,
            "withheld": withheld.get(name, 0) if is_known else None,
            "ssd_size": ssds.size,
            "ssds": ssds.count,
            "ssds_withheld": ssds.withheld,
            "nodes": hostlist.encode(hosts),
            "broken": hostlist.encode(sorted(state.lost, key=hostlist.natural_key)),
            **({"disabled_nodes": off} if off else {}),
            "disabled": None
            if disabled is None
            else {"by": disabled.by, "at": disabled.at, "reason": disabled.reason},
        }
