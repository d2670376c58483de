# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""A job that the service dies of ends, and all others go on.

The module is the service itself here, and the test is the supervisor, which counts
(t1018-dws-deadly-job.t has the real one).
"""

from __future__ import annotations

from typing import Any

import pytest

from flux_k8s.dws.workflowview import WorkflowView
from flux_k8s.jobs.requesthandler import RequestHandler
from flux_k8s.jobs.steps import Steps
from flux_k8s.jobs.work import Work
from flux_k8s.jobs.workflowrequests import WorkflowRequests
from flux_k8s.rfc.jobid import workflow_name
from rabbitsim.system import VirtualSystem
from support.service import LIFE, exceptions, jobspec, names
from support.supervised import DEATHS, Death, Supervised

UP = [
    (WorkflowRequests, "create"),
    (Steps, "_plan"),
    (Steps, "_allocate"),
    (WorkflowRequests, "move"),
    (Steps, "_release_prolog"),
    (RequestHandler, "_create"),
    (RequestHandler, "_set_up"),
]
DOWN = [(Steps, "_release_epilog"), (WorkflowRequests, "delete")]


@pytest.mark.parametrize("owner, name", UP, ids=str)
def test_a_job_that_services_die_of_is_failed_and_no_other(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str
) -> None:
    supervised = Supervised(monkeypatch, owner, name)
    system = supervised.system
    innocent = [system.instance.submit(jobspec(nodes=1)) for _ in range(3)]
    jobid = system.instance.submit(jobspec(nodes=1))
    supervised.guilty.add(jobid)
    supervised.run(600.0)
    assert set(supervised.deaths) <= {Work(jobid, False), Work(jobid, True)}
    assert supervised.deaths[Work(jobid, False)] == DEATHS
    assert "start" not in names(system, jobid) and "clean" in names(system, jobid)
    assert "died each time it worked on" in exceptions(system, jobid)[0]["note"]
    for other in innocent:
        assert names(system, other) == LIFE
    # A step of both is left to itself when it kills services in the release, too.
    released = supervised.deaths[Work(jobid, True)] == 0
    left = [workflow["metadata"]["name"] for workflow in system.workflows()]
    assert left == ([] if released else [workflow_name(jobid)])


def test_a_job_whose_R_is_read_elsewhere_and_that_services_die_of_is_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(VirtualSystem, "has_large_R", lambda self, jobid: True)
    test_a_job_that_services_die_of_is_failed_and_no_other(
        monkeypatch, RequestHandler, "_set_up"
    )


@pytest.mark.parametrize("owner, name", DOWN, ids=str)
def test_a_job_whose_release_services_die_of_ends_and_says_so(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str
) -> None:
    supervised = Supervised(monkeypatch, owner, name)
    system = supervised.system
    innocent = [system.instance.submit(jobspec(nodes=1)) for _ in range(3)]
    jobid = system.instance.submit(jobspec(nodes=1))
    supervised.guilty.add(jobid)
    supervised.run(600.0)
    assert supervised.deaths == {Work(jobid, True): DEATHS}
    assert "start" in names(system, jobid) and "clean" in names(system, jobid)
    notes = [exception["note"] for exception in exceptions(system, jobid)]
    told = "died each time it released the storage"
    if name != "delete":  # after which the job has been let go
        assert len(notes) == 1 and told in notes[0]
        assert f"Workflow {workflow_name(jobid)}" in notes[0]
    for other in innocent:
        assert names(system, other) == LIFE


def test_a_view_that_services_die_of_is_read_again_when_its_job_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise the Workflow would be taken for one that is not there."""
    supervised = Supervised(monkeypatch, WorkflowRequests, "create")
    system = supervised.system
    jobid = system.instance.submit(jobspec(nodes=1))
    supervised.run(0.05)
    parse = WorkflowView.parse

    def deadly(workflow: Any) -> Any:
        work = supervised.work
        if work == Work(jobid, False):
            supervised.died_of = work
            raise Death
        return parse(workflow)

    monkeypatch.setattr(WorkflowView, "parse", deadly)
    system.kill_module()
    system.load_module()
    supervised.run(600.0)
    assert supervised.deaths == {Work(jobid, False): DEATHS}
    assert "clean" in names(system, jobid) and system.workflows() == []
