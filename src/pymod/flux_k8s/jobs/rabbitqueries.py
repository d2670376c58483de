# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Answers the queries about Rabbits, and takes Rabbits out of service."""

from __future__ import annotations

import errno
from typing import AbstractSet, Any, Mapping, Optional, Sequence

from flux_k8s.config.context import Context
from flux_k8s.control.coroutines import Turns
from flux_k8s.errors import QueryError
from flux_k8s.formats import hostlist
from flux_k8s.jobs.jobtable import JobTable
from flux_k8s.json_reader import Reader
from flux_k8s.machine.manager import RabbitManager
from flux_k8s.machine.storages import UNKNOWN, Disabled, annotate
from flux_k8s.ports import Json, Sender
from flux_k8s.text import SHOWN, printable, quoted

ROWS_AT_A_TIME = 25
"""Rows that are made in one turn of the reactor."""

NAMES = 4096
"""The most Rabbits that one request may name."""

ROWS, JOBS = 250, 4000
"""The most rows of an answer, and the most jobs in them if there are several rows."""


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

    async def rows(self, payload: Any, sender: Sender) -> Json:
        """The rows of Rabbits, those after the one that the payload names. Guests see
        their own jobs, and the number of all.

        Raises:
            BadObject, QueryError: the query is refused.
        """
        after = Reader("dws.rabbit-list", payload).optional_string("after")
        names = self._names_after(after)
        own = None if sender.owner else frozenset(self._jobs.after(-1, sender.userid))
        ledger, rows = self._machine.ledger, list[Json]()
        left, disabled = ledger.left(()), self._machine.system_status.disabled_by_others
        async for name in self._turns.each(self._portion(names), ROWS_AT_A_TIME):
            known = (id for id in ledger.jobs_on(name) if id in self._jobs)
            jobs = sorted(id for id in known if ledger.bytes_on(name, id))
            row = self._row(name, left, disabled, jobs)
            rows.append(row if own is None else _restricted(row, own))
        return {
            "rabbits": rows,
            "next": rows[-1]["name"] if len(rows) < len(names) else None,
            "gives_ssd": self._settings.scheduler,
            "why_none": self._machine.fluxion.why_none,
            "disagreement": self._machine.disagreement,
        }

    def _names_after(self, name: Optional[str]) -> list[str]:
        """The Rabbits of the mapping, and those of the resource graph that the mapping
        lacks."""
        rabbits = self._settings.mapping.rabbits
        names = [*rabbits, *self._machine.disagreements.unmapped]
        if name is None:
            return names
        if name not in names:
            raise _unknown(name)
        return names[names.index(name) + 1 :]

    def _portion(self, names: Sequence[str]) -> Sequence[str]:
        """The first of some Rabbits, as many as fit into an answer."""
        jobs = 0
        for count, name in enumerate(names[:ROWS]):
            jobs += len(self._machine.ledger.jobs_on(name))
            if count and jobs > JOBS:
                return names[:count]
        return names[:ROWS]

    def _row(
        self,
        name: str,
        left: Mapping[str, int],
        disabled_nodes: AbstractSet[str],
        jobs: Sequence[int],
    ) -> Json:
        """The row of a Rabbit.

        Args:
            left: the bytes that are left on each Rabbit.
            disabled_nodes: those that another program has disabled, of all Rabbits.
            jobs: those with storage on it.
        """
        machine, mapping = self._machine, self._settings.mapping
        state = machine.rabbits.state(name)
        is_known = state is not UNKNOWN and machine.ledger.counted
        disabled = state.disabled
        sentence = machine.disagreements.sentence(name)
        ssds, given = machine.ssds.on(name), machine.ssds.of_jobs(name)
        job_ssds = {str(id): count for id, count in given.items() if id in self._jobs}
        hosts = mapping.hosts_of(name)
        off = hostlist.encode([host for host in hosts if host in disabled_nodes])
        return {
            "name": name,
            "state": printable(state.reported, SHOWN),
            "reason": printable(machine.why_not(name), SHOWN),
            **({"disagreement": printable(sentence, SHOWN)} if sentence else {}),
            "capacity": mapping.capacity(name),
            "free": left.get(name, 0) if is_known else None,
            "withheld": machine.ledger.withheld_on(name) if is_known else None,
            "ssd_size": ssds.size,
            "ssds": ssds.count,
            "ssds_withheld": ssds.withheld,
            "ssds_free": max(0, ssds.count - sum(job_ssds.values())),
            "nodes": hostlist.encode(hosts),
            "broken": hostlist.encode_sorted(state.lost),
            **({"disabled_nodes": off} if off else {}),
            "disabled": None
            if disabled is None
            else {"by": disabled.by, "at": disabled.at, "reason": disabled.reason},
            "njobs": len(jobs),
            "jobs": jobs,
            "job_ssds": job_ssds,
        }

    # Out of service, and back

    async def disable(self, payload: Any, sender: Sender) -> Json:
        """Take Rabbits out of service for jobs.

        Raises:
            BadObject, QueryError: the request is refused.
        """
        reader = Reader("dws.rabbit-disable", payload)
        names = self._names(reader)
        reason = printable(reader.text("reason"), SHOWN) if reader.has("reason") else ""
        by = printable(reader.optional_string("by") or str(sender.userid), SHOWN)

        states = ((name, self._machine.rabbits.state(name)) for name in names)
        before = {
            name: state.disabled.reason
            for name, state in states
            if state.disabled is not None
        }
        note = Disabled(by, self._flux.now(), reason)
        await annotate(self._kube, self._settings.namespace, names, note)
        replaced = {
            name: before[name] for name in names if before.get(name, reason) != reason
        }
        return {"rabbits": names, "replaced": replaced}

    async def enable(self, payload: Any, sender: Sender) -> Json:
        """Put Rabbits back into service.

        Raises:
            BadObject, QueryError: the request is refused.
        """
        names = self._names(Reader("dws.rabbit-enable", payload))
        states = ((name, self._machine.rabbits.state(name)) for name in names)
        # Those that are out of service, and those of which that is not known.
        found = [n for n, state in states if state is UNKNOWN or state.disabled]
        await annotate(self._kube, self._settings.namespace, found, None)
        return {"rabbits": found}

    def _names(self, reader: Reader) -> list[str]:
        """The Rabbits that a request names."""
        names = list(dict.fromkeys(reader.strings("rabbits")))
        if not 0 < len(names) <= NAMES:
            raise reader.bad("rabbits", f"the names of 1 to {NAMES} Rabbits")
        for name in names:
            if not self._settings.mapping.has(name):
                raise _unknown(name)
        return names


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
