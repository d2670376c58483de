# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Answers the queries of users (doc/queries.md).

An answer shows the state that the service knows at that moment. Nothing here waits for
Kubernetes, and nothing here holds up the reactor: an answer that takes long is made in
several turns. Each method checks the user of the message, which Flux has authenticated.
A user in the payload only limits the answer. A query may be held until its job has
changed.
"""

from __future__ import annotations

import errno
import syslog
from dataclasses import dataclass
from functools import partial
from typing import (
    Any,
    Callable,
    Coroutine,
    Generator,
    Mapping,
    Optional,
    TypeVar,
    Union,
)

from flux_k8s.config.context import Context
from flux_k8s.control.controller import Controller, Options
from flux_k8s.control.coroutines import Answer, Call, call, drive
from flux_k8s.control.turns import Parts, Turns
from flux_k8s.errors import BadObject, QueryError
from flux_k8s.formats.jobid import f58
from flux_k8s.jobs.directiverules import DirectiveRules
from flux_k8s.jobs.isolation import describe
from flux_k8s.jobs.jobqueries import JobIndex, JobQueries, no_job
from flux_k8s.jobs.jobrows import JobFacts
from flux_k8s.jobs.jobtable import JobTable
from flux_k8s.jobs.keeping import Keeping
from flux_k8s.jobs.metrics import Metrics
from flux_k8s.jobs.progressmemos import ProgressMemos, memo_text
from flux_k8s.jobs.progresswatch import DataMovements
from flux_k8s.jobs.rabbitqueries import RabbitQueries
from flux_k8s.jobs.work import DISCONNECT
from flux_k8s.json_reader import Reader
from flux_k8s.machine.manager import RabbitManager
from flux_k8s.ports import Clock, Json, KubeError, Respond, Sender, Timer
from flux_k8s.reasons import Reason

T = TypeVar("T")

Work = Union[Parts[Json], Coroutine[Call[Any], Any, Json]]
"""Makes the answer to a query: in turns, or by requests to Kubernetes."""

IN_WORK = 64
"""The most answers that are being made until guests are refused."""

FAILURES_LOGGED = 10
"""The most lines of the log about errors of this module. No job depends on it, and an
error may come up at each event."""

HOLD_TIME = 30.0
"""Seconds after which a query is answered without a change."""

HELD_PER_USER = 16
HELD = 256
"""The most queries that are held, for one user and for all. What guests hold keeps the
instance owner from nothing."""

SETTLE = 0.1
"""Seconds from a change of a job until its details are made for the held queries:
changes come many at once."""


@dataclass(eq=False)
class HeldQuery:
    """A query that waits.

    Attributes:
        seen: the serial that the sender has seen.
        answer: sends the details of the job, with their serial, or an error.
        overdue: it has waited long enough.
    """

    jobid: int
    sender: Sender
    seen: int
    answer: Answer
    timer: Optional[Timer] = None
    overdue: bool = False


class HeldQueries:
    """The queries that wait.

    Args:
        details: the call that makes the details of a job, with their serial.
    """

    def __init__(self, clock: Clock, details: Callable[[int], Call[Json]]) -> None:
        self._clock = clock
        self._details = details
        self._held: dict[int, list[HeldQuery]] = {}
        self._controller = Controller[int](
            clock, self._reconcile, options=Options[int](debounce=SETTLE)
        )

    def __len__(self) -> int:
        return sum(map(len, self._held.values()))

    def refuse(self, sender: Sender) -> Optional[str]:
        """The reason not to hold another query of a sender; None if there is none."""
        senders = [query.sender for held in self._held.values() for query in held]
        mine = [each.userid for each in senders].count(sender.userid)
        if mine >= HELD_PER_USER:
            return f"{mine} of your queries wait for a change already: ask again later"
        if len(senders) >= HELD and not sender.owner:
            return f"{len(senders)} queries wait for a change already: ask again later"
        return None

    def hold(self, jobid: int, sender: Sender, seen: int, answer: Answer) -> None:
        """Hold a query."""
        query = HeldQuery(jobid, sender, seen, answer)
        self._held.setdefault(jobid, []).append(query)

        def time_out() -> None:
            query.overdue = True
            self._controller.add(jobid, 0.0)

        query.timer = self._clock.call_later(HOLD_TIME, time_out)

    def changed(self, jobid: int) -> None:
        """A job may have changed."""
        if jobid in self._held:
            self._controller.add(jobid)

    def _answer(self, jobid: int, details: Json) -> None:
        """Answer the queries whose senders have seen only older details of the job, and
        those that are overdue."""
        for query in tuple(self._held.get(jobid, ())):
            if query.overdue or details["serial"] > query.seen:
                self._remove(query)
                query.answer(details)

    def fail(self, jobid: int, error: Exception) -> None:
        """Answer all queries about a job with an error."""
        for query in tuple(self._held.get(jobid, ())):
            self._remove(query)
            query.answer(error)

    def disconnect(self, sender: Sender) -> None:
        """Drop the queries of a sender that has gone."""
        for queries in tuple(self._held.values()):
            for query in tuple(queries):
                if query.sender == sender:
                    self._remove(query)

    def stop(self) -> None:
        """Drop all queries."""
        for query in [query for held in self._held.values() for query in held]:
            self._remove(query)
        self._controller.stop()

    async def _reconcile(self, jobid: int) -> None:
        if jobid not in self._held:
            return
        try:
            details = await self._details(jobid)
        except Exception as error:
            self.fail(jobid, error)
        else:
            self._answer(jobid, details)

    def _remove(self, query: HeldQuery) -> None:
        queries = self._held[query.jobid]
        queries.remove(query)
        if not queries:
            del self._held[query.jobid]
        if query.timer is not None:
            query.timer.cancel()


class Queries:
    """Answers queries.

    Args:
        jobs: the jobs of the service.
        keeping: has data copied again, or given up.
        movements: their data movements; :meth:`progressed` is to be called when those
            of a job have changed.
        kube_metrics: returns the part of ``dws.metrics`` about Kubernetes.

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
        kube_metrics: Callable[[], Json],
    ) -> None:
        self._flux = context.flux
        self._settings = context.settings
        self._jobs = jobs
        self._machine = machine
        self._keeping = keeping
        self._index = JobIndex()
        self._facts = JobFacts(context, jobs, machine, movements, self.progressed)
        self._memos = ProgressMemos(
            context.flux, jobs, partial(self._safely, partial(memo_text, self._facts))
        )
        self._measures = Metrics(context, jobs, self._index, kube_metrics)
        self.rules = DirectiveRules(context)
        self._held = HeldQueries(context.clock, self._details_of)
        self._turns = Turns[Json](context.clock)
        self._job_queries = JobQueries(context, jobs, machine, self._index, self._facts)
        self._rabbits = RabbitQueries(context, self._index, machine)
        self._failures = 0
        jobs.note_change = partial(self._safely, self._changed)
        jobs.note_end = partial(self._safely, self._forget)
        self._methods: Mapping[str, Callable[[Any, Sender], Work]] = {
            "job-list": self._job_queries.rows,
            "rabbit-list": self._rabbits.rows,
            "rescue": self._rescue,
            "rules": self._list_rules,
            "metrics": self._metrics,
            "rabbit-disable": self._rabbits.disable,
            "rabbit-enable": self._rabbits.enable,
        }

    def start(self) -> None:
        """Open the watch of the rules."""
        self.rules.start()

    def stop(self) -> None:
        """Answer nothing any more. The module answers the queries that still wait."""
        self.rules.stop()
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
        info = job.info
        before = self._index.state(jobid)
        self._index.update(info)
        if before is None and (info.existed or info.planned):
            self._memos.inherit(job)
        self._memos.update(job, before)
        self._facts.changed(jobid)
        self._measures.note(job)
        self._held.changed(jobid)

    def _forget(self, jobid: int) -> None:
        """A job is over."""
        self._index.forget(jobid)
        self._facts.forget(jobid)
        self._memos.forget(jobid)
        self._measures.note_end()
        self._held.fail(jobid, no_job(jobid))

    def progressed(self, jobid: int) -> None:
        """The data movements or the mounts of a job have changed."""
        self._safely(self._progressed, jobid)

    def _progressed(self, jobid: int) -> None:
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
        try:
            if len(self._turns) >= IN_WORK and not sender.owner:
                text = f"{IN_WORK} queries are in work already: ask again later"
                raise QueryError(errno.EAGAIN, text)
            payload = {} if payload is None else payload
            if method == "job-show":
                self._job_show(payload, sender, respond)
            else:
                self._do(self._methods[method](payload, sender), respond)
        except Exception as error:
            self._answer(error, respond)

    def _do(self, work: Work, respond: Respond) -> None:
        """Have an answer made, and send it."""
        done = partial(self._answer, respond=respond)
        if isinstance(work, Generator):
            self._turns.add(work, done)
        else:
            drive(work, done, (Exception,))

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

    def _job_show(self, payload: Any, sender: Sender, respond: Respond) -> None:
        reader = Reader("dws.job-show", payload)
        jobid = reader.integer("id", minimum=0)
        seen = reader.optional_integer("seen", minimum=0)
        job = self._job_queries.find(jobid, sender)
        answer = partial(self._answer, respond=respond)

        def done(details: Any) -> None:
            failed = isinstance(details, Exception)
            if failed or seen is None or details["serial"] > seen:
                answer(details)
                return
            reason = self._held.refuse(sender)
            if reason is None:
                self._held.hold(jobid, sender, seen, answer)
            else:
                respond(errno.EAGAIN, reason, None)

        self._turns.add(self._job_queries.details(job), done)

    def _details_of(self, jobid: int) -> Call[Json]:
        """The call that makes the details of a job, in turns."""
        details = self._job_queries.details(self._job_queries.find(jobid))
        return call(self._turns.add, details)

    def _rescue(self, payload: Any, sender: Sender) -> Work:
        reader = Reader("dws.rescue", payload)
        jobid = reader.integer("id", minimum=0)
        gives_up = reader.optional_boolean("give_up") or False
        job = self._job_queries.find(jobid, sender)
        act = self._keeping.give_up if gives_up else self._keeping.rescue
        return act(job, sender.userid)

    async def _list_rules(self, payload: Any, sender: Sender) -> Json:
        Reader("dws.rules", payload)
        return {"rules": self.rules.rules, "scheduler": self._settings.scheduler}

    def _metrics(self, payload: Any, sender: Sender) -> Work:
        Reader("dws.metrics", payload)
        if not sender.owner:
            raise QueryError(errno.EPERM, "metrics are for the instance owner")
        return self._measure()

    def _measure(self) -> Parts[Json]:
        found = yield from self._measures.measure()
        counts = {"held": len(self._held), "in_work": len(self._turns)}
        return {**found, "queries": counts}

    def stats(self, respond: Respond) -> None:
        """Answer ``dws.stats-get``: the metrics, and how the Rabbits are."""
        self._do(self._measure_all(), respond)

    def _measure_all(self) -> Parts[Json]:
        found = yield from self._measure()
        return {**found, "rabbits": self._machine.stats()}
