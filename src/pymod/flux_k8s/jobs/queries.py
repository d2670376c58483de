# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Answers the queries of users (doc/queries.md).

An answer shows the state that the service knows at that moment; only what changes
something in Kubernetes waits for that (``rescue``, ``rabbit-disable`` and
``rabbit-enable``). Nothing here holds up the reactor: an answer that takes long is made
in several turns. Each method for guests that shows jobs checks the user of the message,
which Flux has authenticated. A user in the payload only limits the answer. A query may
be held until its job has changed.
"""

from __future__ import annotations

import errno
import json
import syslog
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import (
    Any,
    Callable,
    Coroutine,
    Mapping,
    Optional,
    Sequence,
    TypeVar,
    Union,
)

from flux_k8s.config.context import Context
from flux_k8s.control.coroutines import Call, Turns, call, drive
from flux_k8s.errors import BadObject, QueryError
from flux_k8s.formats.jobid import f58
from flux_k8s.jobs import jobrows
from flux_k8s.jobs.heldqueries import HeldQueries
from flux_k8s.jobs.isolation import describe
from flux_k8s.jobs.jobtable import Job, JobTable
from flux_k8s.jobs.keeping import Keeping
from flux_k8s.jobs.metrics import LOOKS, Metrics, count_states
from flux_k8s.jobs.optionalwatches import DataMovements, DirectiveRules
from flux_k8s.jobs.progress import JobFacts, ProgressMemos
from flux_k8s.jobs.rabbitqueries import RabbitQueries
from flux_k8s.jobs.work import DISCONNECT
from flux_k8s.json_reader import INT64_MAX, Reader
from flux_k8s.machine.manager import RabbitManager
from flux_k8s.objects.workflowstate import STATES
from flux_k8s.ports import Json, KubeError, Respond, Sender
from flux_k8s.reasons import Reason

T = TypeVar("T")

Method = Callable[[Any, Sender], Coroutine[Call[Any], Any, Json]]
"""Makes the answer to a payload of a sender.

Raises:
    BadObject, QueryError, KubeError: the query is refused.
