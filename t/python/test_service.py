# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The service in a whole system under virtual time."""

from __future__ import annotations

import json
import random
import syslog
from typing import Any, Callable, Optional

import pytest

from flux_k8s.config.table import Config
from flux_k8s.ports import CLIENTMOUNT, STORAGE, WORKFLOW, KubeError
from flux_k8s.rfc.jobid import f58, workflow_name
from rabbitsim.dws.options import Fault as DwsFault
from rabbitsim.dws.options import Options, table
from rabbitsim.flux.events import JobState
from rabbitsim.kube.direct import Fault, Request
from rabbitsim.system import VirtualSystem
from support.effort import SOAKING
from support.service import (
    COPY_OUT,
    HOUR,
    LIFE,
    XFS,
    check_job,
    exceptions,
    jobspec,
    lines,
    memo,
    names,
    run_to,
    settle,
    started,
)


def steps_of_a_job() -> int:
    """How many steps the loop takes for the standard job."""
    system = started()
    jobid = system.instance.submit(jobspec())
    count = 0
    while system.instance.job(jobid).active or system.workflows():
        system.loop.step()
        count += 1
    return count


STEPS = range(0, steps_of_a_job() + 1, 1 if SOAKING else 25)
"""Moments of the standard job's life."""


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
    "dw",
    [
        XFS,
        [XFS],
        "small",
        XFS + "\n#DW jobdw type=raw capacity=1GiB name=p2",
        [XFS, "#DW jobdw type=gfs2 capacity=1GiB name=p2"],
        "#DW jobdw type=lustre capacity=20GiB name=p1",
        "#DW create_persistent type=xfs capacity=1GiB name=keep",
        "#DW jobdw type=xfs capacity=1GiB name=p1 requires=copy-offload",
    ],
)
def test_all_ways_to_ask_for_storage_lead_through_the_same_life(dw: Any) -> None:
    config = Config.parse({"presets": {"small": XFS}, "daemons": {"copy-offload": {}}})
    system = started(config=config)
    jobid = system.instance.submit(jobspec(dw))
    settle(system)
    assert names(system, jobid) == LIFE


@pytest.mark.parametrize(
    "dw, said",
    [
        ("jobdw type=xfs capacity=10GiB name=p1", "missing '#DW' prefix"),
        ("#DW jobwd type=xfs", "unknown command 'jobwd'"),
        ("#DW jobdw type=xfs name=p1", "missing argument 'capacity='"),
        (XFS + " name=p2", "argument 'name=' is repeated"),
        ("nosuch", "unknown preset"),
        ("#DW jobdw type=foo capacity=1GiB name=p1", "type=foo is not one of raw, xfs"),
    ],
)
def test_a_bad_directive_gets_one_fatal_exception_that_names_it(
    dw: str, said: str
) -> None:
    system = started()
    jobid = system.instance.submit(jobspec(dw))
    settle(system)
    (exception,) = exceptions(system, jobid)
    assert exception["severity"] == 0 and exception["type"] == "dws"
    assert dw in exception["note"] and said in exception["note"]
    assert "start" not in names(system, jobid)
    assert system.store.version == started().store.version  # nothing was created


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


@pytest.mark.parametrize("state", ["Proposal", "Setup", "DataIn", "PreRun"])
def test_an_error_before_the_job_runs_keeps_it_from_running(state: str) -> None:
    fault = DwsFault(state, "error", message="it broke")
    system = started(options=Options(faults=(fault,)))
    jobid = system.instance.submit(jobspec())
    settle(system)
    (exception,) = exceptions(system, jobid)
    assert f"DWS failed in {state}" in exception["note"]
    assert "it broke" in exception["note"]
    assert "start" not in names(system, jobid)


@pytest.mark.parametrize("state", ["PostRun", "DataOut"])
def test_an_error_after_the_job_ran_does_not_keep_it_from_ending(state: str) -> None:
    fault = DwsFault(state, "error", message="it broke")
    system = started(options=Options(faults=(fault,)))
    jobid = system.instance.submit(jobspec([XFS, COPY_OUT]))
    settle(system)
    (exception,) = exceptions(system, jobid)
    assert f"DWS failed in {state}" in exception["note"]


@pytest.mark.parametrize("seconds, lives", [(5, True), (20, False)])
def test_a_transient_condition_is_tolerated_for_tc_timeout(
    seconds: float, lives: bool
) -> None:
    fault = DwsFault("Setup", "transient", duration=seconds, message="busy")
    system = started(options=Options(faults=(fault,)))
    jobid = system.instance.submit(jobspec())
    settle(system)
    assert ("start" in names(system, jobid)) is lives
    if not lives:
        assert "tc_timeout=10s: " in exceptions(system, jobid)[0]["note"]


