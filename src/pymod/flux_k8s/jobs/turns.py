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
nor within :data:`SPACING` for each job that waits, if it was passed over.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Callable, Iterable, Iterator, Mapping, Optional

from flux_k8s.config.settings import Settings
from flux_k8s.errors import StorageUnavailable
from flux_k8s.formats.jobid import f58
from flux_k8s.jobs.step import Next, Step
from flux_k8s.jobs.workflowinfo import WorkflowInfo
from flux_k8s.jobs.workflowrequests import FAILURES
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


@slotted
@dataclass
class _Waiting:
    """A job that waits.

    Attributes:
        turn: its place: by its urgency, then by its ID.
        passed: it was passed over, and holds up those of its user (True) or not
            (False); None: it is to be tried.
        kept: the Rabbits that are kept for it.
        tried: when it could not be staged, and why.
    """

    info: WorkflowInfo
    turn: tuple[int, int]
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
        self._jobs.pop(info.jobid, None)
        self.wake()

    def update(self, info: WorkflowInfo) -> None:
        """A job may have left the queue, or have another place in it: then another one
        may be the first."""
        job = self._jobs.get(info.jobid)
        if job is None or (info.awaits_staging and job.turn == _turn(info)):
            return
        if info.awaits_staging:
            job.turn = _turn(info)
        else:
            del self._jobs[info.jobid]
            if job.kept:
                self.wake()
        self._go_on()

    def _go_on(self) -> None:
        """Have the first job handled."""
        first = _first(self._heads())
        if first is not None:
            self._ask(first.info.jobid)

    @contextlib.contextmanager
    def turn(self, info: WorkflowInfo) -> Iterator[None]:
        """A context in which a job is staged. After a failure it is passed over, unless
        none can be staged.

        Raises:
            StorageUnavailable: it is not the job's turn.
        """
        job = self._jobs.setdefault(info.jobid, _Waiting(info, _turn(info)))
        self._check_turn(job)
        job.passed, job.kept = None, frozenset()
        try:
            yield
        except FAILURES as error:
            if isinstance(error, StorageUnavailable):
                job.tried = self._flux.now(), error.note
            if not isinstance(error, NoRoom):
                job.passed = isinstance(error, Full)
                job.kept = error.rabbits if isinstance(error, Full) else frozenset()
                self._go_on()
            raise

    def kept_before(self, info: WorkflowInfo) -> frozenset[str]:
        """The Rabbits that are kept for jobs that come before this one."""
        turn = _turn(info)
        kept = (job.kept for job in self._jobs.values() if job.kept and job.turn < turn)
        return frozenset().union(*kept)

    def _heads(self) -> dict[Optional[int], _Waiting]:
        """Of each user, the first job of those that are to be tried, or hold up the
        ones after them."""
        heads: dict[Optional[int], _Waiting] = {}
        for job in self._jobs.values():
            if job.passed is not False:
                head = heads.setdefault(job.info.userid, job)
                if job.turn < head.turn:
                    heads[job.info.userid] = job
        return heads

    def _check_turn(self, job: _Waiting) -> None:
        """Refuse a job that was tried a moment ago, for the same reason, and one that
        has to wait for another."""
        if job.tried is not None:
            at, why = job.tried
            pause = PAUSE if job.passed is None else SPACING * len(self._jobs)
            if self._flux.now() - at < max(PAUSE, pause):
                raise StorageUnavailable(why.text, why.reason)
        heads = self._heads()
        for other in (heads.get(job.info.userid), _first(heads)):
            if other is not None and other.turn < job.turn:
                text = _reason(other.info, job.info)
                raise StorageUnavailable(text, Reason.LIMIT_REACHED)


def _first(heads: Mapping[Optional[int], _Waiting]) -> Optional[_Waiting]:
    """The first job that is to be tried."""
    ready = (job for job in heads.values() if job.passed is None)
    return min(ready, key=lambda job: job.turn, default=None)


def _reason(before: WorkflowInfo, info: WorkflowInfo) -> str:
    """Why a job waits for its turn. It is in the job's eventlog, and must not change
    whenever other users' jobs change places."""
    if before.userid == info.userid:
        return f"{f58(before.jobid)} gets its storage before"
    return "jobs of other users get their storage before"


def _turn(info: WorkflowInfo) -> tuple[int, int]:
    assert info.request is not None
    return -info.request.urgency, info.jobid
