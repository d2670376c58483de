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
        each: counting. ``minimumCapacity`` is that of each allocation, and a job asks
            for so much with each of its nodes. If not, it is that of all together, and
            divided among the nodes.
        place: placement.
        number: placement. The number of allocations on any Rabbits; None where the
            breakdown gives it, or it is our choice.
        own: reach. A node can do only with an allocation on its own Rabbit.
        apart: survey. Where an allocation is missing, only the nodes below its Rabbit
            lack their storage. If not, all nodes of the job lack it.
    """

    name: str
    each: bool
    place: Place
    number: Optional[int]
    own: bool
    apart: bool


STRATEGIES = {
    strategy.name: strategy
    for strategy in (
        Strategy(
            "AllocatePerCompute",
            each=True,
            place=Place.OWN_RABBIT,
            number=None,
            own=True,
            apart=True,
        ),
        Strategy(
            "AllocatePerServer",
            each=True,
            place=Place.EACH_RABBIT,
            number=None,
            own=False,
            apart=True,
        ),
        Strategy(
            "AllocateAcrossServers",
            each=False,
            place=Place.ANY_RABBIT,
            number=None,
            own=False,
            apart=False,
        ),
        Strategy(
            "AllocateSingleServer",
            each=False,
            place=Place.ANY_RABBIT,
            number=1,
            own=False,
            apart=False,
        ),
    )
}
"""All strategies, by name. A new one is a new row (CONTRIBUTING.md)."""
