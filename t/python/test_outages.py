# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Kubernetes is in trouble for an hour: that costs jobs an hour, and no more."""

from __future__ import annotations

import itertools
from typing import Optional

import pytest

from flux_k8s.jobs.outage import PATIENCE
from flux_k8s.jobs.reports import MEMO
from flux_k8s.ports import WORKFLOW, KubeError, Request
from rabbitsim.kube.direct import Fault, Faults
from rabbitsim.system import VirtualSystem
from support.outages import slow
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


def set_faults(system: VirtualSystem, faults: Optional[Faults]) -> None:
    """Have something happen to requests from now on."""
    assert system.service_kube is not None
    system.service_kube.faults = faults


def test_a_create_that_fails_is_tried_less_and_less_often() -> None:
    """Though it is looked up each time whether it was carried out."""
    system = slow()
    tries: list[float] = []

    def fault(request: Request) -> Optional[Fault]:
        if request.verb != "create":
            return None
        tries.append(system.loop.now())
        return Fault(error=KubeError(500, "InternalError", "the webhook failed"))

    set_faults(system, fault)
    jobid = system.instance.submit(jobspec())
    system.loop.run(timeout=HOUR)
    assert len(tries) < 2 * HOUR / 60.0
    set_faults(system, None)
    settle(system)
    assert names(system, jobid) == LIFE


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


# Answers that are wrong for long, and cost a job its life


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
