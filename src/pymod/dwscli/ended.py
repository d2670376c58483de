# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Jobs that ended, from what Flux has of them: as the module shows active ones.

The module forgets a job when its storage is gone. Flux's job-list still has the job and
its memos, and the KVS what the module has left there: ``rabbit_workflow``,
``rabbit_hostlist``, ``rabbit_allocations``, ``rabbit_<state>_timing``,
``rabbit_moved``, ``rabbit_datamovements``, ``rabbit_data_out`` and
``rabbit_nodes_released``. The user of a job can change its memos, but not what is in
the KVS: a memo only tells which jobs are worth a look there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Iterable, Iterator, Mapping, Optional, Sequence

from dwscli import records
from dwscli.instance import Instance
from dwscli.reading import number, part, text, texts
from dwscli.terminal import warn
from flux_k8s.errors import DirectiveError
from flux_k8s.formats import directives
from flux_k8s.formats.timestamps import parse_timestamp
from flux_k8s.objects.workflowdirectives import read_directives
from flux_k8s.objects.workflowstate import STATES, State
from flux_k8s.objects.workflowview import WorkflowView
from flux_k8s.ports import Json
from flux_k8s.reasons import Reason
from flux_k8s.text import NOTE, SHOWN, printable, without_next_step

WORKFLOW = "rabbit_workflow"
HOSTLIST = "rabbit_hostlist"
ALLOCATIONS = "rabbit_allocations"
MOVED = "rabbit_moved"
MOVEMENTS = "rabbit_datamovements"
DATA_OUT = "rabbit_data_out"
NODES_RELEASED = "rabbit_nodes_released"
EVENTLOG = "eventlog"
JOBSPEC = "jobspec"
TIMINGS = {state: f"rabbit_{state.lower()}_timing" for state in STATES}

ENDED = "ended"
"""The state of a job that ended, where an active one has that of its Workflow."""

NONE = "none"
"""The state of an active job of whose Workflow the module does not know."""

NODES_SHARE = ("lustre",)
"""Types of file systems of which the nodes of a job have one together."""

RESULTS = {1: "COMPLETED", 2: "FAILED", 4: "CANCELED", 8: "TIMEOUT"}
"""The results of Flux's jobs, by their numbers."""

RUNNING, CLEANUP, INACTIVE = 16, 32, 64
"""States of Flux's jobs, by their numbers."""

EXCEPTION = "dws"
"""The beginning of the types of exceptions that are about storage."""

DENIED = "alloc"
"""The type of the exception of a job that the scheduler cannot place."""

LARGEST_LIST = 65536
"""The most jobs that ended among which those with storage are searched."""

AT_A_TIME = 8
"""Jobspecs or eventlogs that are in memory at a time: each may have many MB."""

UNRECORDED = "nothing is recorded of its storage"
"""The fate of a job that has ended without a record of its data, or an exception."""

Kvs = Mapping[tuple[int, str], str]

Raised = tuple[int, str, str]
"""Severity, type and note of an exception."""


def is_inactive(job: Json) -> bool:
    return number(job, "state") == INACTIVE


@dataclass(frozen=True)
class Form:
    """What is made of a job that ended.

    Attributes:
        keys: the records that it is made of.
        make: makes it of the job, as job-list has it, and of the records.
    """

    keys: Sequence[str]
    make: Callable[[Json, Kvs], Json]


def last(
    instance: Instance, form: Form, userid: Optional[int], since: float, most: int
) -> list[Json]:
    """The jobs with storage that ended last.

    They have the memo of a Workflow, or failed for their storage, as a user may remove
    the memo, or were denied nodes, which removes it from job-list. Few jobs may have
    had storage, and some that had none may have the memo. So more are asked for until
    there are enough, or there are no more.
    """
    asked = 4 * most
    while True:
        asked = min(asked, LARGEST_LIST)
        listed = instance.ended_jobs(userid, since, asked)
        marked = [job for job in listed if _may_have_storage(job)]
        are_all = len(listed) < asked or asked == LARGEST_LIST
        if are_all or len(marked) >= most:
            found, kvs = _first_records(instance, marked, most, form.keys)
            if len(found) < most:
                _warn_of_more(listed)
            if are_all or len(found) >= most:
                return [form.make(job, kvs) for job in found]
        asked *= 8


