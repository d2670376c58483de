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
from typing import AbstractSet, Generic, Iterable, TypeVar, Union

T = TypeVar("T")


@dataclass(frozen=True)
class RecordDown:
    """Write to the graph which ``ssd`` are down, for the next module."""

    numbers: frozenset[int]


@dataclass(frozen=True)
class SetStatus:
    """Set an ``ssd`` down, or up."""

    number: int
    down: bool


@dataclass(frozen=True)
class CheckAllocated:
    """Find out which of these ``ssd`` jobs have."""

    numbers: frozenset[int]


SsdChange = Union[RecordDown, SetStatus]


@dataclass
class AppliedSet(Generic[T]):
    """A set that Fluxion keeps, known from Fluxion's answers to requests.

    A request without an answer may have been carried out, or may be carried out later:
    its items are ``possible``, and not ``certain``.

    Attributes:
        certain: the items that are in the set.
        possible: the items that may be in the set, the certain ones among them.
    """

    certain: set[T] = field(default_factory=set)
    possible: set[T] = field(default_factory=set)

    def missing(self, desired: AbstractSet[T]) -> set[T]:
        return set(desired) - self.certain

    def surplus(self, desired: AbstractSet[T]) -> set[T]:
        return self.possible - desired

    def begin(self, items: Iterable[T], present: bool) -> None:
        """A request to add, or to remove, these is being sent."""
        if present:
            self.possible.update(items)
        else:
            self.certain.difference_update(items)

    def end(self, items: Iterable[T], present: bool) -> None:
        """Note that the items were added, or removed."""
        if present:
            self.certain.update(items)
        else:
            self.possible.difference_update(items)


class DownSsds:
    """The ``ssd`` of one Rabbit that are down, or are to be, by their numbers.

    Args:
        total: how many ``ssd`` the Rabbit has.
        recorded: the ``ssd`` whose status an earlier module may have set to down.

    Attributes:
        applied: the ``ssd`` that are down in Fluxion.
        short: too few ``ssd`` are left that no job has.
    """

    def __init__(self, total: int, recorded: AbstractSet[int] = frozenset()) -> None:
        self._all = frozenset(range(total))
        self._recorded = self._all.intersection(recorded)
        self._needed = -1
        self._out_of_service = False
        self._chosen = self._recorded
        self._checked = False  # whether no job has any of the chosen ``ssd``
        self._due: list[SetStatus] = []  # those that are to follow, the last one first
        self.applied: AppliedSet[int] = AppliedSet(possible=set(self._recorded))
        self.short = False

    def want(self, needed: int, out_of_service: bool = False) -> None:
        """Have so many ``ssd`` down that no job has.

        Args:
            out_of_service: have all of them down, however few are needed.
        """
        if out_of_service != self._out_of_service:
            self._out_of_service, self._due = out_of_service, []
        needed = min(needed, len(self._all))
        if needed == self._needed:
            return
        self._needed, self._due = needed, []
        self.short = False
        if needed in (0, len(self._all)):
            self._chosen = self._all if needed else frozenset()
            self._checked = True
        elif needed > len(self._chosen):
            self._add(needed - len(self._chosen))
        elif self._checked:
            # While all were needed, Fluxion got no request about the ssd of jobs.
            self._checked = self._chosen != self._all
            self._chosen = _first(self._chosen, needed)

    def next(self) -> Union[SsdChange, CheckAllocated, None]:
        """The next change; None when no change is needed, or possible."""
        if self._due:
            return self._due[-1]
        desired = self._all if self._out_of_service else self._chosen
        if not desired <= self._recorded:  # never record fewer than are down
            return RecordDown(self._recorded | desired)
        missing = self.applied.missing(desired)
        if not (missing or self._checked or self._out_of_service or self.short):
            return CheckAllocated(self._chosen)
        change = missing or self.applied.surplus(desired)
        if change:
            # There may be ten thousands of them.
            order = sorted(change, reverse=True)
            self._due = [SetStatus(number, bool(missing)) for number in order]
            return self._due[-1]
        return None if desired == self._recorded else RecordDown(desired)

    def begin(self, change: SsdChange) -> None:
        """A request is being sent. It may be carried out at any time."""
        if isinstance(change, SetStatus):
            self.applied.begin([change.number], change.down)
        else:
            self._recorded &= change.numbers

    def end(self, change: SsdChange) -> None:
        """Fluxion has carried out a request."""
        if isinstance(change, SetStatus):
            self.applied.end([change.number], change.down)
            if self._due and self._due[-1] == change:
                self._due.pop()
        else:
            self._recorded = change.numbers

    @property
    def withholds(self) -> bool:
        """Whether Fluxion gives no job the ``ssd`` that are needed, or any at all."""
        desired = self._all if self._out_of_service else self._chosen
        decided = self._checked or self.short or self._out_of_service
        return decided and desired <= self.applied.certain

    def is_given_out(self, allocated: AbstractSet[int]) -> bool:
        """Whether fewer ``ssd`` than are needed are down, and not ``allocated``."""
        return len(self.applied.certain - allocated) < self._needed

    def see_allocated(self, check: CheckAllocated, allocated: AbstractSet[int]) -> None:
        """Of the ``ssd`` that were to be checked, jobs have those in ``allocated``."""
        if check.numbers != self._chosen:
            return  # others are needed now
        self._due = []
        free = self._chosen - allocated
        if len(free) < self._needed:
            self._add(self._needed - len(free))
        else:
            self._chosen = _first(free, self._needed)
            self._checked = True

    def check_again(self) -> None:
        """Note that jobs may have given back ``ssd`` of which there were too few."""
        self.short = False

    def _add(self, count: int) -> None:
        more = _first(self._all - self._chosen, count)
        self._chosen |= more
        self._checked = False
        self.short = not more


def _first(numbers: AbstractSet[int], count: int) -> frozenset[int]:
    return frozenset(sorted(numbers)[:count])
