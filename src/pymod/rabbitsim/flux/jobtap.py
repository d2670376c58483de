# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The jobtap interface of the job manager, for one plugin."""

from __future__ import annotations

import contextlib
import errno
import syslog
from typing import Any, Callable, Iterator, Mapping, Optional, Protocol

from msgspec import to_builtins

from flux_k8s.ports import Clock, Json, Timer
from flux_k8s.reasons import Reason
from rabbitsim.flux import fluid
from rabbitsim.flux.events import Event, JobState, given_reason
from rabbitsim.flux.job import Job
from rabbitsim.flux.manager import JobManager

RpcDone = Callable[[int, str, Optional[Json]], None]
KvsDone = Callable[[int, Optional[str]], None]


class LoadedPlugin(Protocol):
    """The plugin, as :class:`rabbitsim.jobtap.Plugin` runs it."""

    def call(self, topic: str, args: Json) -> tuple[int, Json]: ...

    def request(
        self, method: str, payload: Optional[Json], respond: RpcDone, owner: bool
    ) -> None: ...

    def job_destroyed(self, jobid: int) -> None: ...

    def unload(self) -> None: ...


PluginFactory = Callable[["Jobtap", Optional[Json]], LoadedPlugin]


class Jobtap:
    """Loads, calls and unloads the plugin, and is the job manager to it
    (:class:`rabbitsim.jobtap.JobtapHost`)."""

    def __init__(
        self,
        clock: Clock,
        log: Callable[[int, str], None],
        rpc: Callable[[str, Json, RpcDone], None],
    ) -> None:
        self._clock = clock
        self._log = log
        self._rpc = rpc
        self._stack: list[int] = []
        self._subscribed: dict[int, None] = {}
        self._reason: Optional[Reason] = None
        self.manager: JobManager  # set by the instance: they know each other
        self.plugin: Optional[LoadedPlugin] = None

    @property
    def owner(self) -> int:
        return self.manager.owner

    # Functions that the instance calls

    def load(self, factory: PluginFactory, conf: Optional[Json]) -> None:
        """Load the plugin, and call it for all active jobs, as Flux does.

        Raises:
            OSError: EEXIST when a plugin is loaded; else the error of the plugin.
        """
        if self.plugin is not None:
            raise OSError(errno.EEXIST, "dws-jobtap.so already loaded")
        self.plugin = factory(self, conf)
        for job in self.manager.active_jobs:
            args = job.jobtap_args()
            self._call_one("job.create", job, args)
            self._call_one("job.new", job, args)
            if job.state is JobState.DEPEND:
                for dependency in job.jobspec_dependencies:
                    topic = f"job.dependency.{dependency['scheme']}"
                    self._call_one(topic, job, {**args, "dependency": dependency})
                self._call_one(job.state.topic, job, args)

    def request(
        self, method: str, payload: Json, respond: RpcDone, owner: bool
    ) -> None:
        """Pass a request to the plugin, which is loaded."""
        assert self.plugin is not None
        with self._because(payload):
            self.plugin.request(method, payload, respond, owner)

    @contextlib.contextmanager
    def _because(self, message: Optional[Json]) -> Iterator[None]:
        """A context in which the plugin takes a message of the module, whose reason is
        that of the exceptions that it raises meanwhile."""
        outer, self._reason = self._reason, given_reason(message or {})
        try:
            yield
        finally:
            self._reason = outer

    def unload(self) -> None:
        """Unload the plugin. The dependencies, prologs and epilogs that it started
        stay in the jobs' state.

        Raises:
            OSError: ENOENT when no plugin is loaded.
        """
        if self.plugin is None:
            raise OSError(errno.ENOENT, "Failed to find plugin to remove")
        plugin, self.plugin = self.plugin, None
        self._subscribed.clear()
        plugin.unload()

    def call(self, topic: str, job: Job, extra: Mapping[str, Any]) -> tuple[int, Json]:
        """Call the plugin's handler for a topic; (0, {}) without a plugin."""
        if self.plugin is None:
            return 0, {}
        return self._call_one(topic, job, {**job.jobtap_args(), **extra})

    def _call_one(self, topic: str, job: Job, args: Json) -> tuple[int, Json]:
        if self.plugin is None:
            return 0, {}
        self._stack.append(job.id)
        try:
            rc, out = self.plugin.call(topic, args)
        finally:
            self._stack.pop()
        if rc < 0:
            self._log(syslog.LOG_ERR, f"jobtap: {topic}: callback returned error")
        return rc, out

    def event(self, job: Job, event: Event) -> None:
        """Pass an event that was posted to the plugin, if it subscribed to the job."""
        if job.id in self._subscribed:
            self.call(f"job.event.{event.name}", job, {"entry": event.as_json()})

    def job_destroyed(self, job: Job) -> None:
        self._subscribed.pop(job.id, None)
        if self.plugin is not None:
            self.plugin.job_destroyed(job.id)

    # Functions that the plugin calls

    def now(self) -> float:
        return self._clock.now()

    def call_later(self, delay: float, function: Callable[[], None]) -> Timer:
        return self._clock.call_later(delay, function)

    def log(self, level: int, message: str) -> None:
        self._log(level, message)

    def rpc(self, topic: str, payload: Optional[Json], done: RpcDone) -> None:
        def answered(errnum: int, text: str, answer: Optional[Json]) -> None:
            with self._because(answer):
                done(errnum, text, answer)

        self._rpc(topic, to_builtins(payload or {}), answered)

    def kvs_lookup(self, key: str, done: KvsDone) -> None:
        value = self._lookup(key)
        number = errno.ENOENT if value is None else 0
        self._clock.call_later(0.0, lambda: done(number, value))

    def _lookup(self, key: str) -> Optional[str]:
        prefix, _, rest = key.partition(".")
        try:
            job = self.manager.lookup(fluid.decode(rest[:19]))
        except (OSError, ValueError):
            return None
        return job.kvs.get(rest[20:]) if prefix == "job" else None

    def dependency_add(self, jobid: int, description: str) -> None:
        """Add a dependency. One that the job has already changes nothing; one that was
        removed is posted, and does not come back."""
        job = self.manager.lookup_active(jobid)
        if job.state not in (JobState.NEW, JobState.DEPEND):
            raise OSError(errno.EINVAL, f"job is in state {job.state.name}")
        if description in job.dependencies:
            return
        self.manager.post(job, "dependency-add", {"description": description})

    def dependency_remove(self, jobid: int, description: str) -> None:
        job = self.manager.lookup_active(jobid)
        if job.state not in (JobState.NEW, JobState.DEPEND):
            raise OSError(errno.EINVAL, f"job is in state {job.state.name}")
        deferred = job.hold or job.queue
        if description not in job.dependencies and not deferred:
            raise OSError(errno.ENOENT, f"job has no dependency {description}")
        self.manager.post(job, "dependency-remove", {"description": description})

    def prolog_start(self, jobid: int, description: str) -> None:
        self._perilog(jobid, "prolog-start", {"description": description})

    def prolog_finish(self, jobid: int, description: str, status: int) -> None:
        context = {"description": description, "status": status}
        self._perilog(jobid, "prolog-finish", context)

    def epilog_start(self, jobid: int, description: str) -> None:
        self._perilog(jobid, "epilog-start", {"description": description})

    def epilog_finish(self, jobid: int, description: str, status: int) -> None:
        context = {"description": description, "status": status}
        self._perilog(jobid, "epilog-finish", context)

    def _perilog(self, jobid: int, event: str, context: Json) -> None:
        job = self.manager.lookup_active(jobid)
        prolog = event.startswith("prolog")
        if (
            (prolog and job.start_pending)
            or (event == "prolog-start" and job.state is JobState.CLEANUP)
            or (not prolog and job.state is not JobState.CLEANUP)
        ):
            raise OSError(errno.EINVAL, f"{event} in state {job.state.name}")
        self.manager.post(job, event, context)

    def raise_exception(self, jobid: int, type: str, severity: int, note: str) -> None:
        owner = self.manager.owner
        self.manager.raise_exception(jobid, type, severity, note, owner, self._reason)

    def event_post(
        self, jobid: int, name: str, context: Optional[Mapping[str, Any]]
    ) -> None:
        self.manager.post(self.manager.lookup_active(jobid), name, context)

    def jobspec_update(self, jobid: int, updates: Mapping[str, Any]) -> None:
        job = self.manager.lookup_active(jobid)
        if job.state in (JobState.RUN, JobState.CLEANUP):
            raise OSError(errno.EINVAL, f"jobspec-update in state {job.state.name}")
        if self._stack and self._stack[-1] == jobid:
            raise OSError(errno.EINVAL, "jobspec-update from a callback for the job")
        self.manager.post(job, "jobspec-update", updates)

    def job_lookup(self, jobid: int) -> Json:
        return self.manager.lookup(jobid).jobtap_args()

    def event_posted(self, jobid: int, name: str) -> bool:
        return self.manager.lookup(jobid).was_seen(name)

    def subscribe(self, jobid: int) -> None:
        self._subscribed[self.manager.lookup_active(jobid).id] = None

    def unsubscribe(self, jobid: int) -> None:
        self._subscribed.pop(jobid, None)
