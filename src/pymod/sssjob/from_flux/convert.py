# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Job objects of what Flux has of jobs.

What the job object has no element for stands in Extensions of type ``Flux``
(:mod:`~sssjob.terms`), so that nothing of a jobspec is lost.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Callable, Iterable, Iterator, Mapping, Optional, Sequence

from flux_k8s.errors import DWSError
from flux_k8s.formats import rset
from flux_k8s.formats.jobid import f58
from flux_k8s.formats.rset import ResourceSet
from flux_k8s.objects.workflowstate import STATES
from flux_k8s.rules import getrabbit
from sssjob.from_flux import history
from sssjob.from_flux.delivered import delivered, rabbits_extension, timing_key
from sssjob.from_flux.history import History, JobState
from sssjob.from_flux.program import environment, program
from sssjob.from_flux.remainder import Remainder, Warn
from sssjob.from_flux.requested import directives_of, requested, updated
from sssjob.from_flux.size import size_of
from sssjob.schema.model import Element, element
from sssjob.schema.properties import (
    DELIVERED,
    JOB,
    JOB_GROUP,
    REQUESTED,
    TASK_GROUP,
)
from sssjob.schema.values import Datatype, unwritable
from sssjob.terms import SYSTEM

EVENTLOG = "eventlog"
JOBSPEC = "jobspec"
R = "R"
WORKFLOW = "rabbit_workflow"
DATA_MOVEMENTS = "rabbit_datamovements"

VERSION = 1
"""Of jobspecs (RFC 25), unless they say otherwise."""

KEYS = (
    EVENTLOG,
    JOBSPEC,
    R,
    WORKFLOW,
    DATA_MOVEMENTS,
    getrabbit.RECORD,
    *(timing_key(state) for state in STATES),
)
"""The keys of a job's KVS directory that are read. All but two may be missing."""


@dataclass(frozen=True)
class JobRecord:
    """The record of a job in Flux.

    Attributes:
        jobid: the job's ID.
        kvs: the values of :data:`KEYS`, as text. ``jobspec`` is the one that was
            submitted, without the updates in the eventlog.
        parent: of a step of a batch job, ``ID/`` of the batch job.
    """

    jobid: int
    kvs: Mapping[str, str]
    parent: str = ""

    @property
    def id(self) -> str:
        """The job's ID in F58, in ASCII; a step's behind that of the batch job."""
        return self.parent + f58(self.jobid)


@dataclass(frozen=True)
class ExportOptions:
    """How jobs are written as elements.

    Attributes:
        presets: ``rabbit.presets`` of the configuration.
        user_name: the name of a user, None for one that is not known.
        machine: the name of the system that runs the jobs; None to leave it out.
        environment: whether to write the variables of jobs, but for those that seem
            to be secret.
        warn: gets a line about each value that an element does not express exactly.
    """

    presets: Mapping[str, Sequence[str]] = field(default_factory=dict)
    user_name: Callable[[int], Optional[str]] = lambda userid: None
    machine: Optional[str] = None
    environment: bool = False
    warn: Warn = lambda message: None


def job_object(record: JobRecord, options: Optional[ExportOptions] = None) -> Element:
    """A job as a Job.

    Raises:
        DWSError: something of the record is missing, or is not what Flux writes.
    """
    try:
        return _job_object(record, options or ExportOptions())
    except RecursionError:
        raise DWSError(f"jobspec of job {record.id} is nested too deeply") from None


def group_object(
    id: str, jobs: Sequence[Element], name: Optional[str] = None
) -> Element:
    """Jobs as a JobGroup."""
    return element(
        JOB_GROUP,
        None,
        element("Id", id),
        None if name is None else element("Name", name),
        element("State", group_state(jobs)),
        *jobs,
    )


def group_state(jobs: Sequence[Element]) -> str:
    """The state of a group: Completed when all of its jobs are, Active when any of
    them runs or ran, else Unstarted."""
    states = {job.text("State") for job in jobs}
    if states == {JobState.COMPLETED.value}:
        return "Completed"
    active = {JobState.COMPLETED.value, JobState.RUNNING.value}
    return "Active" if states & active else "Unstarted"