def all_of(instance: Instance, form: Form, found: Iterable[Json]) -> list[Json]:
    """Those of some jobs of job-list that asked for storage. The jobs are the user's
    own, or the user is the instance owner.

    Raises:
        OSError: EPERM for the job of another user.
    """
    listed, kvs = _records(instance, found, form.keys)
    return [form.make(job, kvs) for job in listed]


def _first_records(
    instance: Instance, marked: list[Json], most: int, keys: Sequence[str]
) -> tuple[list[Json], Kvs]:
    """The first of some jobs that asked for storage, and their records."""
    found: list[Json] = []
    records_of: dict[tuple[int, str], str] = {}
    for start in range(0, len(marked), max(1, most)):
        if len(found) >= most:
            break
        listed, kvs = _records(instance, marked[start : start + most], keys)
        found += (j for j in listed if _is_marked(j) or (j["id"], WORKFLOW) in kvs)
        records_of.update(kvs)
    return found[:most], records_of


def recorded_jobs(
    instance: Instance, userid: Optional[int], since: float
) -> list[Json]:
    """The jobs that ended last and have a Workflow in the KVS, as job-list has them:
    also those without the memo."""
    listed = instance.ended_jobs(userid, since, LARGEST_LIST)
    _warn_of_more(listed)
    recorded = instance.kvs((job["id"], WORKFLOW) for job in listed)
    return [job for job in listed if (job["id"], WORKFLOW) in recorded]


def _warn_of_more(listed: list[Json]) -> None:
    """Tell where older jobs are missing: one user may have run as many as are listed,
    and the storage of all others would not be counted."""
    if len(listed) >= LARGEST_LIST:
        text = f"only the last {LARGEST_LIST} jobs that ended were searched for storage"
        warn(f"{text}: --since and --user leave out others")


def without(active: Iterable[Json], found: Iterable[Json]) -> list[Json]:
    """The jobs that ended without those that the module still has: a job may end
    between the two requests, and its storage may go after the job."""
    known = {job.get("id") for job in active}
    return [job for job in found if job["id"] not in known]


def _records(
    instance: Instance, found: Iterable[Json], keys: Sequence[str]
) -> tuple[list[Json], Kvs]:
    """The jobs that asked for storage, and their records. Of a job without a recorded
    Workflow the jobspec says whether it did."""
    listed, small = list(found), [key for key in keys if key != EVENTLOG]
    kvs = dict(instance.kvs((job["id"], key) for job in listed for key in small))
    without: set[int] = set()
    doubtful = [job["id"] for job in listed if (job["id"], WORKFLOW) not in kvs]
    for portion in _portions(instance, doubtful, JOBSPEC):
        without |= {id for id, spec in portion.items() if not has_directives(spec)}
    listed = [job for job in listed if job["id"] not in without]
    if EVENTLOG in keys:
        for portion in _portions(instance, [job["id"] for job in listed], EVENTLOG):
            for id, log in portion.items():
                lines = (line for line in log.split("\n") if '"exception"' in line)
                kvs[id, EVENTLOG] = "\n".join(lines)
    return listed, kvs


def _portions(
    instance: Instance, ids: Sequence[int], key: str
) -> Iterator[dict[int, str]]:
    """The texts under a key of jobs that users make as long as they like, a few at a
    time; an empty text where there is none."""
    for start in range(0, len(ids), AT_A_TIME):
        part = ids[start : start + AT_A_TIME]
        found = instance.kvs((id, key) for id in part)
        yield {id: found.get((id, key), "") for id in part}


def has_directives(jobspec: str) -> bool:
    """Whether the text of a jobspec asks for storage."""
    return bool(
        part(part(records.json_object(jobspec), "attributes"), "system").get("dw")
    )


