# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What a job says of a state that DWS works on for long."""

from __future__ import annotations

import itertools
from typing import Optional

import pytest

from flux_k8s.config.table import Config
from flux_k8s.formats.directives import GIB
from flux_k8s.formats.jobid import workflow_name
from flux_k8s.jobs.outage import PATIENCE
from flux_k8s.jobs.reports import DWS_PATIENCE, MEMO
from flux_k8s.ports import DIRECTIVEBREAKDOWN, WORKFLOW, KubeError, Request
from rabbitsim.dws import Topology
from rabbitsim.dws.options import Fault as DwsFault
from rabbitsim.dws.options import Options, table
from rabbitsim.kube.direct import Fault, Faults
from rabbitsim.system import VirtualSystem
from support.outages import slow
from support.rabbits import set_status, wait
from support.service import (
    COPY_OUT,
    HOUR,
    LIFE,
    XFS,
    exceptions,
    in_state,
    jobspec,
    lines,
    memo,
    names,
    settle,
    started,
)


def system_with(*faults: DwsFault) -> VirtualSystem:
    system: VirtualSystem = started(options=Options(faults=faults))
    return system


def memos(system: VirtualSystem, jobid: int) -> int:
    """How often a job has said what it waits for."""
    events = system.instance.job(jobid).events
    return sum(event.name == "memo" and MEMO in event.context for event in events)


@pytest.mark.parametrize(
    "state", ["Proposal", "Setup", "DataIn", "PreRun", "PostRun", "DataOut", "Teardown"]
)
def test_the_memo_of_a_job_names_the_work_of_dws_until_there_is_progress(
    state: str,
) -> None:
    fault = DwsFault(state, "never", duration=2 * DWS_PATIENCE, message="at work")
    system = system_with(fault)
    jobid = system.instance.submit(jobspec())
    system.loop.run(timeout=DWS_PATIENCE - 1.0)
    assert memo(system, jobid, MEMO) is None
    system.loop.run(timeout=5.0)
    assert str(memo(system, jobid, MEMO)).startswith(f"DWS in {state}: ")
    settle(system)
    assert memo(system, jobid, MEMO) is None
    assert memos(system, jobid) == 2
    assert all(exception["severity"] for exception in exceptions(system, jobid))


def test_a_job_with_progress_has_no_memo() -> None:
    system = system_with(DwsFault("DataIn", "slow", duration=DWS_PATIENCE - 5.0))
    jobid = system.instance.submit(jobspec())
    settle(system)
    assert memos(system, jobid) == 0


def test_a_new_service_does_not_repeat_the_memo_of_the_last_one() -> None:
    system = system_with(DwsFault("Setup", "never"))
    jobid = system.instance.submit(jobspec())
    system.loop.run(timeout=2 * DWS_PATIENCE)
    system.kill_module()
    system.load_module()
    system.loop.run(timeout=2 * DWS_PATIENCE)
    assert str(memo(system, jobid, MEMO)).startswith("DWS in Setup: ")
    assert memos(system, jobid) == 1


def test_news_during_a_step_that_fails_wait_for_no_pause() -> None:
    """However long the pauses are by then."""
    asked: list[float] = []

    def fault(request: Request) -> Optional[Fault]:
        if request.verb != "get" or request.kind != DIRECTIVEBREAKDOWN:
            return None
        asked.append(system.loop.now())
        return Fault(delay=5.0, error=KubeError(503, "ServiceUnavailable", "not now"))

    system = started(faults=fault)
    jobid = system.instance.submit(jobspec())
    assert system.loop.run(lambda: len(asked) == 8, timeout=3600.0)
    system.loop.run(timeout=1.0)
    system.store.delete(WORKFLOW, "default", workflow_name(jobid))
    system.loop.run(timeout=4.1)
    assert not system.workflows(), "its finalizer is removed"


# Kubernetes is in trouble for an hour: that costs jobs an hour, and no more


def set_faults(system: VirtualSystem, faults: Optional[Faults]) -> None:
    """Have something happen to requests from now on."""
    assert system.service_kube is not None
    system.service_kube.faults = faults


def wait_for_memo(system: VirtualSystem, jobid: int) -> str:
    """What a job says within a moment more than ``PATIENCE``."""
    system.loop.run(lambda: memo(system, jobid, MEMO) is not None, PATIENCE + 1.0)
    return str(memo(system, jobid, MEMO))


