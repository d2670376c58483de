# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""An unexpected exception fails one job, and no other."""

from __future__ import annotations

import errno
import json
import syslog
from typing import Any, Callable, Optional

import pytest

from flux_k8s.dws.workflowview import WorkflowView
from flux_k8s.errors import DWSError
from flux_k8s.jobs import lastresort
from flux_k8s.jobs.inuse import InUse
from flux_k8s.jobs.isolation import JobScope
from flux_k8s.jobs.reconciler import Reconciler
from flux_k8s.jobs.records import Records
from flux_k8s.jobs.reporter import Reporter
from flux_k8s.jobs.requesthandler import RequestHandler
from flux_k8s.jobs.steps import Steps
from flux_k8s.jobs.work import Work
from flux_k8s.jobs.workflowinfo import Goal, WorkflowInfo
from flux_k8s.jobs.workflowrequests import WorkflowRequests
from flux_k8s.ports import Flux, RpcDone, RpcError
from flux_k8s.rfc.jobid import f58, jobid_of_workflow, workflow_name
from rabbitsim.flux.broker import FluxPort
from rabbitsim.flux.events import JobState
from rabbitsim.system import VirtualSystem
from support.service import COPY_OUT, XFS, exceptions, jobspec, names, started
from support.supervised import breaks

UP = [
    (WorkflowRequests, "create"),
    (WorkflowRequests, "announce"),
    (WorkflowRequests, "_see"),
    (WorkflowRequests, "move"),
    (Steps, "_plan"),
    (Steps, "_allocate"),
    (Steps, "carry_out"),
    (Reconciler, "_next_step"),
    (Reconciler, "_take"),
]
DOWN = [
    (WorkflowRequests, "_request_teardown"),
    (WorkflowRequests, "delete"),
    (Steps, "_release_epilog"),
    (Records, "record"),
]


def end(system: VirtualSystem) -> None:
    """Run until all jobs are inactive."""
    assert system.loop.run(system.instance.idle, timeout=3600.0)
    system.loop.run(timeout=100.0)


def crits(system: VirtualSystem) -> list[str]:
    return [line for _, level, line in system.log if level == syslog.LOG_CRIT]


def check_innocent(system: VirtualSystem, jobid: int, service: object) -> None:
    assert system.service is service and system.instance.module_loaded
    assert "start" in names(system, jobid) and exceptions(system, jobid) == []
    left = [workflow["metadata"]["name"] for workflow in system.workflows()]
    assert workflow_name(jobid) not in left


def run_beside_another(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str
) -> tuple[VirtualSystem, int]:
    """Run a job for which a function raises an exception, and one that must not
    notice."""
    guilty: list[int] = []
    breaks(monkeypatch, owner, name, guilty)
    system = started()
    service = system.service
    job = system.instance.submit(jobspec(nodes=1))
    guilty.append(job)
    other = system.instance.submit(jobspec(nodes=1))
    end(system)
    assert system.instance.job(job).state is JobState.INACTIVE
    check_innocent(system, other, service)
    return system, job


