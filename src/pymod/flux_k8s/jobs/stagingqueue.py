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
and few of those of one user that were passed over are at once.
"""

from __future__ import annotations

from typing import Callable, Iterable, Optional

from flux_k8s.errors import StorageUnavailable
from flux_k8s.jobs.workflowinfo import WorkflowInfo
from flux_k8s.ports import Flux, Timer
from flux_k8s.rfc.jobid import f58

PAUSE = 1.0
"""Seconds until a job that could not be staged is tried again, and from a change until
such jobs are: changes come many at once."""

SPACING = 0.05
"""Seconds between two jobs of one user that are tried again without a change. Thousands
may wait for nodes that do not serve."""


class NoRoom(StorageUnavailable):
    """Nothing can be staged now, or jobs without nodes have all that they may have."""


class Full(StorageUnavailable):
    """Other jobs have the room on the Rabbits that a job needs.

    Attributes:
        rabbits: are kept for the job.
    """

    def __init__(self, text: str, rabbits: Iterable[str]) -> None:
        super().__init__(text)
        self.rabbits = frozenset(rabbits)


class UserBound(StorageUnavailable):
    """Other jobs of the user have what one user may have."""


class StagingQueue:
    """The jobs that wait for storage ahead.

    Args:
        ask: has a job handled at once.
    """

    def __init__(self, flux: Flux, ask: Callable[[int], None]) -> None:
        self._flux = flux
        self._ask = ask
        self._waiting: dict[int, WorkflowInfo] = {}
        self._passed: dict[int, bool] = {}  # whether it holds up those of its user
        self._first: Optional[WorkflowInfo] = None  # if known
        self._first_of: dict[Optional[int], WorkflowInfo] = {}  # of users held up
        self._kept: dict[int, frozenset[str]] = {}
        self._tried: dict[int, tuple[float, str]] = {}
        self._retried: dict[Optional[int], float] = {}  # by user
        self._timer: Optional[Timer] = None

    def wake(self) -> None:
        """Storage may have become free: try jobs again that lack it."""
        if self._timer is None:
            self._timer = self._flux.call_later(PAUSE, self._try_again)

    def _try_again(self) -> None:
        self._timer = None
        self._passed = {jobid: False for jobid, up in self._passed.items() if not up}
        self.go_on()

    def forget(self, info: WorkflowInfo) -> None:
        """The job is over."""
        self._leave(info)
        self.wake()

    def go_on(self) -> None:
        """A job may have left the queue: have the first one handled."""
        self._first = None
        first = self._find_first()
        if first is not None:
            self._ask(first.jobid)

    def take_turn(self, info: WorkflowInfo) -> None:
        """A job is to be staged, which may be in the queue already.

        Raises:
            StorageUnavailable: it is not the job's turn.
        """
        self._waiting[info.jobid] = info
        self._check_pause(info)
        before = self._before(info)
        if before is not None:
            raise StorageUnavailable(_reason(before, info))
        self._passed.pop(info.jobid, None)
        self._kept.pop(info.jobid, None)

    def note_failed(self, info: WorkflowInfo, error: Exception) -> None:
        """A job could not be staged: pass over it, unless none can be staged. It may
        have left the queue meanwhile, since it is held, and does so again."""
        self._waiting[info.jobid] = info
        if isinstance(error, StorageUnavailable):
            self._tried[info.jobid] = self._flux.now(), str(error)
        if isinstance(error, NoRoom):
            return
        if isinstance(error, Full):
            self._kept[info.jobid] = error.rabbits
        self._passed[info.jobid] = isinstance(error, (Full, UserBound))
        self.go_on()

    def kept_before(self, job: WorkflowInfo) -> frozenset[str]:
        """The Rabbits that are kept for jobs that come before ``job``."""
        found: set[str] = set()
        for jobid, rabbits in self._kept.items():
            info = self._waiting[jobid]
            if info.awaits_staging and _turn(info) < _turn(job):
                found |= rabbits
        return frozenset(found)

    def _leave(self, info: WorkflowInfo) -> None:
        """The job is not in the queue any more."""
        for table in (self._waiting, self._passed, self._kept, self._tried):
            table.pop(info.jobid, None)

    def _find_first(self, job: Optional[WorkflowInfo] = None) -> Optional[WorkflowInfo]:
        """The first job of the queue; for ``job``, that which it has to wait for, or
        itself."""
        for info in tuple(self._waiting.values()):
            if not info.awaits_staging:
                self._leave(info)
        self._first_of.clear()
        for info in sorted(self._waiting.values(), key=_turn):
            if info is job:
                return self._first_of.get(info.userid, info)
            if self._passed.get(info.jobid):
                self._first_of.setdefault(info.userid, info)
            elif info.jobid not in self._passed and info.userid not in self._first_of:
                self._first = info
                return info
        return job

    def _before(self, job: WorkflowInfo) -> Optional[WorkflowInfo]:
        """The job that another has to wait for. Of thousands, each asks for it."""
        held_up = self._first_of.get(job.userid)
        for info, up in ((self._first, None), (held_up, True)):
            if info is None or info is job or not info.awaits_staging:
                continue
            if self._passed.get(info.jobid) is up and _turn(info) < _turn(job):
                return info
        first = self._find_first(job)
        return None if first is job else first

    def _check_pause(self, info: WorkflowInfo) -> None:
        """Refuse a job that was tried a moment ago, for the same reason."""
        if info.jobid not in self._tried:
            return
        now, (at, reason) = self._flux.now(), self._tried[info.jobid]
        if abs(now - at) < PAUSE:
            raise StorageUnavailable(reason)
        if info.jobid in self._passed:
            if abs(now - self._retried.get(info.userid, 0.0)) < SPACING:
                raise StorageUnavailable(reason)
            self._retried[info.userid] = now


def _reason(before: WorkflowInfo, info: WorkflowInfo) -> str:
    """Why a job waits for its turn. It is in the job's eventlog, and must not change
    whenever other users' jobs change places."""
    if before.userid == info.userid:
        return f"{f58(before.jobid)} gets its storage before"
    return "jobs of other users get their storage before"


def _turn(info: WorkflowInfo) -> tuple[int, int]:
    """The place of a job in the queue."""
    assert info.request is not None
    return -info.request.urgency, info.jobid
