# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The service dies and is started again, in the stand-in: there the module is the
service itself, and the test is the supervisor (t1007-dws-crash.t has the real one)."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from flux_k8s.control.controller import Controller
from flux_k8s.jobs import jobtable
from flux_k8s.jobs.jobtable import Job, JobTable
from flux_k8s.jobs.reporter import DWS_PATIENCE, MEMO
from flux_k8s.jobs.workflowwatch import WorkflowWatch
from rabbitsim.dws import Options
from rabbitsim.dws.options import Fault as DwsFault
from rabbitsim.system import VirtualSystem
from support.outages import OUTAGES, inject
from support.service import (
    LIFE,
    OPTION,
    XFS,
    jobspec,
    long,
    memo,
    names,
    run_until,
    settle,
    started,
    submit,
)

EVENTS = ["submit", "dependency-add", "alloc", "prolog-start", "start", "finish"]
DELAY = 1.0


def die(system: VirtualSystem) -> None:
    system.kill_module()
    system.loop.call_later(DELAY, system.load_module)


def rest(system: VirtualSystem, seconds: float) -> None:
    system.loop.call_later(seconds, lambda: None)
    system.loop.run(timeout=seconds)


@pytest.mark.parametrize("event", EVENTS)
def test_a_job_does_not_notice_that_the_service_dies(event: str) -> None:
    system = VirtualSystem(message_latency=0.01)
    system.start()
    jobid = submit(system, "-N2", "-S", OPTION)
    run_until(system, jobid, event)
    die(system)
    settle(system)
    assert names(system, jobid) == LIFE


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("call", [1, 3, 8])
@pytest.mark.parametrize(
    ("owner", "name"),
    [(WorkflowWatch, "event"), (WorkflowWatch, "synced"), (Controller, "_pump")],
)
def test_a_job_does_not_notice_that_the_service_ends_by_an_error(
    owner: type, name: str, call: int, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails before or after what it does in a callback that is not of one job."""
    calls = itertools.count(1)
    original = getattr(owner, name)

    def fragile(self: Any, *args: Any) -> None:
        fails = next(calls) == call
        if after or not fails:
            original(self, *args)
        if fails:
            raise ArithmeticError("it broke")

    monkeypatch.setattr(owner, name, fragile)
    system = VirtualSystem(message_latency=0.01)
    system.start()
    jobid = submit(system, "-N2", "-S", OPTION)
    try:
        settle(system)
    except ArithmeticError:
        die(system)
        settle(system)
    assert names(system, jobid) == LIFE


@pytest.mark.parametrize("seed", range(20))
def test_plugin_and_service_may_come_and_go_in_any_order(seed: int) -> None:
    """In the end each hears of the other, whatever was before."""
    system = VirtualSystem(seed=seed, message_latency=0.1)
    system.start()
    for _ in range(10):
        if system.rng.random() < 0.5:
            system.instance.unload_plugin()
            rest(system, system.rng.random())
            system.load_plugin()
        elif system.instance.module_loaded:
            system.rng.choice([system.kill_module, system.unload_module])()
        else:
            system.load_module()
        rest(system, system.rng.random())
    if not system.instance.module_loaded:
        system.load_module()
    rest(system, 10.0)
    jobid = submit(system, "-N2", "-S", OPTION)
    settle(system)
    assert names(system, jobid) == LIFE


def test_all_jobs_learn_of_an_outage_in_portions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ten thousand jobs at once would hold up the reactor. Most of these wait for
    nodes."""
    asked: list[int] = []
    ask = JobTable.asked

    def noting(jobs: JobTable, job: Job) -> None:
        asked.append(job.info.jobid)
        ask(jobs, job)

    monkeypatch.setattr(JobTable, "asked", noting)
    monkeypatch.setattr(jobtable, "VISITED_AT_ONCE", 2)
    system = started()
    jobids = [system.instance.submit(long(XFS, seconds=60)) for _ in range(7)]
    system.loop.run(timeout=10.0)
    asked.clear()
    inject(system, OUTAGES["refused"], seconds=60.0)
    turns = []
    while set(asked) != set(jobids):
        before = len(asked)
        assert system.loop.step()
        turns.append(len(asked) - before)
    assert max(turns) == 2
    settle(system)
    assert all(names(system, jobid) == LIFE for jobid in jobids)


def test_a_new_service_does_not_repeat_the_memo_of_the_last_one() -> None:
    options = Options(faults=(DwsFault("Setup", "never"),))
    system = started(options=options)
    jobid = system.instance.submit(jobspec())
    system.loop.run(timeout=2 * DWS_PATIENCE)
    before = names(system, jobid)
    assert str(memo(system, jobid, MEMO)).startswith("DWS in Setup: ")
    for end in (system.unload_module, system.kill_module):
        end()
        system.load_module()
        system.loop.run(timeout=2 * DWS_PATIENCE)
    assert names(system, jobid) == before
