# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Kubernetes is in trouble for an hour: that costs jobs an hour, and no more."""

from __future__ import annotations

import functools
import itertools
from typing import Optional

import pytest

from flux_k8s.jobs.outage import PATIENCE
from flux_k8s.jobs.reporter import MEMO
from flux_k8s.ports import WORKFLOW, KubeError, Request
from rabbitsim.kube.direct import Fault, Faults
from rabbitsim.system import VirtualSystem
from support.effort import SOAKING, pairs
from support.outages import (
    OUTAGES,
    RECONNECT,
    STATES,
    inject,
    job_in,
    slow,
)
from support.service import (
    COPY_OUT,
    HOUR,
    LIFE,
    XFS,
    exceptions,
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


def time_until_clean(system: VirtualSystem, jobid: int) -> float:
    """How long a job took."""
    events = system.instance.eventlog(jobid)
    return events[-1].timestamp - events[0].timestamp


@functools.lru_cache(maxsize=None)
def usual_time() -> float:
    """How long a job takes when all is well."""
    system = slow()
    jobid = job_in(system, "submitted")
    settle(system)
    return time_until_clean(system, jobid)


WHERE = ["submitted", *STATES, "runs"]


@pytest.mark.parametrize(("kind", "where"), pairs(OUTAGES, WHERE, len(WHERE)))
def test_an_outage_of_an_hour_costs_an_hour_and_the_job_says_why(
    kind: str, where: str
) -> None:
    outage = OUTAGES[kind]
    system = slow()
    jobid = job_in(system, where)
    system.loop.run(timeout=0.5)
    inject(system, outage)
    system.loop.run(timeout=HOUR - 1.0)
    if not outage.hangs:  # that is noticed only by who asks for something
        assert memo(system, jobid, MEMO) == f"Kubernetes: {outage.error.message}"
    settle(system)
    assert names(system, jobid) == LIFE
    assert time_until_clean(system, jobid) - usual_time() <= HOUR + RECONNECT
    assert memo(system, jobid, MEMO) is None
    events = system.instance.eventlog(jobid)
    assert sum(MEMO in (event.context or {}) for event in events) <= 4


@pytest.mark.parametrize("kind", OUTAGES if SOAKING else ["hang", "TLS"])
def test_the_log_has_one_line_for_the_begin_and_one_for_the_end_of_an_outage(
    kind: str,
) -> None:
    system = slow(nodes=64, rabbits=8)
    jobids = []
    for _ in range(12):  # so that there is one in each state
        jobids.append(system.instance.submit(jobspec([XFS, COPY_OUT])))
        system.loop.run(timeout=0.75)
    system.log.clear()
    inject(system, OUTAGES[kind])
    settle(system, 2 * HOUR)
    assert all(names(system, jobid) == LIFE for jobid in jobids)
    assert len(lines(system, "; jobs wait")) == 1
    assert len(lines(system, "Kubernetes answers again")) == 1
    # A watch that has expired is no outage until the list after it fails as well.
    assert len(lines(system, "trying again")) <= (kind == "410")


def test_a_step_that_fails_by_itself_has_a_line_and_a_memo() -> None:
    system = slow()
    until = system.loop.now() + 60.0

    def fault(request: Request) -> Optional[Fault]:
        if request.verb != "create" or system.loop.now() > until:
            return None
        return Fault(error=KubeError(500, "InternalError", "the webhook failed"))

    set_faults(system, fault)
    jobids = [system.instance.submit(jobspec()) for _ in range(3)]
    system.loop.run(timeout=30.0)
    for jobid in jobids:
        assert memo(system, jobid, MEMO) == "Kubernetes: the webhook failed"
    settle(system)
    assert len(lines(system, ": Kubernetes: the webhook failed; trying again")) == 3
    assert lines(system, "; jobs wait") == []


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


def test_a_server_with_retry_after_gets_no_request_before_and_its_job_says_why() -> (
    None
):
    system = slow()
    seen: list[float] = []

    def fault(request: Request) -> Optional[Fault]:
        if request.verb != "create":
            return None
        seen.append(system.loop.now())
        error = KubeError(429, "TooManyRequests", "please wait", retry_after=100.0)
        return Fault(error=error) if len(seen) < 4 else None

    set_faults(system, fault)
    jobid = system.instance.submit(jobspec())
    assert system.loop.run(lambda: bool(seen), HOUR)
    system.loop.run(timeout=1.0)
    assert memo(system, jobid, MEMO) == "Kubernetes: please wait"
    settle(system)
    assert names(system, jobid) == LIFE
    assert memo(system, jobid, MEMO) is None
    pauses = [later - earlier for earlier, later in zip(seen, seen[1:])]
    assert len(pauses) == 3 and all(100.0 <= pause < 101.0 for pause in pauses)


def test_a_job_waits_no_longer_for_a_server_that_is_well_again() -> None:
    """A request of another job, of the same kind, shows that it is."""
    system = slow()
    seen: list[float] = []

    def fault(request: Request) -> Optional[Fault]:
        if request.verb != "create":
            return None
        seen.append(system.loop.now())
        error = KubeError(429, "TooManyRequests", "please wait", retry_after=60.0)
        return Fault(error=error) if len(seen) <= 3 else None

    set_faults(system, fault)
    first, *others = (system.instance.submit(jobspec(nodes=1)) for _ in range(3))
    assert system.loop.run(lambda: len(seen) == 3, HOUR)
    system.loop.run(timeout=5.0)
    assert len(seen) == 3, "the server wants no request now"
    last = system.instance.submit(jobspec(nodes=1))
    system.loop.run(timeout=2.0)
    assert len(seen) == 7
    settle(system)
    for jobid in (first, *others, last):
        assert names(system, jobid) == LIFE


@pytest.mark.parametrize("texts", [2, 1000])
def test_a_job_gets_few_memos_in_an_outage_whose_errors_alternate(texts: int) -> None:
    """It may have thousands of jobs, and last for days."""
    system = slow()
    jobid = job_in(system, "PreRun")
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