@pytest.mark.parametrize("steps", STEPS)
def test_one_cancel_is_enough_at_any_moment(steps: int) -> None:
    system = started()
    jobid = system.instance.submit(jobspec())
    run_to(system, steps)
    system.instance.cancel(jobid)
    settle(system)


@pytest.mark.parametrize("steps", STEPS)
def test_no_job_notices_that_the_module_is_removed_and_loaded_again(
    steps: int,
) -> None:
    system = started()
    jobid = system.instance.submit(jobspec([XFS, COPY_OUT]))
    run_to(system, steps)
    system.unload_module()
    system.loop.run(timeout=5)
    system.load_module()
    settle(system)
    assert names(system, jobid) == LIFE


@pytest.mark.parametrize("steps", STEPS)
def test_no_job_notices_that_the_module_dies(steps: int) -> None:
    system = started()
    jobid = system.instance.submit(jobspec([XFS, COPY_OUT]))
    run_to(system, steps)
    system.kill_module()
    run_to(system, 3)
    system.load_module()
    settle(system)
    assert names(system, jobid) == LIFE


@pytest.mark.parametrize("steps", STEPS)
def test_no_job_is_stuck_or_lost_when_the_plugin_is_loaded_again(steps: int) -> None:
    system = started()
    jobid = system.instance.submit(jobspec())
    run_to(system, steps)
    system.instance.unload_plugin()
    system.load_plugin()
    settle(system)
    assert exceptions(system, jobid) == []


def test_a_job_that_is_submitted_without_the_module_waits_and_says_why() -> None:
    system = VirtualSystem()
    system.load_plugin()
    jobid = system.instance.submit(jobspec())
    system.loop.run(timeout=HOUR)
    assert system.instance.job(jobid).state is JobState.DEPEND
    assert any(event.name == "memo" for event in system.instance.eventlog(jobid))
    system.load_module()
    settle(system)
    assert names(system, jobid) == LIFE


def outage(status: int, count: int) -> Callable[[Request], Optional[Fault]]:
    """The first ``count`` requests fail."""
    left = [count]

    def fault(request: Request) -> Optional[Fault]:
        left[0] -= 1
        if left[0] < 0:
            return None
        return Fault(error=KubeError(status, "Outage", "the lights are out"))

    return fault


@pytest.mark.parametrize("status", [0, 401, 403, 409, 429, 500, 503])
def test_jobs_wait_while_kubernetes_is_in_trouble(status: int) -> None:
    system = started(faults=outage(status, 30))
    jobid = system.instance.submit(jobspec())
    settle(system)
    assert names(system, jobid) == LIFE


@pytest.mark.parametrize("seed", range(20))
def test_answers_that_were_lost_change_nothing(seed: int) -> None:
    rng = random.Random(seed)

    def lost(request: Request) -> Optional[Fault]:
        """Some requests are carried out, and their answers get lost."""
        if rng.random() > 0.3 or request.verb in ("watch", "list"):
            return None
        error = KubeError(0, "ConnectionLost", "the line went dead")
        return Fault(error=error, carried_out=True)

    system = started(faults=lost)
    jobid = system.instance.submit(jobspec())
    settle(system)
    assert names(system, jobid) == LIFE


@pytest.mark.parametrize("steps", STEPS)
def test_a_workflow_that_is_deleted_under_a_job_fails_that_job(steps: int) -> None:
    system = started()
    jobid = system.instance.submit(jobspec())
    run_to(system, steps)
    if any(w["metadata"]["name"] == workflow_name(jobid) for w in system.workflows()):
        system.store.delete(WORKFLOW, "default", workflow_name(jobid))
    settle(system)


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


def test_an_epilog_that_takes_too_long_is_given_up() -> None:
    faults = (DwsFault("PostRun", "never"), DwsFault("Teardown", "never"))
    system = started(
        options=Options(faults=faults), plugin_conf={"epilog-timeout": 60.0}
    )
    jobid = system.instance.submit(jobspec())
    assert system.loop.run(system.instance.idle, timeout=HOUR)
    given_up, told = exceptions(system, jobid)
    assert given_up["type"] == "dws-epilog-timeout"
    assert told["note"].startswith("epilog-timeout in PostRun: rabbit-01: still alloc")
    check_job(system.instance.eventlog(jobid))
    system.loop.run(timeout=1)
    for clientmount in system.store.list(CLIENTMOUNT, None)["items"]:
        assert clientmount["metadata"]["namespace"].startswith("compute-")
    disabled = [
        storage["metadata"]["name"]
        for storage in system.store.list(STORAGE, None)["items"]
        if storage["spec"].get("state") == "Disabled"
    ]
    assert disabled == [memo(system, jobid, "rabbits")]


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
