# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Job objects of jobs: what became of a job, of what Flux has of it, what is refused.
First jobs that ran in the simulator, then records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flux_k8s.errors import DWSError
from flux_k8s.ports import Json
from rabbitsim.dws import Files
from rabbitsim.flux.options import submit_jobspec
from sssjob.from_flux.convert import (
    ExportOptions,
    JobRecord,
    job_object,
)
from sssjob.shape import Totals, totals_of
from support.jobrecords import (
    JOBID,
    SAVING,
    SUBMIT,
    eventlog,
    extensions,
    facts,
    job_of,
    ran,
    record_of,
    says,
    spec,
    told,
)
from support.service import XFS, jobspec, settle, started, time_of
from support.tables import rows

PLAIN = submit_jobspec(["true"])
DW = 'attributes.system.dw: ["#DW jobdw type=xfs capacity=10GiB name=p1"]'

# 10 GiB are 11 on each node, as NNF rounds up; the nodes have four cores each.

RAN = """
State Completed
Executable sleep
Arguments 1
Account physics
Priority 16
ExitCode 3
rabbits: rabbit-[01-02]
attributes.system.dw: ["#DW jobdw type=xfs capacity=10GiB name=p1"]
attributes.system.exec: {"test": {"run_duration": "89.6s", "wait_status": 768}}
Requested/Queue debug
Requested/NodeCount 3
Requested/Node compute-04 op=NE
Requested/Processors 3
Requested/Resource 10.0 name=Storage type=xfs units=GB
Requested/Duration 3600
Delivered/NodeCount 3
Delivered/Node compute-[01-03] aggregation=Range
Delivered/Processors 12
Delivered/Resource 33.0 name=Storage type=ssd units=GB
Delivered/Duration 90
TaskGroup/TaskCount 3
"""


def test_a_job_object_has_all_of_a_job_with_storage() -> None:
    """The constraint that the module adds is not among what is requested."""
    without = {"not": [{"hostlist": ["compute-04"]}]}
    test = {"run_duration": "89.6s", "wait_status": 3 << 8}
    asked = {"duration": 3600, "queue": "debug", "bank": "physics"}
    system, jobid = ran(
        jobspec(XFS, nodes=3, constraints=without, exec={"test": test}, **asked)
    )
    job, kvs = told(system, jobid), record_of(system, jobid).kvs
    states = "Proposal Setup DataIn PreRun PostRun DataOut Teardown".split()
    seconds = [
        f"Delivered/Resource {float(kvs[f'rabbit_{state.lower()}_timing'])}"
        f" name=WorkflowState type={state} units=s"
        for state in states
    ]
    times = [
        f"{name}Time {int(time_of(system, jobid, event))}"
        for name, event in (("Submit", "submit"), ("Start", "start"), ("End", "finish"))
    ]
    who = [f"Id {record_of(system, jobid).id}", "User 500"]
    assert sorted(facts(job)) == sorted([*rows(RAN, 1), *seconds, *times, *who])


def test_a_task_that_a_signal_ended_has_the_exit_code_that_a_shell_gives() -> None:
    system, jobid = ran(jobspec(XFS, exec={"test": {"wait_status": 9}}))
    assert says(told(system, jobid), "ExitCode") == [137]


def test_a_job_object_has_the_bytes_that_were_moved(tmp_path: Path) -> None:
    (tmp_path / "lustre").mkdir()
    (tmp_path / "lustre" / "in").write_bytes(bytes(3 << 20))
    directives = [
        XFS,
        "#DW copy_in source=/lustre/in destination=$DW_JOB_p1/in",
        "#DW copy_out source=$DW_JOB_p1/in destination=/lustre/out",
    ]
    system, jobid = ran(jobspec(directives, nodes=1), files=Files(tmp_path))
    assert (tmp_path / "lustre" / "out").stat().st_size == 3 << 20
    delivered = told(system, jobid).find("Delivered")
    for command in ("copy_in", "copy_out"):
        moved = says(
            delivered, "Resource", name="DataMovement", type=command, units="B"
        )
        assert moved == [3.0 * 2**20]


def test_a_preset_is_written_as_its_directives() -> None:
    system, jobid = ran(jobspec("fast"))
    # Which are those of the presets, or else stand in the Workflow.
    for presets in (SAVING.presets, {}):
        job = told(system, jobid, presets=presets)
        assert says(job.find("Requested"), "Resource", type="xfs") == [10.0]
        assert extensions(job) == {"attributes.system.dw": [XFS]}
    kvs = dict(record_of(system, jobid).kvs)
    del kvs["rabbit_workflow"]
    warnings: list[str] = []
    job = job_object(JobRecord(jobid, kvs), ExportOptions(warn=warnings.append))
    assert extensions(job) == {"attributes.system.dw": "fast"}
    assert len(warnings) == 1 and "unknown preset" in warnings[0]


