# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The compiled job manager plugin under random orders of events."""

from __future__ import annotations

import errno
from typing import Optional

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from support.effort import examples
from support.jobtap import (
    CLEANUP,
    DEPEND,
    INACTIVE,
    NEW,
    RUN,
    SCHED,
    Hostile,
    Job,
    JobManager,
)

JOBS = st.integers(min_value=1, max_value=4)
ALL_JOBS = st.integers(min_value=1, max_value=7)
TOPICS = ["job.update", "job.state.depend", "job.state.run", "job.state.cleanup"] + [
    f"job.event.{name}"
    for name in (
        "dependency-add",
        "dependency-remove",
        "memo",
        "jobspec-update",
        "depend",
        "alloc",
        "prolog-start",
        "dws_environment",
        "prolog-finish",
        "start",
        "finish",
        "release",
        "exception",
        "epilog-start",
        "epilog-finish",
    )
]
SERVICES = ("resource-update", "prolog-remove", "epilog-remove", "data-out")
EPILOG_TIMEOUT = 100.0


class PluginMachine(RuleBasedStateMachine):
    """Jobs, a module that answers as it likes, and a plugin that comes and goes.

    Job 4 never has directives: nothing may ever be done to it. Jobs 5 to 7 wait for
    the data of others.
    """

    def __init__(self) -> None:
        super().__init__()
        self.manager = JobManager({"epilog-timeout": EPILOG_TIMEOUT})

    def job(self, jobid: int, *states: int) -> Optional[Job]:
        job = self.manager.jobs.get(jobid)
        return job if job is not None and job.state in states else None

    @rule(jobid=JOBS, after=st.booleans(), many=st.booleans())
    def submit(self, jobid: int, after: bool, many: bool) -> None:
        if jobid in self.manager.jobs:
            return
        system = {} if jobid == 4 else {"dw": ["#DW a", "#DW b"] if many else "#DW a"}
        assert self.manager.submit(jobid, system, after) is None
        if self.manager.plugin is None:
            self.manager.jobs[jobid].unprotected = True

    @precondition(lambda self: self.manager.plugin is not None)
    @rule(
        jobid=st.integers(5, 7),
        others=st.lists(st.integers(0, 7), min_size=1, max_size=3),
        after=st.booleans(),
        storage=st.booleans(),
    )
    def submit_waiting(
        self, jobid: int, others: list[int], after: bool, storage: bool
    ) -> None:
        if jobid in self.manager.jobs:
            return
        jobids = [1, 57, *self.manager.jobs] if 1 in self.manager.jobs else [1]
        if jobids == [1]:
            self.submit(1, after, storage)
        values = [str(jobids[index % len(jobids)]) for index in others]
        dependencies = [{"scheme": "dws-out", "value": value} for value in values]
        system = {"dependencies": dependencies, "dw": "#DW c" if storage else ""}
        reason = self.manager.submit(jobid, system, after)
        assert (jobid not in self.manager.jobs) == (reason is not None)

    @rule(jobid=st.integers(1, 7), record=st.sampled_from(["true", "false", "?"]))
    def record(self, jobid: int, record: str) -> None:
        if jobid in self.manager.jobs:
            self.manager.jobs[jobid].record = f'{{"success": {record}}}'

    @rule(
        index=st.integers(0, 20),
        outcome=st.sampled_from(
            ["yes", "yes", "yes", "no", "gone", "later", "lost", "bad"]
        ),
    )
    def answer(self, index: int, outcome: str) -> None:
        if not self.manager.rpcs:
            return
        topic, payload, done = self.manager.rpcs.pop(index % len(self.manager.rpcs))
        if topic == "job-manager.getattr":
            done(0, "", {"eventlog": payload["as it was"]})
        elif topic == "job-info.lookup" and outcome in ("gone", "lost"):
            errnum = errno.ENOSYS if outcome == "gone" else errno.EHOSTUNREACH
            done(errnum, "", None)
        elif topic == "job-info.lookup":
            self.manager.rpcs.insert(0, (topic, payload, done))
            self.manager.answer_job_info()
        elif topic == "job-exec.stats-get":
            jobs = {"jobs": payload["as it was"]}
            done(errno.ENOSYS if outcome == "gone" else 0, "", jobs)
        elif outcome == "yes":
            done(0, "", {"success": True})
        elif outcome == "no":
            done(0, "", {"success": False, "errstr": "no"})
        elif outcome == "gone":
            done(errno.ENOSYS, "", None)
        elif outcome == "later":
            done(errno.EAGAIN, "the service is starting", None)
        elif outcome == "lost":
            done(errno.EHOSTUNREACH, "", None)
        else:
            done(0, "", {"success": "yes"})

    @rule(found=st.booleans())
    def answer_lookup(self, found: bool) -> None:
        if self.manager.lookups:
            _, done = self.manager.lookups.pop(0)
            if found:
                done(0, '{"version": 1}')
            else:
                done(errno.ENOENT, None)

    @precondition(lambda self: self.manager.plugin is not None)
    @rule()
    def death(self) -> None:
        """Whatever was sent to the module is lost."""
        for rpc in [rpc for rpc in self.manager.rpcs if rpc[0].startswith("dws.")]:
            self.manager.rpcs.remove(rpc)
            rpc[2](errno.EHOSTUNREACH, "", None)

    @precondition(lambda self: self.manager.plugin is not None)
    @rule()
    def hello(self) -> None:
        try:
            response = self.manager.request("hello", {})
        except OSError as error:
            assert error.errno == errno.EAGAIN
            assert "job-manager.getattr" in self.manager.topics()
            return
        phases = {job["id"]: job["phase"] for job in response["jobs"]}
        for job in self.manager.jobs.values():
            phase = phases.get(job.id)
            assert (phase == "depend") == ("dws-create" in job.dependencies) or (
                job.state != DEPEND
            )
            if phase == "prolog":
                assert job.open["dws-setup"]
            if phase == "epilog":
                assert job.open["dws-epilog"]
            elif job.open["dws-epilog"]:
                assert phase == "running"
            if phase == "epilog":
                assert not job.running

    @rule(
        method=st.sampled_from(SERVICES),
        jobid=st.integers(1, 7),
        failed=st.booleans(),
        excluded=st.booleans(),
    )
    def service(self, method: str, jobid: int, failed: bool, excluded: bool) -> None:
        payload: dict[str, object] = {"id": jobid}
        if method == "resource-update":
            payload["resources"] = [{"type": "slot", "count": 1}]
            payload["exclude"] = {"not": [{"properties": ["x"]}]} if excluded else None
            if failed:
                payload["errmsg"] = "Proposal failed"
        elif method == "prolog-remove":
            payload["variables"] = {"DW_JOB_a": "/mnt/a"}
        elif method == "epilog-remove" and excluded:
            payload["data"] = "moving"
        elif method == "data-out" and failed:
            payload["errstr"] = "no space"
        job = self.manager.jobs.get(jobid)
        if method == "resource-update" and job is not None and job.wants_storage:
            job.creates += 1  # this module knows it
        try:
            self.manager.request(method, payload)
        except OSError as error:
            away = errno.ENOSYS if self.manager.plugin is None else errno.EAGAIN
            assert error.errno in (errno.ENOENT, away)

    @rule(
        jobid=ALL_JOBS,
        type=st.sampled_from(["cancel", "timeout", "exec", "dws", "other"]),
        severity=st.sampled_from([0, 0, 1, 7]),
    )
    def exception(self, jobid: int, type: str, severity: int) -> None:
        job = self.job(jobid, DEPEND, SCHED, RUN, CLEANUP)
        if job is not None:
            self.manager.raise_exception(jobid, type, severity, "")

    @rule(
        topic=st.sampled_from(TOPICS),
        what=st.sampled_from(["cancel", "exec", "mild", "memo", "update", "end"]),
        whom=st.sampled_from([0, 0, 0, 1, 2, 3]),
        times=st.integers(1, 3),
        first=st.booleans(),
    )
    def another_plugin(
        self, topic: str, what: str, whom: int, times: int, first: bool
    ) -> None:
        """Acts on the job that the callback is for, or on another one."""

        def act(manager: JobManager, job: Job) -> None:
            job = job if whom == 0 else manager.jobs.get(whom, job)
            if job.id != 4:
                intrude(manager, job, what)

        self.manager.hostile.append(Hostile(topic, act, times, first))

    @rule(jobid=ALL_JOBS)
    def proceed(self, jobid: int) -> None:
        """What Flux does to a job by itself next."""
        job = self.manager.jobs.get(jobid)
        if job is not None:
            proceed(self.manager, job)

    @rule(seconds=st.sampled_from([0.0, 0.0, 1.0, 60.0, EPILOG_TIMEOUT]))
    def advance(self, seconds: float) -> None:
        self.manager.advance(seconds)

    @precondition(lambda self: self.manager.plugin is not None)
    @rule()
    def unload(self) -> None:
        self.manager.unload()

    @precondition(lambda self: self.manager.plugin is None)
    @rule()
    def load(self) -> None:
        self.manager.load()

    @rule(exec_too=st.booleans())
    def restart(self, exec_too: bool) -> None:
        """The job manager, or the whole instance."""
        self.manager.restart()
        if exec_too:
            self.manager.exec_lost()

    @rule()
    def exec_reload(self) -> None:
        self.manager.exec_lost()

    @rule(jobid=ALL_JOBS)
    def tasks_end_unheard(self, jobid: int) -> None:
        job = self.job(jobid, RUN, CLEANUP)
        if job is not None and not job.start_pending:
            self.manager.tasks_end(job)

    @invariant()
    def no_job_without_directives_is_touched(self) -> None:
        job = self.manager.jobs.get(4)
        if job is not None:
            assert not job.memo and not +job.open and not job.subscribed
            assert job.used <= {"after"}

    def teardown(self) -> None:
        """With a module that does its work every job ends, and nothing stays."""
        if self.manager.plugin is None:
            self.manager.load()
        for hostile in self.manager.hostile:
            hostile.times = 0
        self.manager.exec_lost()
        for job in self.manager.jobs.values():
            if job.state == CLEANUP:  # which Flux does not look at by itself
                self.manager.act(job)
        for _ in range(20):
            cooperate(self.manager)
        for job in self.manager.jobs.values():
            assert job.state == INACTIVE, (job.state, job.eventlog)
            assert not +job.open
            assert job.unprotected or not job.memo.get("dws")
            assert job.unprotected or job.creates == 0 or job.has("epilog-start")
            assert job.unprotected or job.creates > 0 or not job.has("epilog-start")
        self.manager.unload()


