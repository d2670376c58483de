# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Whose turn it is: to have a Workflow created, and to have storage made ahead.

Kubernetes and DWS work for all users, one thing after the other. So a few Workflows are
created at a time, and users take turns (:class:`UserTurns`). Of one user's jobs the
first one submitted comes first, and the others wait while

- DWS works on ``user_workflows`` of that user's Workflows for which no storage was
  made: in Proposal, or in Teardown; or
- with the next one's, the directives of that user's jobs that have a Workflow would
  exceed ``user_directives_limit``. A job that has no others to wait for goes on.

A job waits in DEPEND. One that has its Workflow never waits here, nor one whose
Workflow was lost after its plan.

Jobs are staged (:mod:`flux_k8s.jobs.staging`) one at a time, in the order of urgency,
then of submission (:class:`StagingQueue`). A job that lacks room on Rabbits has as many
as it needs kept from those after it, or else small jobs would keep it waiting for ever,
and holds up those of its user. So does one whose user has enough. Users do not hold up
each other by that: of each, one job has Rabbits kept for it. A job that lacks anything
else of its own is passed over until something has changed. A job that is held, or waits
for another dependency, is not staged: it could not use its storage.

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

from flux_k8s.config.settings import Settings
from flux_k8s.errors import StorageUnavailable
from flux_k8s.formats.jobid import f58
from flux_k8s.jobs.step import Next, Step
from flux_k8s.jobs.workflowinfo import WorkflowInfo
from flux_k8s.jobs.workflowrequests import FAILURES
from flux_k8s.objects.workflowview import WorkflowView
from flux_k8s.ports import Flux, Timer
from flux_k8s.reasons import Note, Reason
from flux_k8s.slots import slotted

LIMITS = Note(
    "this user's other jobs (rabbit.user_workflows, rabbit.user_directives_limit)",
    Reason.LIMIT_REACHED,
)
"""The memo of a job that waits in line. Which limit it is may change all the time."""

CREATES = 8
"""Workflows of all users that are created at a time: twice as many as requests are made
at a time, so that there is always a next one. One whose first try has failed is not
among them, and holds up nobody. Those that get no answer hold up all users: a webhook
of DWS that hangs does so for all."""


@slotted
@dataclass
class _User:
    """The jobs of one user.

    Attributes:
        planning: those that count for ``user_workflows``.
        sizes: the bytes of the directives that count for ``user_directives_limit``: 0
            for a job that waits for its Workflow, or has none.
        size: all of them together.
        line: the jobs that wait for their Workflow, in order, and the bytes of the
            directives of each.
    """

    id: Optional[int]
    planning: set[int] = field(default_factory=set)
    sizes: dict[int, int] = field(default_factory=dict)
    size: int = 0
    line: list[tuple[int, int]] = field(default_factory=list)

    def count(self, jobid: int, size: int) -> None:
        """The bytes of a job's directives count."""
        self.size += size - self.sizes.get(jobid, 0)
        self.sizes[jobid] = size

    def place(self, jobid: int) -> tuple[int, bool]:
        """A job's place in line, and whether it stands there."""
        place = bisect_left(self.line, (jobid, 0))
        return place, place < len(self.line) and self.line[place][0] == jobid

    def leave(self, jobid: int) -> None:
        """A job waits no more."""
        place, waits = self.place(jobid)
        if waits:
            self.count(*self.line.pop(place))


