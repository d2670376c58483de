# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""One job's trouble stays that job's.

An exception that nobody expected, while something is done for a job, fails that job
and leaves all others alone. :class:`JobScope` tells for which job something is done,
in callbacks of Kubernetes and Flux, too; :class:`Faults` what becomes of the job.

A death leaves no exception. So the scope notes what is being done where the supervisor
finds it, who counts, and bars the next services from :class:`Work` that several have
died of (:class:`Barred`).
"""

from __future__ import annotations

import contextlib
import syslog
import traceback
from dataclasses import dataclass
from typing import Any, Callable, Iterator, NamedTuple, Optional, TypeVar, cast

from flux_k8s.errors import DWSError
from flux_k8s.jobs.jobexception import DWS, FATAL, WARNING
from flux_k8s.jobs.workflowinfo import Goal, WorkflowInfo
from flux_k8s.ports import Flux
from flux_k8s.rfc.jobid import f58, workflow_name

Port = TypeVar("Port")

RETRIES = 3
"""How often the release of a job's storage is tried again after an exception."""

FRAMES = 8
"""How many callers are logged."""


def describe(error: BaseException) -> str:
    """An exception and where it arose, innermost first, in one line."""
    frames = traceback.extract_tb(error.__traceback__)[-FRAMES:]
    places = (
        f"{frame.filename.rpartition('/')[2]}:{frame.lineno} {frame.name}"
        for frame in reversed(frames)
    )
    return f"{summary(error)} ({' < '.join(places)})"


def summary(error: BaseException) -> str:
    """An exception in a few words."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:300]


class Work(NamedTuple):
    """What is done for a job: it is given storage, or that is ``releasing`` it."""

    jobid: int
    releasing: bool


NoteWork = Callable[[Optional[Work]], None]
"""Notes what is being done, None for nothing of one job's."""


class Barred(DWSError):
    """Services have died of this work: it is not done any more."""

    def __init__(self, work: Work) -> None:
        what = "released" if work.releasing else "worked on"
        super().__init__(f"the dws service has died each time it {what} the storage")


class JobScope:
    """For which job something is done.

    Args:
        failed: gets the job and an exception that escaped while something was done
            for it.
        releases: tells whether a job's storage is to be released.
        note_work: is called when the work changes.
    """

    def __init__(
        self,
        failed: Callable[[int, Exception], None],
        releases: Callable[[int], bool],
        note_work: NoteWork,
    ) -> None:
        self._failed = failed
        self._releases = releases
        self._note_work = note_work
        self._work: Optional[Work] = None

    def run(self, jobid: int, function: Callable[..., object], *args: Any) -> None:
        """Call a function for a job. Nothing that it raises gets out."""
        outer = self._work
        self._begin(Work(jobid, self._releases(jobid)))
        try:
            function(*args)
        except Exception as error:
            self._failed(jobid, error)
        finally:
            self._begin(outer)

    @contextlib.contextmanager
    def doing(self, work: Optional[Work]) -> Iterator[None]:
        """Within this, something is done for a job."""
        outer = self._work
        self._begin(work)
        try:
            yield
        finally:
            self._begin(outer)

    def _begin(self, work: Optional[Work]) -> None:
        self._work = work
        self._note_work(work)

    def bind(self, callback: Callable[..., None]) -> Callable[..., None]:
        """``callback``, to be called later for the same job."""
        if self._work is None:
            return callback
        jobid = self._work.jobid
        return lambda *args: self.run(jobid, callback, *args)

    def port(self, port: Port) -> Port:
        """A port to the world that binds all callbacks that it is given."""
        return cast(Port, _BoundPort(port, self))


class _BoundPort:
    def __init__(self, port: object, scope: JobScope) -> None:
        self._port = port
        self._scope = scope

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._port, name)
        bind = self._scope.bind

        def call(*args: Any, **options: Any) -> Any:
            bound = (bind(arg) if callable(arg) else arg for arg in args)
            return method(*bound, **options)

        return call


@dataclass
class Faults:
    """Exceptions that nobody expected, while something was done for one job.

    Attributes:
        count: how many there were since its storage is to be released.
        given_up: nothing is done for it any more.
    """

    count: int = 0
    given_up: bool = False

    def handle(self, info: WorkflowInfo, error: Exception, flux: Flux) -> bool:
        """Fail the job, or what its end waits for. Return whether to look at it
        again. When not even that works, the job is given up."""
        if self.given_up:
            return False
        try:
            return self._fail(info, error, flux)
        except Exception as another:
            self.given_up = True
            text = f"{f58(info.jobid)}: cannot be failed: {describe(another)}"
            flux.log(syslog.LOG_CRIT, text)
            return False

    def _fail(self, info: WorkflowInfo, error: Exception, flux: Flux) -> bool:
        note = f"internal error, the log has more: {summary(error)}"
        if info.goal is not Goal.RELEASED:
            if not info.failed:
                info.failed = True
                flux.raise_exception(info.jobid, DWS, FATAL, note)
            return False
        self.count += 1
        if self.count <= RETRIES:
            return True
        self.given_up = True
        self._let_go(info, note, flux)
        return False

    def _let_go(self, info: WorkflowInfo, note: str, flux: Flux) -> None:
        """Release the epilog. The storage stays, and that is said."""
        left = (
            f"storage may be left behind: Workflow {workflow_name(info.jobid)} is left "
            "alone until the dws module is loaded again"
        )
        flux.log(syslog.LOG_CRIT, f"{f58(info.jobid)}: {left}")
        if not info.released:
            flux.raise_exception(info.jobid, DWS, WARNING, f"{left}; {note}")
            payload = {"id": info.jobid}
            flux.rpc("job-manager.dws.epilog-remove", payload, lambda result: None)
