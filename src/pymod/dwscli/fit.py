# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Which Rabbits have room for the nodes of a job, and when others will have it.

The scheduler gives storage to jobs as whole ``ssd``, those of a node on the Rabbit of
that node, and whole nodes. What a job has that runs is back at its time limit at the
latest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Callable, Iterable, Iterator, Mapping, Optional, Sequence

from dwscli.instance import Nodes
from dwscli.reading import hosts, id_of, number, part, text
from flux_k8s.formats.directives import GIB
from flux_k8s.ports import Json
from flux_k8s.rules.room import EmptyRabbit, least_allocation

RUN = 16
"""The state of a Flux job that runs, or is about to."""

NO_LIMIT = 9223372036.0
"""The expiration of a job without a time limit, as Fluxion has it (UNIX time)."""

UNKNOWN_JOB = -1
"""Stands for a job on a Rabbit about which Flux says nothing."""

NO_JOB = -2
"""Stands for the job on a node that is down, drained or unknown to Flux."""


@dataclass(frozen=True)
class Release:
    """The end of a job with storage on a Rabbit, or with a node there.

    Attributes:
        at: the UNIX time of the end at the latest; infinite where that is not known.
        ssds: the job's ``ssd`` there; None where they are not known, and of a node.
    """

    jobid: int
    at: float
    ssds: Optional[float]


