# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Queries that are answered when their job has changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Optional

from flux_k8s.control.controller import Controller, Options
from flux_k8s.control.coroutines import Answer, Call
from flux_k8s.ports import Clock, Json, Sender, Timer

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
    """A query that waits.

    Attributes:
        seen: the serial that the sender has seen.
        answer: sends the details of the job, with their serial, or an error.
        overdue: it has waited long enough.
    """

    jobid: int
    sender: Sender
    seen: int
    answer: Answer
    timer: Optional[Timer] = None
    overdue: bool = False


class HeldQueries:
    """The queries that wait.

    Args:
        details: the call that makes the details of a job, with their serial.
    """

    def __init__(self, clock: Clock, details: Callable[[int], Call[Json]]) -> None:
        self._clock = clock
        self._details = details
        self._held: dict[int, list[HeldQuery]] = {}
        self._count = 0
        self._of_user: dict[int, int] = {}
        self._controller = Controller[int](
            clock, self._reconcile, options=Options[int](debounce=SETTLE)
        )

    def __len__(self) -> int:
        return self._count

    def refuse(self, sender: Sender) -> Optional[str]:
        """The reason not to hold another query of a sender; None if there is none."""
        mine = self._of_user.get(sender.userid, 0)
        if mine >= HELD_PER_USER:
            return f"{mine} of your queries wait for a change already: ask again later"
        if self._count >= HELD and not sender.owner:
            return f"{self._count} queries wait for a change already: ask again later"
        return None

    def hold(self, jobid: int, sender: Sender, seen: int, answer: Answer) -> None:
        """Hold a query."""
        query = HeldQuery(jobid, sender, seen, answer)
        self._held.setdefault(jobid, []).append(query)
        self._count += 1
        self._of_user[sender.userid] = self._of_user.get(sender.userid, 0) + 1

        def time_out() -> None:
            query.overdue = True
            self._controller.add(jobid, 0.0)

        query.timer = self._clock.call_later(HOLD_TIME, time_out)

    def changed(self, jobid: int) -> None:
        """A job may have changed."""
        if jobid in self._held:
            self._controller.add(jobid)

    def _answer(self, jobid: int, details: Json) -> None:
        """Answer the queries whose senders have seen only older details of the job, and
        those that are overdue."""
        for query in tuple(self._held.get(jobid, ())):
            if query.overdue or details["serial"] > query.seen:
                self._remove(query)
                query.answer(details)

    def fail(self, jobid: int, error: Exception) -> None:
        """Answer all queries about a job with an error."""
        for query in tuple(self._held.get(jobid, ())):
            self._remove(query)
            query.answer(error)

    def disconnect(self, sender: Sender) -> None:
        """Drop the queries of a sender that has gone."""
        for queries in tuple(self._held.values()):
            for query in tuple(queries):
                if query.sender == sender:
                    self._remove(query)

    def stop(self) -> None:
        """Drop all queries."""
        for query in [query for held in self._held.values() for query in held]:
            self._remove(query)
        self._controller.stop()

    async def _reconcile(self, jobid: int) -> None:
        if jobid not in self._held:
            return
        try:
            details = await self._details(jobid)
        except Exception as error:
            self.fail(jobid, error)
        else:
            self._answer(jobid, details)

    def _remove(self, query: HeldQuery) -> None:
        queries = self._held[query.jobid]
        queries.remove(query)
        if not queries:
            del self._held[query.jobid]
        self._count -= 1
        self._of_user[query.sender.userid] -= 1
        if not self._of_user[query.sender.userid]:
            del self._of_user[query.sender.userid]
        if query.timer is not None:
            query.timer.cancel()
