# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The history of a job, from its eventlog (RFC 18 and 21)."""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Callable, Mapping, Optional

from flux_k8s.errors import DWSError
from flux_k8s.json_reader import Reader

RESOURCES = "resources"
CONSTRAINTS = "attributes.system.constraints"
QUEUE = "attributes.system.queue"

HOLDING = "dws-create"
"""The dependency of a job for which the module looks at what its storage needs."""

URGENCY_HOLD = 0
_FATAL = 0


class JobState(enum.Enum):
    """The state of a job, in the words of the job object."""

    IDLE = "Idle"
    HOLD = "Hold"
    RUNNING = "Running"
    COMPLETED = "Completed"


@dataclass(frozen=True)
class JobException:
    """An exception that was raised on a job."""

    type: str
    severity: int
    note: str

    def __str__(self) -> str:
        return f"{self.type}: {self.note}" if self.note else self.type


@dataclass(frozen=True)
class History:
    """The history of a job. Times are UNIX times in seconds; a time that has not come
    is None.

    Attributes:
        userid: the user who submitted the job.
        urgency: 0 to 31; 0 holds it.
        pending: the job has no resources, and may still get some.
        status: the status of the job as of wait(2).
        priority: the last priority of the job.
        problems: its exceptions, in their order.
        memos: those in force.
        updates: the requested changes to its jobspec, in their order, without
            the changes of the module for its storage.
    """

    userid: int
    urgency: int
    submitted: float
    pending: bool = True
    started: Optional[float] = None
    finished: Optional[float] = None
    ended: Optional[float] = None
    status: Optional[int] = None
    priority: Optional[int] = None
    problems: tuple[JobException, ...] = ()
    memos: Mapping[str, Any] = field(default_factory=dict)
    updates: tuple[Mapping[str, Any], ...] = ()

    @property
    def state(self) -> JobState:
        """The storage of a job is still drained in CLEANUP: until that is over, a
        job is Running."""
        if self.ended is not None:
            return JobState.COMPLETED
        if not self.pending:
            return JobState.RUNNING
        return JobState.HOLD if self.urgency == URGENCY_HOLD else JobState.IDLE

    @property
    def exit_code(self) -> Optional[int]:
        """The exit code that a shell makes of ``status``."""
        if self.status is None:
            return None
        signal = self.status & 0x7F
        return 128 + signal if signal else self.status >> 8

    @property
    def problem(self) -> Optional[JobException]:
        """The exception to be told: the first that was fatal, which is why the job
        ended (RFC 21), else the last."""
        fatal = [p for p in self.problems if p.severity == _FATAL]
        return fatal[0] if fatal else next(reversed(self.problems), None)


def parse(text: str, job: str) -> History:
    """Read an eventlog. ``job`` is how errors call the job.

    Raises:
        DWSError: it is none, or does not begin with ``submit``.
    """
    name = f"the eventlog of job {job}"
    fold: Optional[_Fold] = None
    # Not splitlines(): that would split at separators that JSON allows in strings.
    for number, line in enumerate(text.rstrip("\n").split("\n") if text else (), 1):
        event = Reader(f"line {number} of {name}", _json(line, number, name))
        kind = event.string("name")
        if fold is None:
            if kind != "submit":
                raise event.bad("name", "submit, with which each eventlog begins")
            fold = _Fold(event)
        elif kind in _HANDLERS:
            _HANDLERS[kind](fold, event)
    if fold is None:
        raise DWSError(f"{name} is empty, expected a line for each event")
    return fold.history()


def _json(line: str, number: int, name: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DWSError(f"line {number} of {name} is not JSON: {error}") from None


class _Fold:
    """The history after the events so far."""

    def __init__(self, submit: Reader) -> None:
        self.values: dict[str, Any] = {
            "userid": submit.integer("context.userid", minimum=0),
            "urgency": submit.integer("context.urgency", minimum=0),
            "submitted": _time(submit),
        }
        self.problems: list[JobException] = []
        self.memos: dict[str, Any] = {}
        self.updates: list[Mapping[str, Any]] = []
        self.held = False

    def history(self) -> History:
        return History(
            **self.values,
            problems=tuple(self.problems),
            memos=MappingProxyType(self.memos),
            updates=tuple(self.updates),
        )

    def set(self, **values: Any) -> None:
        self.values.update(values)


def _urgency(fold: _Fold, event: Reader) -> None:
    fold.set(urgency=event.integer("context.urgency", minimum=0))


def _priority(fold: _Fold, event: Reader) -> None:
    fold.set(priority=event.integer("context.priority", minimum=0))


def _alloc(fold: _Fold, event: Reader) -> None:
    fold.set(pending=False)


def _start(fold: _Fold, event: Reader) -> None:
    fold.set(started=_time(event))


def _finish(fold: _Fold, event: Reader) -> None:
    status = event.integer("context.status", minimum=0)
    fold.set(finished=_time(event), status=status, pending=False)


def _clean(fold: _Fold, event: Reader) -> None:
    fold.set(ended=_time(event))


def _exception(fold: _Fold, event: Reader) -> None:
    severity = event.integer("context.severity", minimum=0)
    note = event.text("context.note") if event.has("context.note") else ""
    fold.problems.append(JobException(event.string("context.type"), severity, note))
    if severity == _FATAL:
        fold.set(pending=False)


def _memo(fold: _Fold, event: Reader) -> None:
    for key, value in event.object("context").value.items():
        if value is None:
            fold.memos.pop(key, None)
        else:
            fold.memos[key] = value


def _dependency_add(fold: _Fold, event: Reader) -> None:
    if event.text("context.description") == HOLDING:
        fold.held = True


def _dependency_remove(fold: _Fold, event: Reader) -> None:
    if event.text("context.description") == HOLDING:
        fold.held = False


def _jobspec_update(fold: _Fold, event: Reader) -> None:
    """Note a change, unless it is the module's: that comes while it holds the job,
    and is about nothing but what the scheduler looks at."""
    changes = event.object("context").value
    if not (fold.held and set(changes) <= {RESOURCES, CONSTRAINTS}):
        fold.updates.append(changes)


_HANDLERS: Mapping[str, Callable[[_Fold, Reader], None]] = MappingProxyType(
    {
        "urgency": _urgency,
        "priority": _priority,
        "alloc": _alloc,
        "start": _start,
        "finish": _finish,
        "clean": _clean,
        "exception": _exception,
        "memo": _memo,
        "dependency-add": _dependency_add,
        "dependency-remove": _dependency_remove,
        "jobspec-update": _jobspec_update,
    }
)


def _time(event: Reader) -> float:
    return event.number("timestamp", minimum=0.0)
