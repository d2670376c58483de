# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The allocation strategies of DWS, and what each means."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Optional


class Place(enum.IntEnum):
    """The Rabbits that allocations go to. Those that leave the least choice come first,
    and are placed first."""

    OWN_RABBIT = 0
    """One allocation for each compute node, on the node's own Rabbit."""
    EACH_RABBIT = 1
    """One allocation on each Rabbit of the job."""
    ANY_RABBIT = 2
    """A number of allocations on the Rabbits that have room."""


@dataclass(frozen=True)
class Strategy:
    """An allocation strategy.

    Attributes:
        name: its name in DWS.
        place: the Rabbits that its allocations go to.
        number: the number of allocations on any Rabbits; None where the breakdown gives
            it, or it is our choice.
    """

    name: str
    place: Place
    number: Optional[int] = None

    @property
    def each(self) -> bool:
        """Whether each allocation stands by itself. ``minimumCapacity`` is that of each
        then, and a job asks for so much with each of its nodes. Where an allocation is
        missing, only the nodes below its Rabbit lack their storage. If not, all
        allocations together have the capacity and serve all nodes of the job."""
        return self.place is not Place.ANY_RABBIT

    @property
    def own(self) -> bool:
        """Whether a node can do only with an allocation on its own Rabbit."""
        return self.place is Place.OWN_RABBIT


STRATEGIES = {
    strategy.name: strategy
    for strategy in (
        Strategy("AllocatePerCompute", Place.OWN_RABBIT),
        Strategy("AllocatePerServer", Place.EACH_RABBIT),
        Strategy("AllocateAcrossServers", Place.ANY_RABBIT),
        Strategy("AllocateSingleServer", Place.ANY_RABBIT, number=1),
    )
}
"""All strategies, by name. A new one is a new row (CONTRIBUTING.md)."""
