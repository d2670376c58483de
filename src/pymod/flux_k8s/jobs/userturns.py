# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Which Workflow is created next, and which jobs wait for others of their user.

Kubernetes and DWS work for all users, one thing after the other. So a few Workflows are
created at a time, and users take turns. Of one user's jobs the first one submitted
comes first, and the others wait while

- ``user_workflows`` of that user's Workflows are work for DWS without which nobody has
  nodes: in Proposal, and Flux has no answer yet, or in the Teardown of a job that never
  had nodes; or
- the directives of that user's jobs that have a Workflow reach
  ``user_directives_limit``. A job that has no others to wait for goes on.

A job waits in DEPEND. One that has its Workflow never waits here, nor one whose
Workflow was lost after its plan.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Callable, Iterable, Optional

from flux_k8s.config.settings import Settings
from flux_k8s.dws.workflowstate import State
from flux_k8s.dws.workflowview import WorkflowView
from flux_k8s.jobs.step import Create, Step, Wait
from flux_k8s.jobs.workflowinfo import Goal, WorkflowInfo
from flux_k8s.slots import slotted

CREATES = 8
"""Workflows of all users that are created at a time: twice as many as requests are made
at a time, so that there is always a next one. One whose first try has failed is not
among them, and holds up nobody."""


@slotted
@dataclass
class _User:
    """The jobs of one user.

    Attributes:
        planning: those that count for ``user_workflows``.
        sizes: the bytes of the directives of those that are to have a Workflow, or have
            one.
        size: those of the jobs that are not in ``line``, together.
        line: the jobs that wait for their Workflow, in order.
        line_size: the bytes of their directives.
        unlimited: those of them that waited for their turn only when their step was
            decided last.
    """

    id: Optional[int]
    planning: set[int] = field(default_factory=set)
    sizes: dict[int, int] = field(default_factory=dict)
    size: int = 0
    line: list[int] = field(default_factory=list)
    line_size: int = 0
    unlimited: set[int] = field(default_factory=set)


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
        self._creating: dict[int, bool] = {}  # and whether that has begun

    def decide(self, info: WorkflowInfo, step: Step) -> Step:
        """The next step of a job: the one that its storage calls for, or Wait. Then
        ``info.user_limit`` says for what, if that is not just its turn."""
        user = self._user_of(info)
        if isinstance(step, Create) and not info.planned:
            if not self._may_create(info, user):
                return Wait()
        else:
            self._creating.pop(info.jobid, None)
            self._count(info, user)
        info.user_limit = ""
        self._go_on(user, info.jobid)
        return step

    def forget(self, jobid: int) -> None:
        """The job is over, or left alone."""
        user = self._jobs.pop(jobid, None)
        if user is None:
            return
        self._creating.pop(jobid, None)
        self._leave_line(user, jobid)
        user.planning.discard(jobid)
        user.size -= user.sizes.pop(jobid, 0)
        if not user.sizes:
            del self._users[user.id]
            self._ready.pop(user.id, None)
        else:
            self._refresh(user)
        self._admit(jobid)

    def _user_of(self, info: WorkflowInfo) -> _User:
        user = self._jobs.get(info.jobid)
        if user is not None and user.id != info.userid:
            self.forget(info.jobid)  # the user was not known before
            user = None
        if user is None:
            user = self._users.setdefault(info.userid, _User(info.userid))
            self._jobs[info.jobid] = user
            user.sizes[info.jobid] = 0
        return user

    def _may_create(self, info: WorkflowInfo, user: _User) -> bool:
        """Whether a job's Workflow is to be created now."""
        jobid = info.jobid
        if jobid not in user.planning:
            self._join_line(info, user)
            self._go_on(user, jobid)
        if jobid not in user.planning:
            info.user_limit = self._limit(user, jobid)
            if not info.user_limit:
                user.unlimited.add(jobid)
            return False
        if self._creating.get(jobid):
            del self._creating[jobid]  # the first try has failed
        elif jobid in self._creating:
            self._creating[jobid] = True
        return True

    def _join_line(self, info: WorkflowInfo, user: _User) -> None:
        assert info.request is not None
        jobid = info.jobid
        place = bisect_left(user.line, jobid)
        if user.line[place : place + 1] != [jobid]:
            user.size -= user.sizes[jobid]
            size = _size(d.text for d in info.request.directives)
            user.sizes[jobid] = size
            user.line_size += size
            user.line.insert(place, jobid)

    def _leave_line(self, user: _User, jobid: int) -> None:
        """The job waits no more: its directives count."""
        place = bisect_left(user.line, jobid)
        if user.line[place : place + 1] == [jobid]:
            del user.line[place]
            user.unlimited.discard(jobid)
            user.line_size -= user.sizes[jobid]
            user.size += user.sizes[jobid]

    def _count(self, info: WorkflowInfo, user: _User) -> None:
        """Take in what a job has, whose Workflow is not to be created."""
        jobid, view = info.jobid, info.view
        self._leave_line(user, jobid)
        if _is_planning(info, view):
            user.planning.add(jobid)
        else:
            user.planning.discard(jobid)
        known = user.sizes[jobid]
        size = 0
        if view is not None:
            size = known or _size(view.directives)
        user.sizes[jobid] = size
        user.size += size - known

    def _go_on(self, user: _User, current: int) -> None:
        self._refresh(user)
        self._admit(current)

    def _refresh(self, user: _User) -> None:
        """A user's jobs have changed: the turn of that user comes, or does not."""
        limited = bool(user.line) and bool(self._limit(user, user.line[0]))
        if user.line and not limited:
            self._ready.setdefault(user.id)
            return
        self._ready.pop(user.id, None)
        unlimited, user.unlimited = user.unlimited, set()
        for jobid in unlimited:
            self._ask(jobid)

    def _limit(self, user: _User, jobid: int) -> str:
        """For which others of the user a job in line has to wait, or ""."""
        config = self._settings.config
        before = bisect_left(user.line, jobid)
        most = config.user_workflows
        if most and len(user.planning) + before >= most:
            return (
                f"this user's other jobs: at most {most} have storage planned, or given"
                " back, at a time (rabbit.user_workflows)"
            )
        most = config.user_directives_limit
        size = user.size + (user.line_size if before else user.sizes[jobid])
        if most and size > most and (user.size or before):
            return (
                "this user's other jobs: the directives of all have at most"
                f" {most} bytes (rabbit.user_directives_limit)"
            )
        return ""

    def _admit(self, current: int) -> None:
        """Have Workflows created, one of each user in turn."""
        while self._ready and len(self._creating) < CREATES:
            user = self._users[next(iter(self._ready))]
            del self._ready[user.id]
            jobid = user.line[0]
            self._leave_line(user, jobid)
            user.planning.add(jobid)
            self._creating[jobid] = False
            self._refresh(user)
            if jobid != current:
                self._ask(jobid)


def _is_planning(info: WorkflowInfo, view: Optional[WorkflowView]) -> bool:
    """Whether a job counts for ``user_workflows``."""
    if view is None:
        return info.uncertain  # it may be there
    if info.goal is Goal.PLANNED:
        return view.desired is State.Proposal and not info.planned
    return info.goal is Goal.RELEASED and not _had_nodes(info, view)


def _had_nodes(info: WorkflowInfo, view: WorkflowView) -> bool:
    """Whether a job has or had nodes. After a restart only its Workflow shows that."""
    made = view.begun[State.Setup] is not None and view.staged_for is None
    return made or info.allocation is not None or info.may_have_run


def _size(texts: Iterable[str]) -> int:
    """The bytes (UTF-8) of directives."""
    return sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)
