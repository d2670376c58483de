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
else of its own is passed over until it is tried again. A job that is held, or waits for
another dependency, is not staged: it could not use its storage. One that waits for its
turn is handled when that comes.

To choose Rabbits takes milliseconds on a large machine, and a guest's change of urgency
would have them chosen again each time. So no job is tried twice within :data:`PAUSE`,
nor within :data:`SPACING` for each job that waits, if it was passed over.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from typing import Callable, Iterable, Optional

from flux_k8s.config.settings import Settings
from flux_k8s.errors import StorageUnavailable
from flux_k8s.jobs.step import Next, Step
from flux_k8s.jobs.workflowinfo import WorkflowInfo
from flux_k8s.jobs.workflowrequests import StepError
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
        sizes: those that count for ``user_directives_limit``, with the bytes of their
            directives.
        size: all of these together.
        line: those that wait for their Workflow, with the bytes of their directives.
    """

    planning: set[int] = field(default_factory=set)
    sizes: dict[int, int] = field(default_factory=dict)
    size: int = 0
    line: dict[int, int] = field(default_factory=dict)

    def count(self, jobid: int, planning: bool, size: int) -> None:
        """Take in what a job has, which does not wait any more."""
        self.line.pop(jobid, None)
        self.size += size - self.sizes.pop(jobid, 0)
        if size:
            self.sizes[jobid] = size
        if planning:
            self.planning.add(jobid)
        else:
            self.planning.discard(jobid)


class UserTurns:
    """The jobs that are to have a Workflow, and those that have one, by user.

    Args:
        ask: has a job handled at once.
    """

    def __init__(self, settings: Settings, ask: Callable[[int], None]) -> None:
        self._settings = settings
        self._ask = ask
        self._users: dict[int, _User] = {}
        self._lines: dict[int, None] = {}  # the users whose jobs wait, in turn
        self._creating: set[int] = set()

    def decide(self, info: WorkflowInfo, step: Next) -> Next:
        """The next step of a job: the one that its storage calls for, or Wait."""
        jobid, userid = info.jobid, info.userid
        if userid is None:
            return step
        user = self._users.setdefault(userid, _User())
        if step.step is not Step.CREATE or info.planned:
            self._creating.discard(jobid)
            size = 0
            if info.view is not None:
                size = user.sizes.get(jobid) or _size(info.view.directives)
            user.count(jobid, _is_planning(info), size)
        elif jobid not in user.planning:
            assert info.request is not None
            user.line[jobid] = _size(each.text for each in info.request.directives)
            self._lines.setdefault(userid)
        self._admit(jobid)
        return Step.WAIT(LIMITS) if jobid in user.line else step

    def failed(self, jobid: int) -> None:
        """A step of the job has failed: if that was to create its Workflow, others are
        created meanwhile."""
        self._creating.discard(jobid)

    def forget(self, jobid: int) -> None:
        """The job is over, or left alone."""
        self._creating.discard(jobid)
        for userid, user in tuple(self._users.items()):
            user.count(jobid, False, 0)
            if not (user.line or user.planning or user.sizes):
                del self._users[userid]
                self._lines.pop(userid, None)
        self._admit(jobid)

    def _admit(self, current: int) -> None:
        """Have Workflows created, one of each user in turn."""
        for userid in tuple(self._lines):
            user = self._users[userid]
            if user.line and (len(self._creating) >= CREATES or self._is_limited(user)):
                continue
            del self._lines[userid]
            if not user.line:
                continue
            jobid = min(user.line)
            user.count(jobid, True, user.line[jobid])
            self._creating.add(jobid)
            self._lines[userid] = None
            if jobid != current:
                self._ask(jobid)

    def _is_limited(self, user: _User) -> bool:
        """Whether the first job in line, and so all of the line, waits for others of
        the user."""
        config = self._settings.config
        if config.user_workflows and len(user.planning) >= config.user_workflows:
            return True
        most = config.user_directives_limit
        return bool(most and user.size) and user.size + user.line[min(user.line)] > most


def _is_planning(info: WorkflowInfo) -> bool:
    """Whether a job counts for ``user_workflows``. One that has nodes does not: its
    storage was begun with."""
    if info.view is None:
        return info.doubtful  # it may be there
    return not (info.has_storage or info.view.complete)


def _size(texts: Iterable[str]) -> int:
    """The bytes (UTF-8) of directives."""
    return sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)


PAUSE = 1.0
"""Seconds until a job that could not be staged is tried again, and from a change until
such jobs are: changes come many at once."""

SPACING = 0.05
"""Seconds for each job that waits, until one that was passed over is tried again.
Thousands may wait for nodes that do not serve."""

LONGEST = 60.0
"""Seconds until a job that lacks room is tried again although none has become free, as
far as is known."""

BEFORE = Note("other jobs get their storage before", Reason.LIMIT_REACHED)
"""The memo of a job that waits for its turn. Which jobs these are may change all the
time."""


class NoRoom(StorageUnavailable):
    """Nothing can be staged now, or jobs without nodes have all that they may have."""


class Full(StorageUnavailable):
    """Other jobs have the room on the Rabbits that a job needs, or other jobs of its
    user what one user may have.

    Attributes:
        rabbits: are kept for the job.
    """

    def __init__(self, text: str, reason: Reason, rabbits: Iterable[str] = ()) -> None:
        super().__init__(text, reason)
        self.rabbits = frozenset(rabbits)


Turn = tuple[int, int]
"""The place of a job: by its urgency, then by its ID."""


@slotted
@dataclass
class _Waiting:
    """A job that waits.

    Attributes:
        userid: the job's user.
        turn: its place.
        passed: it was passed over, and holds up those of its user (True) or not
            (False); None: it is to be tried.
        kept: the Rabbits that are kept for it.
        tried: when it could not be staged, and why; None if nothing is known that it
            lacks.
    """

    userid: Optional[int]
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
        # Of each user, in order, the places of the jobs that are to be tried, or hold
        # up the ones after them. Thousands may: no look at one searches through them.
        self._lines: dict[Optional[int], list[Turn]] = {}
        self._timer: Optional[Timer] = None

    def decide(self, info: WorkflowInfo, step: Next) -> Next:
        """The next step of a job: the one that its storage calls for, or Wait."""
        self.update(info)
        if step.step is not Step.STAGE:
            return step
        job = self._jobs.get(info.jobid)
        if job is None:
            job = self._jobs[info.jobid] = _Waiting(info.userid, _turn(info))
            self._line_up(job)
        if job.tried is not None:
            (at, why), pause = job.tried, PAUSE
            if job.passed is not None:
                pause = LONGEST if job.passed else PAUSE
                pause = max(pause, SPACING * len(self._jobs))
            if self._flux.now() < at + pause:
                return Step.WAIT(why, until=at + pause)
        if job.passed is False:
            self._line_up(job)
        job.passed, job.kept = None, frozenset()
        if self._is_first(job):
            return step
        return Step.WAIT(BEFORE if job.tried is None else job.tried[1])

    def failed(self, info: WorkflowInfo, error: StepError) -> None:
        """A step of a job has failed. One that waits is passed over, unless none can be
        staged."""
        job = self._jobs.get(info.jobid)
        if job is None:
            return
        job.tried = None
        if isinstance(error, StorageUnavailable):
            job.tried = self._flux.now(), error.note
        if isinstance(error, NoRoom):
            return
        if isinstance(error, Full):
            job.passed, job.kept = True, error.rabbits
        else:
            self._leave_line(job)
            job.passed, job.kept = False, frozenset()
        self._go_on()

    def update(self, info: WorkflowInfo) -> None:
        """A job may have left the queue, or have another place in it: then another one
        may be the first."""
        job = self._jobs.get(info.jobid)
        if job is None:
            return
        if not info.awaits_staging:
            self._remove(info.jobid)
        elif job.turn != _turn(info):
            self._leave_line(job)
            job.turn = _turn(info)
            if job.passed is not False:
                self._line_up(job)
            self._go_on()

    def forget(self, jobid: int) -> None:
        """The job is over, or left alone."""
        self._remove(jobid)
        self.wake()

    def wake(self) -> None:
        """Storage may have become free: try jobs again that lack it."""
        if self._timer is None:
            self._timer = self._flux.call_later(PAUSE, self._woken)

    def kept_before(self, info: WorkflowInfo) -> frozenset[str]:
        """The Rabbits that are kept for jobs that come before this one."""
        turn = _turn(info)
        kept = (job.kept for job in self._jobs.values() if job.kept and job.turn < turn)
        return frozenset().union(*kept)

    def _woken(self) -> None:
        self._timer = None
        self._try_again()

    def _try_again(self) -> None:
        for job in self._jobs.values():
            if job.passed:
                job.passed = None
        self._go_on()

    def _remove(self, jobid: int) -> None:
        job = self._jobs.pop(jobid, None)
        if job is None:
            return
        self._leave_line(job)
        if job.tried is None:
            self._go_on()
        else:  # Rabbits may have been kept for it
            self._try_again()

    def _line_up(self, job: _Waiting) -> None:
        insort(self._lines.setdefault(job.userid, []), job.turn)

    def _leave_line(self, job: _Waiting) -> None:
        if job.passed is False:
            return
        line = self._lines[job.userid]
        del line[bisect_left(line, job.turn)]
        if not line:
            del self._lines[job.userid]

    def _is_first(self, job: _Waiting) -> bool:
        """Whether it is the turn of a job that is to be tried."""
        return self._lines[job.userid][0] == job.turn == self._first()

    def _first(self) -> Optional[Turn]:
        """The place of the first job that is to be tried, and that no other one of its
        user holds up."""
        heads = (line[0] for line in self._lines.values())
        ready = (head for head in heads if self._jobs[head[1]].passed is None)
        return min(ready, default=None)

    def _go_on(self) -> None:
        """Have the first job handled."""
        first = self._first()
        if first is not None:
            self._ask(first[1])


def _turn(info: WorkflowInfo) -> Turn:
    assert info.request is not None
    return -info.request.urgency, info.jobid