"""

ROWS = 250
"""The most rows of an answer: to encode them holds up the reactor for 2 to 4 ms."""

ROWS_AT_A_TIME = 25
"""Rows that are made in one turn of the reactor."""

IN_WORK = 64
"""The most answers that are being made until guests are refused."""

FAILURES_LOGGED = 10
"""The most lines of the log about errors of this module. No job depends on it, and an
error may come up at each event."""


@dataclass(frozen=True)
class JobFilter:
    """The jobs that ``dws.job-list`` is to list (doc/queries.md, where ``limit`` is
    ``max``). None: whatever they have there."""

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
        return machine.ledger.bytes_on(self.rabbit, info.jobid) > 0


class Queries:
    """Answers queries.

    Args:
        jobs: the jobs of the service.
        keeping: has data copied again, or given up.
        movements: their data movements.

    Attributes:
        rules: the rules for directives.
    """

    def __init__(
        self,
        context: Context,
        jobs: JobTable,
        keeping: Keeping,
        machine: RabbitManager,
        movements: DataMovements,
    ) -> None:
        self._flux = context.flux
        self._settings = context.settings
        self._jobs = jobs
        self._machine = machine
        self._keeping = keeping
        self._turns = turns = Turns(context.clock)
        progressed = partial(self._safely, self._progressed)
        self._facts = JobFacts(context, jobs, machine, movements, progressed)
        self._memos = ProgressMemos(
            context.flux, jobs, partial(self._safely, self._facts.memo)
        )
        self._measures = Metrics(context, jobs, turns)
        self.rules = DirectiveRules(context)
        self._held = HeldQueries(context.clock, self._details)
        self._rabbits = RabbitQueries(context, jobs, machine, turns)
        self._failures = 0
        jobs.note_change = partial(self._safely, self._changed)
        jobs.note_end = partial(self._safely, self._forget)
        self._methods: Mapping[str, Method] = {
            "job-list": self._job_list,
            "job-show": self._job_show,
            "rabbit-list": self._rabbits.rows,
            "rescue": self._rescue,
            "rules": self._list_rules,
            "metrics": self._metrics,
            "rabbit-disable": self._rabbits.disable,
            "rabbit-enable": self._rabbits.enable,
        }

    def start(self) -> None:
        """Open the watch of the rules."""
        self.rules.open()

    def stop(self) -> None:
        """Answer nothing any more. The module answers the queries that still wait."""
        self.rules.close()
        self._facts.stop()
        self._memos.stop()
        self._held.stop()
        self._turns.stop()

    # What the service says about its jobs

    def _safely(self, function: Callable[[int], T], jobid: int) -> Optional[T]:
        """Call a function about a job. Its errors cost the job nothing."""
        try:
            return function(jobid)
        except Exception as error:
            self._log_failure(f"{f58(jobid)}: queries", error)
            return None

    def _log_failure(self, what: str, error: Exception) -> None:
        """Log an error of this module. Guests may ask for it again and again."""
        self._failures += 1
        if self._failures <= FAILURES_LOGGED:
            text = f"{what}: {describe(error)}"
            self._flux.log(syslog.LOG_CRIT, text, Reason.SERVICE_FAULT)

    def _changed(self, jobid: int) -> None:
        """A job is there, or something that is known of it may have changed."""
        job = self._jobs.get(jobid)
        if job is None:
            return
        before, job.shown.state = job.shown.state, jobrows.state_of(job.info)
        self._memos.note(job, before)
        self._facts.changed(jobid)
        self._measures.note(job)
        self._held.changed(jobid)

    def _forget(self, jobid: int) -> None:
        """A job is over."""
        self._facts.forget(jobid)
        self._memos.forget(jobid)
        self._measures.note_end()
        self._held.fail(jobid, _no_job(jobid))

    def _progressed(self, jobid: int) -> None:
        """The data movements or the mounts of a job have changed."""
        self._memos.changed(jobid)
        self._held.changed(jobid)

    # Requests

    def request(
        self, method: str, payload: Any, sender: Sender, respond: Respond
    ) -> None:
        """Handle ``dws.<method>``."""
        if method == DISCONNECT:
            self._held.disconnect(sender)
            return
        if len(self._turns) >= IN_WORK and not sender.owner:
            text = f"{IN_WORK} queries are in work already: ask again later"
            self._answer(QueryError(errno.EAGAIN, text), respond)
            return
        payload = {} if payload is None else payload
        self._make(self._methods[method](payload, sender), respond)

    def _make(self, work: Coroutine[Call[Any], Any, Json], respond: Respond) -> None:
        """Have an answer made, and send it."""
        drive(work, partial(self._answer, respond=respond), (Exception,))

    def _answer(self, answer: Union[Json, Exception], respond: Respond) -> None:
        """Send an answer, with what is said of its age, or an error."""
        if isinstance(answer, Exception):
            self._fail(answer, respond)
        else:
            respond(0, "", {**answer, **self._situation()})

    def _fail(self, error: Exception, respond: Respond) -> None:
        if isinstance(error, KubeError):
            respond(errno.EIO, f"Kubernetes: {error}", None)
        elif isinstance(error, QueryError):
            respond(error.errnum, str(error), None)
        elif isinstance(error, BadObject):
            respond(errno.EPROTO, str(error), None)
        else:
            self._log_failure("a query failed", error)
            respond(errno.EINVAL, "internal error, the log has more", None)

    def _situation(self) -> Json:
        """The part of each answer about its age."""
        now, outage = self._flux.now(), self._jobs.outage
        away = outage.reason or (None if outage.listed else "connecting")
        heard = outage.heard if away else now
        is_incomplete = away is None and not self._jobs.complete
        reason = away or "ok"
        if is_incomplete and self._jobs.has_no_plugin:
            reason = "dws-jobtap.so is not loaded"
        elif is_incomplete:
            reason = "not all jobs are known yet"
        return {
            "now": now,
            "kubernetes": reason,
            "incomplete": is_incomplete,
            "age": None if heard is None else max(0.0, now - heard),
        }

    # The methods

    async def _job_list(self, payload: Any, sender: Sender) -> Json:
        found = JobFilter.parse(payload)
        userid = found.userid
        if not sender.owner:
            if userid not in (None, sender.userid):
                text = f"the jobs of user {userid} are not yours"
                raise QueryError(errno.EPERM, text)
            userid = sender.userid
        jobids = self._jobs.after(found.after, userid)
        listed = await self._first_matching(found, jobids)
        rows, out = [], self._facts.out_of_service()
        async for job in self._turns.each(listed, ROWS_AT_A_TIME):
            rows.append(jobrows.row(job.info, self._facts.for_row(job, out)))
        more = len(listed) == found.limit and listed[-1].info.jobid != jobids[-1]
        return {
            "jobs": rows,
            "next": listed[-1].info.jobid if more else None,
            "totals": {
                "jobs": len(self._jobs),
                "states": count_states(self._jobs),
                "capacity": self._machine.ledger.bytes_in_use,
            },
        }

    async def _first_matching(
        self, found: JobFilter, jobids: Sequence[int]
    ) -> list[Job]:
        """The first jobs that are to be listed, as many as one answer has."""
        listed: list[Job] = []
        for start in range(0, len(jobids), LOOKS):
            if start:
                await self._turns.next()
            known = filter(None, map(self._jobs.get, jobids[start : start + LOOKS]))
            matching = (job for job in known if found.matches(job, self._machine))
            listed.extend(islice(matching, found.limit - len(listed)))
            if len(listed) == found.limit:
                break
        return listed

    async def _job_show(self, payload: Any, sender: Sender) -> Json:
        reader = Reader("dws.job-show", payload)
        jobid = reader.integer("id", minimum=0)
        seen = reader.optional_integer("seen", minimum=0)
        self._find(jobid, sender)
        details = self._details(jobid)
        if seen is None or details["serial"] > seen:
            return details
        self._held.check_room(sender)
        changed: Json = await call(self._held.hold, jobid, sender, seen)
        return changed

    def _find(self, jobid: int, sender: Optional[Sender] = None) -> Job:
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
            raise _no_job(jobid)
        if sender is None or sender.owner or job.info.userid == sender.userid:
            return job
        if job.info.userid is None:
            text = f"job {f58(jobid)}: its user is not known yet: ask again later"
            raise QueryError(errno.EAGAIN, text)
        raise QueryError(errno.EPERM, f"job {f58(jobid)} is not yours")

    def _details(self, jobid: int) -> Json:
        """The details of a job, with a serial that grows when they change.

        Raises:
            QueryError: the job is over.
        """
        job = self._find(jobid)
        known = self._facts.for_details(job)
        moment = self._jobs.moment()
        details = jobrows.details(job.info, known, moment)
        shown, found = job.shown, hash(json.dumps(details))
        if not shown.serial or found != shown.details:
            # Serials of a service that is started later are larger.
            shown.serial = max(shown.serial + 1, int(self._flux.now() * 1000))
            shown.details = found
        return {"serial": shown.serial, **details}

    async def _rescue(self, payload: Any, sender: Sender) -> Json:
        reader = Reader("dws.rescue", payload)
        jobid = reader.integer("id", minimum=0)
        gives_up = reader.optional_boolean("give_up") or False
        job = self._find(jobid, sender)
        act = self._keeping.give_up if gives_up else self._keeping.rescue
        return await act(job, sender.userid)

    async def _list_rules(self, payload: Any, sender: Sender) -> Json:
        Reader("dws.rules", payload)
        return {"rules": self.rules.rules, "scheduler": self._settings.scheduler}

    async def _metrics(self, payload: Any, sender: Sender) -> Json:
        Reader("dws.metrics", payload)
        return await self._measure()

    async def _measure(self) -> Json:
        found = await self._measures.measure()
        counts = {"held": len(self._held), "in_work": len(self._turns)}
        return {**found, "queries": counts}

    def stats(self, respond: Respond) -> None:
        """Answer ``dws.stats-get``: the metrics, and how the Rabbits are."""
        self._make(self._measure_all(), respond)

    async def _measure_all(self) -> Json:
        return {**await self._measure(), "rabbits": self._machine.stats()}


def _no_job(jobid: int) -> QueryError:
    text = f"job {f58(jobid)}: no active job with #DW directives"
    return QueryError(errno.ENOENT, text)
