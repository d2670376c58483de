# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The service in a whole system under virtual time."""

from __future__ import annotations

import json
import syslog
from typing import Any

import pytest

from flux_k8s.formats.jobid import f58, workflow_name
from flux_k8s.ports import WORKFLOW
from support.service import (
    HOUR,
    LIFE,
    XFS,
    exceptions,
    jobspec,
    memo,
    names,
    settle,
    started,
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


def test_storage_belongs_to_the_user_of_the_job_and_their_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    system = started()
    monkeypatch.setattr(system.instance, "primary_group", lambda userid: userid + 1)
    system.instance.submit(jobspec(), userid=1234)
    assert system.loop.run(lambda: bool(system.workflows()), HOUR)
    (workflow,) = system.workflows()
    spec = workflow["spec"]
    assert (spec["userID"], spec["groupID"]) == (1234, 1235)


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
