# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Chooses the Rabbits of a job that has no nodes yet (DESIGN section 13).

No allocation is left without a node: copy_in would fill it, and copy_out would fail
for it. So the nodes that the scheduler gives the job later must be spread over the
Rabbits as the allocations are. A constraint cannot force numbers of nodes. It forces
them if the job gets all its nodes below one Rabbit, or may get no others than the
nodes that are chosen here.
"""

from __future__ import annotations

from typing import Mapping, NamedTuple, Optional, Sequence

from flux_k8s.rfc.hostlist import natural_key


class StageChoice(NamedTuple):
    """The nodes for which a job's storage is made.

    Attributes:
        hosts: as many nodes as the job asks for.
        allowed: the nodes that the job may get: those of ``hosts``, or all nodes below
            the only Rabbit.
    """

    hosts: tuple[str, ...]
    allowed: tuple[str, ...]


def choose_nodes(
    nodes: int,
    share: int,
    below: Mapping[str, Sequence[str]],
    room: Mapping[str, int],
    own: Mapping[str, int],
) -> Optional[StageChoice]:
    """Choose one Rabbit, that with most room, or else as few Rabbits as possible; None
    if the job does not fit.

    Args:
        nodes: the number of nodes of the job.
        share: the bytes that each node needs on its Rabbit.
        below: the nodes below each Rabbit that the job may get.
        room: the bytes that are left on each Rabbit.
        own: the bytes that the job has already. A request that was chosen before, and
            that may have been carried out, is chosen again if possible.
    """
    places = {
        rabbit: min(len(hosts), room.get(rabbit, 0) // max(share, 1))
        for rabbit, hosts in below.items()
    }

    def order(rabbit: str, number: int) -> tuple[object, ...]:
        left = room.get(rabbit, 0)
        return (-own.get(rabbit, 0), -number, -left, natural_key(rabbit))

    alone = [rabbit for rabbit, number in places.items() if number >= nodes]
    if alone:
        hosts = tuple(below[min(alone, key=lambda rabbit: order(rabbit, 0))])
        return StageChoice(hosts[:nodes], hosts)
    chosen: list[str] = []
    for rabbit in sorted(places, key=lambda name: order(name, places[name])):
        number = min(places[rabbit], nodes - len(chosen))
        chosen.extend(below[rabbit][:number])
    if len(chosen) < nodes:
        return None
    return StageChoice(tuple(chosen), tuple(chosen))
