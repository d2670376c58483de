# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Whose turn it is to have storage made ahead (:mod:`flux_k8s.jobs.staging`).

Jobs are staged one at a time, in the order of urgency, then of submission. A job that
lacks room on Rabbits has as many as it needs kept from those after it, or else small
jobs would keep it waiting for ever, and holds up those of its user. So does one whose
user has enough. Users do not hold up each other by that: of each, one job has Rabbits
kept for it. A job that lacks anything else of its own is passed over until something
has changed. A job that is held, or waits for another dependency, is not staged: it
could not use its storage.

To choose Rabbits takes milliseconds on a large machine, and a guest's change of urgency
would have them chosen again each time. So no job is tried twice within :data:`PAUSE`,
and few of those that were passed over are at once, the same number for each user.
"""

from __future__ import annotations

import contextlib
import math
from bisect import bisect_left, insort
from dataclasses import dataclass, field
from typing import Callable, Iterable, Iterator, NamedTuple, Optional

from flux_k8s.errors import StorageUnavailable
from flux_k8s.formats.jobid import f58
from flux_k8s.jobs.workflowinfo import WorkflowInfo
from flux_k8s.jobs.workflowrequests import FAILURES
from flux_k8s.ports import Flux, Timer
from flux_k8s.reasons import Note, Reason
from flux_k8s.slots import slotted

PAUSE = 1.0
"""Seconds until a job that could not be staged is tried again, and from a change until
such jobs are: changes come many at once."""

SPACING = 0.05
"""Seconds between two jobs of all users together that are tried again without a change.
Thousands may wait for nodes that do not serve."""


class NoRoom(StorageUnavailable):
    """Nothing can be staged now, or jobs without nodes have all that they may have."""


class Full(StorageUnavailable):
    """Other jobs have the room on the Rabbits that a job needs.

    Attributes:
        rabbits: are kept for the job.
    """

    def __init__(self, text: str, rabbits: Iterable[str]) -> None:
        super().__init__(text, Reason.NO_ROOM)
        self.rabbits = frozenset(rabbits)


class UserBound(StorageUnavailable):
    """Other jobs of the user have what one user may have."""


class Turn(NamedTuple):
    """The place of a job in the queue."""

    urgency: int  # negative: what is more urgent comes first
    jobid: int


@slotted
@dataclass
class _User:
    """The jobs of one user that wait.

    Attributes:
        id: the user.
        jobs: how many there are.
        line: those that are to be tried, or hold up the ones after them, in order.
        retried: when one that was passed over was tried again.
    """

    id: Optional[int]
    jobs: int = 0
    line: list[Turn] = field(default_factory=list)
    retried: float = -math.inf


@slotted
@dataclass
class _Waiting:
    """A job that waits.

    Attributes:
        passed: it was passed over, and holds up those of its user (True) or not
            (False); None: it is to be tried.
        kept: the Rabbits that are kept for it.
        tried: when it could not be staged, and why.
    """

    info: WorkflowInfo
    user: _User
    turn: Turn
    passed: Optional[bool] = None
    kept: frozenset[str] = frozenset()
    tried: Optional[tuple[float, Note]] = None


class StagingQueue:
    """The jobs that wait for storage ahead.

    Args:
        ask: has a job handled at once.
    """

    def __init__(self, flux: Flux, ask: Callable[[int], None]) -> None:
        self._flux = flux
        self._ask = ask
        self._jobs: dict[int, _Waiting] = {}
        self._users: dict[Optional[int], _User] = {}
        self._timer: Optional[Timer] = None

    def wake(self) -> None:
        """Storage may have become free: try jobs again that lack it."""
        if self._timer is None:
            self._timer = self._flux.call_later(PAUSE, self._try_again)

    def _try_again(self) -> None:
        self._timer = None
        for job in self._jobs.values():
            if job.passed:
                job.passed = None
        self._go_on()

    def forget(self, info: WorkflowInfo) -> None:
        """The job is over."""
        job = self._jobs.get(info.jobid)
        if job is not None:
            self._leave(job)
        self.wake()

    def update(self, info: WorkflowInfo) -> None:
        """A job may have left the queue, or have another place in it. If another one is
        the first now, have that handled."""
        job = self._jobs.get(info.jobid)
        if job is None or (info.awaits_staging and job.turn == _turn(info)):
            return
        before = self._first()
        if info.awaits_staging:
            self._move(job, job.passed)
        else:
            self._leave(job)
            if job.kept:
                self.wake()
        if self._first() is not before:
            self._go_on()

    def _go_on(self) -> None:
        """Have the first job handled."""
        first = self._first()
        if first is not None:
            self._ask(first.info.jobid)

    @contextlib.contextmanager
    def turn(self, info: WorkflowInfo) -> Iterator[None]:
        """A context in which a job is staged. A failure has it passed over.

        Raises:
            StorageUnavailable: it is not the job's turn.
        """
        self.take_turn(info)
        try:
            yield
        except FAILURES as error:
            self.note_failed(info, error)
            raise

    def take_turn(self, info: WorkflowInfo) -> None:
        """A job is to be staged, which may be in the queue already.

        Raises:
            StorageUnavailable: it is not the job's turn.
        """
        job = self._obtain(info)
        self._check_pause(job)
        before = self._before(job)
        if before is not None:
            text = _reason(before.info, info)
            raise StorageUnavailable(text, Reason.LIMIT_REACHED)
        self._move(job, None)
        job.kept = frozenset()

    def note_failed(self, info: WorkflowInfo, error: Exception) -> None:
        """A job could not be staged: pass over it, unless none can be staged."""
        job = self._obtain(info)
        if isinstance(error, StorageUnavailable):
            job.tried = self._flux.now(), error.note
        if isinstance(error, NoRoom):
            return
        if isinstance(error, Full):
            job.kept = error.rabbits
        self._move(job, isinstance(error, (Full, UserBound)))
        self._go_on()

    def kept_before(self, info: WorkflowInfo) -> frozenset[str]:
        """The Rabbits that are kept for jobs that come before this one."""
        turn = _turn(info)
        kept = (job.kept for job in self._jobs.values() if job.kept and job.turn < turn)
        return frozenset().union(*kept)

    def _obtain(self, info: WorkflowInfo) -> _Waiting:
        """The job in the queue. It may have left the queue while it was tried, since it
        was held."""
        job = self._jobs.get(info.jobid)
        if job is None:
            user = self._users.setdefault(info.userid, _User(info.userid))
            job = self._jobs[info.jobid] = _Waiting(info, user, _turn(info))
            user.jobs += 1
            insort(user.line, job.turn)
        return job

    def _move(self, job: _Waiting, passed: Optional[bool]) -> None:
        """Put a job where it belongs by its urgency, and by whether it was passed."""
        line = job.user.line
        if job.passed is not False:
            del line[bisect_left(line, job.turn)]
        job.turn, job.passed = _turn(job.info), passed
        if passed is not False:
            insort(line, job.turn)

    def _leave(self, job: _Waiting) -> None:
        """The job is not in the queue any more."""
        self._move(job, False)
        del self._jobs[job.info.jobid]
        job.user.jobs -= 1
        if not job.user.jobs:
            del self._users[job.user.id]

    def _first(self) -> Optional[_Waiting]:
        """The first job of those that are to be tried: one of those that no other of
        their user comes before."""
        lines = (user.line for user in self._users.values() if user.line)
        jobs = (self._jobs[line[0].jobid] for line in lines)
        ready = (job for job in jobs if job.passed is None)
        return min(ready, key=lambda job: job.turn, default=None)

    def _before(self, job: _Waiting) -> Optional[_Waiting]:
        """The job that another has to wait for."""
        line = job.user.line
        own = self._jobs[line[0].jobid] if line else None
        for other in (own, self._first()):
            if other is not None and other.turn < job.turn:
                return other
        return None

    def _check_pause(self, job: _Waiting) -> None:
        """Refuse a job that was tried a moment ago, for the same reason."""
        if job.tried is None:
            return
        now, (at, why) = self._flux.now(), job.tried
        if abs(now - at) < PAUSE:
            raise StorageUnavailable(why.text, why.reason)
        if job.passed is not None:
            if abs(now - job.user.retried) < SPACING * len(self._users):
                raise StorageUnavailable(why.text, why.reason)
            job.user.retried = now


def _reason(before: WorkflowInfo, info: WorkflowInfo) -> str:
    """Why a job waits for its turn. It is in the job's eventlog, and must not change
    whenever other users' jobs change places."""
    if before.userid == info.userid:
        return f"{f58(before.jobid)} gets its storage before"
    return "jobs of other users get their storage before"


def _turn(info: WorkflowInfo) -> Turn:
    assert info.request is not None
    return Turn(-info.request.urgency, info.jobid)
