# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""A job manager for tests of the compiled plugin.

It has the job manager's rules that matter to a plugin: events are handled in
order and never from within the handling of another one of the same job;
subscribers get an event before the state callback; prolog and epilog actions are
counted; ``event_posted`` forgets everything at a restart. Another plugin may act in
every callback, before ours is called or after it. Whatever ours may not do raises
AssertionError; above all it may not ask for storage to be released while job-exec
still runs the job.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from typing import Any, Callable, Mapping, Optional

from flux_k8s.ports import Json
from rabbitsim.flux import fluid
from rabbitsim.jobtap import KvsDone, Plugin, Respond, RpcDone

NEW, DEPEND, PRIORITY, SCHED, RUN, CLEANUP, INACTIVE = (2**i for i in range(7))
STATE_TOPIC = {
    DEPEND: "job.state.depend",
    RUN: "job.state.run",
    CLEANUP: "job.state.cleanup",
}


class Timer:
    def __init__(self, when: float, function: Callable[[], None]) -> None:
        self.when = when
        self.function: Optional[Callable[[], None]] = function

    def cancel(self) -> None:
        self.function = None


class Hostile:
    """An act of another plugin in a callback.

    Args:
        topic: of the callback.
        act: gets the job manager and the job.
        times: how often it does so.
        first: it is called before our plugin is.
    """

    def __init__(
        self,
        topic: str,
        act: Callable[[JobManager, Job], None],
        times: int = 1,
        first: bool = False,
    ) -> None:
        self.topic = topic
        self.act = act
        self.times = times
        self.first = first


class Job:
    def __init__(self, jobid: int, system: Json, userid: int = 100) -> None:
        self.id = jobid
        self.userid = userid
        self.urgency = 16
        self.state = NEW
        self.jobspec: Json = {
            "resources": [{"type": "node", "count": 1}],
            "attributes": {"system": system},
        }
        self.eventlog: list[Json] = []
        self.queue: list[Json] = []
        self.posted: set[str] = set()
        self.dependencies: set[str] = set()
        self.used: set[str] = set()
        self.open: Counter[str] = Counter()
        self.actions = 0
        """The prolog and epilog actions that the job manager counts."""
        self.start_pending = False
        self.running = False
        """job-exec has the job."""
        self.subscribed = False
        self.memo: Json = {}
        self.record: Optional[str] = None
        """``rabbit_data_out`` in its KVS directory."""
        self.creates = 0
        """How many dws.create a module may have seen."""
        self.unprotected = False
        """The plugin was away at some time of the job's life."""

    def has(self, name: str) -> bool:
        return any(entry["name"] == name for entry in self.eventlog)

    def context(self, name: str) -> Json:
        return next(e["context"] for e in self.eventlog if e["name"] == name)

    @property
    def wants_storage(self) -> bool:
        return bool(self.jobspec["attributes"]["system"].get("dw"))

    def may_start(self) -> bool:
        return not self.wants_storage or self.has("dws_environment") or self.unprotected

    def args(self) -> Json:
        args: Json = {
            "id": self.id,
            "userid": self.userid,
            "urgency": self.urgency,
            "t_submit": 900.5,
            "state": self.state,
            "jobspec": self.jobspec,
        }
        if self.has("alloc"):
            args["R"] = {"execution": {"nodelist": ["node[1-2]", "node7"]}}
        return args


