# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Changes of a Workflow that nothing is to be done about at once."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any, Optional

import pytest

from flux_k8s.formats.jobid import workflow_name
from flux_k8s.jobs.jobtable import DETAILS
from flux_k8s.objects.workflowview import WorkflowView
from flux_k8s.ports import WORKFLOW, Json, KubeError, Request
from rabbitsim.kube.direct import Fault
from rabbitsim.system import VirtualSystem
from support.queries import ask, query
from support.service import (
    COPY_OUT,
    HOUR,
    XFS,
    jobspec,
    long,
    running,
    settle_jobs,
    started,
)
from support.tree import RECORDED
from support.watched import watched

DETAIL = {
    "resource_version",
    "state",
    "status",
    "ready",
    "changed",
    "message",
    "outstanding",
    "ended",
    "elapsed",
    "finalizers",
    "breakdowns",
    "computes",
    "environment",
}
"""The fields of a view that come before the state is complete, or tell about it."""

FILES = sorted(RECORDED.glob("*.jsonl*")) if RECORDED.is_dir() else []


def workflows(path: Path) -> list[Json]:
    """The Workflows of a recording of a real cluster, in their order."""
    opened = gzip.open(path, "rt") if path.suffix == ".gz" else path.open()
    with opened as lines:
        events = [json.loads(line) for line in lines]
    return [
        event["object"]
        for event in events
        if event.get("plural") == "workflows" and event["type"] != "DELETED"
    ]


@pytest.mark.skipif(not FILES, reason="the recordings are not here")
def test_details_of_a_real_workflow_are_no_reason_to_act() -> None:
    found = {True: 0, False: 0}
    for path in FILES:
        known: dict[str, WorkflowView] = {}
        for workflow in workflows(path):
            view = WorkflowView.parse(workflow)
            before = known.get(view.uid)
            if before is not None:
                is_detail = before.decisive == view.decisive
                found[is_detail] += 1
                changed = {
                    name
                    for name in view.__struct_fields__
                    if getattr(view, name) != getattr(before, name)
                }
                assert not is_detail or changed <= DETAIL, (path.name, changed)
                assert not is_detail or view.complete == before.complete
                assert not is_detail or view.trouble == before.trouble
            known[view.uid] = view
    assert found[False] < found[True] < found[False] * 2


def mounted() -> tuple[VirtualSystem, int]:
    """A system with a job that runs."""
    system = started()
    jobid = system.instance.submit(long(XFS, 2))
    running(system, jobid)
    system.loop.run(timeout=5.0)
    return system, jobid


def change(system: VirtualSystem, jobid: int, **status: Any) -> None:
    """DWS writes to the status of a job's Workflow."""
    name = workflow_name(jobid)
    system.store.merge_patch(WORKFLOW, "default", name, {"status": status})


def test_who_asks_about_a_job_is_told_of_details() -> None:
    system, jobid = mounted()
    for message in ("mounting", "mounted"):
        change(system, jobid, message=message)
        system.loop.run(timeout=DETAILS / 100)
        assert query(system, "job-show", {"id": jobid})["message"] == message
    settle_jobs(system)


def test_who_waits_for_a_change_of_a_job_hears_of_details() -> None:
    system, jobid = mounted()
    before = query(system, "job-show", {"id": jobid})
    asked = ask(system, "job-show", {"id": jobid, "seen": before["serial"]})
    system.loop.run(timeout=DETAILS / 100)
    assert asked() is None
    change(system, jobid, message="mounting")
    assert system.loop.run(lambda: asked() is not None, timeout=DETAILS / 10)
    answer = asked()
    assert answer is not None and answer[2] is not None
    assert answer[2]["message"] == "mounting"
    settle_jobs(system)


def tries_of_setup(writes: bool, asks: bool) -> int:
    """How often Setup is requested in two minutes in which Kubernetes refuses it.

    Args:
        writes: DWS writes details each second.
        asks: somebody asks for them each time.
    """
    system = started()
    jobid = system.instance.submit(jobspec(XFS, 2))
    assert system.loop.run(lambda: bool(system.workflows()), HOUR)
    refused: list[Request] = []

    def refuse(request: Request) -> Optional[Fault]:
        if "'Setup'" not in repr(request.body):
            return None
        refused.append(request)
        return Fault(error=KubeError(503, "ServiceUnavailable", "not now"))

    assert system.service_kube is not None
    system.service_kube.faults = refuse
    assert system.loop.run(lambda: bool(refused), HOUR)
    for number in range(120):
        if writes:
            change(system, jobid, message=f"resting {number}")
        if asks:
            query(system, "job-show", {"id": jobid})
        system.loop.run(timeout=1.0)
    system.service_kube.faults = None
    settle_jobs(system)
    return len(refused)


@pytest.mark.parametrize("asks", [False, True], ids=["", "somebody asks for them"])
def test_a_step_that_fails_is_not_tried_much_sooner_for_details(asks: bool) -> None:
    most = tries_of_setup(False, False) + 120 / DETAILS + 1
    assert tries_of_setup(True, asks) <= most


def test_a_workflow_that_is_back_from_a_backup_is_torn_down() -> None:
    """The storage would stay mounted on nodes that other jobs get."""
    system = started()
    jobid = system.instance.submit(long([XFS, COPY_OUT]))
    running(system, jobid)
    system.loop.run(timeout=5.0)
    assert system.service is not None
    (workflow,) = system.workflows()
    for type in ("DELETED", "ADDED"):
        system.service.workflows.event(type, watched(workflow))
    settle_jobs(system)
    assert not system.workflows()
