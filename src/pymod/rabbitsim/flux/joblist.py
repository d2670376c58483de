# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What Flux's job-list says of a job."""

from __future__ import annotations

import errno
import itertools
from typing import Any, Iterable, Optional

from msgspec import to_builtins

from flux_k8s.formats import hostlist, idset
from flux_k8s.ports import Json
from rabbitsim.flux.events import Event, JobState
from rabbitsim.flux.job import Job

COMPLETED, FAILED, CANCELED, TIMEOUT = 1, 2, 4, 8
"""The results of jobs, with the values that Flux gives them in messages."""

TIMES = {"t_run": "alloc", "t_inactive": "clean"}
"""The events with which a job enters a state."""

RESULTS = {"cancel": CANCELED, "timeout": TIMEOUT}
"""The results of jobs with a fatal exception of these types."""


def attributes(job: Job, names: Iterable[str]) -> Json:
    """Those attributes of a job, as far as it has them. ``id`` is always there."""
    known = _attributes(job)
    return {"id": job.id, **{name: known[name] for name in names if name in known}}


def list_jobs(jobs: Iterable[Job], payload: Json) -> list[Json]:
    """The answer to ``job-list.list``: the jobs that ended last come first, behind the
    active ones.

    Raises:
        OSError: EPROTO for a constraint with other operators than ``and``, ``states``
            and ``userid``.
    """
    since, most = payload.get("since", 0.0), payload.get("max_entries", 0)
    constraint = payload.get("constraint") or {}
    found = [job for job in jobs if _matches(job, constraint)]
    listed = [
        (ended, job)
        for job in found
        for ended in [_time(job.events, "clean")]
        if ended is None or ended > since
    ]
    listed.sort(key=lambda entry: (entry[0] is not None, -(entry[0] or 0.0)))
    chosen = listed[:most] if most else listed
    return [attributes(job, payload["attrs"]) for _, job in chosen]


def _matches(job: Job, constraint: Json) -> bool:
    """Whether a job fits a constraint (RFC 43)."""
    for operator, values in constraint.items():
        if operator == "and":
            fits = all(_matches(job, value) for value in values)
        elif operator == "states":
            fits = any(job.state & value for value in values)
        elif operator == "userid":
            fits = job.userid in values
        else:
            raise OSError(errno.EPROTO, f"unknown constraint operator {operator}")
        if not fits:
            return False
    return True


def _attributes(job: Job) -> Json:
    system = job.jobspec.get("attributes", {}).get("system", {})
    found: Json = {
        "userid": job.userid,
        "urgency": job.urgency,
        "priority": job.priority,
        "state": int(job.state),
        "t_submit": job.t_submit,
        "exception_occurred": False,
        "annotations": to_builtins(job.annotations),
    }
    for name in ("bank", "project", "queue", "duration"):
        if name in system:
            found[name] = system[name]
    for name, event in TIMES.items():
        moment = _time(job.events, event)
        if moment is not None:
            found[name] = moment
    if job.end_event is not None:
        found["t_cleanup"] = job.end_event.timestamp
    nnodes = _nnodes(job)
    if nnodes is not None:
        found["nnodes"] = nnodes
    if job.R is not None:
        found["nodelist"] = ",".join(job.R["execution"]["nodelist"])
        lite = job.R["execution"]["R_lite"]
        ranks = itertools.chain.from_iterable(idset.decode(e["rank"]) for e in lite)
        found["ranks"] = idset.encode(ranks)
        found["expiration"] = job.R["execution"]["expiration"]
    exception = _exception(job.events)
    if exception is not None:
        found["exception_occurred"] = True
        for key in ("type", "severity", "note"):
            found[f"exception_{key}"] = exception.get(key, "")
    if job.state is JobState.INACTIVE:
        found["result"] = _result(job, exception)
        found["success"] = found["result"] == COMPLETED
    return found


def _time(events: Iterable[Event], name: str) -> Optional[float]:
    """When the last event of a name was posted."""
    times = [event.timestamp for event in events if event.name == name]
    return times[-1] if times else None


def _nnodes(job: Job) -> Optional[int]:
    """The nodes that a job has or, before that, asks for."""
    if job.R is not None:
        return len(hostlist.decode_all(job.R["execution"]["nodelist"]))
    counts: list[Any] = [
        resource.get("count")
        for resource in job.jobspec.get("resources", ())
        if resource.get("type") == "node"
    ]
    whole = [count for count in counts if isinstance(count, int)]
    return sum(whole) if whole else None


def _exception(events: Iterable[Event]) -> Optional[Json]:
    """The most severe exception, the first one of its severity."""
    found = [event.context or {} for event in events if event.name == "exception"]
    return min(found, key=lambda context: int(context["severity"]), default=None)


def _result(job: Job, exception: Optional[Json]) -> int:
    if job.wait_status == 0 and job.fatal_exception is None:
        return COMPLETED
    return RESULTS.get((exception or {}).get("type", ""), FAILED)