# Jobs that did not get so far


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


# Records


def test_the_message_of_a_job_is_its_first_fatal_exception_or_else_the_last() -> None:
    def raised(type: str, severity: int, note: str) -> tuple[str, Json]:
        return "exception", {"type": type, "severity": severity, "note": note}

    warning, other = raised("w", 3, "slow"), raised("v", 7, "")
    fatal, later = raised("oom", 0, "on h1\x07"), raised("cancel", 0, "")
    assert job_of(spec(), warning, other).text("StatusMessage") == "v"
    assert job_of(spec(), warning, other).text("State") == "Idle"
    job = job_of(spec(), warning, fatal, later)
    assert job.text("StatusMessage") == "oom: on h1\\x07"
    assert job.text("State") == "Running"
    assert job_of(spec(), fatal, "clean").text("State") == "Completed"


def test_times_out_of_range_are_left_out_with_a_warning() -> None:
    warnings: list[str] = []
    late = json.dumps({"timestamp": 2.0**33, "name": "submit", "context": SUBMIT})
    record = JobRecord(JOBID, {"eventlog": late, "jobspec": json.dumps(spec())})
    assert (
        job_object(record, ExportOptions(warn=warnings.append)).find("SubmitTime")
        is None
    )
    assert len(warnings) == 1 and "SubmitTime is left out" in warnings[0]


R: Json = {
    "version": 1,
    "execution": {
        "R_lite": [{"rank": "0-1,4", "children": {"core": "0-3", "gpu": "0"}}],
        "nodelist": ["h[1-2],x"],
        "starttime": 0,
        "expiration": 0,
    },
}


def test_the_resources_that_a_job_got_are_delivered() -> None:
    told = facts(job_of(spec(), "alloc", R=R))
    assert [fact for fact in told if fact.startswith("Delivered")] == [
        "Delivered/NodeCount 3",
        "Delivered/Node h1,h2,x aggregation=List",
        "Delivered/Processors 12",
        "Delivered/Resource 3.0 name=GPU",
    ]


# Records that are refused

ONE_LOG = "the eventlog of job fuZZybuNNy"
REFUSED = [
    ({"eventlog": ""}, f"{ONE_LOG} is empty"),
    (
        {"eventlog": eventlog("validate").split("\n", 1)[1]},
        f'line 1 of {ONE_LOG}: name is "validate", expected submit',
    ),
    ({"eventlog": eventlog("validate")[:-20]}, f"line 2 of {ONE_LOG} is not JSON"),
    ({"eventlog": "[]\n"}, f"line 1 of {ONE_LOG}: the whole is"),
    (
        {"eventlog": eventlog(("finish", {"status": "0"}))},
        f'line 2 of {ONE_LOG}: context.status is "0"',
    ),
    ({"jobspec": "{"}, "jobspec of job fuZZybuNNy is not JSON"),
    ({"jobspec": "[]"}, "jobspec of job fuZZybuNNy: the whole is []"),
    ({"jobspec": "{}"}, "jobspec of job fuZZybuNNy: resources is"),
    ({"R": json.dumps({**R, "version": 2})}, "R of job fuZZybuNNy: version is 2"),
    ({"R": "nonsense"}, "R of job fuZZybuNNy is not JSON"),
    ({"rabbit_setup_timing": '"long"'}, "rabbit_setup_timing of job fuZZybuNNy is"),
    ({"rabbit_datamovements": "{}"}, "rabbit_datamovements of job fuZZybuNNy"),
    (
        {"eventlog": eventlog(("jobspec-update", {"tasks.0": 1}))},
        'a jobspec-update of job fuZZybuNNy: a key is "tasks.0"',
    ),
    ({"eventlog": None}, "job fuZZybuNNy has no eventlog"),
    ({"jobspec": None}, "job fuZZybuNNy has no jobspec"),
]


@pytest.mark.parametrize(("kvs", "problem"), REFUSED)
def test_a_record_that_flux_does_not_write_is_one_clear_error(
    kvs: dict[str, Any], problem: str
) -> None:
    record = {"eventlog": eventlog(), "jobspec": json.dumps(spec()), **kvs}
    record = {key: text for key, text in record.items() if text is not None}
    with pytest.raises(DWSError) as error:
        job_object(JobRecord(JOBID, record))
    assert str(error.value).startswith(problem)
    assert "\n" not in str(error.value)


def test_a_count_of_0_counts_nothing() -> None:
    task = {"slot": "task", "count": {"per_slot": 1}}

    def totals(*more: Json) -> Totals:
        inside = [{"type": "core", "count": 2}, *more]
        return totals_of(
            [{"type": "slot", "label": "task", "count": 1, "with": inside}], task
        )

    assert totals({"type": "gpu", "count": 0}) == totals()
