# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The fields of ``flux dws list``, and its formats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Mapping, Optional

from dwscli import units
from dwscli.formats import Field
from dwscli.namedformats import Formats
from dwscli.page import AWAITED
from dwscli.reading import count_hosts, id_of, number, text, texts
from dwscli.terminal import GREEN, GREY, RED, YELLOW
from dwscli.units import user_name
from flux_k8s.formats import jobid
from flux_k8s.objects.workflowstate import ERROR, TRANSIENT
from flux_k8s.ports import Json
from flux_k8s.text import SHOWN, printable

BUILTIN: Formats = {
    "default": (
        "Default flux dws list format string",
        "{id.f58:>12} +:{username:<8} {state:<8.8} {elapsed!F:>8h} {nnodes:>6h}"
        " ?:{rabbits:<12.12+} {capacity!B:>8h} ?+:{data:>8} ?:{cancel:<7} {waits}",
    ),
    "long": (
        "Extended flux dws list format string",
        "{id.f58:>12} +:{username:<8} {state:<8.8} {status:<10.10+}"
        " {t_state!d:%b%d %R::>12h} {elapsed!F:>8h} {nnodes:>6h} +:{nodelist}"
        " ?+:{rabbits:<8} {capacity!B:>8h} ?+:{types:<5} ?+:{moved!B:>8}"
        " ?+:{total!B:>8} ?:{percent:>4} ?:{cancel:<7} {waits}",
    ),
    "data": (
        "Show the data that is moved",
        "{id.f58:>12} +:{username:<8} {state:<8.8} {elapsed!F:>8h} {moved!B:>8h}"
        " {total!B:>8h} {percent:>4h} {waits}",
    ),
}


@dataclass(frozen=True)
class Job:
    """A row of ``dws.job-list``, and the time of the answer (UNIX time)."""

    row: Json
    now: float

    @property
    def elapsed(self) -> Optional[float]:
        """The seconds in the state; of a job that ended, with storage."""
        since = number(self.row, "since")
        if "result" in self.row:
            return number(self.row, "held")
        return None if since is None else max(0.0, self.now - since)


def _text(key: str) -> Callable[[Job], Any]:
    return lambda job: text(job.row, key)


def _number(key: str) -> Callable[[Job], Any]:
    return lambda job: number(job.row, key)


def _positive(key: str) -> Callable[[Job], Any]:
    return lambda job: number(job.row, key) or None


def _id(write: Callable[[int], str]) -> Callable[[Job], Any]:
    return lambda job: write(id_of(job.row))


def _user(job: Job) -> Any:
    userid = number(job.row, "userid")
    return None if userid is None else user_name(int(userid)) or str(userid)


def _data(job: Job) -> Any:
    """The data that was moved of how much, or the per cent of it."""
    moved, total = number(job.row, "moved"), number(job.row, "total")
    percent = number(job.row, "percent")
    if moved is not None:
        of = "" if total is None else f"/{units.size(total)}"
        return f"{units.size(moved)}{of}"
    return None if percent is None else f"{percent:.0f}%"


def _percent(job: Job) -> Any:
    percent = number(job.row, "percent")
    return None if percent is None else round(percent)


def _waits(job: Job) -> Any:
    """What the module says of it, else what a state is about that a job may also be in
    while it waits for nodes, or runs."""
    key = text(job.row, "state"), job.row.get("ready") is True
    return text(job.row, "waits") or AWAITED.get(key, "")


def _types(job: Job) -> Any:
    return printable(",".join(texts(job.row, "types")), SHOWN)


def _rabbit_count(job: Job) -> Any:
    return count_hosts(job.row, "rabbits") or None


FIELDS: Mapping[str, Field[Job]] = {
    "id": Field("JOBID", _id(units.f58)),
    "id.f58": Field("JOBID", _id(units.f58)),
    "id.f58plain": Field("JOBID", _id(jobid.f58)),
    "id.dec": Field("JOBID", _id(str)),
    "id.hex": Field("JOBID", _id(lambda id: f"{id:#018x}")),
    "userid": Field("UID", _number("userid")),
    "username": Field("USER", _user),
    "state": Field("STATE", _text("state")),
    "status": Field("STATUS", _text("status")),
    "wants": Field("WANTS", _text("wants")),
    "t_state": Field("T_STATE", _positive("since")),
    "elapsed": Field("TIME", lambda job: job.elapsed),
    "nodelist": Field("NODELIST", _text("nodes")),
    "nnodes": Field("NNODES", _positive("nnodes")),
    "rabbits": Field("RABBITS", _text("rabbits")),
    "nrabbits": Field("NRABBITS", _rabbit_count),
    "capacity": Field("CAPACITY", _positive("capacity")),
    "types": Field("TYPES", _types),
    "moved": Field("MOVED", _number("moved")),
    "total": Field("TOTAL", _number("total")),
    "percent": Field("%", _percent),
    "data": Field("DATA", _data),
    "waits": Field("WAITS-FOR", _waits),
    "cancel": Field("CANCEL", _text("cancel")),
    "result": Field("RESULT", _text("result")),
}


def color(job: Job) -> str:
    """The colour of a job: as in ``flux jobs`` for one that ended."""
    result = text(job.row, "result")
    if result:
        return {"COMPLETED": GREEN, "CANCELED": GREY}.get(result, RED)
    return {ERROR: RED, TRANSIENT: YELLOW}.get(text(job.row, "status"), "")
