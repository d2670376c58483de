# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Queries about a job that wait until it has changed."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import Callable, Optional

from flux_k8s.control.controller import Controller, Options
from flux_k8s.control.coroutines import Answer
from flux_k8s.errors import QueryError
from flux_k8s.ports import Clock, Json, Sender

HOLD_TIME = 30.0
"""Seconds after which a query is answered without a change."""

HELD_PER_USER = 16
HELD = 256
"""The most queries that are held, for one user and for all. What guests hold keeps the
instance owner from nothing."""

SETTLE = 0.1
"""Seconds from a change of a job until its details are made for the held queries:
changes come many at once."""


@dataclass(eq=False)
class HeldQuery:
    """A query that waits for a change of a job.

    Attributes:
        jobid: the job.
        seen: the serial that the sender has seen.
        answer: takes the details of the job, or an error.
        due: when it is answered without a change (UNIX time).
    """

    jobid: int
    sender: Sender
    seen: int
    answer: Answer
    due: float


class HeldQueries:
    """The queries that wait.

    Args:
        details: makes the details of a job, with their serial.
    """

    def __init__(self, clock: Clock, details: Callable[[int], Json]) -> None:
        self._clock = clock
        self._details = details
        self._held: list[HeldQuery] = []
        self._controller = Controller[int](
            clock, self._reconcile, options=Options[int](debounce=SETTLE)
        )

    def __len__(self) -> int:
        return len(self._held)

    def check_room(self, sender: Sender) -> None:
        """Check that another query of a sender may be held.

        Raises:
            QueryError: it may not.
        """
        mine = sum(query.sender.userid == sender.userid for query in self._held)
        if mine >= HELD_PER_USER:
            problem = f"{mine} of your queries wait"
        elif len(self) >= HELD and not sender.owner:
            problem = f"{len(self)} queries wait"
        else:
            return
        text = f"{problem} for a change already: ask again later"
        raise QueryError(errno.EAGAIN, text)

    def hold(self, jobid: int, sender: Sender, seen: int, answer: Answer) -> None:
        """Hold a query."""
        due = self._clock.now() + HOLD_TIME
        self._held.append(HeldQuery(jobid, sender, seen, answer, due))
        self._controller.add(jobid, HOLD_TIME)

    def changed(self, jobid: int) -> None:
        """A job may have changed."""
        if self._awaits(jobid):
            self._controller.add(jobid)

    def fail(self, jobid: int, error: Exception) -> None:
        """Answer all queries about a job with an error."""
        for query in self._release(lambda query: query.jobid == jobid):
            query.answer(error)

    def disconnect(self, sender: Sender) -> None:
        """Drop the queries of a sender that has gone."""
        self._release(lambda query: query.sender == sender)

    def stop(self) -> None:
        """Drop all queries."""
        self._release(lambda query: True)
        self._controller.stop()

    async def _reconcile(self, jobid: int) -> Optional[float]:
        """Answer the queries whose senders have seen only older details of a job, or
        wait long enough. Return the seconds until the next one has."""
        if not self._awaits(jobid):
            return None
        try:
            details = self._details(jobid)
        except Exception as error:
            self.fail(jobid, error)
            return None
        serial, now = details["serial"], self._clock.now()

        def is_answered(query: HeldQuery) -> bool:
            return query.jobid == jobid and (query.seen < serial or query.due <= now)

        for query in self._release(is_answered):
            query.answer(details)
        dues = (query.due for query in self._held if query.jobid == jobid)
        return min(dues, default=now) - now or None

    def _awaits(self, jobid: int) -> bool:
        """Whether queries wait for a change of a job."""
        return any(query.jobid == jobid for query in self._held)

    def _release(self, which: Callable[[HeldQuery], bool]) -> list[HeldQuery]:
        """Hold some queries no longer. Return them."""
        released = [query for query in self._held if which(query)]
        self._held = [query for query in self._held if query not in released]
        return released
