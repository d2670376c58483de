# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Chooses the Rabbits of a job that has no nodes yet.

No allocation is left without a node: copy_in would fill it, and copy_out would fail
for it. So the nodes that the scheduler gives the job later must be spread over the
Rabbits as the allocations are. A constraint cannot force numbers of nodes. A request
for so many nodes below each ``chassis`` does, and so does a constraint that leaves no
others than the nodes that are chosen here.

The job waits then until there are nodes below these Rabbits. By the time limits of the
jobs that have them, that is sooner at some Rabbits than at others: they are preferred.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import chain
from typing import Callable, Iterator, Mapping, NamedTuple, Optional, Sequence

HORIZONS = (0.0, *(60.0 * 2**exponent for exponent in range(11)))
"""Seconds until a job may have its nodes. Differences within one of these steps do not
matter: time limits are rough."""

Order = Callable[[str, int], tuple[int, ...]]
"""A sort key of Rabbits with so many places: the better ones first."""


class StageChoice(NamedTuple):
    """The nodes for which a job's storage is made.

    Attributes:
        hosts: as many nodes as the job asks for.
        allowed: the nodes that the job may get: those of ``hosts``, or, where each
            Rabbit has as many of these, all nodes below the Rabbits.
    """

    hosts: tuple[str, ...]
    allowed: tuple[str, ...]


class NodeTimes(NamedTuple):
    """What is known of the nodes.

    Attributes:
        now: the UNIX time.
        until: the UNIX time until which a node has jobs, at the latest; a node without
            jobs is missing.
        awaited: how many of a Rabbit's nodes other jobs wait for. They get the first
            ones that are free, for nobody knows how long.
    """

    now: float = 0.0
    until: Mapping[str, float] = {}
    awaited: Mapping[str, int] = {}


def choose_nodes(
    nodes: int,
    share: int,
    below: Mapping[str, Sequence[str]],
    room: Mapping[str, int],
    own: Mapping[str, int],
    chassis: int = 0,
    spread: bool = True,
    times: Optional[NodeTimes] = None,
) -> Optional[StageChoice]:
    """Choose Rabbits: those where the job gets nodes soonest, as few as possible of
    these, and those with most places, then with most room. None if the job does not
    fit. Nodes are named only where they are free sooner by more than a step of
    :data:`HORIZONS`: others may get one of them.

    Args:
        nodes: the number of nodes of the job.
        share: the bytes that each node needs on its Rabbit.
        below: the nodes below each Rabbit that the job may get. Of equal Rabbits those
            that come first here are chosen.
        room: the bytes that are left on each Rabbit.
        own: the bytes that the job has already. A request that was chosen before, and
            that may have been carried out, is chosen again if possible.
        chassis: the number of Rabbits that the job asks for itself, or 0.
        spread: the scheduler can be asked for nodes below several chassis.
        times: of the nodes; None if the job may get any. It does not matter to a
            request that was chosen before.
    """
    places = {
        rabbit: min(len(hosts), room.get(rabbit, 0) // max(share, 1))
        for rabbit, hosts in below.items()
    }

    def order(rabbit: str, count: int) -> tuple[int, ...]:
        return -own.get(rabbit, 0), -count, -room.get(rabbit, 0)

    fewest = chassis or len(_fill(nodes, places, order))
    if not fewest:
        return None
    # More Rabbits than needed are better than to wait for certain nodes: up to a point.
    most = chassis or 2 * fewest
    numbers = range(fewest, (most if spread or chassis else 1) + 1)
    times = None if own else times
    named: dict[str, int] = {}
    for ready in [places] if times is None else _by_horizon(places, below, times):
        even = (_evenly(nodes, number, ready, order) for number in numbers)
        counts = next(filter(None, even), {})
        if counts:
            allowed = chain.from_iterable(below[rabbit] for rabbit in counts)
            return StageChoice(_hosts(counts, below, times), tuple(allowed))
        if named:
            break
        counts = {} if chassis else _fill(nodes, ready, order)
        named = counts if len(counts) <= most else {}
    return StageChoice(*2 * (_hosts(named, below, times),)) if named else None


def _by_horizon(
    places: Mapping[str, int], below: Mapping[str, Sequence[str]], times: NodeTimes
) -> Iterator[Mapping[str, int]]:
    """As many of the places as there are nodes for by each of :data:`HORIZONS`, then
    all of them."""
    get = times.until.get
    free_at = {}
    for rabbit, hosts in below.items():
        ends = sorted([get(host, 0.0) for host in hosts])
        free_at[rabbit] = ends[times.awaited.get(rabbit, 0) :]
    for horizon in HORIZONS:
        end = times.now + horizon
        yield {r: min(n, bisect_right(free_at[r], end)) for r, n in places.items()}
    yield places


def _evenly(
    nodes: int, number: int, places: Mapping[str, int], order: Order
) -> dict[str, int]:
    """As many nodes on each of so many Rabbits, those with most places; {} if that is
    not possible."""
    each = nodes // number
    able = [] if nodes % number else [r for r, count in places.items() if count >= each]
    if len(able) < number:
        return {}
    able.sort(key=lambda rabbit: order(rabbit, places[rabbit]))
    return dict.fromkeys(able[:number], each)


def _fill(nodes: int, places: Mapping[str, int], order: Order) -> dict[str, int]:
    """The nodes on the fewest Rabbits; {} if there are not enough places."""
    counts: dict[str, int] = {}
    for rabbit in sorted(places, key=lambda r: (-places[r], order(r, 0))):
        if nodes:
            counts[rabbit] = min(places[rabbit], nodes)
            nodes -= counts[rabbit]
    return {} if nodes else counts


def _hosts(
    counts: Mapping[str, int],
    below: Mapping[str, Sequence[str]],
    times: Optional[NodeTimes],
) -> tuple[str, ...]:
    """So many nodes below each Rabbit: the first to be free that nobody waits for."""
    until, awaited = ({}, {}) if times is None else (times.until, times.awaited)
    hosts: list[str] = []
    for rabbit, count in counts.items():
        names = sorted(below[rabbit], key=lambda host: until.get(host, 0.0))
        skipped = min(awaited.get(rabbit, 0), len(names) - count)
        hosts += names[skipped : skipped + count]
    return tuple(hosts)