def row(job: Json, kvs: Kvs) -> Json:
    """One job of job-list as a row of ``dws.job-list``.

    Besides the keys of active jobs it has ``result``, ``bank``, ``project``,
    ``transfers``: the data that was moved, as ``rabbit_moved`` has it, ``gone``: when
    its storage was gone (UNIX time), and, where they are known, ``allocated``: the
    bytes on each Rabbit, and ``seconds`` and ``held``: for how long the job had a
    Workflow, and for how long storage.
    """
    workflow = records.json_object(kvs.get((job["id"], WORKFLOW)))
    view = WorkflowView.parse(workflow)
    moved = records.transfers(kvs.get((job["id"], MOVED)))
    amounts = [each["bytes"] for each in moved if each["bytes"] is not None]
    end = number(job, "t_inactive")
    gone = _gone(view, end)
    nnodes = int(number(job, "nnodes") or 0)
    lines = _lines(workflow)
    sizes = records.allocated(kvs.get((job["id"], ALLOCATIONS)))
    found: Json = {
        "id": job["id"],
        "userid": job.get("userid"),
        "state": ENDED,
        "status": view.status,
        "since": end,
        "gone": gone,
        "ready": False,
        "wants": "released",
        "nodes": text(job, "nodelist"),
        "nnodes": nnodes,
        "rabbits": kvs.get((job["id"], HOSTLIST), ""),
        "capacity": capacity(lines, nnodes) if sizes is None else sum(sizes.values()),
        "types": [*read_directives(lines).storage["types"]],
        "moved": sum(amounts) if amounts else None,
        "total": None,
        "percent": None,
        "waits": _fate(view, _outcome(kvs, job), _exception(job)),
        "result": RESULTS.get(int(number(job, "result") or 0), ""),
        "transfers": moved,
        "bank": text(job, "bank"),
        "project": text(job, "project"),
    }
    if sizes is not None:
        found["allocated"] = sizes
    created = text(part(workflow, "metadata"), "creationTimestamp")
    begun, setup = parse_timestamp(created), view.begun[State.Setup]
    if begun is not None and gone is not None:
        found["seconds"] = max(0.0, gone - begun)
    if setup is not None and gone is not None:
        found["held"] = max(0.0, gone - setup)
    return found


def _details(job: Json, kvs: Kvs) -> Json:
    id = job["id"]
    workflow = records.json_object(kvs.get((id, WORKFLOW)))
    view = WorkflowView.parse(workflow)
    raised = list(_exceptions(kvs.get((id, EVENTLOG), "")))
    outcome = _outcome(kvs, job)
    failed = _fate(view, outcome, _first_fatal(raised))
    return {
        **row(job, kvs),
        "serial": 0,
        "directives": [*_lines(workflow)],
        "message": view.message,
        "states": states(view, kvs, id),
        "allocations": records.allocations(kvs.get((id, ALLOCATIONS))),
        "mounts": None,
        "movements": records.movements(records.json_value(kvs.get((id, MOVEMENTS)))),
        "limits": [],
        "exceptions": _shown(raised),
        "failed": failed or ("" if outcome else UNRECORDED),
        "waits": "",
    }


def _outcome(kvs: Kvs, job: Json) -> Json:
    """The record of what became of the data of a job; empty without one."""
    return records.json_object(kvs.get((job["id"], DATA_OUT)))


def _fate(view: WorkflowView, outcome: Json, exception: str) -> str:
    """Why the storage of a job that ended has failed, or what data is lost; empty if
    neither. The module records the outcome before the job ends, or when its data is
    out. A job that did not run has lost none. Where a copy had failed, the exception
    says until when the storage was to be kept, and not what became of it.

    Args:
        exception: the fatal exception of the job about its storage, or "".
    """
    did_not_run = text(outcome, "reason") == Reason.NOT_RUN.value
    lost = "" if did_not_run else printable(text(outcome, "errstr"), NOTE)
    return lost if view.copy_failed and outcome else exception or lost


