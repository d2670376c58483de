# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Answers the queries about jobs: ``dws.job-list`` and ``dws.job-show``."""

from __future__ import annotations

import errno
import json
from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass
from typing import Any, Iterator, Optional

from flux_k8s.config.context import Context
from flux_k8s.control.turns import Parts
from flux_k8s.errors import QueryError
from flux_k8s.formats.jobid import f58
from flux_k8s.jobs import jobrows
from flux_k8s.jobs.jobrows import JobFacts, state_of
from flux_k8s.jobs.jobtable import Job, JobTable
from flux_k8s.jobs.workflowinfo import WorkflowInfo
from flux_k8s.json_reader import INT64_MAX, Reader
from flux_k8s.machine.manager import RabbitManager
from flux_k8s.objects.workflowstate import STATES
from flux_k8s.ports import Json, Sender

Entry = tuple[Optional[int], str]
"""The user and the state of a job."""


class JobIndex:
    """The jobs in the order of their IDs, by user, and their number in each state: a
    query does not have to look at all jobs.

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

    def walk(self, jobid: int = -1, userid: Optional[int] = None) -> Iterator[int]:
        """The jobs after ``jobid``, in order, whatever jobs come and go meanwhile.

        Args:
            userid: only jobs of this user; None for all.
        """
        while True:
            ids = self._ids if userid is None else self._of_user.get(userid, [])
            place = bisect_right(ids, jobid)
            if place == len(ids):
                return
            jobid = ids[place]
            yield jobid

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


ROWS = 250
"""The most rows of an answer: to encode them holds up the reactor for 2 to 4 ms."""

LOOK, ROW, RABBIT = 1, 20, 5
"""Microseconds for a job that is looked at, for its row, and for each Rabbit in it."""


@dataclass(frozen=True)
class JobFilter:
    """The jobs that ``dws.job-list`` is to list. ``after`` and ``limit`` are those of
    the contract; None is no limit."""

    after: int
    limit: int
    userid: Optional[int]
    state: Optional[str]
    rabbit: Optional[str]
    type: Optional[str]

    @classmethod
    def parse(cls, payload: Any) -> JobFilter:
        """Read a payload.

        Raises:
            BadObject: it is malformed.
        """
        reader = Reader("dws.job-list", payload)
        states = (*STATES, jobrows.NONE)
        limit = reader.optional_integer("max", minimum=1, maximum=INT64_MAX)
        return cls(
            after=reader.optional_integer("after", minimum=0) or 0,
            limit=ROWS if limit is None else min(limit, ROWS),
            userid=reader.optional_integer("userid", minimum=0),
            state=reader.optional_string("state", choices=states),
            rabbit=reader.optional_string("rabbit"),
            type=reader.optional_string("type"),
        )

    def matches(self, job: Job, machine: RabbitManager) -> bool:
        """Whether a job is to be listed."""
        info = job.info
        if self.state is not None and jobrows.state_of(info) != self.state:
            return False
        if self.type is not None and self.type not in jobrows.types_of(info):
            return False
        if self.rabbit is None:
            return True
        usage = machine.ledger.usage_of(info.jobid)
        return any(self.rabbit in servers.unavailable for servers in usage.values())


class JobQueries:
    """Makes the answers about jobs, for their users and the instance owner."""

    def __init__(
        self,
        context: Context,
        jobs: JobTable,
        machine: RabbitManager,
        index: JobIndex,
        facts: JobFacts,
    ) -> None:
        self._clock = context.clock
        self._settings = context.settings
        self._jobs = jobs
        self._machine = machine
        self._index = index
        self._facts = facts

    def rows(self, payload: Any, sender: Sender) -> Parts[Json]:
        """The answer to ``dws.job-list``.

        Raises:
            BadObject, QueryError: the query is refused.
        """
        found = JobFilter.parse(payload)
        userid = found.userid
        if not sender.owner:
            if userid not in (None, sender.userid):
                text = f"the jobs of user {userid} are not yours"
                raise QueryError(errno.EPERM, text)
            userid = sender.userid
        return self._list(found, userid)

    def _list(self, found: JobFilter, userid: Optional[int]) -> Parts[Json]:
        rows: list[Json] = []
        last, out = found.after, self._facts.out_of_service()
        for last in self._index.walk(found.after, userid):
            job = self._jobs.get(last)
            if job is not None and found.matches(job, self._machine):
                known = yield from self._facts.for_row(job, out)
                rows.append(jobrows.row(job.info, known))
                yield ROW + RABBIT * known.nrabbits
            if len(rows) == found.limit:
                break
            yield LOOK
        more = any(True for _ in self._index.walk(last, userid))
        return {
            "jobs": rows,
            "next": last if more else None,
            "totals": {
                "jobs": len(self._index),
                "states": dict(self._index.states),
                "capacity": self._machine.ledger.bytes_in_use,
            },
        }

    def find(self, jobid: int, sender: Optional[Sender] = None) -> Job:
        """A job, if its details are for the sender.

        Raises:
            QueryError: they are not, or the job is over, or it is not known yet, as
                that of a Workflow that no job claims.
        """
        job = self._jobs.get(jobid)
        if job is None and (jobid in self._jobs.unclaimed or not self._jobs.complete):
            text = f"job {f58(jobid)}: it is not known yet: ask again later"
            raise QueryError(errno.EAGAIN, text)
        if job is None:
            raise no_job(jobid)
        if sender is not None and not sender.owner:
            _check_user(job, sender)
        return job

    def details(self, job: Job) -> Parts[Json]:
        """The details of a job, with a serial that grows when they change.

        Raises:
            QueryError: the job is over.
        """
        jobid = job.info.jobid
        known = yield from self._facts.for_details(job)
        if self._jobs.get(jobid) is not job:
            raise no_job(jobid)
        details = jobrows.details(
            job.info, known, self._jobs.moment(self._settings.config)
        )
        shown, found = job.shown, hash(json.dumps(details))
        if not shown.serial or found != shown.details:
            # Serials of a service that is started later are larger.
            shown.serial = max(shown.serial + 1, int(self._clock.now() * 1000))
            shown.details = found
        return {"serial": shown.serial, **details}


def _check_user(job: Job, sender: Sender) -> None:
    """Refuse a guest the details of somebody else's job."""
    jobid, userid = job.info.jobid, job.info.userid
    if userid is None:
        text = f"job {f58(jobid)}: its user is not known yet: ask again later"
        raise QueryError(errno.EAGAIN, text)
    if userid != sender.userid:
        raise QueryError(errno.EPERM, f"job {f58(jobid)} is not yours")


def no_job(jobid: int) -> QueryError:
    text = f"job {f58(jobid)}: no active job with #DW directives"
    return QueryError(errno.ENOENT, text)
