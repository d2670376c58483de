# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""``flux dws rabbits``: the Rabbits, one in a line."""

from __future__ import annotations

import argparse
import json
from typing import Any, Callable, Iterable, Mapping, Optional

from dwscli import table, units
from dwscli.formats import Field
from dwscli.instance import Instance, all_rabbits
from dwscli.namedformats import Formats
from dwscli.reading import (
    count_hosts,
    number,
    number_of,
    objects,
    part,
    text,
    text_of,
)
from dwscli.terminal import RED, YELLOW, write
from flux_k8s.command import CommandError
from flux_k8s.formats import hostlist
from flux_k8s.objects.storage import SERVING
from flux_k8s.ports import Json

DESCRIPTION = """
List Rabbits: the state, the capacity, what of it is free and what is withheld from
Fluxion, the number of jobs with storage there, the compute nodes, and why a Rabbit is
out of service.
"""

BUILTIN: Formats = {
    "default": (
        "Default flux dws rabbits format string",
        "+:{name:<8} {state:<9.9} {capacity!B:>8h} {free!B:>8h} ?+:{withheld!B:>8}"
        " {njobs:>5} +:{nodelist:<8} {reason}",
    ),
    "long": (
        "Extended flux dws rabbits format string",
        "+:{name:<8} {state:<9.9} {capacity!B:>8h} {free!B:>8h} {withheld!B:>8h}"
        " {njobs:>5} ?+:{jobs:<12} +:{nodelist:<8} ?+:{broken:<8}"
        " ?:{disabled.at!d:%b%d %R::<12} ?+:{disabled.by:<8} {reason}",
    ),
}


def _count(key: str) -> Callable[[Json], Any]:
    return lambda rabbit: count_hosts(rabbit, key)


def _disabled(key: str) -> Callable[[Json], Any]:
    return lambda rabbit: part(rabbit, "disabled").get(key)


def reason(rabbit: Json) -> str:
    """Why the Rabbit, or a part of it, is out of service, or what does not agree about
    it."""
    broken, off = text(rabbit, "broken"), text(rabbit, "disabled_nodes")
    nodes = [f"broken links: {broken}"] if broken else []
    nodes += [f"disabled in SystemStatus: {off}"] if off else []
    return (
        text(rabbit, "reason")
        or text(part(rabbit, "disabled"), "reason")
        or text(rabbit, "disagreement")
        or "; ".join(nodes)
    )


def _jobs(rabbit: Json) -> str:
    listed = rabbit.get("jobs")
    ids = listed if isinstance(listed, list) else []
    return ",".join(units.f58(id) for id in ids if isinstance(id, int) and id >= 0)


FIELDS: Mapping[str, Field[Json]] = {
    "name": Field("RABBIT", text_of("name")),
    "state": Field("STATE", text_of("state")),
    "reason": Field("REASON", reason),
    "capacity": Field("CAPACITY", number_of("capacity")),
    "free": Field("FREE", number_of("free")),
    "withheld": Field("WITHHELD", lambda rabbit: number(rabbit, "withheld") or None),
    "nodelist": Field("NODELIST", text_of("nodes")),
    "nnodes": Field("NNODES", _count("nodes")),
    "broken": Field("BROKEN", text_of("broken")),
    "nbroken": Field("NBROKEN", _count("broken")),
    "njobs": Field("NJOBS", number_of("njobs")),
    "jobs": Field("JOBS", _jobs),
    "disabled.by": Field("BY", _disabled("by")),
    "disabled.at": Field(
        "SINCE", lambda rabbit: number(part(rabbit, "disabled"), "at")
    ),
    "disabled.reason": Field("REASON", _disabled("reason")),
}


def color(rabbit: Json) -> str:
    """The colour of a Rabbit."""
    if rabbit.get("disabled") or text(rabbit, "state") not in SERVING:
        return RED
    return YELLOW if reason(rabbit) else ""


TABLE = table.Table("rabbits", BUILTIN, FIELDS, color)


def add_arguments(args: argparse.ArgumentParser) -> None:
    """Add what ``flux dws rabbits`` takes."""
    args.description = DESCRIPTION
    args.add_argument(
        "rabbits", metavar="HOSTS", nargs="*", help="List only these Rabbits"
    )
    table.add_options(args)
    args.set_defaults(function=list_rabbits)


def list_rabbits(args: argparse.Namespace, instance: Instance) -> None:
    """List the Rabbits of an instance."""
    format = TABLE.format(args)
    if format is None:
        return
    names = decode(args.rabbits)
    answer = all_rabbits(instance)
    table.warn_of_age(answer)
    found = chosen(objects(answer, "rabbits"), names)
    if args.json:
        write([json.dumps({**answer, "rabbits": found})])
        return
    TABLE.print(args, format, found)


def decode(hostlists: Iterable[str], where: str = "") -> Optional[tuple[str, ...]]:
    """The Rabbits that were named; None for all.

    Args:
        where: the beginning of an error.

    Raises:
        CommandError: a word is no hostlist.
    """
    words = list(hostlists)
    try:
        return hostlist.decode_all(words) if words else None
    except ValueError as error:
        raise CommandError(f"{where}{error}") from None


def chosen(rabbits: list[Json], names: Optional[tuple[str, ...]]) -> list[Json]:
    """The Rabbits of these names, or all, by name.

    Raises:
        CommandError: there is no Rabbit of a name.
    """
    by_name = {text(rabbit, "name"): rabbit for rabbit in rabbits}
    wanted = sorted(by_name, key=hostlist.natural_key) if names is None else names
    unknown = [name for name in dict.fromkeys(wanted) if name not in by_name]
    if unknown:
        raise CommandError(f"no such Rabbit: {hostlist.encode(unknown)}")
    return [by_name[name] for name in dict.fromkeys(wanted)]