def _lines(workflow: Json) -> tuple[str, ...]:
    """The directives of a Workflow, also of one that is damaged otherwise."""
    return tuple(texts(part(workflow, "spec"), "dwDirectives"))


ROW = Form((WORKFLOW, HOSTLIST, ALLOCATIONS, MOVED, DATA_OUT), row)
"""A row of ``dws.job-list``."""

DETAILS = Form((*ROW.keys, MOVEMENTS, EVENTLOG, *TIMINGS.values()), _details)
"""An answer of ``dws.job-show``."""


def exceptions(instance: Instance, id: int) -> list[str]:
    """The exceptions of a job, active or not.

    Raises:
        OSError: EPERM for the job of another user.
    """
    key = id, EVENTLOG
    return _shown(_exceptions(instance.kvs([key]).get(key, "")))


def _shown(exceptions: Iterable[Raised]) -> list[str]:
    return [f"{kind}: {note}" if note else kind for _, kind, note in exceptions]


def is_moving_data(instance: Instance, id: int) -> bool:
    """Whether a job has ended before its data was out, and it is not reported yet what
    became of the data.

    Raises:
        OSError: EPERM for the job of another user.
    """
    kvs = instance.kvs([(id, NODES_RELEASED), (id, DATA_OUT)])
    return (id, NODES_RELEASED) in kvs and (id, DATA_OUT) not in kvs


def states(view: WorkflowView, kvs: Kvs, id: int) -> list[Json]:
    """The states of a job's Workflow that it was in, with their seconds."""
    found = []
    for name, state in STATES.items():
        seconds = records.json_number(kvs.get((id, TIMINGS[name])))
        if seconds is not None:
            begun = view.begun[state]
            found.append({"state": name, "begun": begun, "seconds": seconds})
    return found


def capacity(lines: Iterable[str], nnodes: int) -> int:
    """The bytes that directives ask for: for each node, or for all together."""
    total = 0
    for line in lines:
        try:
            directive = directives.parse(line)
        except DirectiveError:
            continue
        together = directive.arguments.get("type") in NODES_SHARE
        total += directive.capacity * (1 if together else max(1, nnodes))
    return total


def _is_marked(job: Json) -> bool:
    """Whether a job has the memo of a Workflow."""
    return WORKFLOW in _memos(job)


def _may_have_storage(job: Json) -> bool:
    """Whether the records of a job that ended are worth a look."""
    is_denied = text(job, "exception_type") == DENIED
    return _is_marked(job) or bool(_exception(job)) or is_denied


def _memos(job: Json) -> Mapping[str, Any]:
    return part(part(job, "annotations"), "user")


def _gone(view: WorkflowView, end: Optional[float]) -> Optional[float]:
    """When the storage of a job that ended at ``end`` was gone (UNIX time): later than
    that if the job gave its nodes back before (``dw_release``, ``keep_failed``)."""
    if end is None or not view.nodes_released:
        return end
    times = view.begun[State.Teardown], view.ended[State.Teardown]
    return max(end, *(time or end for time in times))


def _exception(job: Json) -> str:
    """The note of the exception that ended a job, if it is about storage."""
    kind = text(job, "exception_type")
    if not kind.startswith(EXCEPTION) or number(job, "exception_severity") != 0:
        return ""
    return printable(without_next_step(text(job, "exception_note")) or kind, NOTE)


def _first_fatal(exceptions: Iterable[Raised]) -> str:
    """The first fatal exception that is about storage, or ""."""
    for severity, kind, note in exceptions:
        if severity == 0 and kind.startswith(EXCEPTION):
            return note or kind
    return ""


def _exceptions(eventlog: str) -> Iterator[Raised]:
    """The exceptions in an eventlog. The user of a job can
    raise them, of any length."""
    for line in eventlog.split("\n"):
        event = records.json_object(line)
        if event.get("name") == "exception":
            context = part(event, "context")
            severity = int(number(context, "severity") or 0)
            kind = text(context, "type")
            note = without_next_step(text(context, "note"))
            yield severity, printable(kind, SHOWN), printable(note, NOTE)
