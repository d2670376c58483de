# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The jobs in the order of their IDs, by user, and their number in each state: a query
does not have to look at all jobs."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from typing import Optional

from flux_k8s.jobs.jobrows import state_of
from flux_k8s.jobs.workflowinfo import WorkflowInfo

Entry = tuple[Optional[int], str]
"""The user and the state of a job."""


class JobIndex:
    """An index of the service's jobs.

    Attributes:
        states: the number of jobs in each state.
    """

    def __init__(self) -> None:
        self._entries: dict[int, Entry] = {}
        self._ids: list[int] = []
        self._of_user: dict[Optional[int], list[int]] = {}
        self.states: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._ids)

    def state(self, jobid: int) -> Optional[str]:
        """The state of a job; None for one that is not in the index."""
        entry = self._entries.get(jobid)
        return None if entry is None else entry[1]

    def update(self, info: WorkflowInfo) -> None:
        """A job is there, or may have changed."""
        jobid, entry = info.jobid, (info.userid, state_of(info))
        before = self._entries.get(jobid)
        if entry == before:
            return
        if before is None:
            insort(self._ids, jobid)
        else:
            self._remove(jobid, before)
        self._entries[jobid] = entry
        userid, state = entry
        insort(self._of_user.setdefault(userid, []), jobid)
        self.states[state] = self.states.get(state, 0) + 1

    def forget(self, jobid: int) -> None:
        """A job is there no more."""
        before = self._entries.pop(jobid, None)
        if before is not None:
            _discard(self._ids, jobid)
            self._remove(jobid, before)

    def after(self, jobid: int, limit: int, userid: Optional[int] = None) -> list[int]:
        """The next jobs after ``jobid``, at most ``limit``.

        Args:
            userid: only jobs of this user; None for all.
        """
        ids = self._ids if userid is None else self._of_user.get(userid, [])
        begin = bisect_right(ids, jobid)
        return ids[begin : begin + limit]

    def of_user(self, userid: int) -> list[int]:
        """The jobs of a user."""
        return self._of_user.get(userid, [])

    def _remove(self, jobid: int, entry: Entry) -> None:
        userid, state = entry
        _discard(self._of_user[userid], jobid)
        if not self._of_user[userid]:
            del self._of_user[userid]
        self.states[state] -= 1
        if not self.states[state]:
            del self.states[state]


def _discard(ids: list[int], jobid: int) -> None:
    del ids[bisect_left(ids, jobid)]
