# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The fields of ``flux dws list``, and its formats. A job is a row of ``dws.job-list``,
with the time of the answer (``now``)."""

from __future__ import annotations

from typing import Any, Callable, Mapping, Optional

from dwscli import units
from dwscli.formats import Field
from dwscli.namedformats import Formats
from dwscli.page import AWAITED
from dwscli.reading import (
    count_hosts,
    id_of,
    number,
    number_of,
    text,
    text_of,
    texts,
)
from dwscli.terminal import GREEN, GREY, RED, YELLOW
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


def elapsed(job: Json) -> Optional[float]:
    """The seconds in the state; of a job that ended, with storage."""
    since, now = number(job, "since"), number(job, "now")
    if "result" in job:
        return number(job, "held")
    return None if since is None or now is None else max(0.0, now - since)


def _positive(key: str) -> Callable[[Json], Any]:
    return lambda job: number(job, key) or None


def _id(write: Callable[[int], str]) -> Callable[[Json], Any]:
    return lambda job: write(id_of(job))


def _data(job: Json) -> Any:
    """The data that was moved of how much, or the per cent of it."""
    moved, total = number(job, "moved"), number(job, "total")
    percent = number(job, "percent")
    if moved is not None:
        of = "" if total is None else f"/{units.size(total)}"
        return f"{units.size(moved)}{of}"
    return None if percent is None else f"{percent:.0f}%"


def _percent(job: Json) -> Any:
    percent = number(job, "percent")
    return None if percent is None else round(percent)


def _waits(job: Json) -> Any:
    """What the module says of it, else what a state is about that a job may also be in
    while it waits for nodes, or runs."""
    key = text(job, "state"), job.get("ready") is True
    return text(job, "waits") or AWAITED.get(key, "")


def _types(job: Json) -> Any:
    return printable(",".join(texts(job, "types")), SHOWN)


FIELDS: Mapping[str, Field[Json]] = {
    "id": Field("JOBID", _id(units.f58)),
    "id.f58": Field("JOBID", _id(units.f58)),
    "id.f58plain": Field("JOBID", _id(jobid.f58)),
    "id.dec": Field("JOBID", _id(str)),
    "id.hex": Field("JOBID", _id(lambda id: f"{id:#018x}")),
    "userid": Field("UID", number_of("userid")),
    "username": Field("USER", lambda job: units.user_of(number(job, "userid"))),
    "state": Field("STATE", text_of("state")),
    "status": Field("STATUS", text_of("status")),
    "wants": Field("WANTS", text_of("wants")),
    "t_state": Field("T_STATE", _positive("since")),
    "elapsed": Field("TIME", elapsed),
    "nodelist": Field("NODELIST", text_of("nodes")),
    "nnodes": Field("NNODES", _positive("nnodes")),
    "rabbits": Field("RABBITS", text_of("rabbits")),
    "nrabbits": Field("NRABBITS", lambda job: count_hosts(job, "rabbits") or None),
    "capacity": Field("CAPACITY", _positive("capacity")),
    "types": Field("TYPES", _types),
    "moved": Field("MOVED", number_of("moved")),
    "total": Field("TOTAL", number_of("total")),
    "percent": Field("%", _percent),
    "data": Field("DATA", _data),
    "waits": Field("WAITS-FOR", _waits),
    "cancel": Field("CANCEL", text_of("cancel")),
    "result": Field("RESULT", text_of("result")),
}


def color(job: Json) -> str:
    """The colour of a job: as in ``flux jobs`` for one that ended."""
    result = text(job, "result")
    if result:
        return {"COMPLETED": GREEN, "CANCELED": GREY}.get(result, RED)
    return {ERROR: RED, TRANSIENT: YELLOW}.get(text(job, "status"), "")
