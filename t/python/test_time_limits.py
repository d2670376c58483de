# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Time limits start when a state is requested, and survive restarts."""

from __future__ import annotations

from typing import Any, Callable, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.config.table import Config
from flux_k8s.jobs.jobtable import QUIET
from flux_k8s.ports import KubeError
from flux_k8s.rfc.timestamps import format_timestamp, parse_timestamp
from rabbitsim.dws.directive import STATES
from rabbitsim.dws.options import Fault as DwsFault
from rabbitsim.dws.options import Options, table
from rabbitsim.kube.direct import Fault, Request
from rabbitsim.system import VirtualSystem
from rabbitsim.torture.life import live
from stories import limits
from support.outages import OUTAGES, inject, job_in
from support.service import (
    COPY_OUT,
    HOUR,
    LIFE,
    XFS,
    exceptions,
    in_state,
    jobspec,
    names,
    settle,
    started,
)

LIMITS = ("setup_timeout", "prerun_timeout", "postrun_timeout", "teardown_after")
ALL = Config.parse(dict.fromkeys(LIMITS, 5))


def reload_every(
    system: VirtualSystem, seconds: float, first: Optional[float] = None
) -> Callable[[], None]:
    """Have the module die and come back all the time; the end of that.

    Args:
        first: the seconds until it dies for the first time.
    """
    going = [True]

    def reload() -> None:
        if going:
            system.kill_module()
            system.load_module()
            system.loop.call_later(seconds, reload)

    system.loop.call_later(seconds if first is None else first, reload)
    return going.clear


def fatal(system: VirtualSystem, jobid: int) -> list[str]:
    found = exceptions(system, jobid)
    return [context["note"] for context in found if context["severity"] == 0]


def wait_for(system: VirtualSystem, over: Callable[[], bool], seconds: float) -> None:
    assert system.loop.run(over, seconds), system.log[-10:]


@pytest.mark.parametrize(
    ("story", "end"),
    [
        ("PreRun counts from when it is asked for", "; DWS has not begun with it"),
        ("Kubernetes refuses PreRun: that counts", "; Kubernetes: no webhook"),
    ],
)
def test_the_note_says_what_a_state_has_waited_for(story: str, end: str) -> None:
    told = next(each for each in limits.STORIES if each.name.startswith(story))
    note = live(told).exceptions[0].note
    assert note.startswith(f"PreRun took more than prerun_timeout=60s{end}")


def test_a_transient_condition_has_one_limit_across_reloads_of_the_module() -> None:
    fault = DwsFault("Setup", "transient", message="busy")
    system = started(options=Options(faults=(fault,)))
    jobid = system.instance.submit(jobspec())
    stop = reload_every(system, QUIET + 2.0, 8.0)
    wait_for(system, lambda: bool(fatal(system, jobid)), 30.0)
    (note,) = fatal(system, jobid)
    assert "TransientCondition in Setup for more than tc_timeout=10s" in note
    stop()
    settle(system)


def test_two_short_transient_conditions_are_not_one_long_one() -> None:
    """What was noted of the first is taken back when it is over."""
    fault = DwsFault("Setup", "transient", duration=6.0)
    options = Options(faults=(fault,), latency=table({"Setup": 8.0}))
    system = started(options=options)
    jobid = system.instance.submit(jobspec())
    wait_for(system, in_state(system, "Setup"), HOUR)

    def annotations() -> dict[str, Any]:
        (workflow,) = system.workflows()
        found: dict[str, Any] = workflow["metadata"].get("annotations") or {}
        return found

    def noted() -> bool:
        return "flux-framework.readthedocs.io/trouble" in annotations()

    name = system.workflows()[0]["metadata"]["name"]
    for status in ("TransientCondition", "DriverWait"):
        body = {"status": {"status": status, "state": "Setup", "ready": False}}
        patch(system, name, body)
        wait_for(system, lambda s=status: noted() == (s != "DriverWait"), 1.0)  # type: ignore[misc]
    settle(system)
    assert fatal(system, jobid) == []


def patch(system: VirtualSystem, name: str, body: dict[str, Any]) -> None:
    from flux_k8s.ports import WORKFLOW

    system.store.merge_patch(WORKFLOW, "default", name, body)


