# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Which Workflow is created next, and which jobs wait for others of their user.

Kubernetes and DWS work for all users, one thing after the other. So a few Workflows are
created at a time, and users take turns. Of one user's jobs the first one submitted
comes first, and the others wait while

- DWS works on ``user_workflows`` of that user's Workflows for which no storage was
  made: in Proposal, or in Teardown; or
- with the next one's, the directives of that user's jobs that have a Workflow would
  exceed ``user_directives_limit``. A job that has no others to wait for goes on.

A job waits in DEPEND. One that has its Workflow never waits here, nor one whose
Workflow was lost after its plan.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Callable, Iterable, Optional

from flux_k8s.config.settings import Settings
from flux_k8s.jobs.step import Next, Step
from flux_k8s.jobs.workflowinfo import WorkflowInfo
from flux_k8s.objects.workflowview import WorkflowView
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
    return not (info.staged or view.complete)


def _size(texts: Iterable[str]) -> int:
    """The bytes (UTF-8) of directives."""
    return sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)
