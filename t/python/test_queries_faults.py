# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Queries of many users while random jobs have random trouble (doc/torture.md): each is
answered, none is left in the service, and no job notices."""

from __future__ import annotations

import errno
from functools import partial
from typing import Any, Optional

import pytest

from flux_k8s.jobs.heldqueries import HOLD_TIME
from flux_k8s.ports import Json
from rabbitsim.flux.events import Event, JobState
from rabbitsim.flux.job import Job
from rabbitsim.torture import run as torture
from rabbitsim.torture.plan import make_plan
from rabbitsim.torture.world import World
from support.effort import SOAKING, seeds
from support.queries import GUEST, query

SLACK = 5.0
"""Seconds that an answer may take, besides the time for which a query is held."""

PAUSE = 0.5
ROUND = 7.0
"""Seconds before a follower asks again that was refused, and between two of the other
commands."""

AWAY = {errno.ENOSYS, errno.EHOSTUNREACH}
REFUSED = {errno.EAGAIN, errno.ENOENT, errno.EPERM, *AWAY}

OTHERS: tuple[tuple[str, Json], ...] = (
    ("job-list", {"max": 3}),
    ("rabbit-list", {}),
    ("rules", {}),
    ("metrics", {}),
)


class Users:
    """Users, who follow each job, and run the other commands from time to time."""

    def __init__(self, world: World) -> None:
        self.wrong: list[str] = []
        self.answers = 0
        self._world = world
        self._awaited: dict[int, tuple[float, str]] = {}
        self._number = 0
        self._over = False
        world.system.instance.manager.listeners.append(self._seen)
        self._round()

    def stop(self) -> None:
        """Ask no more."""
        self._over = True

    @property
    def awaited(self) -> list[str]:
        """The queries that have no answer."""
        return [text for _, text in self._awaited.values()]

    def _seen(self, job: Job, event: Event, before: JobState) -> None:
        if event.name == "submit":
            owner = self._world.system.instance.broker.owner
            for userid in (owner, owner, job.userid, GUEST):
                self._follow(job.id, userid, None)

    def _ask(self, method: str, payload: Json, userid: int, done: Any) -> None:
        self._number += 1
        number, loop = self._number, self._world.system.loop
        self._awaited[number] = loop.now(), f"{method} {payload} of {userid}"

        def answered(errnum: int, text: str, answer: Optional[Json]) -> None:
            since, what = self._awaited.pop(number)
            self.answers += 1
            if loop.now() > since + HOLD_TIME + SLACK:
                self.wrong.append(f"{what}: after {loop.now() - since:g} s")
            if errnum and (errnum not in REFUSED or "internal" in text):
                self.wrong.append(f"{what}: {errno.errorcode[errnum]}: {text}")
            done(errnum, answer)

        topic = f"dws.{method}"
        self._world.system.instance.request(topic, payload, answered, userid)

    def _follow(self, jobid: int, userid: int, seen: Optional[int]) -> None:
        """What ``flux dws wait`` does."""
        instance = self._world.system.instance

        def done(errnum: int, answer: Optional[Json]) -> None:
            job = instance.manager.jobs.get(jobid)  # None for one that was refused
            if errnum == errno.EPERM or job is None or not job.active:
                return
            if errnum:
                again = partial(self._follow, jobid, userid, None)
                self._world.system.loop.call_later(PAUSE, again)
                return
            assert answer is not None
            if answer["userid"] != userid != instance.broker.owner:
                self.wrong.append(f"{jobid} is shown to {userid}")
            self._follow(jobid, userid, answer["serial"])

        payload = {"id": jobid} if seen is None else {"id": jobid, "seen": seen}
        self._ask("job-show", payload, userid, done)

    def _list(self, after: int, userid: int) -> None:
        """What ``flux dws list`` does."""

        def done(errnum: int, answer: Optional[Json]) -> None:
            if not errnum and answer is not None and answer["next"] is not None:
                if answer["next"] <= after:
                    self.wrong.append(f"job-list goes from {after} back")
                self._list(answer["next"], userid)

        self._ask("job-list", {"after": after, "max": 2}, userid, done)

    def _round(self) -> None:
        if self._over:
            return
        owner = self._world.system.instance.broker.owner
        for userid in (owner, GUEST):
            self._list(0, userid)
            for method, payload in OTHERS:
                self._ask(method, payload, userid, lambda *answer: None)
        self._world.system.loop.call_later(ROUND, self._round)


@pytest.mark.parametrize("seed", seeds(1, 60))
def test_queries_are_answered_in_all_trouble_and_leave_nothing(seed: int) -> None:
    plan = make_plan(seed, 25 if SOAKING else 10, None)
    trace: list[tuple[float, str]] = []
    world = World(plan, lambda line: trace.append((0.0, line)))
    users = Users(world)
    outcome = torture.Run(
        world, trace, lambda line: trace.append((world.now, line))
    ).run()
    assert outcome.breach is None
    users.stop()
    world.system.loop.run(timeout=2 * HOLD_TIME + SLACK)
    assert users.wrong == [] and users.awaited == []
    assert users.answers > 10 * len(plan.jobs)
    assert query(world.system, "metrics")["queries"]["held"] == 0
