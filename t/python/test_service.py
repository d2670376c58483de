# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The service in a whole system under virtual time."""

from __future__ import annotations

import json
import syslog
from typing import Any

import pytest

from flux_k8s.config.table import Config
from flux_k8s.jobs import jobtable
from flux_k8s.jobs.jobtable import Job, JobTable
from flux_k8s.jobs.reporter import DWS_PATIENCE, MEMO
from flux_k8s.ports import WORKFLOW
from flux_k8s.rfc.jobid import f58, workflow_name
from rabbitsim.dws import recorded
from rabbitsim.dws.options import Fault as DwsFault
from rabbitsim.dws.options import Options, table
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
    lines,
    long,
    memo,
    names,
    run_until,
    settle,
    started,
    submit,
)


def test_a_job_gets_its_storage_and_everything_is_gone_at_the_end() -> None:
    system = started()
    jobid = system.instance.submit(jobspec())
    settle(system)
    assert names(system, jobid) == LIFE
    assert exceptions(system, jobid) == []
    assert memo(system, jobid, "rabbit_workflow") == workflow_name(jobid)
    assert memo(system, jobid, "rabbits") in ("rabbit-01", "rabbit-02")


def test_the_life_of_the_storage_is_recorded_in_the_jobs_kvs() -> None:
    system = started()
    jobid = system.instance.submit(jobspec())
    settle(system)
    kvs = system.instance.job(jobid).kvs
    for state in ("proposal", "setup", "datain", "prerun", "postrun", "teardown"):
        assert float(kvs[f"rabbit_{state}_timing"]) >= 0
    assert json.loads(kvs["rabbit_workflow"])["spec"]["jobID"] == f58(jobid)


def test_the_environment_is_that_of_the_workflow() -> None:
    system = started()
    jobid = system.instance.submit(jobspec())
    settle(system)
    (event,) = (
        event
        for event in system.instance.eventlog(jobid)
        if event.name == "dws_environment"
    )
    assert event.context is not None
    variables = event.context["variables"]
    assert variables["DW_JOB_p1"] == variables["DW_JOB_XFS"]
    assert variables["DW_WORKFLOW_NAME"] == workflow_name(jobid)


def test_the_event_of_the_environment_says_what_is_copied_after_the_tasks() -> None:
    system = started()
    copy_out = "#DW copy_out source=$DW_JOB_p1/out destination=/lustre/out"
    jobids = [system.instance.submit(jobspec(dw)) for dw in (XFS, [XFS, copy_out])]
    settle(system)
    said = [
        event.context.get("copy_out")
        for jobid in jobids
        for event in system.instance.eventlog(jobid)
        if event.name == "dws_environment" and event.context is not None
    ]
    assert said == [None, "$DW_JOB_p1/out to /lustre/out"]


@pytest.mark.parametrize(
    "dw, message",
    [
        ("#DW jobdw type=xfs capacity=1GiB name=p1 profile=nosuch", "nosuch"),
        ("#DW persistentdw name=nosuch", "nosuch"),
    ],
)
def test_an_error_of_dws_is_the_note_of_the_jobs_exception(
    dw: str, message: str
) -> None:
    system = started()
    jobid = system.instance.submit(jobspec(dw))
    settle(system)
    (exception,) = exceptions(system, jobid)
    assert "DWS failed in Proposal" in exception["note"]
    assert message in exception["note"]


def test_a_workflow_whose_job_is_unknown_is_torn_down_and_deleted() -> None:
    system = started()
    jobid = system.instance.submit(jobspec())
    system.loop.run(
        lambda: system.instance.job(jobid).state is JobState.RUN, timeout=HOUR
    )
    system.unload_module()
    other = jobid + 1
    workflow = system.workflows()[0]
    spec = dict(workflow["spec"], jobID=f58(other), desiredState="Proposal")
    metadata = {"name": workflow_name(other)}
    system.store.create(WORKFLOW, "default", {"metadata": metadata, "spec": spec})
    system.load_module()
    settle(system)
    assert names(system, jobid) == LIFE