@dataclass(frozen=True)
class Rabbit:
    """A Rabbit that serves jobs.

    Attributes:
        hosts: its compute nodes that can reach it.
        free: the ``ssd`` that no job has.
        most: the ``ssd`` that are there without any job.
        size: the GiB of an ``ssd``.
        releases: the ends of its jobs.
        taken: those of its nodes that are not free, with the end of their job.
    """

    name: str
    hosts: tuple[str, ...]
    free: float
    most: float
    size: int = 1
    releases: Sequence[Release] = field(default=())
    taken: Mapping[str, Release] = field(default_factory=dict)

    @property
    def down(self) -> tuple[str, ...]:
        """Its nodes that are down, drained or unknown to Flux."""
        return tuple(host for host in self.taken if self.taken[host].jobid == NO_JOB)

    def nodes_at(self, moment: float, share: int) -> int:
        """The number of nodes that are free, and for which the Rabbit has so many bytes
        each, when the jobs that end until then have ended."""
        over = [release for release in self.releases if release.at <= moment]
        free = self.free + sum(release.ssds or 0 for release in over)
        if len(over) == len(self.releases) > 0:
            free = self.most
        free = max(self.free, min(free, self.most))
        return min(self.hosts_at(moment), int(free) // self.ssds_for(share))

    def hosts_at(self, moment: float) -> int:
        """The number of its nodes that are free then."""
        kept = sum(release.at > moment for release in self.taken.values())
        return len(self.hosts) - kept

    def ssds_for(self, share: int) -> int:
        """The number of ``ssd`` that a node takes that asks for so many bytes."""
        return -(-least_allocation(share) // (self.size * GIB))


@dataclass(frozen=True)
class Fit:
    """Where the nodes of a job fit, with their storage.

    Attributes:
        fits: all nodes of the job are free now, with room for their storage.
        now: for each Rabbit with room, the number of free nodes that it has room for.
        later: the same at the time ``at``.
        at: when all nodes of the job have room, at the latest; None where that is not
            known.
        waits_for: the jobs that end at that time.
        endless: the jobs whose end is not known.
        most: the number of nodes for which there is room without any job, those that
            are down, drained or unknown to Flux among them.
        possible: the job would fit then.
    """

    fits: bool
    now: Mapping[str, int]
    later: Mapping[str, int]
    at: Optional[float]
    waits_for: tuple[int, ...]
    endless: tuple[int, ...]
    most: int
    possible: bool


def fit(rabbits: Sequence[Rabbit], nodes: int, share: int, chassis: int = 0) -> Fit:
    """Where and when so many nodes are free, and have so many bytes each.

    Args:
        chassis: the number of Rabbits among which the nodes are divided evenly; 0 if
            they may be anywhere.
    """
    least = nodes // chassis if chassis else 1

    def room(moment: float) -> dict[str, int]:
        counts = {each.name: each.nodes_at(moment, share) for each in rabbits}
        return {name: count for name, count in counts.items() if count}

    def fits(moment: float) -> bool:
        counts = room(moment).values()
        able = sum(count >= least for count in counts)
        return able >= chassis if chassis else sum(counts) >= nodes

    releases = [
        release
        for each in rabbits
        for release in (*each.releases, *each.taken.values())
        if release.jobid != NO_JOB
    ]
    ends = {release.at for release in releases if release.at < math.inf}
    fits_now = fits(-math.inf)
    at = None if fits_now else _first(sorted(ends), fits)
    return Fit(
        fits=fits_now,
        now=room(-math.inf),
        later={} if at is None else room(at),
        at=at,
        waits_for=() if at is None else _jobs(releases, at),
        endless=_jobs(releases, math.inf),
        most=sum(room(math.inf).values()),
        possible=fits(math.inf),
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
    rows: Sequence[Json], running: Sequence[Json], nodes: Nodes
) -> list[Rabbit]:
    """The Rabbits that serve jobs.

    Args:
        rows: those of ``dws.rabbit-list``.
        running: the jobs that have nodes, as job-list has them.
        nodes: those that jobs may get.
    """
    ends = {id_of(job): _end(job) for job in running}
    # Of other users' jobs only a memo says where they are. The job's user can change
    # it: it may say anything.
    named: dict[str, list[int]] = {text(row, "name"): [] for row in rows}
    for job in running:
        memos = part(part(job, "annotations"), "user")
        for rabbit in named.keys() & (hosts(memos, "rabbits", len(named)) or ()):
            named[rabbit].append(id_of(job))
    users = _users(running, ends)
    found = []
    for row in rows:
        if why_out(row) is None:
            serving = _rabbit(row, named[text(row, "name")], ends)
            taken = dict(_taken(serving.hosts, nodes, users))
            found.append(replace(serving, taken=taken))
    return found


def nodes_below(rows: Iterable[Json], nodes: Nodes) -> int:
    """The number of nodes below any Rabbit, whatever their state is and that of the
    Rabbit: no job with storage gets more."""
    return len(nodes.all & {host for row in rows for host in hosts(row, "nodes") or ()})


def empty_rabbits(
    rows: Iterable[Json], nodes: Nodes, gives_ssd: bool = True
) -> list[EmptyRabbit]:
    """What each Rabbit could give to a job if no other ran, whatever the state of the
    Rabbit and of its nodes is.

    Args:
        gives_ssd: the scheduler gives storage, in whole ``ssd``.
    """
    found = []
    for row in rows:
        ssds = (number(row, "ssds") or 0) + (number(row, "ssds_withheld") or 0)
        size = max(1, int(number(row, "ssd_size") or 1))
        below = len(nodes.all & {*(hosts(row, "nodes") or ())})
        if gives_ssd:
            found.append(EmptyRabbit(below, int(ssds), size * GIB))
        else:
            found.append(EmptyRabbit(below, int(number(row, "capacity") or 0)))
    return found


def why_out(row: Json) -> Optional[str]:
    """Why a Rabbit serves no new jobs; None if it does."""
    disabled = part(row, "disabled")
    if disabled:
        return text(disabled, "reason") or "disabled"
    return text(row, "reason") or None


def _rabbit(row: Json, named: Iterable[int], ends: Mapping[int, float]) -> Rabbit:
    ssds = part(row, "job_ssds")
    own = {int(id): number(ssds, id) for id in ssds}
    sizes = {**dict.fromkeys(named), **own}
    releases = [Release(id, ends.get(id, math.inf), sizes[id]) for id in sizes]
    if len(releases) < (number(row, "njobs") or 0):
        releases.append(Release(UNKNOWN_JOB, math.inf, None))
    avoided = {*(hosts(row, "broken") or ()), *(hosts(row, "disabled_nodes") or ())}
    free = number(row, "ssds_free") or 0
    return Rabbit(
        name=text(row, "name"),
        hosts=tuple(host for host in hosts(row, "nodes") or () if host not in avoided),
        free=free,
        most=max(free, number(row, "ssds") or 0),
        size=max(1, int(number(row, "ssd_size") or 1)),
        releases=tuple(releases),
    )


def _users(running: Iterable[Json], ends: Mapping[int, float]) -> dict[str, Release]:
    """The job that has each node; of several, the one that ends last."""
    users: dict[str, Release] = {}
    for job in running:
        id = id_of(job)
        for host in hosts(job, "nodelist") or ():
            if host not in users or users[host].at < ends[id]:
                users[host] = Release(id, ends[id], None)
    return users


def _taken(
    hosts: Iterable[str], nodes: Nodes, users: Mapping[str, Release]
) -> Iterator[tuple[str, Release]]:
    """Those of the hosts that are not free."""
    for host in hosts:
        if host in nodes.allocated:
            yield host, users.get(host, Release(UNKNOWN_JOB, math.inf, None))
        elif host not in nodes.free:
            yield host, Release(NO_JOB, math.inf, None)


def _end(job: Json) -> float:
    """The time limit of a job that runs. After that its data may be copied out, which
    has no limit that is known here."""
    expiration = number(job, "expiration") or NO_LIMIT
    if expiration >= NO_LIMIT or number(job, "state") != RUN:
        return math.inf
    return expiration
