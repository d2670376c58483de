# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The service in a whole system under virtual time."""

from __future__ import annotations

import json
import syslog
from typing import Any

import pytest

from flux_k8s.jobs import jobtable
from flux_k8s.jobs.jobtable import Job, JobTable
from flux_k8s.ports import WORKFLOW
from flux_k8s.rfc.jobid import f58, workflow_name
from rabbitsim.dws import recorded
from rabbitsim.dws.options import Options
from rabbitsim.flux.events import JobState
from rabbitsim.flux.fluid import encode
from rabbitsim.flux.manager import SubmitError
from rabbitsim.system import VirtualSystem
from support.outages import OUTAGES, inject
from support.service import (
    HOUR,
    LIFE,
    OPTION,
    XFS,
    exceptions,
    jobspec,
    long,
    memo,
    names,
    run_until,
    settle,
    started,
    submit,
)


def test_a_job_has_its_storage_its_records_and_its_environment() -> None:
    system = started()
    copy_out = "#DW copy_out source=$DW_JOB_p1/out destination=/lustre/out"
    for dw, said in ((XFS, None), ([XFS, copy_out], "$DW_JOB_p1/out to /lustre/out")):
        jobid = system.instance.submit(jobspec(dw))
        settle(system)
        assert names(system, jobid) == LIFE
        assert exceptions(system, jobid) == []
        assert memo(system, jobid, "rabbit_workflow") == workflow_name(jobid)
        assert memo(system, jobid, "rabbits") in ("rabbit-01", "rabbit-02")
        kvs = system.instance.job(jobid).kvs
        for state in ("proposal", "setup", "datain", "prerun", "postrun", "teardown"):
            assert float(kvs[f"rabbit_{state}_timing"]) >= 0
        assert json.loads(kvs["rabbit_workflow"])["spec"]["jobID"] == f58(jobid)
        events = system.instance.eventlog(jobid)
        (event,) = (event for event in events if event.name == "dws_environment")
        assert event.context is not None
        variables = event.context["variables"]
        assert variables["DW_JOB_p1"] == variables["DW_JOB_XFS"]
        assert variables["DW_WORKFLOW_NAME"] == workflow_name(jobid)
        assert event.context.get("copy_out") == said


def test_an_error_of_dws_is_the_note_of_the_jobs_exception() -> None:
    system = started()
    jobid = system.instance.submit(jobspec("#DW persistentdw name=nosuch"))
    settle(system)
    (exception,) = exceptions(system, jobid)
    assert "DWS failed in Proposal" in exception["note"]
    assert "nosuch" in exception["note"]


def test_a_workflow_that_is_not_ours_is_never_touched() -> None:
    system = started()
    for name, wlm in (("fluxjob-77", "slurm"), ("mine", "flux")):
        body = {
            "metadata": {"name": name},
            "spec": {
                "desiredState": "Proposal",
                "dwDirectives": [XFS],
                "forceReady": False,
                "groupID": 0,
                "jobID": "x",
                "userID": 0,
                "wlmID": wlm,
            },
        }
        system.store.create(WORKFLOW, "default", body)
    jobid = system.instance.submit(jobspec())
    system.loop.run(system.instance.idle, timeout=HOUR)
    system.loop.run(timeout=HOUR)
    assert names(system, jobid) == LIFE
    left = sorted(w["metadata"]["name"] for w in system.workflows())
    assert left == ["fluxjob-77", "mine"]
    assert all(w["spec"]["desiredState"] == "Proposal" for w in system.workflows())


def test_an_error_in_a_guests_job_is_no_error_in_the_administrators_log() -> None:
    system = started()
    deep: dict[str, Any] = {"type": "core", "count": 1}
    for _ in range(140):
        deep = {"type": "x", "count": 1, "with": [deep]}
    nested = jobspec()
    nested["resources"] = [deep]
    for job in (nested, jobspec("nonsense"), jobspec("#DW jobdw type=xfs")):
        jobid = system.instance.submit(job)
        settle(system)
        assert exceptions(system, jobid)
    assert [line for _, level, line in system.log if level < syslog.LOG_INFO] == []


def make(seed: int = 1, **options: Any) -> VirtualSystem:
    system = VirtualSystem(
        seed, options=Options(latency=recorded()), kube_latency=0.003, **options
    )
    system.start()
    system.loop.run(timeout=1.0)
    return system


