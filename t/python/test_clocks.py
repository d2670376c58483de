# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Clocks are set: the limits of a job count the seconds that pass."""

from __future__ import annotations

import time
from typing import Any, Optional

import pytest

from flux_k8s.config.table import Config
from flux_k8s.dws.workflowmarks import RESCUED, requested_times
from flux_k8s.eventloop.clock import SteadyClock
from flux_k8s.jobs.jobtable import QUIET
from flux_k8s.ports import WORKFLOW, KubeError
from flux_k8s.rfc.jobid import workflow_name
from flux_k8s.rfc.timestamps import format_timestamp
from rabbitsim.dws.options import Fault, Options, table
from rabbitsim.kube.direct import Fault as Refusal
from rabbitsim.kube.direct import Request
from rabbitsim.system import VirtualSystem
from support.service import (
    COPY_OUT,
    HOUR,
    LIFE,
    XFS,
    annotations,
    desired,
    exceptions,
    in_state,
    jobspec,
    names,
    run_until_inactive,
    settle,
    started,
)


def job_in(state: str, **config: Any) -> tuple[VirtualSystem, int]:
    """A job in a state that takes two hours."""
    options = Options(faults=(Fault(state, "slow", duration=2 * HOUR),))
    system = started(config=Config.parse(config), options=options)
    jobid = system.instance.submit(jobspec([XFS, COPY_OUT]))
    assert system.loop.run(in_state(system, state), HOUR)
    return system, jobid


def set_clock(system: VirtualSystem, seconds: float) -> None:
    """Set the clock of the service's machine, and start the service again."""
    system.kill_module()
    system.clock_ahead = seconds
    system.load_module()


LIMITS = [
    ("PreRun", "prerun_timeout"),
    ("PostRun", "postrun_timeout"),
    ("DataOut", "teardown_after"),
]


@pytest.mark.parametrize(("state", "key"), LIMITS)
@pytest.mark.parametrize("back", [60.0, 2 * HOUR, 9000 * HOUR])
def test_after_a_clock_was_set_back_a_limit_counts_from_the_start_of_the_service(
    state: str, key: str, back: float
) -> None:
    system, jobid = job_in(state, **{key: 20})
    system.loop.run(timeout=5.0)
    set_clock(system, -back)
    system.loop.run(timeout=19.0)
    assert desired(system, jobid) == state
    assert system.loop.run(in_state(system, "Teardown"), 3.0)
    system.controllers.pause()


def test_a_time_that_is_yet_to_come_is_written_again() -> None:
    """The service after the next one does not begin anew."""
    system, jobid = job_in("PreRun", prerun_timeout=30)
    set_clock(system, -2 * HOUR)
    system.loop.run(timeout=1.0)
    begun = requested_times(annotations(system, jobid))
    now = system.loop.now() - 2 * HOUR
    assert all(at is None or now - 2.0 <= at <= now for at in begun)
    system.loop.run(timeout=14.0)
    set_clock(system, -2 * HOUR)
    system.loop.run(timeout=14.0)
    assert exceptions(system, jobid) == []
    system.loop.run(timeout=3.0)
    (exception,) = exceptions(system, jobid)
    assert exception["note"].startswith("PreRun took more than prerun_timeout=30s")


def test_a_limit_is_over_in_time_where_its_begin_cannot_be_written_again() -> None:
    """DWS changes the Workflow all the time."""
    system, jobid = job_in("PreRun", prerun_timeout=30)
    set_clock(system, -2 * HOUR)
    system.loop.run(timeout=0.01)
    assert system.service_kube is not None
    system.service_kube.faults = refuse_patches
    for number in range(28):
        assert desired(system, jobid) == "PreRun" and exceptions(system, jobid) == []
        body = {"status": {"message": f"attempt {number}"}}
        system.store.merge_patch(WORKFLOW, "default", workflow_name(jobid), body)
        system.loop.run(timeout=1.0)
    system.loop.run(timeout=5.0)
    (exception,) = exceptions(system, jobid)
    assert exception["note"].startswith("PreRun took more than prerun_timeout=30s")


