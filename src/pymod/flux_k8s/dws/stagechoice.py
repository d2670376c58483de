# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Chooses the Rabbits of a job that has no nodes yet (DESIGN section 13).

No allocation is left without a node: copy_in would fill it, and copy_out would fail
for it. So the nodes that the scheduler gives the job later must be spread over the
Rabbits as the allocations are. A constraint cannot force numbers of nodes. A request
for so many nodes below each ``chassis`` does, and so does a constraint that leaves no
others than the nodes that are chosen here.
"""

from __future__ import annotations

from typing import Mapping, NamedTuple, Optional, Sequence


class StageChoice(NamedTuple):
    """The nodes for which a job's storage is made.

    Attributes:
        hosts: as many nodes as the job asks for.
        allowed: the nodes that the job may get: those of ``hosts``, or, where each
            Rabbit has as many of these, all nodes below the Rabbits.
    """

    hosts: tuple[str, ...]
    allowed: tuple[str, ...]


def choose_nodes(
    nodes: int,
    share: int,
    below: Mapping[str, Sequence[str]],
    room: Mapping[str, int],
    own: Mapping[str, int],
    chassis: int = 0,
    spread: bool = True,
) -> Optional[StageChoice]:
    """Choose Rabbits, as few as possible, and those with most room; None if the job
    does not fit.

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
    """
    places = {
        rabbit: min(len(hosts), room.get(rabbit, 0) // max(share, 1))
        for rabbit, hosts in below.items()
    }

    def order(rabbit: str) -> tuple[int, int]:
        return -own.get(rabbit, 0), -room.get(rabbit, 0)

    def evenly(number: int) -> Optional[StageChoice]:
        each = nodes // number
        if nodes % number:
            return None
        able = sorted((r for r in places if places[r] >= each), key=order)[:number]
        if len(able) < number:
            return None
        hosts = (host for rabbit in able for host in below[rabbit][:each])
        allowed = (host for rabbit in able for host in below[rabbit])
        return StageChoice(tuple(hosts), tuple(allowed))

    if chassis:
        return evenly(chassis)
    chosen: dict[str, Sequence[str]] = {}
    missing = nodes
    for rabbit in sorted(places, key=lambda r: (-places[r], order(r))):
        if missing:
            chosen[rabbit] = below[rabbit][: min(places[rabbit], missing)]
            missing -= len(chosen[rabbit])
    if missing:
        return None
    # More Rabbits than needed are better than to wait for certain nodes: up to a point.
    most = 2 * len(chosen) if spread else 1
    choices = map(evenly, range(len(chosen), most + 1))
    hosts = tuple(host for names in chosen.values() for host in names)
    return next(filter(None, choices), StageChoice(hosts, hosts))
