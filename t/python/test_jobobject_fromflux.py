# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Job objects of jobs that ran in the simulator, of what Flux has of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flux_k8s.errors import DWSError
from rabbitsim.dws import Fault, Files, Options
from rabbitsim.flux.options import submit_jobspec
from sssjob import read, write
from sssjob.from_flux.convert import (
    ExportOptions,
    JobRecord,
    group_object,
    job_object,
)
from support.jobrecords import SAVING, extensions, ran, record_of, says, told
from support.rset import in_shorthand
from support.service import XFS, jobspec, settle, started, time_of

MIB = 1 << 20
PLAIN = submit_jobspec(["true"])


# A job with storage


def test_a_job_object_has_the_request_as_the_user_made_it() -> None:
    system, jobid = ran(jobspec(XFS, duration=60, queue="debug", bank="physics"))
    job = told(system, jobid)
    requested = job.find("Requested")
    assert says(requested, "NodeCount") == [2]
    assert says(requested, "Processors") == [2]
    assert says(requested, "Duration") == [60]
    assert says(requested, "Queue") == ["debug"]
    storage = says(requested, "Resource", name="Storage", type="xfs", units="GB")
    assert storage == [10.0]
    assert job.text("Account") == "physics"
    assert says(job.find("TaskGroup"), "TaskCount") == [2]
    assert (job.text("Executable"), job.text("Arguments")) == ("sleep", "1")
    assert extensions(job) == {"attributes.system.dw": [XFS]}


def test_changes_of_the_module_to_the_jobspec_are_not_requested() -> None:
    constraints = {"not": [{"hostlist": ["compute-01"]}]}
    system, jobid = ran(jobspec(XFS, constraints=constraints))
    (update,) = [
        event.context or {}
        for event in system.instance.eventlog(jobid)
        if event.name == "jobspec-update"
    ]
    assert set(update) == {"resources", "attributes.system.constraints"}
    job = told(system, jobid)
    requested = job.find("Requested")
    assert says(requested, "Node") == says(requested, "Node", op="NE") == ["compute-01"]
    assert not says(requested, "Feature")
    assert says(requested, "NodeCount") == [2]
    assert set(extensions(job)) == {"attributes.system.dw"}


def test_a_job_object_has_the_resources_that_the_job_got() -> None:
    system, jobid = ran(jobspec(XFS, nodes=3))
    delivered = told(system, jobid).find("Delivered")
    assert says(delivered, "NodeCount") == [3]
    assert says(delivered, "Node", aggregation="Range") == ["compute-[01-03]"]
    # 10 GiB, which NNF rounds up to 11, on each node.
    ssd = says(delivered, "Resource", name="Storage", type="ssd", units="GB")
    assert ssd == [33.0]
    # The nodes that the stand-in gives have four each.
    assert says(delivered, "Processors") == [12]


def test_a_job_object_names_the_rabbits_with_the_job_s_storage() -> None:
    system, jobid = ran(jobspec(XFS, nodes=3))
    rabbits = says(told(system, jobid), "Extension", type="Flux", name="rabbits")
    assert rabbits == ["rabbit-[01-02]"]


@pytest.mark.parametrize(
    ("recorded", "rabbits"), [("", "rabbit-[01-02]"), ("rabbit-02\n", "rabbit-02")]
)
def test_without_a_record_a_job_object_has_the_rabbits_of_r(
    recorded: str, rabbits: str
) -> None:
    system, jobid = ran(jobspec(XFS, nodes=3))
    kvs = {**record_of(system, jobid).kvs, "rabbit_hostlist": recorded}
    job = job_object(JobRecord(jobid, kvs))
    assert says(job, "Extension", name="rabbits") == [rabbits]


def test_a_record_of_rabbits_that_is_no_hostlist_is_an_error() -> None:
    system, jobid = ran(jobspec(XFS, nodes=3))
    kvs = {**record_of(system, jobid).kvs, "rabbit_hostlist": "r[1"}
    with pytest.raises(DWSError, match="^rabbit_hostlist of job f.*: "):
        job_object(JobRecord(jobid, kvs))


def test_a_rabbit_of_r_whose_name_is_no_host_name_is_an_error() -> None:
    system, jobid = ran(jobspec(XFS, nodes=3))
    kvs = dict(record_of(system, jobid).kvs)
    del kvs["rabbit_hostlist"]
    kvs["R"] = kvs["R"].replace("rabbit-01", "rabbit 01")
    with pytest.raises(DWSError, match="^R of job f.*: .*rabbit 01"):
        job_object(JobRecord(jobid, kvs))


