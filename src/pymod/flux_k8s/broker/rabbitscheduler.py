# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The scheduler ``sched-rabbit``: flux-core's scheduler class (RFC 27) with the pool of
:mod:`flux_k8s.scheduler`.

Jobs are started in the order of priority. The first one that does not fit has nodes and
storage reserved: jobs behind it get none of these, unless they end before it can start
(EASY backfilling). So it holds back others only where it is to run: it may wait for one
node, for days. Nothing is reserved for one that does not wait for other jobs: what it
needs is down, or out of service, for a time that nobody knows.

The text of guests is made printable before it is logged or shown: the logger of
flux-core takes its text as a format. Whatever is in a jobspec, its job is denied or
waits, and the scheduler goes on: the instance cannot do without it.
"""

from __future__ import annotations

import bisect
import errno
import json
from collections import Counter
from dataclasses import dataclass
from functools import partial
from math import inf
from time import monotonic
from typing import Any, Callable, Iterator, Optional

from flux.brokermod import BrokerLogger, request_handler
from flux.core.inner import lib
from flux.job import JobID
from flux.scheduler import PendingJob, Scheduler

from flux_k8s.broker.files import load_mapping
from flux_k8s.broker.log import log, log_exception
from flux_k8s.broker.rabbitpool import NO_RABBITS, RabbitPool
from flux_k8s.config.table import Config
from flux_k8s.errors import ConfigError, DWSError
from flux_k8s.formats import idset
from flux_k8s.json_reader import decimal
from flux_k8s.ports import Json
from flux_k8s.rules.jgfwriter import DEFAULT_CHUNKS
from flux_k8s.scheduler import request as requests
from flux_k8s.scheduler import rwriter
from flux_k8s.scheduler.dutycycle import DutyCycle
from flux_k8s.scheduler.free import Grant
from flux_k8s.scheduler.graph import RequestError, ResourceGraph
from flux_k8s.scheduler.pool import NOTHING, Infeasible, Pool, Reservation, reserve
from flux_k8s.scheduler.request import Request
from flux_k8s.slots import slotted
from flux_k8s.text import NOTE, printable

DEPTH = 64
"""The most jobs of one user that wait for others and are looked at in one pass: who has
more holds up nobody else."""

UNKNOWN = Reservation(-inf, Grant())
"""It is to be found out later."""

INTERNAL_ERROR = "internal error of the scheduler: see the log of the instance"


class Logger(BrokerLogger):
    """Logs text, whatever characters it has."""

    def __call__(self, level: int, msg: str) -> None:
        if level <= self.level:
            log(self._h, level, msg)


class RabbitScheduler(Scheduler):
    """The scheduler.

    Args:
        args: those of :class:`Scheduler`, and ``chunks=N``: the number of ``ssd`` of
            each Rabbit.

    Attributes:
        is_running: it was loaded.

    Raises:
        DWSError: an argument, the ``[rabbit]`` table or the mapping is wrong.
        ValueError: an argument is wrong.
    """

    pool_class = RabbitPool

    def __init__(self, handle: Any, *args: str) -> None:
        super().__init__(handle, *args)
        level = self.log.level
        self.log: BrokerLogger = Logger(handle)
        self.log.level = level
        self.is_running = False
        if self.pool_class is not RabbitPool:
            raise ConfigError("pool-class", "expected none: there is one for Rabbits")
        chunks = DEFAULT_CHUNKS
        for arg in list(self._pending_args):
            key, _, value = arg.partition("=")
            if key == "chunks":
                self._pending_args.remove(arg)
                chunks = _chunks(arg, value)
        table = handle.conf_get(update=True).get("rabbit")
        mapping = NO_RABBITS if table is None else load_mapping(Config.parse(table))
        self.pool_kwargs = {"mapping": mapping, "chunks": chunks}
        self._ends: dict[int, float] = {}
        self._review, self._status_work = DutyCycle(monotonic), DutyCycle(monotonic)
        self._status, self._status_in = "", -1
        self._review_timer = handle.timer_watcher_create(
            0.0, lambda *_: self._request_schedule()
        )
        self._graph: Optional[ResourceGraph] = None

    @property
    def pool(self) -> Pool:
        pool: Pool = self.resources.pool
        return pool

    def set_running(self) -> None:
        super().set_running()
        self.is_running = True

    # Jobs that are waiting

    def alloc(
        self,
        request: Any,
        jobid: int,
        priority: int,
        userid: int,
        t_submit: float,
        jobspec: Any,
    ) -> None:
        """Put a job into the queue, or deny it."""
        parsed = self._guard(jobid, request, lambda: self._read(jobspec, userid))
        if parsed is not None:
            job = PendingJob(jobid, priority, t_submit, request, parsed)
            bisect.insort(self._queue, job)

    def _read(self, jobspec: Any, userid: int = -1) -> _Pending:
        parsed = requests.parse(jobspec)
        requests.check_has_nodes(parsed)
        request = self.pool.bind(parsed)
        self.pool.check(request)
        return _Pending(request, userid, self.pool.present)

    def _guard(self, jobid: int, request: Any, work: Callable[[], Any]) -> Any:
        """The result of some work for a job. After an error None, and the job is
        denied."""
        try:
            return work()
        except DWSError as error:
            request.deny(printable(str(error), NOTE))
        except Exception as error:
            log_exception(self.handle, f"{JobID(jobid).f58}: denied", error)
            request.deny(INTERNAL_ERROR)
        return None

    def cancel(self, jobid: int) -> None:
        """Take a job out of the queue. A sorted list needs no more than that."""
        for index, job in enumerate(self._queue):
            if job.jobid == jobid:
                del self._queue[index]
                job.request.cancel()
                return

    def prioritize(self, jobs: Any) -> None:
        """Give jobs in the queue new priorities."""
        priorities = dict(jobs)
        moved = [job for job in self._queue if job.jobid in priorities]
        self._queue[:] = [job for job in self._queue if job.jobid not in priorities]
        for job in moved:
            job.priority = priorities[job.jobid]
            bisect.insort(self._queue, job)

    def feasibility_check(self, msg: Any, jobspec: Any) -> None:
        """Answer whether a job could ever run."""
        try:
            self._read(jobspec)
        except Infeasible as error:
            self._refuse(msg, errno.EOVERFLOW, str(error))
        except DWSError as error:
            self._refuse(msg, errno.EINVAL, str(error))
        except Exception as error:
            log_exception(self.handle, "feasibility.check", error)
            self._refuse(msg, errno.EINVAL, INTERNAL_ERROR)
        else:
            self.handle.respond(msg, None)

    def _refuse(self, msg: Any, errnum: int, text: str) -> None:
        self.handle.respond_error(msg, errnum, printable(text, NOTE))

    def schedule(self) -> Iterator[None]:
        """Start the jobs that can be started."""
        index, reserved = 0, NOTHING
        waiting: Counter[int] = Counter()
        while index < len(self._queue):
            job = self._queue[index]
            pending = _of(job)
            looked_at = waiting[pending.userid]
            if looked_at == DEPTH or not pending.may_be_served(self.pool):
                index += 1
                continue
            work = partial(self._look_at, job, reserved)
            left = self._guard(job.jobid, job.request, work)
            if left is None:
                self._queue.pop(index)
            elif left is UNKNOWN:
                return
            else:
                index, reserved = index + 1, left
                waiting[pending.userid] = looked_at + pending.served
            yield

    def _look_at(self, job: PendingJob, reserved: Reservation) -> Optional[Reservation]:
        """Start a job if it fits.

        Args:
            reserved: for a job before it.

        Returns:
            None if it was started; else what is reserved for it, or that one;
            ``UNKNOWN`` if that is not known yet.
        """
        if self._start(job, reserved):
            return None
        if not _of(job).is_served(self.pool) or reserved is not NOTHING:
            return reserved
        return self._reserve(_of(job))

    def _reserve(self, pending: _Pending) -> Reservation:
        """What is reserved for the first of the jobs that wait for others. Jobs that
        end earlier than they have to have it begin earlier."""
        if pending.reserved_in != self.pool.generation:
            if self._review.wait:
                self._review_timer.reset(after=self._review.wait)
                return UNKNOWN
            pending.reserved_in = self.pool.generation
            with self._review.spend():
                pending.reserved = reserve(self.pool, pending.request, self._ends)
        return pending.reserved

    def _now(self) -> float:
        return float(lib.flux_reactor_now(lib.flux_get_reactor(self.handle.handle)))

    def _start(self, job: PendingJob, reserved: Reservation) -> bool:
        """Start a job; False if it does not fit beside what is reserved.

        Raises:
            Infeasible: it will never fit.
        """
        pending, pool = _of(job), self.pool
        request = pending.request
        if pending.present != pool.present:  # the instance has lost nodes
            pool.check(request)
            pending.present = pool.present
        now = self._now()
        if reserved.leaves(now, request.duration):
            reserved = NOTHING
        place = pool.generation, reserved
        if pending.misfit == place:
            return False
        grant = pool.allocate(job.jobid, request, reserved.grant)
        if grant is None:
            pending.misfit = place
            return False
        try:
            end = now + request.duration if request.duration else 0.0
            end = end or self.resources.expiration
            R = rwriter.write(pool, grant, now, end)
            summary = f"rank{rwriter.ranks(pool, grant)}"
            job.request.success(R, {"sched": {"resource_summary": summary}})
        except Exception:
            pool.release(job.jobid)
            raise
        if end:
            self._ends[job.jobid] = end
        return True

    # Jobs that have resources

    def hello(
        self, jobid: int, priority: int, userid: int, t_submit: float, R: RabbitPool
    ) -> None:
        """Note what a job has that was started before the scheduler was loaded.

        Raises:
            BadObject: R is malformed.
            ValueError: R has nodes that are not part of the instance any more. The job
                is failed; it keeps all else until it has ended.
        """
        missing = rwriter.hold(self.pool, jobid, R.resources)
        if R.expiration:
            self._ends[jobid] = R.expiration
        if missing:
            ranks = ", ".join(map(str, missing))
            raise ValueError(f"R has ranks that the instance lacks: {ranks}")

    def free(self, jobid: int, R: Any, final: bool = False) -> None:
        """Take back nodes of a job, with ``final`` all that the job has yet."""
        if final:
            self.pool.release(jobid)
            self._ends.pop(jobid, None)
        else:
            entries = R.to_dict()["execution"]["R_lite"]
            ranks = (rank for each in entries for rank in idset.decode(each["rank"]))
            self.pool.release(jobid, ranks)

    def expiration(self, msg: Any, jobid: int, expiration: float) -> None:
        """Note a new time limit of a job."""
        self.pool.generation += 1
        if expiration:
            self._ends[jobid] = expiration
        else:
            self._ends.pop(jobid, None)
        self.handle.respond(msg, None)

    def _handle_resource_status(self, msg: Any) -> None:
        """Answer which resources there are, are down, and are jobs'. Any user may ask,
        as often as he likes, and an answer may take a second of a large machine's
        scheduler: it may be a few times as old as that."""
        try:
            is_old = self._status_in != self.pool.generation
            if is_old and not self._status_work.wait:
                with self._status_work.spend():
                    self._status = json.dumps(self._resource_status())
                self._status_in = self.pool.generation
            self.handle.respond(msg, self._status)
        except Exception as error:
            log_exception(self.handle, "sched.resource-status", error)
            self._refuse(msg, errno.EINVAL, INTERNAL_ERROR)

    def _resource_status(self) -> Json:
        pool = self.pool
        return {
            "all": self.resources.to_dict(),
            "allocated": rwriter.resources(pool, pool.taken()).to_json(),
            "down": rwriter.whole(pool, pool.present & ~pool.up).to_json(),
        }

    # The module dws

    @request_handler("find")
    def _on_find(self, msg: Any) -> None:
        self._answer(msg, "find")

    @request_handler("set_property")
    def _on_set_property(self, msg: Any) -> None:
        self._answer(msg, "set_property")

    @request_handler("remove_property")
    def _on_remove_property(self, msg: Any) -> None:
        self._answer(msg, "remove_property")

    @request_handler("set_status")
    def _on_set_status(self, msg: Any) -> None:
        self._answer(msg, "set_status")

    def _answer(self, msg: Any, method: str) -> None:
        if self._graph is None:
            self._graph = ResourceGraph(self.pool, self._request_schedule)
        try:
            answer = self._graph.handle(method, msg.payload)
        except RequestError as error:
            self._refuse(msg, error.errnum, str(error))
        except Exception as error:
            log_exception(self.handle, f"{self.name}.{method}", error)
            self._refuse(msg, errno.EINVAL, INTERNAL_ERROR)
        else:
            self.handle.respond(msg, answer)

    def stats_get(self) -> Json:
        return {**super().stats_get(), "jobs": len(self.pool.grants)}


@slotted
@dataclass(eq=False)
class _Pending:
    """A job that waits.

    Attributes:
        userid: whose it is.
        present: the nodes of the instance when the request was checked.
        misfit: the generation of the pool in which it did not fit, and the reservation
            of another job beside which it did not.
        served: whether it waits for other jobs only, as was found last
            (``served_in``: after so many outages).
        reserved: what is reserved for it, as was found for a generation of the pool
            (``reserved_in``).
    """

    request: Request
    userid: int
    present: int
    misfit: tuple[int, Reservation] = -1, UNKNOWN
    served: bool = True
    served_in: int = -1
    reserved: Reservation = UNKNOWN
    reserved_in: int = -1

    def may_be_served(self, pool: Pool) -> bool:
        """False if it is known to wait for what is down, or out of service."""
        return self.served or self.served_in != pool.outages

    def is_served(self, pool: Pool) -> bool:
        """Whether it waits for other jobs only."""
        if self.served_in != pool.outages:
            self.served = pool.is_served(self.request)
            self.served_in = pool.outages
        return self.served


def _of(job: PendingJob) -> _Pending:
    pending: _Pending = job.resource_request
    return pending


def _chunks(arg: str, value: str) -> int:
    number = decimal(value, 6)
    if not number:
        raise ConfigError(arg, "expected chunks=N, the number of ssd of each Rabbit")
    return number
