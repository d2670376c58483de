# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The stand-in Flux instance: states, events, exceptions, plugins."""

from __future__ import annotations

import errno
import json
from typing import Optional

import pytest

from flux_k8s.ports import Json
from rabbitsim.flux import fluid
from rabbitsim.flux.events import JobState
from rabbitsim.flux.jobtap import Jobtap
from rabbitsim.flux.manager import SubmitError
from rabbitsim.flux.options import submit_jobspec
from support.flux import GUEST, PLAIN, System, epilog, hold, load, prolog


class TestLife:
    def test_a_job_goes_through_all_states(self, system: System) -> None:
        jobid = system.submit()
        system.run()
        assert system.names(jobid) == PLAIN
        assert system.state(jobid) is JobState.INACTIVE

    def test_events_have_the_context_that_flux_gives_them(self, system: System) -> None:
        jobid = system.submit("-n2", userid=GUEST)
        system.run()
        assert system.context(jobid, "submit") == {
            "userid": GUEST,
            "urgency": 16,
            "flags": 0,
            "version": 1,
        }
        assert system.context(jobid, "priority") == {"priority": 16}
        assert system.context(jobid, "release") == {"ranks": "all", "final": True}
        assert "context" not in system.instance.eventlog(jobid)[1].as_json()

    def test_timestamps_never_go_back(self, system: System) -> None:
        jobid = system.submit()
        system.run()
        times = [event.timestamp for event in system.instance.eventlog(jobid)]
        assert times == sorted(times)

    def test_the_kvs_has_R_and_jobspec(self, system: System) -> None:
        jobid = system.submit()
        system.run()
        kvs = system.instance.job(jobid).kvs
        assert json.loads(kvs["R"])["version"] == 1
        assert json.loads(kvs["jobspec"])["version"] == 1

    def test_a_held_job_waits_until_its_urgency_changes(self, system: System) -> None:
        jobid = system.submit(urgency=0)
        system.run()
        assert system.state(jobid) is JobState.SCHED
        system.instance.manager.set_urgency(jobid, 16, 0)
        system.run()
        assert system.names(jobid) == [
            *PLAIN[:4],
            *("urgency", "priority"),
            *PLAIN[4:],
        ]

    def test_a_job_with_a_higher_urgency_goes_first(self, system: System) -> None:
        system.submit("-N4")
        late = system.submit("-N4")
        first = system.submit("-N4", urgency=20)
        system.run()
        log = system.instance.eventlog
        assert log(first)[4].timestamp < log(late)[4].timestamp

    def test_jobs_behind_one_that_waits_start_if_that_does_not_delay_it(
        self, system: System
    ) -> None:
        system.instance.scheduler.depth = 2
        system.submit("-N2", "-t", "10s", seconds=10.0)
        first = system.submit("-N4", "-t", "10s")
        long = system.submit("-N2", "-t", "11s", seconds=2.0)
        short = system.submit("-N2", "-t", "5s", seconds=2.0)
        system.run()
        begins = {job: system.times(job)["alloc"] for job in (first, long, short)}
        assert begins[short] < begins[first] < begins[long]
        assert begins[first] == pytest.approx(begins[short] + 10.0, abs=0.1)

    def test_a_job_that_waits_for_certain_nodes_is_not_delayed_by_jobs_behind_it(
        self, system: System
    ) -> None:
        system.instance.scheduler.depth = 2
        hosts = system.instance.scheduler.pool.nodes[:2]
        both = "host:" + ",".join(node.host for node in hosts)
        system.submit("-N1", "-t", "10s", seconds=10.0)
        first = system.submit("-N2", "-t", "10s", f"--requires={both}")
        long = system.submit("-N2", "-t", "20s", seconds=20.0)
        system.run()
        assert system.times(long)["alloc"] < system.times(first)["alloc"]
        assert system.times(first)["alloc"] < system.times(long)["finish"]

    def test_the_scheduler_looks_at_so_many_jobs_behind_one_that_waits(
        self, system: System
    ) -> None:
        system.instance.scheduler.depth = 1
        system.submit("-N2", "-t", "10s", seconds=10.0)
        first = system.submit("-N4", "-t", "10s")
        system.submit("-N2", "-t", "11s")
        unseen = system.submit("-N2", "-t", "5s")
        system.run()
        assert system.times(first)["alloc"] < system.times(unseen)["alloc"]

    def test_no_job_overtakes_another_one_unless_the_scheduler_is_told_to(
        self, system: System
    ) -> None:
        system.submit("-N2", "-t", "10s", seconds=10.0)
        first = system.submit("-N4", "-t", "10s")
        short = system.submit("-N2", "-t", "5s")
        system.run()
        assert system.times(first)["alloc"] < system.times(short)["alloc"]

    def test_an_unsupported_dependency_is_refused(self, system: System) -> None:
        with pytest.raises(SubmitError, match='scheme "after" not supported'):
            system.submit("-S", 'dependencies=[{"scheme":"after","value":"1"}]')
        assert system.instance.idle()


