# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Which ``ssd`` of a Rabbit Fluxion must not give to jobs.

Storage that no job holds, as that of a persistent file system, is in the graph only
by ``ssd`` that are out of service. Each of them has to be one that no job has: as long
as one does, it takes nothing away, and the job's end brings nothing back.

Fluxion gives a vertex that is down to nobody, and can be asked which of them jobs
have. So the first ``ssd`` go down, then they are looked at, and for each that a job
has another goes down, until there are enough. Only then the superfluous ones come up
again. When there are not enough, all of them are down, and no job gets any until
enough have come back.

The match policies ``first`` and ``firstnodex`` give the last ``ssd`` first: the first
ones are usually free.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import AbstractSet, Optional, Union

from flux_k8s.rabbits.fluxiongraph import Told


@dataclass(frozen=True)
class Noting:
    """It is written to the graph which ``ssd`` are down: the next module learns it
    from there."""

    down: frozenset[int]


@dataclass(frozen=True)
class Switching:
    """An ``ssd`` goes down, or up."""

    number: int
    down: bool


@dataclass(frozen=True)
class Looking:
    """Fluxion is asked which of these ``ssd`` jobs have."""

    numbers: frozenset[int]


Step = Union[Noting, Switching, Looking]


class Withheld:
    """The ``ssd`` of one Rabbit that are out of service, by their numbers.

    Args:
        total: how many there are.
        noted: those that an earlier module may have taken out.

    Attributes:
        told: which are down in Fluxion.
        short: jobs have so many that there are not enough.
    """

    def __init__(self, total: int, noted: AbstractSet[int] = frozenset()) -> None:
        self._everything = frozenset(range(total))
        self._noted = self._everything.intersection(noted)
        self._needed = -1
        self._all = False
        self._chosen = self._noted
        self._sure = False
        self.told: Told[int] = Told(possible=set(self._noted))
        self.short = False

    def want(self, needed: int, all: bool = False) -> None:
        """Have so many out of service that no job has.

        Args:
            all: have none given to jobs, whatever is needed.
        """
        self._all = all
        needed = min(needed, len(self._everything))
        if needed == self._needed:
            return
        self._needed = needed
        self.short = False
        if needed in (0, len(self._everything)):
            self._chosen = self._everything if needed else frozenset()
            self._sure = True
        elif needed > len(self._chosen):
            self._add(needed - len(self._chosen))
        elif self._sure:
            # Where all were needed, nobody has looked which of them jobs have.
            self._sure = self._chosen != self._everything
            self._chosen = _first(self._chosen, needed)

    def next(self) -> Optional[Step]:
        """What is to be done next; None when all is done that can be."""
        wanted = self._everything if self._all else self._chosen
        if not wanted <= self._noted:  # what is noted is never less than what is down
            return Noting(self._noted | wanted)
        for number in sorted(self.told.missing(wanted)):
            return Switching(number, True)
        if not (self._sure or self._all or self.short):
            return Looking(self._chosen)
        for number in sorted(self.told.surplus(wanted)):
            return Switching(number, False)
        return None if wanted == self._noted else Noting(wanted)

    def begin(self, step: Union[Noting, Switching]) -> None:
        """Fluxion is being told: who knows when it will be so."""
        if isinstance(step, Switching):
            self.told.begin([step.number], step.down)
        else:
            self._noted &= step.down

    def end(self, step: Union[Noting, Switching]) -> None:
        """Fluxion was told."""
        if isinstance(step, Switching):
            self.told.end([step.number], step.down)
        else:
            self._noted = step.down

    def looked(self, looking: Looking, taken: AbstractSet[int]) -> None:
        """Of these ``ssd``, jobs have those that are ``taken``."""
        if looking.numbers != self._chosen:
            return  # others are needed now
        good = self._chosen - taken
        if len(good) < self._needed:
            self._add(self._needed - len(good))
        else:
            self._chosen = _first(good, self._needed)
            self._sure = True

    def look_again(self) -> None:
        """Jobs may have given some back."""
        self.short = False

    def _add(self, count: int) -> None:
        more = _first(self._everything - self._chosen, count)
        self._chosen |= more
        self._sure = False
        self.short = not more


def _first(numbers: AbstractSet[int], count: int) -> frozenset[int]:
    return frozenset(sorted(numbers)[:count])
