# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Running jobs: the time limit, and how a job is ended before its time."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Callable, Mapping, Optional, Protocol

from flux_k8s.config.values import parse_fsd
from flux_k8s.errors import ConfigError
from flux_k8s.formats import hostlist
from flux_k8s.ports import Clock, Json, Timer
from rabbitsim.flux.job import Job
from rabbitsim.flux.manager import JobManager

KILL_TIMEOUT = 5.0
"""Seconds between asking a job to end and SIGKILL, as in Flux."""

LATE_START = 0.25
"""A job that starts later than this part of its time limit after it got its
resources (its prolog took long) gets its whole time limit, as in Flux."""


@dataclass(frozen=True)
class Launch:
    """The job that an executor is to run.

    Attributes:
        jobspec: the jobspec as it was submitted, with the environment.
        hosts: the job's nodes, one job shell on each.
        started, finished, failed, released: the executor calls these, in this
            order: all shells are there; all tasks have ended (wait status);
            something kept a shell or a task from starting (a note; then
            ``finished`` comes too); nothing of the job is left.
    """

    jobid: int
    jobspec: Json
    R: Json
    hosts: tuple[str, ...]
    started: Callable[[], None]
    finished: Callable[[int], None]
    failed: Callable[[str], None]
    released: Callable[[], None]


class Executor(Protocol):
    """Runs jobs."""

    def start(self, launch: Launch) -> None: ...

    def kill(self, jobid: int, signum: int) -> None:
        """Send a signal to a job's tasks. A job that has none yet ends with
        ``released`` only."""


class Execution:
    """The execution service (job-exec): between the job manager and an executor.

    Attributes:
        jobs: the jobs that it has, by their IDs, with a token for each start.
    """

    def __init__(self, clock: Clock, executor: Executor) -> None:
        self._clock = clock
        self._executor = executor
        self._timers: dict[int, Timer] = {}
        self.jobs: dict[int, object] = {}
        self._era = 0
        self.manager: JobManager  # set by the instance: they know each other

    def start(self, job: Job) -> None:
        """Start a job. Nothing is posted from within this call."""
        R = job.R or {}
        era = self._era
        token = self.jobs[job.id] = object()

        def if_current(function: Callable[[], None]) -> None:
            if era == self._era:
                function()

        def post(name: str, context: Json) -> None:
            if_current(lambda: self.manager.post(job, name, context))

        def released() -> None:
            self._cancel_timer(job.id)
            self.jobs.pop(job.id, None)
            post("release", {"ranks": "all", "final": True})

        launch = Launch(
            jobid=job.id,
            jobspec=job.full_jobspec(),
            R=R,
            hosts=hostlist.decode_all(R["execution"]["nodelist"]),
            started=lambda: if_current(lambda: self._started(job, R)),
            finished=lambda status: post("finish", {"status": status}),
            failed=lambda note: if_current(lambda: self._raise(job, "exec", note)),
            released=released,
        )

        def start() -> None:
            if self.jobs.get(job.id) is token:
                self._executor.start(launch)

        self._clock.call_later(0.0, start)

    def cut_off(self) -> None:
        """The job manager is loaded anew: events of the jobs that run do not reach
        it."""
        self._era += 1

    def reload(self) -> None:
        """``flux module reload job-exec``: all that runs is killed, in silence."""
        self.cut_off()
        for jobid in list(self.jobs):
            self._cancel_timer(jobid)
            self._executor.kill(jobid, signal.SIGKILL)
        self.jobs.clear()

    def kill(self, job: Job, exception: Json) -> None:
        """A fatal exception was raised on a job, which may not have been started."""
        if job.id not in self.jobs:
            return
        signum = signal.SIGTERM
        if exception["type"] == "timeout":
            signum = signal.SIGALRM
        self._cancel_timer(job.id)

        def insist() -> None:
            self._executor.kill(job.id, signal.SIGKILL)

        self._timers[job.id] = self._clock.call_later(KILL_TIMEOUT, insist)
        self._clock.call_later(0.0, lambda: self._executor.kill(job.id, signum))

    def _started(self, job: Job, R: Json) -> None:
        now = self._clock.now()
        begin, end = R["execution"]["starttime"], R["execution"]["expiration"]
        if end > 0 and job.id not in self._timers:
            if (now - begin) / (end - begin) > LATE_START:
                end += now - begin
            self._timers[job.id] = self._clock.call_later(
                end - now, lambda: self._expired(job)
            )
        self.manager.post(job, "start")

    def _expired(self, job: Job) -> None:
        self._raise(job, "timeout", "resource allocation expired")

    def _raise(self, job: Job, type: str, note: str) -> None:
        context = {
            "type": type,
            "severity": 0,
            "userid": self.manager.owner,
            "note": note,
        }
        self.manager.post(job, "exception", context)

    def _cancel_timer(self, jobid: int) -> None:
        timer = self._timers.pop(jobid, None)
        if timer is not None:
            timer.cancel()