class TestExceptions:
    def test_cancelling_a_running_job_ends_its_tasks(self, system: System) -> None:
        jobid = system.submit(seconds=100)
        system.run(timeout=1)
        system.instance.cancel(jobid, "enough")
        system.run()
        assert system.names(jobid)[6:] == ["exception", *PLAIN[6:]]
        assert system.context(jobid, "finish") == {"status": 143 << 8}
        assert system.context(jobid, "exception") == {
            "type": "cancel",
            "severity": 0,
            "note": "enough",
            "userid": system.instance.manager.owner,
        }

    def test_cancelling_a_waiting_job_cleans_it_up(self, system: System) -> None:
        system.submit("-N4", seconds=10)
        jobid = system.submit("-N4")
        system.run(timeout=1)
        system.instance.cancel(jobid)
        assert system.names(jobid) == [*PLAIN[:4], "exception", "clean"]

    def test_the_time_limit_raises_a_timeout(self, system: System) -> None:
        jobid = system.submit("-t2s", seconds=100)
        system.run()
        exception = system.context(jobid, "exception")
        assert exception["type"] == "timeout"
        assert exception["note"] == "resource allocation expired"
        assert system.context(jobid, "finish") == {"status": 142 << 8}

    def test_a_late_start_does_not_cost_the_job_its_time(self, system: System) -> None:
        plugin = load(system, job_state_run=prolog)
        jobid = system.submit("-t10s", seconds=9)
        system.run(timeout=8)
        plugin.host.prolog_finish(jobid, "setup", 0)
        system.run()
        assert "exception" not in system.names(jobid)

    def test_an_exception_of_another_severity_kills_nothing(
        self, system: System
    ) -> None:
        jobid = system.submit(seconds=5)
        system.run(timeout=1)
        system.instance.manager.raise_exception(jobid, "note", 1, "hm", 500)
        system.run()
        assert system.names(jobid) == [*PLAIN[:6], "exception", *PLAIN[6:]]
        assert system.context(jobid, "finish") == {"status": 0}

    def test_a_job_that_asks_for_too_much_is_refused(self, system: System) -> None:
        jobid = system.submit("-N5")
        system.run()
        assert system.names(jobid) == [*PLAIN[:4], "exception", "clean"]
        assert (
            system.context(jobid, "exception")["note"]
            == 'alloc denied due to type="unsatisfiable"'
        )

    def test_a_node_that_goes_down_takes_its_jobs_along(self, system: System) -> None:
        jobid = system.submit("-N4", seconds=100)
        system.run(timeout=1)
        system.instance.set_up("node2", False)
        system.run()
        assert system.context(jobid, "exception")["type"] == "node-failure"
        assert system.state(jobid) is JobState.INACTIVE

    def test_a_guest_cannot_cancel_the_job_of_another(self, system: System) -> None:
        jobid = system.submit(seconds=10)
        with pytest.raises(OSError, match="their own jobs"):
            system.instance.cancel(jobid, userid=GUEST)

    def test_a_task_that_ignores_sigterm_is_killed(self, system: System) -> None:
        jobid = system.submit("-S", "exec.test.deaf=true", seconds=1000)
        system.run(timeout=1)
        system.instance.cancel(jobid)
        system.run()
        assert system.context(jobid, "finish") == {"status": 137 << 8}