@pytest.mark.parametrize("prefix", ["f", "ƒ"])
def test_a_workflow_that_has_the_job_id_is_adopted(prefix: str) -> None:
    system = started()
    system.unload_module()
    jobid = system.instance.submit(jobspec())
    spec = {
        "desiredState": "Proposal",
        "dwDirectives": [XFS],
        "forceReady": False,
        "groupID": 0,
        "jobID": prefix + f58(jobid)[1:],
        "userID": 0,
        "wlmID": "flux",
    }
    metadata = {"name": workflow_name(jobid)}
    system.store.create(WORKFLOW, "default", {"metadata": metadata, "spec": spec})
    system.load_module()
    settle(system)
    assert "exception" not in names(system, jobid)


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


def test_a_malformed_workflow_fails_its_job_and_no_other() -> None:
    system = started()
    first = system.instance.submit(jobspec())
    second = system.instance.submit(jobspec())
    name = workflow_name(first)
    system.loop.run(
        lambda: any(w["metadata"]["name"] == name for w in system.workflows()),
        timeout=HOUR,
    )
    patch = {"status": {"computes": {"name": "", "namespace": ""}}}
    system.store.merge_patch(WORKFLOW, "default", name, patch)
    settle(system)
    (exception,) = exceptions(system, first)
    assert f"Workflow {name}: status.computes" in exception["note"]
    assert names(system, second) == LIFE


def test_many_jobs_at_once_all_get_through() -> None:
    latency = table({"Setup": 0.2, "PreRun": 1.0, "PostRun": 1.0}, spread=0.5)
    system = started(nodes=16, rabbits=4, options=Options(latency=latency))
    jobids = [system.instance.submit(jobspec(nodes=1)) for _ in range(40)]
    settle(system)
    assert all(names(system, jobid) == LIFE for jobid in jobids)


def test_only_the_owner_may_create_persistent_storage_unless_all_may() -> None:
    dw = "#DW create_persistent type=xfs capacity=1GiB name=keep"
    system = started()
    jobid = system.instance.submit(jobspec(dw), userid=4711)
    settle(system)
    (exception,) = exceptions(system, jobid)
    assert "rabbit.restrict_persistent_creation" in exception["note"]
    config = Config.parse({"restrict_persistent_creation": False})
    system = started(config=config)
    jobid = system.instance.submit(jobspec(dw), userid=4711)
    settle(system)
    assert names(system, jobid) == LIFE


def test_the_log_says_that_the_plugin_is_away() -> None:
    system = started(options=Options(latency=table({"PreRun": 5.0})))
    jobid = system.instance.submit(jobspec())
    assert system.loop.run(
        lambda: any(w["spec"]["desiredState"] == "PreRun" for w in system.workflows()),
        HOUR,
    )
    system.instance.unload_plugin()
    system.loop.run(timeout=20.0)
    text = f"{f58(jobid)}: Flux: dws-jobtap.so is not loaded; trying again"
    assert lines(system, f"{text} [plugin-missing]")
    system.load_plugin()
    settle(system)


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


def test_a_job_without_directives_is_left_alone() -> None:
    system = make()
    jobid = submit(system, "-N2")
    settle(system)
    assert not [n for n in names(system, jobid) if "log-" in n or "dependency" in n]


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


def test_jobs_have_their_nodes_one_after_the_other() -> None:
    system = make()
    jobs = [submit(system, "-N4", "-S", OPTION) for _ in range(3)]
    settle(system)
    spans = []
    for jobid in jobs:
        times = {e.name: e.timestamp for e in system.instance.eventlog(jobid)}
        spans.append((times["alloc"], times["free"]))
    spans.sort()
    for (_, freed), (alloc, _) in zip(spans, spans[1:]):
        assert freed <= alloc


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


def test_a_new_service_does_not_repeat_the_memo_of_the_last_one() -> None:
    options = Options(faults=(DwsFault("Setup", "never"),))
    system = started(options=options)
    jobid = system.instance.submit(jobspec())
    system.loop.run(timeout=2 * DWS_PATIENCE)
    before = names(system, jobid)
    assert str(memo(system, jobid, MEMO)).startswith("DWS in Setup: ")
    for end in (system.unload_module, system.kill_module):
        end()
        system.load_module()
        system.loop.run(timeout=2 * DWS_PATIENCE)
    assert names(system, jobid) == before
