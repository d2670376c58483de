# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What the machine could give to a job if no other one ran.

A job that needs more is denied by a scheduler, which does not say why, or fails when
its storage is made. It is refused before, with the reason. Each node has its storage
on its own Rabbit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterable

from flux_k8s.formats.directives import GIB
from flux_k8s.objects.mapping import RabbitMapping


def least_allocation(capacity: int) -> int:
    """The least bytes that DWS allocates for a capacity. Storage profiles add some, so
    whole GiB never just suffice for whole GiB."""
    return capacity + 1


@dataclass(frozen=True)
class EmptyRabbit:
    """One Rabbit as it is when no job has anything of it.

    Attributes:
        nodes: the number of its compute nodes.
        units: into how many units its storage is cut.
        unit: the bytes of one, which a job gets as a whole.
    """

    nodes: int
    units: int
    unit: int = 1

    def places(self, share: int) -> int:
        """For how many nodes it has so many bytes each."""
        most = self.units // self.units_for(share) if share else self.nodes
        return min(self.nodes, most)

    def units_for(self, share: int) -> int:
        """The units that so many bytes take."""
        return -(-share // self.unit)


def empty_rabbits(mapping: RabbitMapping) -> list[EmptyRabbit]:
    """The Rabbits of a mapping; none if it lacks the size of one."""
    sizes = [mapping.capacity(rabbit) for rabbit in mapping.rabbits]
    if not all(sizes):
        return []
    return [
        EmptyRabbit(len(mapping.hosts_of(rabbit)), size)
        for rabbit, size in zip(mapping.rabbits, sizes)
    ]


def why_never(
    nodes: int, share: int, rabbits: Iterable[EmptyRabbit], chassis: int = 0
) -> str:
    """Why no job of so many nodes can have so many bytes for each of them, whichever
    jobs end; empty if one can, or if there are no ``rabbits``.

    Args:
        chassis: the number of Rabbits among which the job wants its nodes divided
            evenly; 0 if they may be anywhere.
    """
    each = nodes // chassis if chassis else 0
    seen: list[EmptyRabbit] = []
    places = able = 0
    for rabbit in rabbits:
        seen.append(rabbit)
        found = rabbit.places(share)
        places += found
        able += found >= each
        if places >= nodes and able >= chassis:
            return ""  # of ten thousand nodes few are looked at
    if not seen:
        return ""
    gib = -(-share // GIB)
    if all(rabbit.units < rabbit.units_for(share) for rabbit in seen):
        largest = max(rabbit.units * rabbit.unit for rabbit in seen) // GIB
        return (
            f"each node needs {gib} GiB on its Rabbit, but the largest Rabbit has"
            f" {largest} GiB for jobs"
        )
    below = sum(rabbit.nodes for rabbit in seen)
    if below < nodes:
        return f"the job asks for {nodes} nodes, and {below} are below Rabbits"
    unit = max(rabbit.unit for rabbit in seen) // GIB
    whole = f", in whole ssd of {unit} GiB" if unit > 1 else ""
    if places < nodes:
        return (
            f"the job asks for {nodes} nodes with {gib} GiB each{whole}, and the"
            f" Rabbits have room for {places}"
        )
    return (
        f"the job asks for {each} nodes with {gib} GiB each{whole} below each of"
        f" {chassis} Rabbits, and {able} have room for them"
    )