@dataclass(frozen=True)
class MockRun:
    """The run of a job under :class:`VirtualExecutor`.

    Attributes:
        seconds: the job runs for so long.
        status: its wait status at the end.
        ignores_sigterm: it does not end on SIGTERM.
    """

    seconds: float = 1.0
    status: int = 0
    ignores_sigterm: bool = False


def mock_run_of(jobspec: Json) -> MockRun:
    """Read ``attributes.system.exec.test``: ``run_duration`` (FSD) and ``wait_status``,
    which Flux's test executor reads as well, and ``deaf`` (the job ignores SIGTERM).

    Raises:
        ValueError: a value is malformed.
    """
    test = jobspec.get("attributes", {}).get("system", {}).get("exec", {})
    test = test.get("test", {})
    try:
        seconds = parse_fsd("exec.test.run_duration", test.get("run_duration", "1s"))
    except ConfigError as error:
        raise ValueError(str(error)) from None
    status = test.get("wait_status", 0)
    if not isinstance(status, int):
        raise ValueError(f"exec.test.wait_status: {status!r} is not an integer")
    return MockRun(seconds, status, bool(test.get("deaf", False)))


class VirtualExecutor:
    """Runs nothing: a job lasts as long as its jobspec says.

    ``prepare`` is called for each shell with the launch and the shell's rank;
    an ``OSError`` that it raises keeps the job from starting.
    """

    def __init__(
        self,
        clock: Clock,
        prepare: Optional[Callable[[Launch, int], Mapping[str, str]]] = None,
    ) -> None:
        self._clock = clock
        self._prepare = prepare
        self._running: dict[int, tuple[Launch, MockRun, Timer]] = {}
        self.environments: dict[int, list[Mapping[str, str]]] = {}
        """The result of ``prepare`` for each job's shells."""

    def start(self, launch: Launch) -> None:
        launch.started()
        try:
            run = mock_run_of(launch.jobspec)
            if self._prepare is not None:
                self.environments[launch.jobid] = [
                    self._prepare(launch, rank) for rank in range(len(launch.hosts))
                ]
        except (OSError, ValueError) as error:
            launch.failed(str(error))
            launch.finished(1 << 8)
            launch.released()
            return
        timer = self._clock.call_later(
            run.seconds, lambda: self._end(launch.jobid, run.status)
        )
        self._running[launch.jobid] = (launch, run, timer)

    def kill(self, jobid: int, signum: int) -> None:
        if jobid not in self._running:
            return
        _, run, timer = self._running[jobid]
        if run.ignores_sigterm and signum != signal.SIGKILL:
            return
        timer.cancel()
        self._end(jobid, (128 + signum) << 8)

    def _end(self, jobid: int, status: int) -> None:
        launch, _, _ = self._running.pop(jobid)
        launch.finished(status)
        launch.released()
