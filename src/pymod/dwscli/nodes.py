# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The nodes of jobs, from Flux where the module does not know them: it reads them in a
job's prolog, and one that is loaded later knows the nodes of no job that runs."""

from __future__ import annotations

from typing import Iterable, Mapping

from dwscli.instance import Instance
from dwscli.reading import number, text
from flux_k8s.ports import Json


def with_nodes(instance: Instance, rows: list[Json]) -> list[Json]:
    """Rows of ``dws.job-list``, with the nodes that Flux knows. It is asked once for
    all, and only where nodes are missing."""
    if not any(map(_lacks_nodes, rows)):
        return rows
    return [*_filled(rows, {job["id"]: job for job in instance.running_jobs()})]


def with_nodes_of_one(instance: Instance, answer: Json) -> Json:
    """An answer of ``dws.job-show``, with the nodes that Flux knows."""
    if not _lacks_nodes(answer):
        return answer
    (found,) = _filled([answer], {answer["id"]: instance.job(answer["id"]) or {}})
    return found


def _lacks_nodes(row: Json) -> bool:
    """Whether a job may have nodes that its row does not have."""
    return not number(row, "nnodes") and text(row, "wants") in ("ready", "released")


def _filled(rows: Iterable[Json], jobs: Mapping[int, Json]) -> Iterable[Json]:
    for row in rows:
        job = jobs.get(row["id"], {}) if _lacks_nodes(row) else {}
        nnodes = number(job, "nnodes")
        yield (
            {**row, "nodes": text(job, "nodelist"), "nnodes": nnodes} if nnodes else row
        )
