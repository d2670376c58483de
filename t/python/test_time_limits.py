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
from support.effort import pairs
from support.outages import OUTAGES, RECONNECT, inject, job_in, slow
from support.service import (
    COPY_OUT,
    HOUR,
    LIFE,
    XFS,
    exceptions,
    in_state,
    jobspec,
    more,
    names,
    settle,
    started,
)

LIMITS = ("setup_timeout", "prerun_timeout", "postrun_timeout", "teardown_after")
ALL = Config.parse(dict.fromkeys(LIMITS, 5))


def long_started(**options: Any) -> VirtualSystem:
    """A system whose service was not just started: time limits may be over."""
    system = started(**options)
    system.loop.run(timeout=QUIET)
    return system


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


def desired(system: VirtualSystem) -> list[str]:
    return [workflow["spec"]["desiredState"] for workflow in system.workflows()]


def fatal(system: VirtualSystem, jobid: int) -> list[str]:
    found = exceptions(system, jobid)
    return [context["note"] for context in found if context["severity"] == 0]


def wait_for(system: VirtualSystem, over: Callable[[], bool], seconds: float) -> None:
    assert system.loop.run(over, seconds), system.log[-10:]


@pytest.mark.parametrize("reloaded", [False, True])
@pytest.mark.parametrize(
    "state, key",
    [
        ("Proposal", "setup_timeout"),
        ("Setup", "setup_timeout"),
        ("DataIn", "setup_timeout"),
        ("PreRun", "prerun_timeout"),
    ],
)
def test_a_state_that_dws_does_not_take_up_counts_from_when_it_was_requested(
    state: str, key: str, reloaded: bool
) -> None:
    latency = table(dict.fromkeys(STATES, 0.5))
    system = long_started(config=ALL, options=Options(latency=latency))
    before = STATES[max(STATES.index(state) - 1, 0)]
    if state == "Proposal":
        system.controllers.pause()
    jobid = system.instance.submit(jobspec([XFS, COPY_OUT]))
    wait_for(system, in_state(system, before), HOUR)
    wait_for(system, in_state(system, state), HOUR)
    system.controllers.pause()
    stop = reload_every(system, QUIET + 2.0, 2.0) if reloaded else lambda: None
    seconds = 2.0 + QUIET if reloaded else 8.0
    wait_for(system, lambda: bool(fatal(system, jobid)), seconds)
    wait_for(system, lambda: desired(system) == ["Teardown"], 8.0)
    (note,) = fatal(system, jobid)
    problem = f"{state} took more than {key}=5s; DWS has not begun with it"
    assert note == problem + more(jobid)
    stop()
    system.controllers.resume()
    settle(system)


@pytest.mark.parametrize("state", ["PostRun", "DataOut"])
def test_a_state_after_the_job_that_dws_does_not_take_up_counts_from_its_request(
    state: str,
) -> None:
    latency = table(dict.fromkeys(STATES, 0.5))
    system = long_started(config=ALL, options=Options(latency=latency))
    system.instance.submit(jobspec([XFS, COPY_OUT]))
    wait_for(system, in_state(system, state), HOUR)
    system.controllers.pause()
    wait_for(system, lambda: desired(system) == ["Teardown"], 6.0)
    system.controllers.resume()
    settle(system)


def test_teardown_after_spans_postrun_and_dataout() -> None:
    """Six seconds of each are more than ten."""
    latency = table({"PostRun": 6.0, "DataOut": 6.0})
    config = Config.parse({"teardown_after": 10})
    system = started(config=config, options=Options(latency=latency))
    system.instance.submit(jobspec([XFS, COPY_OUT]))
    wait_for(system, in_state(system, "PostRun"), HOUR)
    wait_for(system, in_state(system, "DataOut"), 8.0)
    begun = system.loop.now()
    wait_for(system, in_state(system, "Teardown"), HOUR)
    assert 3.0 < system.loop.now() - begun < 5.0
    settle(system)


@pytest.mark.parametrize("key", LIMITS)
def test_a_limit_of_0_is_off(key: str) -> None:
    latency = table(dict.fromkeys(STATES, 5.0))
    config = Config.parse({key: 0})
    system = started(config=config, options=Options(latency=latency))
    jobid = system.instance.submit(jobspec([XFS, COPY_OUT]))
    settle(system)
    assert fatal(system, jobid) == []
    assert "rabbit_dataout_timing" in system.instance.job(jobid).kvs


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
@pytest.mark.parametrize("begun", [False, True])
def test_a_teardown_without_progress_is_one_exception_that_is_not_fatal(
    begun: bool, reloaded: bool
) -> None:
    fault = DwsFault("Teardown", "never", duration=400.0)
    system = started(options=Options(faults=(fault,)))
    jobid = system.instance.submit(jobspec([XFS, COPY_OUT]))
    wait_for(system, in_state(system, "Teardown"), HOUR)
    if not begun:
        system.controllers.pause()
    stop = reload_every(system, 8.0) if reloaded else lambda: None
    system.loop.run(timeout=200.0)
    (context,) = exceptions(system, jobid)
    assert context["severity"] == 1 and context["type"] == "dws"
    assert context["note"].startswith("Teardown takes more than 60s, DWS ")
    assert ("has not begun" in context["note"]) == (not begun)
    assert sum("Teardown takes more" in line for _, _, line in system.log) == 1
    stop()
    system.controllers.resume()
    settle(system)
    assert names(system, jobid)[-1] == "clean"


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