class UserTurns:
    """The jobs that are to have a Workflow, and those that have one, by user.

    Args:
        ask: has a job handled at once.
    """

    def __init__(self, settings: Settings, ask: Callable[[int], None]) -> None:
        self._settings = settings
        self._ask = ask
        self._users: dict[Optional[int], _User] = {}
        self._jobs: dict[int, _User] = {}
        self._ready: dict[Optional[int], None] = {}  # the users whose turn comes
        self._creating: set[int] = set()

    def decide(self, info: WorkflowInfo, step: Next) -> Next:
        """The next step of a job: the one that its storage calls for, or Wait."""
        jobid, user = info.jobid, self._user_of(info)
        creates = step.step is Step.CREATE and not info.planned
        if not creates:
            self._creating.discard(jobid)
            self._count(info, user)
        elif jobid not in user.planning:
            self._join_line(info, user)
        self._refresh(user)
        self._admit(jobid)
        waits = creates and jobid not in user.planning
        return Step.WAIT(LIMITS) if waits else step

    def failed(self, jobid: int) -> None:
        """A step of the job has failed: if that was to create its Workflow, others are
        created meanwhile."""
        self._creating.discard(jobid)

    def forget(self, jobid: int) -> None:
        """The job is over, or left alone."""
        user = self._jobs.pop(jobid, None)
        if user is None:
            return
        self._creating.discard(jobid)
        user.leave(jobid)
        user.planning.discard(jobid)
        user.count(jobid, 0)
        del user.sizes[jobid]
        self._refresh(user)
        if not user.sizes:
            del self._users[user.id]
        self._admit(jobid)

    def _user_of(self, info: WorkflowInfo) -> _User:
        user = self._jobs.get(info.jobid)
        if user is not None and user.id != info.userid:
            self.forget(info.jobid)  # the user was not known before
            user = None
        if user is None:
            user = self._users.setdefault(info.userid, _User(info.userid))
            self._jobs[info.jobid] = user
            user.count(info.jobid, 0)
        return user

    def _join_line(self, info: WorkflowInfo, user: _User) -> None:
        assert info.request is not None
        place, waits = user.place(info.jobid)
        if not waits:
            size = _size(d.text for d in info.request.directives)
            user.count(info.jobid, 0)
            user.line.insert(place, (info.jobid, size))

    def _count(self, info: WorkflowInfo, user: _User) -> None:
        """Take in what a job has, whose Workflow is not to be created."""
        jobid, view = info.jobid, info.view
        user.leave(jobid)
        if _is_planning(info, view):
            user.planning.add(jobid)
        else:
            user.planning.discard(jobid)
        size = 0
        if view is not None:
            size = user.sizes[jobid] or _size(view.directives)
        user.count(jobid, size)

    def _refresh(self, user: _User) -> None:
        """A user's jobs have changed: the turn of that user comes, or does not."""
        if user.line and not self._is_limited(user):
            self._ready.setdefault(user.id)
        else:
            self._ready.pop(user.id, None)

    def _is_limited(self, user: _User) -> bool:
        """Whether the first job in line, and so all of the line, waits for others of
        the user."""
        config = self._settings.config
        most = config.user_directives_limit
        if most and user.size and user.size + user.line[0][1] > most:
            return True
        most = config.user_workflows
        return bool(most) and len(user.planning) >= most

    def _admit(self, current: int) -> None:
        """Have Workflows created, one of each user in turn."""
        while self._ready and len(self._creating) < CREATES:
            user = self._users[next(iter(self._ready))]
            del self._ready[user.id]
            jobid, _ = user.line[0]
            user.leave(jobid)
            user.planning.add(jobid)
            self._creating.add(jobid)
            self._refresh(user)
            if jobid != current:
                self._ask(jobid)


def _is_planning(info: WorkflowInfo, view: Optional[WorkflowView]) -> bool:
    """Whether a job counts for ``user_workflows``. One that has nodes does not: its
    storage was begun with."""
    if view is None:
        return info.doubtful  # it may be there
    return not (info.has_storage or view.complete)


def _size(texts: Iterable[str]) -> int:
    """The bytes (UTF-8) of directives."""
    return sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)


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
class _Waiters:
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
    user: _Waiters
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
        self._users: dict[Optional[int], _Waiters] = {}
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
            user = self._users.setdefault(info.userid, _Waiters(info.userid))
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