def test_the_storage_of_a_job_with_a_whole_rabbit_is_not_counted() -> None:
    system, jobid = ran(jobspec(XFS, nodes=3))
    record = record_of(system, jobid)
    R = json.loads(record.kvs["R"])
    for whole, sizes in ((), [33.0]), (("/cluster0/chassis0",), []):
        kvs = {**record.kvs, "R": json.dumps(in_shorthand(R, whole))}
        delivered = job_object(JobRecord(jobid, kvs)).find("Delivered")
        assert says(delivered, "Resource", name="Storage") == sizes


def test_a_job_object_has_the_seconds_that_each_state_took() -> None:
    system, jobid = ran(jobspec(XFS))
    kvs = record_of(system, jobid).kvs
    delivered = told(system, jobid).find("Delivered")
    states = "Proposal Setup DataIn PreRun PostRun DataOut Teardown".split()
    assert [
        says(delivered, "Resource", name="WorkflowState", type=state, units="s")
        for state in states
    ] == [[float(kvs[f"rabbit_{state.lower()}_timing"])] for state in states]


def test_a_job_object_has_the_times_and_the_end_of_the_job() -> None:
    test = {"run_duration": "89.6s", "wait_status": 3 << 8}
    system, jobid = ran(jobspec(XFS, exec={"test": test}))
    job = told(system, jobid)
    for name, event in (("Submit", "submit"), ("Start", "start"), ("End", "finish")):
        time = int(time_of(system, jobid, event))
        assert says(job, f"{name}Time") == [time]
    assert says(job.find("Delivered"), "Duration") == [90]
    assert says(job, "ExitCode") == [3]
    assert says(job, "Priority") == [16]
    assert job.text("State") == "Completed"
    assert job.find("StatusMessage") is None
    assert set(extensions(job)) == {"attributes.system.dw", "attributes.system.exec"}


def test_a_task_that_a_signal_ended_has_the_exit_code_that_a_shell_gives() -> None:
    system, jobid = ran(jobspec(XFS, exec={"test": {"wait_status": 9}}))
    assert says(told(system, jobid), "ExitCode") == [137]


def test_a_job_object_has_the_bytes_that_were_moved(tmp_path: Path) -> None:
    (tmp_path / "lustre").mkdir()
    (tmp_path / "lustre" / "in").write_bytes(bytes(3 * MIB))
    directives = [
        XFS,
        "#DW copy_in source=/lustre/in destination=$DW_JOB_p1/in",
        "#DW copy_out source=$DW_JOB_p1/in destination=/lustre/out",
    ]
    system, jobid = ran(jobspec(directives, nodes=1), files=Files(tmp_path))
    assert (tmp_path / "lustre" / "out").stat().st_size == 3 * MIB
    delivered = told(system, jobid).find("Delivered")
    for command in ("copy_in", "copy_out"):
        moved = says(
            delivered, "Resource", name="DataMovement", type=command, units="B"
        )
        assert moved == [3.0 * MIB]


def test_a_preset_is_written_as_its_directives() -> None:
    system, jobid = ran(jobspec("fast"))
    job = told(system, jobid, presets=SAVING.presets)
    assert says(job.find("Requested"), "Resource", type="xfs") == [10.0]
    assert extensions(job) == {"attributes.system.dw": [XFS]}


def test_a_preset_that_is_not_known_any_more_stands_in_the_workflow() -> None:
    system, jobid = ran(jobspec("fast"))
    assert extensions(told(system, jobid)) == {"attributes.system.dw": [XFS]}


def test_an_unknown_preset_is_written_by_its_name() -> None:
    system, jobid = ran(jobspec("fast"))
    record = record_of(system, jobid)
    kvs = {key: text for key, text in record.kvs.items() if key != "rabbit_workflow"}
    warnings: list[str] = []
    job = job_object(JobRecord(jobid, kvs), ExportOptions(warn=warnings.append))
    assert extensions(job) == {"attributes.system.dw": "fast"}
    assert len(warnings) == 1 and "unknown preset" in warnings[0]


# Jobs that did not get so far