WEBHOOK = "failed calling webhook: connect: connection refused"


def without_webhooks(system: VirtualSystem, status: int, kinds: str) -> None:
    """From now on what would call a webhook of DWS fails; all else is answered."""

    def fault(request: Request) -> Optional[Fault]:
        if request.verb in ("create", "patch") and request.kind.plural in kinds:
            return Fault(error=KubeError(status, "InternalError", WEBHOOK))
        return None

    assert system.service_kube is not None
    system.service_kube.faults = fault


@pytest.mark.parametrize("status", [403, 500, 503])
@pytest.mark.parametrize(
    "before, state, key",
    [
        ("", "Proposal", "setup_timeout"),
        ("Proposal", "Setup", "setup_timeout"),
        ("Setup", "DataIn", "setup_timeout"),
        ("DataIn", "PreRun", "prerun_timeout"),
    ],
)
def test_a_rejected_request_counts_from_when_it_was_made(
    before: str, state: str, key: str, status: int
) -> None:
    latency = table(dict.fromkeys(STATES, 2.0))
    system = started(config=ALL, options=Options(latency=latency))
    if not before:
        without_webhooks(system, status, "workflows")
    jobid = system.instance.submit(jobspec([XFS, COPY_OUT]))
    if before:
        wait_for(system, in_state(system, before), HOUR)
        without_webhooks(system, status, "workflows")
    system.loop.run(timeout=4.0)
    assert fatal(system, jobid) == []
    wait_for(system, lambda: bool(fatal(system, jobid)), 15.0)
    (note,) = fatal(system, jobid)
    problem = f"{state} took more than {key}=5s; Kubernetes: {WEBHOOK}"
    assert note == problem + more(jobid)
    assert system.service_kube is not None
    system.service_kube.faults = None
    settle(system)


@pytest.mark.parametrize("seconds", [5, 600])
@pytest.mark.parametrize("state", ["PostRun", "DataOut"])
def test_a_rejected_request_after_the_job_counts_and_the_data_is_named(
    state: str, seconds: int
) -> None:
    latency = table(dict.fromkeys(STATES, 2.0))
    limits = Config.parse(dict.fromkeys(LIMITS, seconds))
    system = started(config=limits, options=Options(latency=latency))
    jobid = system.instance.submit(jobspec([XFS, COPY_OUT]))
    before = STATES[STATES.index(state) - 1]
    wait_for(system, in_state(system, before), HOUR)
    without_webhooks(system, 500, "workflows")
    wait_for(system, lambda: bool(fatal(system, jobid)), 20.0 + 1.5 * seconds)
    (note,) = fatal(system, jobid)
    assert f"Kubernetes: {WEBHOOK}; not copied: " in note
    assert system.service_kube is not None
    system.service_kube.faults = None
    settle(system)


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


def test_a_rejected_patch_of_servers_counts_as_well() -> None:
    latency = table(dict.fromkeys(STATES, 2.0))
    system = started(config=ALL, options=Options(latency=latency))
    jobid = system.instance.submit(jobspec([XFS, COPY_OUT]))
    wait_for(system, in_state(system, "Proposal"), HOUR)
    without_webhooks(system, 500, "servers")
    wait_for(system, lambda: bool(fatal(system, jobid)), 20.0)
    (note,) = fatal(system, jobid)
    problem = f"Setup took more than setup_timeout=5s; Kubernetes: {WEBHOOK}"
    assert note == problem + more(jobid)


@pytest.mark.parametrize(("kind", "state"), pairs(OUTAGES, STATES[:-1], 4))
def test_an_outage_is_counted_by_no_limit(kind: str, state: str) -> None:
    """DWS gets on meanwhile, as long as it was told to. The limits are of an hour as
    well, and are not for the outage."""
    limits = Config.parse(dict.fromkeys(LIMITS, 600))
    system = slow(config=limits)
    jobid = job_in(system, state)
    inject(system, OUTAGES[kind])
    settle(system, 2 * HOUR)
    assert names(system, jobid) == LIFE


def test_an_outage_is_not_counted_by_a_module_that_was_loaded_in_it() -> None:
    """PostRun is complete since long: only the time that DWS took for it counts."""
    system = slow(config=Config.parse({"teardown_after": 600}))
    jobid = job_in(system, "PostRun")
    inject(system, OUTAGES["503"])
    system.loop.run(timeout=HOUR / 2)
    system.kill_module()
    system.loop.run(timeout=HOUR / 2)
    system.load_module()
    settle(system, 2 * HOUR)
    assert names(system, jobid) == LIFE


@pytest.mark.parametrize("reloaded", [False, True])
def test_teardown_after_stands_still_while_kubernetes_is_out_of_reach(
    reloaded: bool,
) -> None:
    """The controllers are away with it. What was left of the time is left after."""
    fault = DwsFault("DataOut", "slow", duration=400.0)
    config = Config.parse({"teardown_after": 600})
    latency = table(dict.fromkeys(STATES, 1.0))
    system = started(options=Options(latency=latency, faults=(fault,)), config=config)
    jobid = job_in(system, "DataOut")
    system.loop.run(timeout=100.0)
    system.controllers.pause()
    inject(system, OUTAGES["503"])
    system.loop.run(timeout=HOUR + RECONNECT)
    system.loop.run(timeout=5.0)
    if reloaded:
        system.kill_module()
        system.load_module()
    system.loop.run(timeout=5.0)
    system.controllers.resume()
    settle(system, 2 * HOUR)
    assert names(system, jobid) == LIFE


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