def test_a_user_database_that_hangs_is_not_blamed_on_kubernetes() -> None:
    system = slow()
    system.instance.group_delay = 60.0
    jobid = system.instance.submit(jobspec())
    assert wait_for_memo(system, jobid) == "the user database: no answer yet"
    settle(system)
    assert names(system, jobid) == LIFE
    assert lines(system, "; jobs wait") == []


def test_kubernetes_that_answers_again_and_again_is_within_reach() -> None:
    """However long a step takes that asks it for much."""
    reads = Fault(delay=0.6 * PATIENCE)
    system = started(
        config=Config(postrun_timeout=60.0),
        options=Options(faults=(DwsFault("PostRun", "never"),)),
        faults=lambda request: reads if request.verb in ("get", "list") else None,
    )
    system.instance.submit(jobspec())
    settle(system)
    assert lines(system, "; jobs wait") == []


@pytest.mark.parametrize("texts", [2, 1000])
def test_a_job_gets_few_memos_in_an_outage_whose_errors_alternate(texts: int) -> None:
    """It may have thousands of jobs, and last for days."""
    system = slow()
    jobid = system.instance.submit(jobspec([XFS, COPY_OUT]))
    assert system.loop.run(in_state(system, "PreRun"), HOUR)
    number = itertools.count()

    def fault(request: Request) -> Optional[Fault]:
        proxy = next(number) % texts
        text = f"proxy {proxy} is out"
        return Fault(error=KubeError(502, f"BadGateway{proxy}", text))

    set_faults(system, fault)
    assert system.service_kube is not None
    system.service_kube.drop_watches()
    system.loop.run(timeout=6 * HOUR)
    told = [e for e in system.instance.eventlog(jobid) if MEMO in (e.context or {})]
    assert 1 <= len(told) <= 4
    set_faults(system, None)
    settle(system)
    assert names(system, jobid) == LIFE
    assert memo(system, jobid, MEMO) is None


def test_each_failure_of_a_step_is_logged_once_however_often_it_is_tried() -> None:
    """The job is tried again when a Rabbit is back, too."""

    def fault(request: Request) -> Optional[Fault]:
        return Fault(error=error) if request.kind == DIRECTIVEBREAKDOWN else None

    system = started()
    error = KubeError(500, "InternalError", "a webhook is broken")
    set_faults(system, fault)
    system.instance.submit(jobspec())
    for status in ("Offline", "Ready", "Offline", "Ready"):
        set_status(system, "rabbit-01", status)
        wait(system, 120.0)
    assert len(lines(system, "a webhook is broken; trying again")) == 1
    error = KubeError(403, "Forbidden", "a role is gone")
    wait(system, 120.0)
    assert len(lines(system, "a role is gone; trying again")) == 1


def test_what_a_job_leaves_that_failed_by_wrong_answers_is_torn_down() -> None:
    """The Workflow seems to be that of another job, until the job has failed."""
    jobid = 0

    def fault(request: Request) -> Optional[Fault]:
        stored = system.workflows()
        if request.kind != WORKFLOW or not stored or not jobid:
            return None
        if request.verb not in ("get", "patch") or exceptions(system, jobid):
            return None
        metadata = {**stored[0]["metadata"], "resourceVersion": "99999"}
        spec = {**stored[0]["spec"], "jobID": "another"}
        return Fault(answer={"kind": "Workflow", "metadata": metadata, "spec": spec})

    system = started(faults=fault)
    jobid = system.instance.submit(jobspec([XFS, COPY_OUT]))
    settle(system)
    (exception,) = exceptions(system, jobid)
    assert "belongs to job" in exception["note"]


def test_the_time_that_other_nodes_have_is_no_failure_for_the_log() -> None:
    """Of a job that goes on without a node, as a module sees it that comes later."""
    broken = DwsFault("PreRun", "mount", node="compute-02", duration=300.0)
    system = started(
        topology=Topology.regular(4, 2, capacity=200 * GIB),
        options=Options(
            latency=table({"Setup": 1.0, "DataIn": 2.0, "PreRun": 4.0}),
            faults=(broken,),
        ),
    )
    dw = [XFS, "#DW jobdw type=gfs2 capacity=5GiB name=p2"]
    system.instance.submit(jobspec(dw, 4, dw_failure_tolerance=2))
    system.loop.run(timeout=5.5)
    system.unload_module()
    system.loop.run(timeout=5.0)
    system.load_module()
    settle(system)
    assert not lines(system, "expected true")