class JobManager:
    """Implements :class:`rabbitsim.jobtap.JobtapHost`."""

    def __init__(self, conf: Optional[Json] = None) -> None:
        self.conf = conf
        self.owner = 500
        self.clock = 1000.0
        self.timers: list[Timer] = []
        self.logged: list[tuple[int, str]] = []
        self.rpcs: list[tuple[str, Json, RpcDone]] = []
        self.sent: Counter[str] = Counter()
        self.unsendable: Counter[str] = Counter()
        """For how many requests of a topic there is no memory."""
        self.epilog_starts: Optional[int] = None
        """How often dws-epilog can be started before there is no memory."""
        self.lookups: list[tuple[str, KvsDone]] = []
        self.jobs: dict[int, Job] = {}
        self.hostile: list[Hostile] = []
        self.plugin: Optional[Plugin] = None
        self.load()

    # what the tests do

    def load(self) -> None:
        self.plugin = Plugin(self, self.conf)
        for job in self.active_jobs():
            self.plugin.call("job.new", job.args())
            if job.state == DEPEND:
                self.call_dependencies(job)
                self.plugin.call("job.state.depend", job.args())

    def active_jobs(self) -> list[Job]:
        return [job for job in self.jobs.values() if job.state != INACTIVE]

    def call_dependencies(self, job: Job) -> Optional[str]:
        """Returns the reason if the job is rejected."""
        for dependency in job.jobspec["attributes"]["system"].get("dependencies", []):
            assert self.plugin is not None
            topic = f"job.dependency.{dependency['scheme']}"
            args = {**job.args(), "dependency": dependency}
            rc, out = self.plugin.call(topic, args)
            if rc < 0:
                return str(out["errmsg"])
        return None

    def unload(self) -> None:
        assert self.plugin is not None
        self.plugin.unload()
        self.plugin = None
        self.rpcs.clear()
        self.lookups.clear()
        for job in self.jobs.values():
            job.subscribed = False
            job.unprotected = True
        assert not [timer for timer in self.timers if timer.function]

    def restart(self) -> None:
        """The job manager is loaded anew, or the whole instance: see ``exec_lost``.
        What job-exec has to say of jobs that it runs does not arrive any more."""
        if self.plugin is not None:
            self.unload()
        for job in self.jobs.values():
            job.posted.clear()
            job.start_pending = False
        self.plugin = Plugin(self, self.conf)
        for job in self.active_jobs():
            if job.state in (NEW, DEPEND):
                self.call_dependencies(job)
            self.plugin.call("job.new", job.args())

    def exec_lost(self) -> None:
        """job-exec is loaded anew. It does not reattach to jobs that had started, and
        is not told of those in CLEANUP."""
        for job in self.jobs.values():
            job.start_pending = job.running = False
        for job in list(self.jobs.values()):
            if job.state != RUN:
                continue
            if job.has("start"):
                self.raise_exception(job.id, "exec", 0, "reattach is not implemented")
                self.post(job, "release", {"ranks": "all", "final": True})
            else:
                self.act(job)

    def tasks_end(self, job: Job, finish: bool = True) -> None:
        """job-exec is done with a job; it may have no ``finish`` to tell of."""
        job.running = False
        if not job.start_pending:
            return  # it answers to a job manager that is gone
        if finish and job.has("start"):
            self.post(job, "finish", {"status": 0})
        job.start_pending = False
        self.post(job, "release", {"ranks": "all", "final": True})
        self.act(job)

    def answer_exec(self) -> None:
        while "job-exec.stats-get" in self.topics():
            payload, done = self.take("job-exec.stats-get")
            done(0, "", {"jobs": payload["as it was"]})

    def submit(
        self,
        jobid: int,
        system: Json,
        after: bool = False,
        userid: int = 100,
        validated: bool = True,
    ) -> Optional[str]:
        """Returns the reason if the job is rejected. ``after`` gives the job
        some other dependency. It is not ``validated`` while its batch is committed."""
        job = Job(jobid, system, userid)
        if self.plugin is not None:
            rc, out = self.plugin.call("job.validate", job.args())
            if rc < 0:
                return str(out["errmsg"])
        self.jobs[jobid] = job
        self.post(job, "submit", {"userid": userid})
        if self.plugin is not None:
            reason = self.call_dependencies(job)
            if reason is not None:
                self.plugin.job_destroyed(jobid)
                del self.jobs[jobid]
                return reason
        self.call(job, "job.new")
        if after:
            self.post(job, "dependency-add", {"description": "after"})
        if validated:
            self.post(job, "validate")
        return None

    def request(self, method: str, payload: Json, owner: bool = True) -> Any:
        """The payload of the answer; OSError if it is an error."""
        answers: list[tuple[int, str, Optional[Json]]] = []
        if self.plugin is None:
            raise OSError(errno.ENOSYS, "not loaded")
        self.plugin.request(method, payload, lambda *a: answers.append(a), owner)
        ((errnum, errstr, response),) = answers
        if errnum:
            raise OSError(errnum, errstr or os.strerror(errnum))
        return response

    def take(self, topic: str) -> tuple[Json, RpcDone]:
        """The oldest request for ``topic`` that was not answered."""
        for index, (found, payload, done) in enumerate(self.rpcs):
            if found == topic:
                del self.rpcs[index]
                return payload, done
        raise AssertionError(f"no {topic} among {[t for t, _, _ in self.rpcs]}")

    def topics(self) -> list[str]:
        return [topic for topic, _, _ in self.rpcs]

    def answer_eventlogs(self) -> None:
        while "job-manager.getattr" in self.topics():
            payload, done = self.take("job-manager.getattr")
            done(0, "", {"eventlog": payload["as it was"]})

    def answer_job_info(self) -> None:
        """As job-info does, by what is in the KVS now."""
        while "job-info.lookup" in self.topics():
            payload, done = self.take("job-info.lookup")
            job = self.jobs.get(payload["id"])
            (key,) = payload["keys"]
            found = None if job is None else job.record
            if job is not None and key == "rabbit_nodes_released":
                found = "7.000" if job.has("dws_released") else None
            if found is None:
                done(errno.ENOENT, "", None)
            else:
                done(0, "", {"id": payload["id"], key: found})

    def settle(self) -> None:
        """Answer what is asked about data, until nothing is any more."""
        for _ in range(10_000):
            self.advance(0)
            self.answer_job_info()
            self.answer_eventlogs()
            if not any(t.function and t.when <= self.clock for t in self.timers):
                return
        raise AssertionError("it never ends")

    def purge(self, jobid: int) -> None:
        assert self.jobs.pop(jobid).state == INACTIVE

    def answer_lookups(self) -> None:
        while self.lookups:
            key, done = self.lookups.pop(0)
            done(0, '{"version": 1, "scheduling": {}}')

    def advance(self, seconds: float) -> None:
        self.clock += seconds
        for timer in list(self.timers):
            if timer.function and timer.when <= self.clock:
                function, timer.function = timer.function, None
                function()
        self.timers = [timer for timer in self.timers if timer.function]

    # events

    def post(self, job: Job, name: str, context: Optional[Json] = None) -> None:
        entry = {"timestamp": self.clock, "name": name, "context": context or {}}
        job.queue.append(entry)
        if len(job.queue) == 1:
            while job.queue:
                self.process(job, job.queue[0])
                job.queue.pop(0)

    def queued(self, job: Job, name: str) -> bool:
        return any(entry["name"] == name for entry in job.queue[1:])

    def process(self, job: Job, entry: Json) -> None:
        if job.state == INACTIVE:
            return
        old = job.state
        job.eventlog.append(entry)
        job.posted.add(entry["name"])
        self.update(job, entry["name"], entry["context"])
        topic = "job.event." + entry["name"]
        self.act_hostile(job, topic, first=True)
        if job.subscribed:
            self.call(job, topic, {"entry": entry})
        self.act_hostile(job, topic, first=False)
        if entry["name"] == "jobspec-update":
            self.act_hostile(job, "job.update", first=True)
            self.act_hostile(job, "job.update", first=False)
        if job.state != old and job.state in STATE_TOPIC:
            self.act_hostile(job, STATE_TOPIC[job.state], first=True)
            self.call(job, STATE_TOPIC[job.state], {"prev_state": old})
            self.act_hostile(job, STATE_TOPIC[job.state], first=False)
        self.act(job)

    def act_hostile(self, job: Job, topic: str, first: bool) -> None:
        for hostile in self.hostile:
            if hostile.times and hostile.topic == topic and hostile.first is first:
                hostile.times -= 1
                hostile.act(self, job)

    def update(self, job: Job, name: str, context: Json) -> None:
        description = context.get("description", "")
        if name == "validate":
            job.state = DEPEND
        elif name == "dependency-add":
            if description not in job.used:
                job.dependencies.add(description)
            job.used.add(description)
        elif name == "dependency-remove":
            job.dependencies.discard(description)
        elif name == "depend" and job.state == DEPEND:
            job.state = SCHED
        elif name == "alloc" and job.state == SCHED:
            job.state = RUN
        elif name == "memo":
            job.memo.update(context)
        elif name == "jobspec-update":
            for key, value in context.items():
                *path, last = key.split(".")
                where = job.jobspec
                for step in path:
                    where = where.setdefault(step, {})
                where[last] = value
        elif name.startswith(("prolog-", "epilog-")):
            self.count_action(job, name, description)
        elif name == "finish" and job.state == RUN:
            job.state = CLEANUP
        elif name == "exception" and context["severity"] == 0:
            job.state = CLEANUP
        elif name == "clean":
            job.state = INACTIVE

    def count_action(self, job: Job, name: str, description: str) -> None:
        """As in event.c of the job manager: whose actions they are does not count, nor
        do those that come when they should not."""
        kind, _, what = name.partition("-")
        change = 1 if what == "start" else -1
        job.open[description] += change
        assert job.open[description] >= 0, f"{name} {description} twice"
        if job.state == CLEANUP if kind == "epilog" else not job.start_pending:
            job.actions = max(0, job.actions + change)

    def act(self, job: Job) -> None:
        blocked = job.actions > 0 or any(
            self.queued(job, name) for name in ("prolog-start", "epilog-start")
        )
        if job.state == DEPEND and not job.dependencies:
            if not self.queued(job, "dependency-add") and not self.queued(
                job, "depend"
            ):
                self.post(job, "depend")
        elif job.state == RUN and not blocked and not job.start_pending:
            assert job.may_start(), "started too early"
            if not job.running and not job.has("start"):
                job.start_pending = job.running = True
        elif job.state == CLEANUP and not blocked and not job.start_pending:
            if not self.queued(job, "clean"):
                self.post(job, "clean")
        elif job.state == INACTIVE and self.plugin is not None:
            self.plugin.job_destroyed(job.id)
            job.subscribed = False

    def call(self, job: Job, topic: str, more: Optional[Json] = None) -> None:
        if self.plugin is not None:
            self.plugin.call(topic, {**job.args(), **(more or {})})

    def active(self, jobid: int) -> Job:
        job = self.jobs.get(jobid)
        if job is None or job.state == INACTIVE:
            raise OSError(errno.ENOENT, "no such job")
        return job

    # what the plugin does

    def now(self) -> float:
        return self.clock

    def call_later(self, delay: float, function: Callable[[], None]) -> Timer:
        timer = Timer(self.clock + delay, function)
        self.timers.append(timer)
        return timer

    def log(self, level: int, message: str) -> None:
        self.logged.append((level, message))

    def rpc(self, topic: str, payload: Optional[Json], done: RpcDone) -> None:
        if self.unsendable[topic] > 0:
            self.unsendable[topic] -= 1
            raise OSError(errno.ENOMEM, "no memory")
        if topic == "job-manager.getattr":
            assert payload is not None
            eventlog = list(self.jobs[payload["id"]].eventlog)
            payload = {**payload, "as it was": eventlog}
        if topic == "job-exec.stats-get":
            held = [job.id for job in self.jobs.values() if job.running]
            payload = {"as it was": {fluid.encode(jobid): {} for jobid in held}}
        if topic in ("dws.post_run", "dws.teardown"):
            assert payload is not None
            assert not self.jobs[payload["jobid"]].running, "tasks lose their storage"
        if topic == "dws.create":
            assert payload is not None
            done = self.count_create(self.jobs[payload["jobid"]], done)
        self.sent[topic] += 1
        self.rpcs.append((topic, payload or {}, done))

    def count_create(self, job: Job, done: RpcDone) -> RpcDone:
        job.creates += 1

        def counted(errnum: int, text: str, answer: Optional[Json]) -> None:
            if errnum in (errno.ENOSYS, errno.EAGAIN):
                job.creates -= 1
            done(errnum, text, answer)

        return counted

    def kvs_lookup(self, key: str, done: KvsDone) -> None:
        self.lookups.append((key, done))

    def dependency_add(self, jobid: int, description: str) -> None:
        job = self.active(jobid)
        assert job.state in (NEW, DEPEND)
        if description not in job.dependencies:
            self.post(job, "dependency-add", {"description": description})

    def dependency_remove(self, jobid: int, description: str) -> None:
        job = self.active(jobid)
        assert job.state == DEPEND and description in job.dependencies
        self.post(job, "dependency-remove", {"description": description})

    def prolog_start(self, jobid: int, description: str) -> None:
        job = self.active(jobid)
        assert job.queue, "outside of a callback"
        assert job.state == RUN and not job.start_pending
        self.post(job, "prolog-start", {"description": description})

    def prolog_finish(self, jobid: int, description: str, status: int) -> None:
        job = self.active(jobid)
        assert not job.start_pending
        self.post(job, "prolog-finish", {"description": description, "status": status})

    def epilog_finish(self, jobid: int, description: str, status: int) -> None:
        job = self.active(jobid)
        assert job.state == CLEANUP
        self.post(job, "epilog-finish", {"description": description, "status": status})

    def raise_exception(self, jobid: int, type: str, severity: int, note: str) -> None:
        job = self.active(jobid)
        assert job.state != NEW
        self.post(job, "exception", {"type": type, "severity": severity, "note": note})

    def event_post(
        self, jobid: int, name: str, context: Optional[Mapping[str, Any]]
    ) -> None:
        job = self.active(jobid)
        assert name != "dws_environment" or not job.has(name)
        if name == "epilog-start" and context == {"description": "dws-epilog"}:
            assert job.state == CLEANUP
            if self.epilog_starts == 0:
                raise OSError(errno.ENOMEM, "no memory")
            self.epilog_starts = self.epilog_starts and self.epilog_starts - 1
        self.post(job, name, dict(context or {}))

    def jobspec_update(self, jobid: int, updates: Mapping[str, Any]) -> None:
        job = self.active(jobid)
        assert job.state == DEPEND and not job.queue
        self.post(job, "jobspec-update", dict(updates))

    def job_lookup(self, jobid: int) -> Json:
        if jobid not in self.jobs:
            raise OSError(errno.ENOENT, "no such job")
        return self.jobs[jobid].args()

    def event_posted(self, jobid: int, name: str) -> bool:
        if jobid not in self.jobs:
            raise OSError(errno.ENOENT, "no such job")
        return name in self.jobs[jobid].posted

    def subscribe(self, jobid: int) -> None:
        self.active(jobid).subscribed = True

    def unsubscribe(self, jobid: int) -> None:
        self.active(jobid).subscribed = False


__all__ = ["Job", "JobManager", "Respond"]