class TestPlugins:
    def test_a_dependency_holds_the_job(self, system: System) -> None:
        plugin = load(system, job_state_depend=hold)
        jobid = system.submit()
        system.run()
        assert system.names(jobid) == ["submit", "validate", "dependency-add"]
        plugin.host.dependency_remove(jobid, "storage")
        system.run()
        assert system.names(jobid)[3:] == ["dependency-remove", *PLAIN[2:]]

    def test_a_dependency_that_was_removed_cannot_come_back(
        self, system: System
    ) -> None:
        plugin = load(system, job_state_depend=hold)
        jobid = system.submit()
        system.run()
        plugin.host.dependency_add(jobid, "storage")
        assert system.names(jobid).count("dependency-add") == 1
        plugin.host.dependency_add(jobid, "more")
        plugin.host.dependency_remove(jobid, "more")
        plugin.host.dependency_add(jobid, "more")
        plugin.host.dependency_remove(jobid, "storage")
        system.run()
        assert system.names(jobid)[-1] == "clean"

    def test_a_prolog_holds_back_the_start(self, system: System) -> None:
        plugin = load(system, job_state_run=prolog)
        jobid = system.submit()
        system.run()
        assert system.names(jobid) == [*PLAIN[:5], "prolog-start"]
        plugin.host.prolog_finish(jobid, "setup", 0)
        system.run()
        assert system.names(jobid)[6:] == ["prolog-finish", *PLAIN[5:]]

    def test_an_epilog_holds_back_the_resources(self, system: System) -> None:
        plugin = load(system, job_state_cleanup=epilog)
        jobid = system.submit("-N4")
        other = system.submit("-N4")
        system.run()
        assert system.names(jobid)[6:] == ["finish", "epilog-start", "release"]
        assert system.state(other) is JobState.SCHED
        plugin.host.epilog_finish(jobid, "teardown", 0)
        system.run(timeout=0.5)
        assert system.names(jobid)[9:] == ["epilog-finish", "free", "clean"]
        assert system.state(other) is JobState.RUN

    def test_a_job_cancelled_in_its_prolog_waits_for_it(self, system: System) -> None:
        plugin = load(system, job_state_run=prolog, job_state_cleanup=epilog)
        jobid = system.submit()
        system.run()
        system.instance.cancel(jobid)
        system.run()
        assert system.names(jobid)[6:] == ["exception", "epilog-start"]
        plugin.host.prolog_finish(jobid, "setup", 1)
        plugin.host.epilog_finish(jobid, "teardown", 0)
        assert system.names(jobid)[8:] == [
            "prolog-finish",
            "epilog-finish",
            "free",
            "clean",
        ]

    def test_perilog_actions_are_refused_when_it_is_too_late(
        self, system: System
    ) -> None:
        plugin = load(system)
        jobid = system.submit(seconds=10)
        system.run(timeout=1)
        for action in (plugin.host.prolog_start, plugin.host.epilog_start):
            with pytest.raises(OSError) as caught:
                action(jobid, "late")
            assert caught.value.errno == errno.EINVAL

    def test_a_jobspec_update_is_applied(self, system: System) -> None:
        plugin = load(system, job_state_depend=hold)
        jobid = system.submit()
        system.run()
        resources = submit_jobspec(["x"], ["-N2"])["resources"]
        updates = {"resources": resources, "attributes.system.x.y": 1}
        plugin.host.jobspec_update(jobid, updates)
        plugin.host.dependency_remove(jobid, "storage")
        system.run()
        job = system.instance.job(jobid)
        assert system.context(jobid, "jobspec-update") == updates
        assert job.jobspec["attributes"]["system"]["x"] == {"y": 1}
        assert job.R is not None
        assert job.R["execution"]["R_lite"][0]["rank"] == "0-1"

    def test_a_jobspec_update_in_sched_sends_the_job_back_to_priority(
        self, system: System
    ) -> None:
        plugin = load(system)
        system.submit("-N4", seconds=10)
        jobid = system.submit("-N4")
        system.run(timeout=1)
        plugin.host.jobspec_update(jobid, {"attributes.system.duration": 5})
        assert system.names(jobid)[4:] == ["jobspec-update", "priority"]

    def test_a_jobspec_update_from_the_jobs_own_callback_is_refused(
        self, system: System
    ) -> None:
        refused: list[Optional[int]] = []

        def update(host: Jobtap, args: Json) -> None:
            try:
                host.jobspec_update(args["id"], {"attributes.system.x": 1})
            except OSError as error:
                refused.append(error.errno)

        load(system, job_state_depend=update)
        system.submit()
        system.run()
        assert refused == [errno.EINVAL]

    def test_a_plugin_can_refuse_a_job(self, system: System) -> None:
        load(system, job_validate=lambda host, args: (-1, {"errmsg": "not today"}))
        with pytest.raises(SubmitError, match="not today"):
            system.submit()

    def test_a_subscribed_plugin_sees_all_events(self, system: System) -> None:
        plugin = load(
            system, job_state_depend=lambda host, args: host.subscribe(args["id"])
        )
        system.submit()
        system.run()
        seen = [c for c in plugin.calls if c.startswith("job.event.")]
        assert seen == [f"job.event.{name}" for name in PLAIN[2:]]

    def test_a_new_plugin_is_told_of_active_jobs(self, system: System) -> None:
        first = load(system, job_state_depend=hold)
        jobid = system.submit()
        system.run()
        system.instance.unload_plugin()
        assert first.calls[-1] == "unload"
        second = load(system)
        assert second.calls == ["job.create", "job.new", "job.state.depend"]
        assert system.names(jobid)[-1] == "dependency-add"

    def test_the_plugin_reads_R_from_the_kvs(self, system: System) -> None:
        plugin = load(system, job_state_run=prolog)
        jobid = system.submit()
        system.run()
        answers: list[tuple[int, Optional[str]]] = []
        for key in (f"job.{fluid.dothex(jobid)}.R", "job.0000.0000.0000.0001.R", "x"):
            plugin.host.kvs_lookup(key, lambda *answer: answers.append(answer))
        assert answers == []
        system.run()
        assert answers[0] == (0, system.instance.job(jobid).kvs["R"])
        assert answers[1:] == [(errno.ENOENT, None)] * 2