@pytest.mark.parametrize("reloaded", [False, True])
def test_an_error_in_teardown_is_a_fatal_exception(reloaded: bool) -> None:
    fault = DwsFault("Teardown", "error", message="the pool is gone")
    system = started(
        options=Options(faults=(fault,)), plugin_conf={"epilog-timeout": 300.0}
    )
    jobid = system.instance.submit(jobspec([XFS, COPY_OUT]))
    wait_for(system, in_state(system, "Teardown"), HOUR)
    stop = reload_every(system, 8.0) if reloaded else lambda: None
    wait_for(system, lambda: bool(fatal(system, jobid)), 5.0)
    system.loop.run(timeout=200.0)
    (note,) = fatal(system, jobid)
    assert note.startswith("DWS failed in Teardown: ") and "the pool is gone" in note
    assert len(exceptions(system, jobid)) == 1
    lines = [line for _, _, line in system.log if "DWS failed in Teardown" in line]
    assert len(lines) == 1
    stop()


@pytest.mark.parametrize("reloaded", [False, True])
def test_a_malformed_workflow_without_progress_is_one_exception(reloaded: bool) -> None:
    fault = DwsFault("Teardown", "never", duration=400.0)
    system = started(options=Options(faults=(fault,)))
    jobid = system.instance.submit(jobspec([XFS]))
    wait_for(system, in_state(system, "Teardown"), HOUR)
    (workflow,) = system.workflows()
    name = workflow["metadata"]["name"]
    patch(system, name, {"status": {"computes": {"namespace": ""}}})
    stop = reload_every(system, 8.0) if reloaded else lambda: None
    system.loop.run(timeout=200.0)
    (context,) = exceptions(system, jobid)
    assert context["note"].startswith("Teardown takes more than 60s, DWS ")
    assert sum("Teardown takes more" in line for _, _, line in system.log) == 1
    stop()


@given(st.floats(1.6e9, 2.2e9))
def test_a_time_that_was_noted_is_read_as_it_was_written(time: float) -> None:
    text = format_timestamp(time)
    read = parse_timestamp(text)
    assert read is not None and format_timestamp(read) == text


@given(st.integers(0, 9999), st.integers(-23, 23))
def test_a_time_stamp_of_others_is_read_as_a_time_that_can_be_written(
    year: int, zone: int
) -> None:
    for day in ("01-01T00:00:00", "12-31T23:59:59", "12-31T23:59:59.9999999999"):
        read = parse_timestamp(f"{year:04d}-{day}{zone:+03d}:00")
        if read is not None:
            assert parse_timestamp(format_timestamp(read)) == pytest.approx(read)


@pytest.mark.parametrize("state", ["Proposal", "Setup", "DataIn", "PreRun"])
def test_a_request_is_made_again_before_it_costs_a_job_its_life(state: str) -> None:
    """Kubernetes fails for so long that there are long pauses between the tries. Then
    it answers, but does not take one request yet."""
    system = started(config=ALL, options=Options(latency=table({"DataIn": 1.0})))
    begin = system.loop.now()
    looked: list[float] = []

    def fault(request: Request) -> Optional[Fault]:
        if looked or not asks_for(request, state) and not refused:
            return None
        refused.append(request)
        if request.verb == "get" and system.loop.now() > begin + 300.0:
            looked.append(system.loop.now())
            return None
        return Fault(error=KubeError(500, "InternalError", "etcd has no leader"))

    refused: list[Request] = []
    assert system.service_kube is not None
    system.service_kube.faults = fault
    jobid = system.instance.submit(jobspec([XFS, COPY_OUT]))
    settle(system)
    assert looked
    assert names(system, jobid) == LIFE


def asks_for(request: Request, state: str) -> bool:
    body = request.body
    spec = body.get("spec") if isinstance(body, dict) else None
    return bool(spec) and spec.get("desiredState") == state


@pytest.mark.parametrize("first", [0.1, 7.7, 33.3])
@pytest.mark.parametrize("second", [100.1, 100.2, 101.7, 103.3])
def test_the_time_without_kubernetes_adds_up_to_what_is_written_down(
    first: float, second: float
) -> None:
    """The module meets an outage in PostRun, which is complete while there is none."""
    fault = DwsFault("PostRun", "slow", duration=200.0)
    latency = table(dict.fromkeys(STATES, 1.0))
    system = started(options=Options(latency=latency, faults=(fault,)))
    jobid = job_in(system, "PostRun")
    system.loop.run(timeout=10.0)
    system.kill_module()
    system.load_module()
    inject(system, OUTAGES["hang"], first)
    system.loop.run(timeout=150.0)
    system.kill_module()
    system.loop.run(timeout=second)
    system.load_module()
    settle(system)
    assert names(system, jobid) == LIFE
