# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Prints a plan."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Iterable, Iterator, Mapping, Sequence

from flux_k8s.formats import hostlist
from flux_k8s.ports import Json
from flux_k8s.rules.directivebreakdown.allocation import Allocation
from flux_k8s.rules.directivebreakdown.breakdown import Breakdown, Location
from rabbitsim.cli.report import Report

if TYPE_CHECKING:
    from rabbitsim.cli.plan import Plan

_UNITS = (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))


def print_plan(plan: Plan) -> None:
    """Print to stdout."""
    report = Report(verbose=False)
    report.title("Nodes")
    report.line("  " + _nodes(plan.hosts, plan.allocation))
    for breakdown in plan.breakdowns:
        report.heading(breakdown.directive)
        for line in _breakdown(breakdown):
            report.line("  " + line)
    report.heading("Resources of the job, with storage")
    for line in _resources(plan.resources, ""):
        report.line("  " + line)
    for servers in plan.servers:
        metadata = servers["metadata"]
        report.heading(f"Servers {metadata['namespace']}/{metadata['name']}")
        for line in _servers(servers["spec"]["allocationSets"]):
            report.line("  " + line)
    report.heading("Constraint on its nodes")
    report.line("  " + json.dumps(plan.constraint))
    if plan.notes:
        report.heading("Note")
        for note in plan.notes:
            report.line("  " + note)


def size(count: int) -> str:
    """Bytes in the largest unit of which there is one."""
    for unit, factor in _UNITS:
        if count >= factor:
            return f"{count / factor:.2f}".rstrip("0").rstrip(".") + f" {unit}"
    return f"{count} B"


def _nodes(hosts: Sequence[str], allocation: Allocation) -> str:
    text = f"{_number(len(hosts), 'node')} {hostlist.encode(hosts)}: "
    parts = _by_count(allocation.nodes_per_rabbit)
    if allocation.unconnected:
        parts.append(f"{hostlist.encode(allocation.unconnected)} without a Rabbit")
    return text + ", ".join(parts)


def _by_count(counts: Mapping[str, int]) -> list[str]:
    """Rabbits with the same number together: ``2 on each of r[1-4]``."""
    groups: dict[int, list[str]] = {}
    for rabbit, count in counts.items():
        groups.setdefault(count, []).append(rabbit)
    return [
        f"{count} on {'each of ' if len(rabbits) > 1 else ''}"
        + hostlist.encode_sorted(rabbits)
        for count, rabbits in groups.items()
    ]


def _number(count: int, what: str) -> str:
    return f"{count} {what}" + ("" if count == 1 else "s")


def _breakdown(breakdown: Breakdown) -> Iterator[str]:
    lifetime = f", lifetime {breakdown.lifetime}" if breakdown.lifetime else ""
    yield breakdown.name + lifetime
    access = {
        location.index: _access(location)
        for location in breakdown.locations
        if location.servers == breakdown.servers
    }
    labels = {entry.labels for entry in breakdown.allocation_sets}
    rows = [
        (
            entry.label,
            entry.strategy.name,
            size(entry.minimum_capacity),
            "" if entry.count is None else str(entry.count),
            "" if entry.scale is None else str(entry.scale),
            ", ".join(key or '""' for key in entry.colocation),
            access.get(index, ""),
            "" if len(labels) == 1 else ", ".join(entry.labels),
        )
        for index, entry in enumerate(breakdown.allocation_sets)
    ]
    names = "SET STRATEGY CAPACITY COUNT SCALE COLOCATION ACCESS LABELS".split()
    if rows:
        yield from _table(names, rows)
    if len(labels) == 1 and any(labels):
        yield f"Rabbits must have the labels {', '.join(*labels)}"
    for location in breakdown.locations:
        if location.servers != breakdown.servers:
            place = f"Servers {location.servers}, set {location.index}"
            yield f"nodes need access to {place}: {_access(location)}"
    if breakdown.requires:
        yield f"requires {', '.join(breakdown.requires)}"


def _access(location: Location) -> str:
    return ", ".join(f"{each} {type}" for type, each in location.access.items())


def _servers(sets: Iterable[Json]) -> Iterator[str]:
    rows = []
    for entry in sets:
        counts = {s["name"]: s["allocationCount"] for s in entry["storage"]}
        total = sum(counts.values())
        each = entry["allocationSize"]
        rows.append(
            (
                entry["label"],
                str(total),
                size(each),
                size(each * total),
                ", ".join(_by_count(counts)),
            )
        )
    return _table("SET ALLOCATIONS EACH TOTAL PLACE".split(), rows)


def _resources(vertices: Iterable[Json], indent: str) -> Iterator[str]:
    for vertex in vertices:
        text = f"{indent}{vertex['count']} x {vertex['type']}"
        if "label" in vertex:
            text += f" '{vertex['label']}'"
        yield text + (", exclusive" if vertex.get("exclusive") else "")
        yield from _resources(vertex.get("with", ()), indent + "  ")


def _table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Lines with aligned columns; those that are empty are left out."""
    kept = [i for i in range(len(names)) if any(row[i] for row in rows)]
    widths = {i: max(len(row[i]) for row in (names, *rows)) for i in kept}
    for row in (names, *rows):
        yield "  ".join(row[i].ljust(widths[i]) for i in kept).rstrip()