def refuse_patches(request: Request) -> Optional[Refusal]:
    if request.verb == "patch" and request.kind is WORKFLOW:
        return Refusal(error=KubeError(403, "Forbidden", "read only"))
    return None


def test_a_time_of_dws_that_is_yet_to_come_is_no_time_limit_of_ours() -> None:
    """Its clock is ahead by a day: the data that does not move is given up in time."""
    options = Options(
        faults=(Fault("DataOut", "slow", duration=2 * HOUR),),
        latency=table({"DataOut": 1.0}),
    )
    config = Config.parse({"stall_timeout": 60})
    system = started(config=config, options=options)
    jobid = system.instance.submit(jobspec([XFS, COPY_OUT]))
    assert system.loop.run(in_state(system, "DataOut"), HOUR)
    system.loop.run(timeout=2.0)
    ahead = format_timestamp(system.loop.now() + 24 * HOUR)
    body = {"status": {"desiredStateChange": ahead}}
    system.store.merge_patch(WORKFLOW, "default", workflow_name(jobid), body)
    assert system.loop.run(in_state(system, "Teardown"), 200.0)
    settle(system)


@pytest.mark.parametrize(("state", "key"), LIMITS)
def test_no_limit_is_over_right_after_a_service_was_started(
    state: str, key: str
) -> None:
    """The clock was set forward by two hours meanwhile. DWS gets on."""
    options = Options(latency=table({state: 8.0}))
    config = Config.parse({key: 600})
    system = started(config=config, options=options)
    jobid = system.instance.submit(jobspec([XFS, COPY_OUT]))
    assert system.loop.run(in_state(system, state), HOUR)
    set_clock(system, 2 * HOUR)
    settle(system)
    assert names(system, jobid) == LIFE


def test_a_limit_that_was_over_before_is_over_soon_after_a_start() -> None:
    system, jobid = job_in("PreRun", prerun_timeout=600)
    system.kill_module()
    system.loop.run(timeout=700.0)
    system.load_module()
    system.loop.run(timeout=QUIET - 1.0)
    assert exceptions(system, jobid) == []
    system.loop.run(timeout=2.0)
    (exception,) = exceptions(system, jobid)
    assert exception["note"].startswith("PreRun took more than prerun_timeout=600s")


def test_a_rescue_that_is_yet_to_come_is_written_again() -> None:
    system, jobid = job_in("DataOut", teardown_after=600)
    late = format_timestamp(system.loop.now() + HOUR)
    body = {"metadata": {"annotations": {RESCUED: late}}}
    system.store.merge_patch(WORKFLOW, "default", workflow_name(jobid), body)
    system.loop.run(timeout=1.0)
    assert annotations(system, jobid)[RESCUED] < late
    settle(system, 3 * HOUR)


def test_the_clock_of_a_service_goes_on_evenly_when_that_of_the_machine_is_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_to = {"time": 1_800_000_000.0, "monotonic": 50.0}
    for name in set_to:
        monkeypatch.setattr(time, name, lambda name=name: set_to[name])
    clock = SteadyClock()
    assert clock.now() == pytest.approx(1_800_000_000.0)
    set_to.update(time=set_to["time"] - 2 * HOUR, monotonic=58.0)
    assert clock.now() == pytest.approx(1_800_000_008.0)
    set_to.update(time=set_to["time"] + 9 * HOUR, monotonic=60.0)
    assert clock.now() == pytest.approx(1_800_000_010.0)


def test_storage_that_is_kept_stays_for_a_while_after_the_start_of_the_service() -> (
    None
):
    config = Config.parse({"keep_failed": "1h", "keep_failed_limit": 100})
    options = Options(faults=(Fault("DataOut", "copy"),))
    system = started(config=config, options=options)
    jobid = system.instance.submit(jobspec([XFS, COPY_OUT]))
    run_until_inactive(system, jobid)
    set_clock(system, 2 * HOUR)
    system.loop.run(timeout=QUIET - 1.0)
    assert desired(system, jobid) == "DataOut"
    assert system.loop.run(in_state(system, "Teardown"), 3.0)
    settle(system)