@pytest.mark.parametrize(
    "owner, name",
    UP + [(Reporter, "report_outage"), (Reporter, "step_begins")],
)
def test_an_exception_on_the_way_up_fails_that_job_with_a_note(
    owner: type, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    system, job = run_beside_another(monkeypatch, owner, name)
    assert "start" not in names(system, job)
    notes = [exception["note"] for exception in exceptions(system, job)]
    assert "internal error" in notes[0] and f"it broke in {name}" in notes[0]
    first = crits(system)[0]
    assert f58(job) in first and "RuntimeError" in first and "fragile <" in first
    assert "\n" not in first


@pytest.mark.parametrize("owner, name", DOWN)
def test_an_exception_on_the_way_down_releases_the_job_and_says_what_is_left(
    owner: type, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    system, job = run_beside_another(monkeypatch, owner, name)
    if name != "record":  # which not every job needs
        lines = crits(system)
        assert any(f58(job) in line and "left behind" in line for line in lines)
    assert len(crits(system)) <= 6


def broken_in_epilog(
    monkeypatch: pytest.MonkeyPatch, epilog_remove: int = 0
) -> tuple[VirtualSystem, int]:
    """A job in whose epilog PostRun and all later states can never be asked for. The
    plugin does not answer so many times when its epilog is to be released."""
    move, rpc = WorkflowRequests.move, FluxPort.rpc
    left = [epilog_remove]

    def fragile(self: WorkflowRequests, info: WorkflowInfo, *args: Any) -> Any:
        if info.goal is Goal.RELEASED:
            raise RuntimeError("it broke")
        return move(self, info, *args)

    def lose(self: FluxPort, topic: str, payload: Any, done: RpcDone) -> None:
        if topic == "job-manager.dws.epilog-remove" and left[0]:
            left[0] -= 1
            done(RpcError(errno.EHOSTUNREACH, "it is away"))
        else:
            rpc(self, topic, payload, done)

    monkeypatch.setattr(WorkflowRequests, "move", fragile)
    monkeypatch.setattr(FluxPort, "rpc", lose)
    system = started()
    job = system.instance.submit(jobspec([XFS, COPY_OUT], nodes=1))
    end(system)
    return system, job


def test_nodes_that_may_mount_the_storage_of_a_job_that_is_given_up_are_drained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    system, job = broken_in_epilog(monkeypatch)
    (host,) = (n.host for n in system.instance.scheduler.pool.nodes if n.drained)
    notes = [each["note"] for each in exceptions(system, job)]
    assert any(f"{host}: the dws module failed" in note for note in notes)


def test_a_job_that_is_given_up_says_and_records_which_data_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    system, job = broken_in_epilog(monkeypatch)
    loss = "not copied: $DW_JOB_p1/x to /lustre/x"
    (fatal,) = (each for each in exceptions(system, job) if each["severity"] == 0)
    assert loss in fatal["note"] and "left behind" in fatal["note"]
    record = json.loads(system.instance.job(job).kvs["rabbit_data_out"])
    assert not record["success"]
    assert "internal error" in record["errstr"] and loss in record["errstr"]


def test_the_release_of_a_job_that_is_given_up_is_repeated_until_it_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    system, job = broken_in_epilog(monkeypatch, epilog_remove=5)
    assert names(system, job)[-1] == "clean"
    assert len([e for e in exceptions(system, job) if "left behind" in e["note"]]) == 1


@pytest.mark.parametrize("name", ["drain_mounted", "data_loss"])
def test_the_epilog_of_a_job_that_is_given_up_is_released_whatever_else_breaks(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fragile(*args: Any) -> Any:
        raise RuntimeError(f"{name} broke as well")

    owner = InUse if name == "drain_mounted" else lastresort
    monkeypatch.setattr(owner, name, fragile)
    system, job = broken_in_epilog(monkeypatch)
    assert names(system, job)[-1] == "clean"
    assert any(f"{name} broke as well" in line for line in crits(system))
    drained = [n for n in system.instance.scheduler.pool.nodes if n.drained]
    assert bool(drained) == (name != "drain_mounted")


def test_an_exception_about_what_a_watch_saw_fails_the_job_that_it_is_about(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    guilty: list[int] = []
    parse = WorkflowView.parse

    def fragile(workflow: Any) -> WorkflowView:
        if jobid_of_workflow(workflow["metadata"]["name"]) in guilty:
            raise KeyError("status")
        return parse(workflow)

    monkeypatch.setattr(WorkflowView, "parse", staticmethod(fragile))
    system = started()
    service = system.service
    guilty.append(system.instance.submit(jobspec(nodes=1)))
    other = system.instance.submit(jobspec(nodes=1))
    end(system)
    assert system.instance.job(guilty[0]).state is JobState.INACTIVE
    check_innocent(system, other, service)


@pytest.mark.parametrize("method", ["create", "setup", "post_run"])
def test_an_exception_in_a_request_is_answered_and_fails_that_job(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    guilty: list[int] = []
    original = getattr(RequestHandler, "_" + method)

    def fragile(self: RequestHandler, payload: Any) -> Any:
        if payload["jobid"] in guilty:
            raise RuntimeError("it broke")
        return original(self, payload)

    monkeypatch.setattr(RequestHandler, "_" + method, fragile)
    system = started()
    service = system.service
    guilty.append(system.instance.submit(jobspec(nodes=1)))
    other = system.instance.submit(jobspec(nodes=1))
    end(system)
    assert system.instance.job(guilty[0]).state is JobState.INACTIVE
    assert any(f"dws.{method}" in line and "it broke" in line for line in crits(system))
    check_innocent(system, other, service)


def test_a_job_that_cannot_even_be_failed_does_not_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    guilty: list[int] = []
    breaks(monkeypatch, Steps, "_plan", guilty)
    system = started()
    service = system.service

    def fragile(self: Flux, jobid: int, *args: Any) -> None:
        raise RuntimeError("this broke, too")

    monkeypatch.setattr(FluxPort, "raise_exception", fragile)
    job = system.instance.submit(jobspec(nodes=1))
    guilty.append(job)
    other = system.instance.submit(jobspec(nodes=1))
    system.loop.run(timeout=100.0)
    assert len(crits(system)) == 2 and "cannot be failed" in crits(system)[1]
    check_innocent(system, other, service)


def test_an_expected_error_outside_of_a_step_counts_as_unexpected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As an expected error it would be raised again and again, without a log line."""

    def forget(self: Steps, info: WorkflowInfo) -> None:
        raise DWSError("it broke")

    monkeypatch.setattr(Steps, "forget", forget)
    system = started()
    job = system.instance.submit(jobspec(nodes=1))
    system.loop.run(timeout=1000.0)
    told = crits(system)
    assert f58(job) in told[0] and "internal error" in told[0] and len(told) <= 6


def test_a_callback_that_is_bound_twice_runs_in_its_scope_once() -> None:
    noted: list[Optional[Work]] = []
    bound: list[Callable[..., None]] = []
    scope = JobScope(lambda jobid, error: None, lambda jobid: False, noted.append)
    scope.run(1, lambda: bound.append(scope.bind(scope.bind(lambda: None))))
    noted.clear()
    bound[0]()
    assert noted == [Work(1, False), None]