@pytest.mark.parametrize("state", ["Proposal", "Setup", "PreRun"])
def test_a_job_that_is_cancelled_in_its_prolog_or_before_never_ran(state: str) -> None:
    never = Options(faults=(Fault.parse(f"{state}:never"),))
    system = started(config=SAVING, options=never)
    jobid = system.instance.submit(jobspec(XFS))
    system.loop.run(timeout=10.0)
    before = told(system, jobid)
    assert before.text("State") == ("Idle" if state == "Proposal" else "Running")
    assert before.find("EndTime") is None
    system.instance.cancel(jobid, "not needed")
    settle(system)
    job = told(system, jobid)
    assert job.text("State") == "Completed"
    assert job.text("StatusMessage") == "cancel: not needed"
    assert job.find("StartTime") is None and job.find("ExitCode") is None
    assert says(job, "EndTime") == [int(time_of(system, jobid, "clean"))]
    assert not says(job.find("Delivered"), "Duration")
    assert bool(says(job.find("Delivered"), "NodeCount")) == (state != "Proposal")


def test_a_job_that_runs_has_no_end() -> None:
    test = {"run_duration": "100s"}
    system = started(config=SAVING)
    jobid = system.instance.submit(jobspec(XFS, exec={"test": test}))
    system.loop.run(timeout=20.0)
    job = told(system, jobid)
    assert job.text("State") == "Running"
    assert says(job, "StartTime") == [int(time_of(system, jobid, "start"))]
    assert job.find("EndTime") is None and job.find("ExitCode") is None
    assert not says(job.find("Delivered"), "Duration")


def test_a_job_whose_storage_is_drained_is_running_but_has_ended() -> None:
    never = Options(faults=(Fault.parse("DataOut:never"),))
    system = started(config=SAVING, options=never)
    jobid = system.instance.submit(jobspec(XFS))
    system.loop.run(timeout=20.0)
    job = told(system, jobid)
    assert job.text("State") == "Running"
    assert says(job, "EndTime") == [int(time_of(system, jobid, "finish"))]


def test_a_job_that_is_held_says_so() -> None:
    system = started()
    jobid = system.instance.submit(PLAIN, urgency=0)
    system.loop.run(timeout=5.0)
    job = told(system, jobid)
    assert (job.text("State"), job.text("Hold")) == ("Hold", "User")
    system.instance.manager.set_urgency(jobid, 16, system.instance.broker.owner)
    settle(system)
    job = told(system, jobid)
    assert job.text("State") == "Completed" and job.find("Hold") is None


def test_a_job_without_storage_has_no_storage_in_its_object() -> None:
    spec = submit_jobspec(["echo", "a b"], ["-n4", "-c2", "-g1"])
    system = started()
    jobid = system.instance.submit(spec)
    system.loop.run(timeout=5.0)
    job = told(system, jobid)
    requested = job.find("Requested")
    assert says(requested, "Processors") == [8]
    assert says(requested, "Resource", name="GPU") == [4.0]
    assert not says(requested, "Resource", name="Storage")
    assert not says(requested, "NodeCount")
    assert job.text("Arguments") == "'a b'"
    assert not list(job.all("Extension"))


# More than one job


def test_a_group_of_jobs_has_a_state() -> None:
    system = started(config=SAVING)
    first = system.instance.submit(jobspec(XFS))
    settle(system)
    second = system.instance.submit(PLAIN, urgency=0)
    system.loop.run(timeout=5.0)
    jobs = [told(system, jobid) for jobid in (first, second)]
    for members, state in (
        (jobs, "Active"),
        (jobs[:1], "Completed"),
        (jobs[1:], "Unstarted"),
    ):
        group = read(write(group_object("g1", members)))
        assert group.text("State") == state
        assert list(group.all("Job")) == members


def test_steps_are_called_after_their_batch_job_and_so_is_what_they_depend_on() -> None:
    system, jobid = ran(PLAIN)
    record = record_of(system, jobid)
    jobspec = submit_jobspec(["true"])
    depends = {"scheme": "afterok", "value": record.id}
    jobspec["attributes"]["system"]["dependencies"] = [depends]
    kvs = {**record.kvs, "jobspec": json.dumps(jobspec)}
    step = job_object(JobRecord(jobid, kvs, parent="fBatch/"))
    assert step.text("Id") == step.text("Dependency") == f"fBatch/{record.id}"
