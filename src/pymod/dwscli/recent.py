# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The jobs with storage of now and of the last hours."""

from __future__ import annotations

import errno
from typing import Iterable, Iterator, Optional

from dwscli import ended
from dwscli.details import TOPIC
from dwscli.instance import Instance, Refused, all_jobs, ask
from dwscli.messages import warn
from dwscli.nodes import with_nodes
from dwscli.reading import objects
from flux_k8s.ports import Json

HOURS = 24
"""The hours of jobs that ended, by default."""

DETAILED = 200
"""Of more active jobs than this only the last state is known."""


def active(instance: Instance, user: Optional[int]) -> tuple[list[Json], Json]:
    """The active jobs, and the last answer of ``dws.job-list``.

    Args:
        user: of these jobs; None for those of everybody.

    Returns: answers of ``dws.job-show``; of many jobs, rows of ``dws.job-list``.
    """
    request: Json = {} if user is None else {"userid": user}
    rows: list[Json] = []
    answer: Json = {}
    for answer in all_jobs(instance, request):
        rows += objects(answer, "jobs")
    if len(rows) > DETAILED:
        warn(f"of {len(rows)} active jobs, only the last state is drawn")
        found = [{**row, "now": answer.get("now")} for row in rows]
    else:
        found = [*_details(instance, rows)]
    return with_nodes(instance, found), answer


def _details(instance: Instance, rows: Iterable[Json]) -> Iterator[Json]:
    """All about jobs, without those that have ended meanwhile."""
    for row in rows:
        try:
            yield ask(instance, TOPIC, {"id": row["id"]})
        except Refused as error:
            if error.errno != errno.ENOENT:
                raise


def ended_since(instance: Instance, user: Optional[int], since: float) -> list[Json]:
    """The jobs that ended since a time, as answers of ``dws.job-show``. Guests have
    their own jobs only."""
    owner = user if instance.is_owner else instance.userid
    return ended.last_details(instance, owner, since, ended.LARGEST_LIST)
