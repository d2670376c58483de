# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Which Rabbits have room for the storage of a job, and when others will have it.

The scheduler gives storage to jobs as ``ssd`` of 1 GiB, those of a node on the Rabbit
of that node. The storage of a job that runs is back at its time limit at the latest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Callable, Iterable, Mapping, Optional, Sequence

from dwscli.reading import hosts, number, part, text
from flux_k8s.dws.directives import GIB
from flux_k8s.ports import Json

RUN = 16
"""The state of a Flux job that runs, or is about to."""

UNKNOWN_JOB = -1
"""Stands for a job on a Rabbit about which Flux says nothing."""


@dataclass(frozen=True)
class Release:
    """The end of a job with storage on a Rabbit.

    Attributes:
        at: the UNIX time of the end at the latest; infinite where that is not known.
        size: the job's bytes there; None where they are not known.
    """

    jobid: int
    at: float
    size: Optional[float]


@dataclass(frozen=True)
class Rabbit:
    """A Rabbit that serves jobs.

    Attributes:
        hosts: its compute nodes that can reach it.
        free: the bytes that are left.
        most: the bytes that are left without any job.
        releases: the ends of its jobs.
    """

    name: str
    hosts: tuple[str, ...]
    free: float
    most: float
    releases: Sequence[Release] = field(default=())

    def nodes_at(self, moment: float, ssd: int) -> int:
        """The number of nodes for which the Rabbit has so many ``ssd`` each, when the
        jobs that end until then have ended."""
        over = [release for release in self.releases if release.at <= moment]
        free = self.free + sum(release.size or 0 for release in over)
        if len(over) == len(self.releases) > 0:
            free = self.most
        free = max(self.free, min(free, self.most))
        return min(len(self.hosts), int(free // GIB) // ssd)


@dataclass(frozen=True)
class Fit:
    """Where the storage of a job fits.

    Attributes:
        now: for each Rabbit with room, the number of nodes that it has room for.
        later: the same at the time ``at``.
        at: when all nodes of the job have room, at the latest; None where that is not
            known.
        waits_for: the jobs that end at that time.
        endless: the jobs whose end is not known.
        most: the number of nodes for which there is room without any job.
    """

    now: Mapping[str, int]
    later: Mapping[str, int]
    at: Optional[float]
    waits_for: tuple[int, ...]
    endless: tuple[int, ...]
    most: int


def fit(rabbits: Sequence[Rabbit], nodes: int, ssd: int) -> Fit:
    """Where and when so many nodes have so many ``ssd`` each."""

    def room(moment: float) -> dict[str, int]:
        counts = {each.name: each.nodes_at(moment, ssd) for each in rabbits}
        return {name: count for name, count in counts.items() if count}

    def fits(moment: float) -> bool:
        return sum(room(moment).values()) >= nodes

    releases = [release for each in rabbits for release in each.releases]
    ends = {release.at for release in releases if release.at < math.inf}
    at = None if fits(-math.inf) else _first(sorted(ends), fits)
    return Fit(
        now=room(-math.inf),
        later={} if at is None else room(at),
        at=at,
        waits_for=() if at is None else _jobs(releases, at),
        endless=_jobs(releases, math.inf),
        most=sum(room(math.inf).values()),
    )


def _first(moments: Sequence[float], fits: Callable[[float], bool]) -> Optional[float]:
    """The first moment that fits, if there is one. All that come after it fit too."""
    low, high = 0, len(moments)
    while low < high:
        middle = (low + high) // 2
        if fits(moments[middle]):
            high = middle
        else:
            low = middle + 1
    return moments[low] if low < len(moments) else None


def _jobs(releases: Iterable[Release], at: float) -> tuple[int, ...]:
    """The jobs that end at a time."""
    return tuple(sorted({each.jobid for each in releases if each.at == at}))


def serving_rabbits(
    rows: Sequence[Json], running: Iterable[Json], own: Iterable[Json]
) -> list[Rabbit]:
    """The Rabbits that serve jobs.

    Args:
        rows: those of ``dws.rabbit-list``.
        running: the jobs that have nodes, as job-list has them.
        own: the rows of ``dws.job-list``, which a guest has of own jobs only.
    """
    shares = dict(map(_share, own))
    releases: dict[str, list[Release]] = {text(row, "name"): [] for row in rows}
    for job in running:
        id = int(number(job, "id") or 0)
        # The job's user can change this memo: it may say anything.
        memos = part(part(job, "annotations"), "user")
        for rabbit in releases.keys() & (hosts(memos, "rabbits", len(releases)) or ()):
            releases[rabbit].append(Release(id, _end(job), shares.get(id)))
    return [
        _rabbit(row, releases[text(row, "name")])
        for row in rows
        if why_out(row) is None
    ]


def why_out(row: Json) -> Optional[str]:
    """Why a Rabbit serves no new jobs; None if it does."""
    disabled = part(row, "disabled")
    if disabled:
        return text(disabled, "reason") or "disabled"
    return text(row, "reason") or None


def _rabbit(row: Json, releases: list[Release]) -> Rabbit:
    capacity, free = number(row, "capacity") or 0, number(row, "free") or 0
    withheld = number(row, "withheld") or 0
    if len(releases) < (number(row, "njobs") or 0):
        releases = [*releases, Release(UNKNOWN_JOB, math.inf, None)]
    broken = set(hosts(row, "broken") or ())
    return Rabbit(
        name=text(row, "name"),
        hosts=tuple(host for host in hosts(row, "nodes") or () if host not in broken),
        free=free,
        most=max(free, capacity - withheld),
        releases=tuple(releases),
    )


def _share(row: Json) -> tuple[int, Optional[float]]:
    """A job, and its bytes on each of its Rabbits, which are taken for equal."""
    rabbits, capacity = hosts(row, "rabbits"), number(row, "capacity")
    share = capacity / len(rabbits) if rabbits and capacity else None
    return int(number(row, "id") or 0), share


def _end(job: Json) -> float:
    """The time limit of a job that runs. After that its data may be copied out, which
    has no limit that is known here."""
    expiration = number(job, "expiration")
    return expiration if expiration and number(job, "state") == RUN else math.inf