def test_every_shell_sees_the_variables() -> None:
    system = make()
    jobid = submit(system, "-N3", "-S", OPTION)
    settle(system)
    environments = system.executor.environments[jobid]
    assert len(environments) == 3
    assert all(e["DW_JOB_p1"].startswith("/mnt/nnf/") for e in environments)


def test_a_job_manager_that_is_loaded_anew_starts_no_job_before_job_exec_is() -> None:
    """A job-exec that was told to start the job already would run it twice."""
    system = make()
    jobid = submit(system, "-N2", "-S", OPTION)
    assert system.loop.run(lambda: "prolog-start" in names(system, jobid), HOUR)
    system.reload_manager()
    assert system.loop.run(lambda: "prolog-finish" in names(system, jobid), HOUR)
    system.loop.run(timeout=10.0)
    assert "start" not in names(system, jobid)
    system.instance.reload_exec()
    settle(system)
    assert names(system, jobid) == LIFE


def test_a_seed_gives_the_same_run_each_time() -> None:
    def run(seed: int) -> list[Any]:
        system = make(seed)
        jobs = [submit(system, "-N2", "-S", OPTION) for _ in range(5)]
        settle(system)
        return [
            [event.as_json() for event in system.instance.eventlog(jobid)]
            for jobid in jobs
        ] + [system.log]

    assert run(3) == run(3)
    assert run(3) != run(4)


def test_a_new_job_manager_finds_the_record_that_a_job_waits_for() -> None:
    system = make()
    target = submit(system, "-N2", "-S", OPTION)
    jobid = submit(system, f"--dependency=dws-out:{encode(target)}")
    run_until(system, target, "finish")
    system.reload_manager()
    system.instance.reload_exec()
    assert system.instance.job(jobid).state is JobState.DEPEND
    system.instance.job(target).kvs["rabbit_data_out"] = '{"success": true}'
    settle(system)
    assert system.instance.job(jobid).exit_code == 0
    assert names(system, jobid).count("dependency-remove") == 1


def test_a_dependency_that_a_plugin_refuses_is_refused_with_its_reason() -> None:
    system = make()
    with pytest.raises(SubmitError, match="dws-out: 'bar': not a job ID"):
        submit(system, "--dependency=dws-out:bar")
    with pytest.raises(SubmitError, match='scheme "other" not supported'):
        submit(system, "--dependency=other:bar")


def rest(system: VirtualSystem, seconds: float) -> None:
    system.loop.call_later(seconds, lambda: None)
    system.loop.run(timeout=seconds)


@pytest.mark.parametrize("seed", range(20))
def test_plugin_and_service_may_come_and_go_in_any_order(seed: int) -> None:
    """In the end each hears of the other, whatever was before."""
    system = VirtualSystem(seed=seed, message_latency=0.1)
    system.start()
    for _ in range(10):
        if system.rng.random() < 0.5:
            system.instance.unload_plugin()
            rest(system, system.rng.random())
            system.load_plugin()
        elif system.instance.module_loaded:
            system.rng.choice([system.kill_module, system.unload_module])()
        else:
            system.load_module()
        rest(system, system.rng.random())
    if not system.instance.module_loaded:
        system.load_module()
    rest(system, 10.0)
    jobid = submit(system, "-N2", "-S", OPTION)
    settle(system)
    assert names(system, jobid) == LIFE


def test_all_jobs_learn_of_an_outage_in_portions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ten thousand jobs at once would hold up the reactor. Most of these wait for
    nodes."""
    asked: list[int] = []
    ask = JobTable.asked

    def noting(jobs: JobTable, job: Job) -> None:
        asked.append(job.info.jobid)
        ask(jobs, job)

    monkeypatch.setattr(JobTable, "asked", noting)
    monkeypatch.setattr(jobtable, "VISITED_AT_ONCE", 2)
    system = started()
    jobids = [system.instance.submit(long(XFS, seconds=60)) for _ in range(7)]
    system.loop.run(timeout=10.0)
    asked.clear()
    inject(system, OUTAGES["refused"], seconds=60.0)
    turns = []
    while set(asked) != set(jobids):
        before = len(asked)
        assert system.loop.step()
        turns.append(len(asked) - before)
    assert max(turns) == 2
    settle(system)
    assert all(names(system, jobid) == LIFE for jobid in jobids)
