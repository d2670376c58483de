# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The effect of each event on a job: the state machine of RFC 21."""

from __future__ import annotations

from typing import Callable, Mapping

from flux_k8s.ports import Json
from rabbitsim.flux.events import Event, JobState
from rabbitsim.flux.job import Job


def apply(job: Job, event: Event) -> None:
    """Change the job's state and flags as RFC 21 says for this event."""
    context: Json = event.context or {}
    handler = _HANDLERS.get(event.name)
    if handler is not None:
        handler(job, event, context)


def _validate(job: Job, event: Event, context: Json) -> None:
    job.state = JobState.DEPEND


def _jobspec_update(job: Job, event: Event, context: Json) -> None:
    job.update_jobspec(context)
    if job.state is JobState.SCHED:
        job.state = JobState.PRIORITY


def _dependency_add(job: Job, event: Event, context: Json) -> None:
    if context["description"] not in job.past_dependencies:
        job.dependencies.append(context["description"])
        job.past_dependencies.append(context["description"])


def _dependency_remove(job: Job, event: Event, context: Json) -> None:
    if context["description"] in job.dependencies:
        job.dependencies.remove(context["description"])


def _memo(job: Job, event: Event, context: Json) -> None:
    memo = job.annotations.setdefault("user", {})
    for key, value in context.items():
        if value is None:
            memo.pop(key, None)
        else:
            memo[key] = value


def _depend(job: Job, event: Event, context: Json) -> None:
    if job.state is JobState.DEPEND:
        job.state = JobState.PRIORITY


def _priority(job: Job, event: Event, context: Json) -> None:
    if job.state in (JobState.PRIORITY, JobState.SCHED):
        job.priority = context["priority"]
    if job.state is JobState.PRIORITY:
        job.state = JobState.SCHED


def _urgency(job: Job, event: Event, context: Json) -> None:
    job.urgency = context["urgency"]
    if job.state is JobState.SCHED:
        job.state = JobState.PRIORITY


def _exception(job: Job, event: Event, context: Json) -> None:
    if context["severity"] == 0 and job.state is not JobState.NEW:
        job.end_event = job.end_event or event
        job.state = JobState.CLEANUP


def _alloc(job: Job, event: Event, context: Json) -> None:
    job.has_resources = True
    if job.state is JobState.SCHED:
        job.state = JobState.RUN


def _start(job: Job, event: Event, context: Json) -> None:
    job.started = True


def _finish(job: Job, event: Event, context: Json) -> None:
    if job.state is JobState.RUN:
        job.end_event = job.end_event or event
        job.state = JobState.CLEANUP


def _free(job: Job, event: Event, context: Json) -> None:
    job.has_resources = False


def _release(job: Job, event: Event, context: Json) -> None:
    if context["final"]:
        job.start_pending = False


def _prolog(job: Job, event: Event, context: Json) -> None:
    if not job.start_pending:
        _count_action(job, event)


def _epilog(job: Job, event: Event, context: Json) -> None:
    if job.state is JobState.CLEANUP:
        _count_action(job, event)


def _count_action(job: Job, event: Event) -> None:
    """Whose action it is does not count, nor whether it was started."""
    change = 1 if event.name.endswith("-start") else -1
    job.perilog_active = max(0, job.perilog_active + change)


def _clean(job: Job, event: Event, context: Json) -> None:
    if job.state is JobState.CLEANUP:
        job.state = JobState.INACTIVE


_HANDLERS: Mapping[str, Callable[[Job, Event, Json], None]] = {
    "validate": _validate,
    "jobspec-update": _jobspec_update,
    "dependency-add": _dependency_add,
    "dependency-remove": _dependency_remove,
    "memo": _memo,
    "depend": _depend,
    "priority": _priority,
    "urgency": _urgency,
    "exception": _exception,
    "alloc": _alloc,
    "start": _start,
    "finish": _finish,
    "release": _release,
    "free": _free,
    "prolog-start": _prolog,
    "prolog-finish": _prolog,
    "epilog-start": _epilog,
    "epilog-finish": _epilog,
    "clean": _clean,
}
