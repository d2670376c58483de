# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Isolates jobs from each other's faults.

An unexpected exception in the service fails the job that the service works for, and no
other job. :class:`JobScope` knows that job, also in callbacks of Kubernetes and Flux.
:class:`Faults` fails it.

A service that dies raises no exception. So the scope writes the current :class:`Work`
into memory that the supervisor reads. The supervisor counts deaths by work, and after
several tells the next services not to do it (:class:`Barred`).
"""

from __future__ import annotations

import contextlib
import syslog
import traceback
from dataclasses import dataclass
from functools import partial
from typing import Any, Callable, Collection, Coroutine, Iterator, Optional

from flux_k8s.control.coroutines import Call, drive
from flux_k8s.errors import DWSError
from flux_k8s.jobs.work import NoteWork, Work
from flux_k8s.jobs.workflowinfo import Goal, WorkflowInfo
from flux_k8s.ports import Flux
from flux_k8s.reasons import DWS, FATAL, Note, Reason
from flux_k8s.slots import slotted

RETRIES = 3
"""The number of new attempts to release a job's storage after an exception."""

FRAMES = 8
"""The number of callers that are logged."""


def describe(error: BaseException) -> str:
    """An exception and its callers, innermost first, in one line."""
    frames = traceback.extract_tb(error.__traceback__)[-FRAMES:]
    places = (
        f"{frame.filename.rpartition('/')[2]}:{frame.lineno} {frame.name}"
        for frame in reversed(frames)
    )
    return f"{summary(error)} ({' < '.join(places)})"


def summary(error: BaseException) -> str:
    """The type and the message of an exception, at most 300 characters."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:300]


class Barred(DWSError):
    """Several services have died of this work, so it is refused."""

    reason = Reason.BARRED

    def __init__(self, work: Work) -> None:
        what = "released" if work.releasing else "worked on"
        super().__init__(f"the dws service has died each time it {what} the storage")


class JobScope:
    """The job that the service works for at the moment.

    Args:
        failed: is called with the job and an exception that escaped from work for it.
        releases: whether a job's storage is to be released.
        note_work: is called when the work changes.
        barred: the work that is not to be done, since services have died of it.
    """

    def __init__(
        self,
        failed: Callable[[int, Exception], None],
        releases: Callable[[int], bool],
        note_work: NoteWork,
        barred: Collection[Work] = (),
    ) -> None:
        self._failed = failed
        self._releases = releases
        self._note_work = note_work
        self._barred = frozenset(barred)
        self._work: Optional[Work] = None

    def bars(self, work: Work) -> bool:
        """Whether services have died of this work."""
        return work in self._barred

    def run(self, jobid: int, function: Callable[..., object], *args: Any) -> None:
        """Call a function for a job. ``failed`` gets an exception of the function."""
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
        """A context in which the service does this work."""
        outer = self._work
        self._begin(work)
        try:
            yield
        finally:
            self._begin(outer)

    def _begin(self, work: Optional[Work]) -> None:
        self._work = work
        self._note_work(work)

    def spawn(
        self,
        jobid: int,
        coroutine: Coroutine[Call[Any], Any, object],
        expected: tuple[type[Exception], ...] = (),
    ) -> None:
        """Run a coroutine for a job beside its steps. ``expected`` errors end it."""
        bind = partial(partial, self.run, jobid)
        self.run(jobid, drive, coroutine, lambda result: None, expected, bind)


@slotted
@dataclass
class Faults:
    """The unexpected exceptions in work for one job.

    Attributes:
        count: the number of exceptions since the job's goal is RELEASED.
        given_up: whether the service has stopped working for the job.
        note: the last exception, in a note for the job's user.
        reported: an exception of the job says that storage may be left.
    """

    count: int = 0
    given_up: bool = False
    note: str = ""
    reported: bool = False

    def handle(self, info: WorkflowInfo, error: Exception, flux: Flux) -> bool:
        """Fail the job, or give it up, and return whether to reconcile the job again,
        if only to let it go (:class:`~flux_k8s.jobs.reconciler.Reconciler`). If that
        raises an exception as well, nothing is done for the job any more."""
        if self.given_up:
            return False
        try:
            return self._fail(info, error, flux)
        except Exception as another:
            self.given_up = True
            text = f"{info.f58}: cannot be failed: {describe(another)}"
            flux.log(syslog.LOG_CRIT, text, Reason.SERVICE_FAULT)
            return True

    def _fail(self, info: WorkflowInfo, error: Exception, flux: Flux) -> bool:
        self.note = note = f"internal error, the log has more: {summary(error)}"
        reason = Reason.SERVICE_FAULT
        if info.goal is not Goal.RELEASED:
            if not info.failed:
                info.failure = Note(note, reason)
                flux.raise_exception(info.jobid, DWS, FATAL, note, reason)
            return False
        self.count += 1
        if self.count > RETRIES:
            self.given_up = True
            text = f"{info.f58}: {left_behind(info)}"
            flux.log(syslog.LOG_CRIT, text, reason)
        return True


def left_behind(info: WorkflowInfo) -> str:
    """A sentence about the storage of a job that was given up."""
    return (
        f"storage may be left behind: Workflow {info.name} is left "
        "alone until the dws module is loaded again"
    )