def proceed(manager: JobManager, job: Job) -> None:
    if job.state == DEPEND and "after" in job.dependencies:
        manager.post(job, "dependency-remove", {"description": "after"})
    elif job.state == SCHED:
        if manager.plugin is None:
            job.unprotected = True
        manager.post(job, "alloc")
    elif job.start_pending and not job.has("start") and job.state == RUN:
        manager.post(job, "start")
    elif job.start_pending:
        manager.tasks_end(job)


def intrude(manager: JobManager, job: Job, what: str) -> None:
    """What another plugin may do to a job."""
    if job.state in (NEW, INACTIVE):
        return
    if what in ("cancel", "exec"):
        manager.raise_exception(job.id, what, 0, "another plugin")
    elif what == "mild":
        manager.raise_exception(job.id, "other", 1, "another plugin")
    elif what == "memo":
        manager.post(job, "memo", {"other": 1})
    elif what == "update" and job.state in (DEPEND, SCHED):
        manager.post(job, "jobspec-update", {"attributes.system.duration": 1.0})
    elif what == "end" and job.start_pending:
        manager.tasks_end(job)


def cooperate(manager: JobManager) -> None:
    """One round of a module that says hello and does what it is asked for."""
    manager.advance(2.0)
    manager.answer_exec()
    manager.settle()
    manager.answer_lookups()
    response = manager.request("hello", {})
    for jobid in range(1, 8):
        manager.request("data-out", {"id": jobid})
    manager.settle()
    manager.answer_lookups()
    while manager.rpcs:
        _, _, done = manager.rpcs.pop(0)
        done(0, "", {"success": True})
    for job in response["jobs"]:
        payload = {"id": job["id"]}
        if job["phase"] == "depend":
            resources = manager.jobs[job["id"]].jobspec["resources"]
            update = {**payload, "resources": resources, "exclude": None}
            manager.request("resource-update", update)
            manager.jobs[job["id"]].creates += 1  # it knows it by the hello
        elif job["phase"] == "prolog":
            manager.request("prolog-remove", {**payload, "variables": {"A": "b"}})
        elif job["phase"] == "epilog":
            manager.request("epilog-remove", payload)
    for job in manager.jobs.values():
        proceed(manager, job)


PluginMachine.TestCase.settings = settings(
    examples(50),
    stateful_step_count=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestPluginUnderRandomEvents = PluginMachine.TestCase
