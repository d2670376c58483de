# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The job manager: states and events of RFC 21.

An event that is posted while another of the same job is being processed waits
until that one is done. So whatever a plugin posts from a callback comes after
the event that the callback was for, as in Flux.
"""

from __future__ import annotations

import errno
import json
import syslog
from typing import Any, Callable, Mapping, Optional, Protocol

from flux_k8s.ports import Clock, Json
from flux_k8s.reasons import Reason
from rabbitsim.flux.events import (
    PRIORITY_MAX,
    PRIORITY_MIN,
    URGENCY_EXPEDITE,
    URGENCY_HOLD,
    Event,
    JobState,
)
from rabbitsim.flux.fluid import FluidGenerator
from rabbitsim.flux.job import Job, redact
from rabbitsim.flux.transitions import apply

BATCH_TIMEOUT = 0.01
"""Seconds until a submission is committed; the job goes on only then."""

UPTIME = 60.0
"""Seconds that the instance has been there, so that job IDs look like some."""

Listener = Callable[[Job, Event, JobState], None]
"""Gets the job, an event that was processed, and the state before it."""


class SubmitError(Exception):
    """A job that was refused at submission, with the reason."""


class Hooks(Protocol):
    """The functions that the job manager calls: plugins, the scheduler, execution."""

    def log(self, level: int, message: str) -> None: ...

    def jobtap_call(
        self, topic: str, job: Job, extra: Mapping[str, Any]
    ) -> tuple[int, Json]: ...

    def tap_event(self, job: Job, event: Event) -> None: ...

    def tap_destroy(self, job: Job) -> None: ...

    def alloc_queue_changed(self) -> None: ...

    def release(self, job: Job) -> None: ...

    def start(self, job: Job) -> None: ...

    def kill(self, job: Job, exception: Json) -> None: ...


class JobManager:
    """All jobs of the instance, and their events.

    Attributes:
        jobs: all jobs by ID, inactive ones too, in the order of submission.
        listeners: are called with each event after it was processed.
    """

    def __init__(self, clock: Clock, hooks: Hooks, owner: int) -> None:
        self._clock = clock
        self._hooks = hooks
        self._fluids = FluidGenerator(clock.now() - UPTIME)
        self.owner = owner
        self.jobs: dict[int, Job] = {}
        self._active: dict[int, Job] = {}
        self.listeners: list[Listener] = []
        self._has_exec = True

    def lookup(self, jobid: int) -> Job:
        """Raises ``OSError(ENOENT)`` for an unknown job."""
        if jobid not in self.jobs:
            raise OSError(errno.ENOENT, "unknown job id")
        return self.jobs[jobid]

    def lookup_active(self, jobid: int) -> Job:
        """Raises ``OSError(ENOENT)`` for a job that is unknown or inactive."""
        job = self.lookup(jobid)
        if not job.active:
            raise OSError(errno.ENOENT, "job is inactive")
        return job

    @property
    def active_jobs(self) -> list[Job]:
        return list(self._active.values())

    def submit(self, jobspec: Json, userid: int, urgency: int, flags: int) -> int:
        """Submit a job; its ID.

        Raises:
            SubmitError: a plugin, or we, refused it.
        """
        job = Job(
            id=self._fluids.next(self._clock.now()),
            userid=userid,
            urgency=urgency,
            flags=flags,
            jobspec=redact(jobspec),
            kvs={"jobspec": json.dumps(jobspec)},
            t_submit=self._clock.now(),
        )
        self.jobs[job.id] = self._active[job.id] = job
        context = {"userid": userid, "urgency": urgency, "flags": flags, "version": 1}
        self.post(job, "submit", context)
        try:
            self._validate(job)
        except SubmitError:
            self._hooks.jobtap_call("job.destroy", job, {})
            self._hooks.tap_destroy(job)
            del self.jobs[job.id], self._active[job.id]
            raise
        self._hooks.jobtap_call("job.new", job, {})
        job.hold = True
        self._clock.call_later(BATCH_TIMEOUT, lambda: self._committed(job))
        self.post(job, "validate")
        return job.id

    def _validate(self, job: Job) -> None:
        for topic in ("job.create", "job.validate"):
            rc, out = self._hooks.jobtap_call(topic, job, {})
            if rc < 0:
                raise SubmitError(out.get("errmsg", "rejected by job-manager plugin"))
        for dependency in job.jobspec_dependencies:
            scheme = dependency.get("scheme")
            topic = f"job.dependency.{scheme}"
            rc, out = self._hooks.jobtap_call(topic, job, {"dependency": dependency})
            if rc == 0:
                raise SubmitError(f'dependency scheme "{scheme}" not supported')
            if rc < 0:
                error = "rejected by job-manager dependency plugin"
                raise SubmitError(out.get("errmsg", error))

    def _committed(self, job: Job) -> None:
        job.hold = False
        self._process_queue(job)

    def post(
        self,
        job: Job,
        name: str,
        context: Optional[Mapping[str, Any]] = None,
        reason: Optional[Reason] = None,
    ) -> None:
        """Post an event to a job's eventlog. An inactive job's is closed: then
        nothing happens."""
        if not job.active:
            return
        copied = None if context is None else json.loads(json.dumps(context))
        job.queue.append(Event(self._clock.now(), name, copied, reason))
        if len(job.queue) == 1 and not job.hold:
            self._process_queue(job)

    def memo(self, job: Job, memo: Json, volatile: bool) -> None:
        """Post a memo. A volatile one is an annotation only: its event is not written
        to the eventlog."""
        if not volatile:
            self.post(job, "memo", memo)
            return
        copied = json.loads(json.dumps(memo))
        apply(job, Event(self._clock.now(), "memo", copied))

    def raise_exception(
        self,
        jobid: int,
        type: str,
        severity: int,
        note: str,
        userid: int,
        reason: Optional[Reason] = None,
    ) -> None:
        """Raise a job exception.

        Raises:
            OSError: EPROTO for a bad severity, ENOENT for an unknown or
                inactive job, EPERM for a guest and someone else's job.
        """
        if not 0 <= severity <= 7:
            raise OSError(errno.EPROTO, "invalid exception severity")
        if not type or any(c.isspace() for c in type):
            raise OSError(errno.EPROTO, "invalid exception type")
        job = self.lookup_active(jobid)
        if userid not in (self.owner, job.userid):
            raise OSError(
                errno.EPERM, "guests can only raise exceptions on their own jobs"
            )
        self.post(
            job,
            "exception",
            {"type": type, "severity": severity, "note": note, "userid": userid},
            reason,
        )

    def set_urgency(self, jobid: int, urgency: int, userid: int) -> None:
        """Change a job's urgency; 0 holds it.

        Raises:
            OSError: EINVAL for a bad urgency or a job that has its resources,
                ENOENT for an unknown or inactive job.
        """
        if not URGENCY_HOLD <= urgency <= URGENCY_EXPEDITE:
            raise OSError(errno.EINVAL, "urgency value is out of range")
        job = self.lookup_active(jobid)
        if job.state in (JobState.RUN, JobState.CLEANUP):
            raise OSError(
                errno.EINVAL, "urgency cannot be changed once resources are allocated"
            )
        self.post(job, "urgency", {"userid": userid, "urgency": urgency})

    def restarted(self) -> None:
        """The job manager was loaded anew: the events before count as not
        posted, and no answer about a job that was started arrives. No job is started
        before a job-exec says hello, which one that is loaded does once."""
        self._has_exec = False
        for job in self.active_jobs:
            job.posted_before = len(job.events)
            job.start_pending = False

    def exec_loaded(self) -> None:
        """job-exec was loaded anew. It cannot reattach to jobs that had started, and
        is not told of those in CLEANUP."""
        self._has_exec = True
        for job in self.active_jobs:
            job.start_pending = False
            if job.state is JobState.RUN and job.was_posted("start"):
                note = "reattach to running job is not implemented"
                self.raise_exception(job.id, "exec", 0, note, self.owner)
                self.post(job, "release", {"ranks": "all", "final": True})
            elif job.state is JobState.RUN:
                self._action(job)

    def _process_queue(self, job: Job) -> None:
        while job.queue and job.active and not job.hold:
            self._process(job, job.queue[0])
            if job.queue:
                job.queue.popleft()
        if not job.active:
            job.queue.clear()

    def _process(self, job: Job, event: Event) -> None:
        if event.name == "dependency-remove":
            description = (event.context or {})["description"]
            if description not in job.dependencies:
                # Flux drops all that waits behind an event that fails.
                text = f"{job}: no dependency {description}, dropping deferred events"
                self._hooks.log(syslog.LOG_ERR, text)
                job.queue.clear()
                return
        before = job.state
        job.events.append(event)
        apply(job, event)
        if not job.active:
            self._active.pop(job.id, None)
        for listener in list(self.listeners):
            listener(job, event, before)
        self._hooks.tap_event(job, event)
        if event.name == "jobspec-update":
            self._hooks.jobtap_call("job.update", job, {"updates": event.context})
        if job.state is not before:
            extra = {"entry": event.as_json(), "prev_state": int(before)}
            self._hooks.jobtap_call(job.state.topic, job, extra)
            if job.state is JobState.PRIORITY:
                self._prioritize(job)
        if event.name == "free":
            self._hooks.release(job)
        context = event.context or {}
        if event.name == "exception" and context["severity"] == 0:
            self._hooks.kill(job, context)
        self._action(job)

    def _prioritize(self, job: Job) -> None:
        """Flux's default priority plugin: the urgency is the priority."""
        priority = job.urgency
        if job.urgency == URGENCY_HOLD:
            priority = PRIORITY_MIN
        elif job.urgency == URGENCY_EXPEDITE:
            priority = PRIORITY_MAX
        self.post(job, "priority", {"priority": priority})

    def _action(self, job: Job) -> None:
        """Do what the job's state asks for. Doing it twice does no harm."""
        if job.state is JobState.DEPEND:
            self._action_depend(job)
        elif job.state is JobState.PRIORITY:
            self._dequeue(job)
        elif job.state is JobState.SCHED:
            if not job.alloc_queued and job.priority != PRIORITY_MIN:
                job.alloc_queued = True
                self._hooks.alloc_queue_changed()
        elif job.state is JobState.RUN:
            self._action_run(job)
        elif job.state is JobState.CLEANUP:
            self._action_cleanup(job)
        elif job.state is JobState.INACTIVE:
            self._hooks.jobtap_call("job.destroy", job, {})
            self._hooks.tap_destroy(job)

    def _action_depend(self, job: Job) -> None:
        if job.dependencies or job.depend_posted or job.is_queued("dependency-add"):
            return
        job.depend_posted = True
        self.post(job, "depend")

    def _action_run(self, job: Job) -> None:
        if job.perilog_active or job.is_queued("prolog-start") or job.start_pending:
            return
        if not self._has_exec:
            return
        job.start_pending = True
        self._hooks.start(job)

    def _action_cleanup(self, job: Job) -> None:
        self._dequeue(job)
        if job.perilog_active or job.is_queued("epilog-start") or job.start_pending:
            return
        if job.has_resources:
            if not job.free_posted:
                job.free_posted = True
                self.post(job, "free")
        elif not job.is_queued("clean"):
            self.post(job, "clean")

    def _dequeue(self, job: Job) -> None:
        if job.alloc_queued:
            job.alloc_queued = False
            self._hooks.alloc_queue_changed()

    def allocated(self, job: Job, R: Json, annotations: Json) -> None:
        """The scheduler allocated ``R`` to a job that waited for it."""
        job.alloc_queued = False
        job.R = R
        job.kvs["R"] = json.dumps(R)
        job.annotations.update(annotations)
        self.post(job, "alloc", {"annotations": annotations})

    def denied(self, job: Job, note: str) -> None:
        """The scheduler will never be able to run a job."""
        job.alloc_queued = False
        self.raise_exception(job.id, "alloc", 0, note, self.owner)