def _job_object(record: JobRecord, options: ExportOptions) -> Element:
    job = record.id
    past = history.parse(_text(record, EVENTLOG), job)
    jobspec = _json(record, JOBSPEC)
    if isinstance(jobspec, dict):
        jobspec = updated(jobspec, past.updates, job)
    remainder = Remainder(jobspec, job, options.warn)
    rset_of_job = _rset(record)
    parts = [
        element("Id", job),
        *_state(past),
        *_account(past, options),
        *_times(past, remainder),
        *_asked(remainder, record, options),
        *_environment(remainder, options),
        _container(DELIVERED, _delivered(record, past, rset_of_job)),
        rabbits_extension(record.kvs.get(getrabbit.RECORD, ""), rset_of_job, job),
    ]
    # Last: what the others have taken is told.
    return element(JOB, None, *parts, *remainder.extensions())


def _state(past: History) -> Iterator[Element]:
    yield element("State", past.state.value)
    if past.state is JobState.HOLD:
        yield element("Hold", "User")
    if past.problem is not None:
        yield element("StatusMessage", _printable(str(past.problem)))
    if past.exit_code is not None:
        yield element("ExitCode", past.exit_code)
    if past.priority is not None:
        yield element("Priority", past.priority)


def _account(past: History, options: ExportOptions) -> Iterator[Element]:
    name = options.user_name(past.userid)
    yield element("User", str(past.userid) if name is None else name)
    if options.machine is not None:
        yield element("Machine", options.machine)


def _times(past: History, remainder: Remainder) -> Iterator[Element]:
    """The times of a job. A job that never ran ends with its cleanup."""
    for name, time in (
        ("SubmitTime", past.submitted),
        ("StartTime", past.started),
        ("EndTime", past.ended if past.finished is None else past.finished),
    ):
        if time is None:
            continue
        if Datatype.DATETIME.holds(int(time)):
            yield element(name, int(time))
        else:
            meaning = Datatype.DATETIME.meaning
            remainder.warn(f"{name} is left out: it is {time:.15g}, expected {meaning}")


def _asked(
    remainder: Remainder, record: JobRecord, options: ExportOptions
) -> Iterator[Optional[Element]]:
    """The elements of the request. They are taken out of ``remainder``."""
    if remainder.get("version") == VERSION:
        remainder.take("version")
    size = size_of(remainder)
    directives = directives_of(remainder, options.presets, _optional(record, WORKFLOW))
    yield from program(remainder, size.count, record.parent)
    yield _container(REQUESTED, [*size.requested, *requested(remainder, directives)])
    yield _container(TASK_GROUP, size.task_group)


def _environment(remainder: Remainder, options: ExportOptions) -> Iterator[Element]:
    if options.environment:
        yield from environment(remainder)
    else:
        remainder.take(*SYSTEM, "environment")


def _delivered(
    record: JobRecord, past: History, got: Optional[ResourceSet]
) -> Iterator[Element]:
    timings = {state: _optional(record, timing_key(state)) for state in STATES}
    movements = _optional(record, DATA_MOVEMENTS)
    return delivered(past, got, timings, movements, record.id)


def _container(name: str, contents: Iterable[Element]) -> Optional[Element]:
    """An element for some others; None for one that would be empty."""
    inner = tuple(contents)
    return element(name, None, *inner) if inner else None


def _rset(record: JobRecord) -> Optional[ResourceSet]:
    R_json = _optional(record, R)
    return None if R_json is None else rset.parse(R_json, f"R of job {record.id}")


def _text(record: JobRecord, key: str) -> str:
    if key not in record.kvs:
        raise DWSError(f"job {record.id} has no {key}")
    return record.kvs[key]


def _optional(record: JobRecord, key: str) -> Any:
    """The JSON under a key; None where there is none."""
    return _json(record, key) if key in record.kvs else None


def _json(record: JobRecord, key: str) -> Any:
    try:
        return json.loads(_text(record, key))
    except (ValueError, RecursionError) as error:
        raise DWSError(f"{key} of job {record.id} is not JSON: {error}") from None


def _printable(text: str) -> str:
    """The text, with what XML cannot hold as an escape sequence."""
    return "".join(
        char.encode("unicode_escape").decode("ascii") if unwritable(char) else char
        for char in text
    )
