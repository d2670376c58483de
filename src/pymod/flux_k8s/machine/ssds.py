# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Chooses which ``ssd`` of one Rabbit are down in the scheduler's graph.

Storage that no job holds, as that of a persistent file system, is in the graph only by
``ssd`` that are down. Each of these must be one that no job has: as long as a job has
it, it takes nothing away, and the job's end brings nothing back.

Fluxion gives a vertex that is down to no job, and can be asked which of them jobs have.
So the first ``ssd`` are set down, then Fluxion is asked about them, and for each that
a job has another is set down, until there are enough. Only then the superfluous ones
are set up again. When there are not enough, all of them are down, and no job gets any
until jobs have given back enough. The match policies ``first`` and ``firstnodex`` give
the last ``ssd`` first: the first ones are usually free.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import AbstractSet, NamedTuple, Optional


class Change(NamedTuple):
    """``ssd`` to be set down, or up, by their numbers."""

    numbers: list[int]
    down: bool


@dataclass(frozen=True)
class Ssds:
    """The ``ssd`` of a Rabbit that jobs may have.

    Attributes:
        size: GiB of each. A job gets an ``ssd`` as a whole.
        count: how many there are.
        withheld: how many more there would be without storage that no job has.
    """

    size: int
    count: int
    withheld: int = 0


@dataclass
class SsdStates:
    """The ``ssd`` of one Rabbit in the scheduler's graph, by their numbers.

    Attributes:
        total: how many there are.
        found: how many were down when the graph was read.
        down: those that are down.
        free: those of ``down`` that no job has. It stays so as long as they are down.
        taken: those of ``down`` that jobs had when Fluxion was last asked.
    """

    total: int
    found: int = 0
    down: set[int] = field(default_factory=set)
    free: set[int] = field(default_factory=set)
    taken: set[int] = field(default_factory=set)

    @classmethod
    def read(cls, total: int, down: AbstractSet[int]) -> SsdStates:
        """What Fluxion shows of a Rabbit with ``total`` of them."""
        down = {number for number in down if number < total}
        return cls(total, len(down), down)

    def set(self, number: int, down: bool) -> None:
        """Note what Fluxion has carried out."""
        if down:
            self.down.add(number)
        else:
            for group in (self.down, self.free, self.taken):
                group.discard(number)

    def see_allocated(self, allocated: AbstractSet[int]) -> None:
        """Note which of those that are down jobs have."""
        self.taken = self.down & allocated
        self.free = self.down - allocated

    def change(self, needed: int, out_of_service: bool) -> Optional[Change]:
        """The next change; None if none is needed, or possible.

        Args:
            needed: how many are to be down that no job has.
            out_of_service: all of them are to be down.
        """
        all, down = range(self.total), self.down
        if out_of_service or needed >= self.total:
            return _change([number for number in all if number not in down], True)
        lacking = needed - len(down - self.taken)
        if lacking > 0:
            more = [number for number in all if number not in down]
            return _change(more[:lacking], True)
        if needed > len(self.free):
            return None  # Fluxion is to be asked which of them jobs have
        kept = sorted(self.free)[:needed]
        return _change(sorted(down.difference(kept)), False)

    def is_unsure(self, needed: int, out_of_service: bool) -> bool:
        """Whether Fluxion is to be asked which of those that are down jobs have, when
        there is no :meth:`change`."""
        some = not out_of_service and len(self.free) < needed < self.total
        return some and self.down != self.free | self.taken

    def is_short(self, needed: int, out_of_service: bool) -> bool:
        """Whether too few are left that no job has."""
        some = not out_of_service and len(self.free) < needed < self.total
        return some and len(self.taken) + len(self.free) == self.total

    def withholds(self, needed: int) -> bool:
        """Whether jobs get none of as many as are needed, or none at all."""
        return needed <= len(self.free) or len(self.down) == self.total


def _change(numbers: list[int], down: bool) -> Optional[Change]:
    return Change(numbers, down) if numbers else None
