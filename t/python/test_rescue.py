# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""With ``keep_failed`` the storage of a job whose data could not be copied out is kept,
and ``flux dws rescue`` has the data copied again."""

from __future__ import annotations

import errno
import json
from typing import Any, Optional

import pytest

from flux_k8s.config.table import Config
from flux_k8s.dws.directives import GIB
from flux_k8s.dws.workflowmarks import FAILED_UNTIL, NODES_RELEASED, RESCUED
from flux_k8s.ports import NNFDATAMOVEMENT, SERVERS, WORKFLOW, Json, KubeError
from flux_k8s.rfc.jobid import f58
from flux_k8s.rfc.timestamps import format_seconds, parse_timestamp
from rabbitsim.dws import Topology
from rabbitsim.dws.options import Fault, Options, table
from rabbitsim.flux.events import JobState
from rabbitsim.kube import direct
from rabbitsim.system import VirtualSystem
from support.queries import GUEST, OTHER, query, refusal
from support.rabbits import drained
from support.service import (
    COPY_OUT,
    DAY,
    HOUR,
    XFS,
    annotations,
    desired,
    exceptions,
    lines,
    names,
    run_until_inactive,
    settle,
    started,
)
from support.service import jobspec as spec_of

BROKEN = Fault("DataOut", "copy", duration=2 * HOUR, message="no space")
"""Copies that fail in the first two hours."""

FOREVER = Fault("DataOut", "copy", message="no space")
STALLED = Fault("DataOut", "stall", duration=2 * HOUR)
KEEP: Json = {"keep_failed": "1d", "keep_failed_limit": 100}
LOST = "not copied: $DW_JOB_p1/x to /lustre/x"
ALL = "#DW jobdw type=xfs capacity=90GiB name=p1"
UNMOUNTED = {"dw_release": "unmounted"}
COPY = 30.0
"""Seconds that DataOut takes, at least."""


def system_of(
    *faults: Fault, config: Optional[Json] = None, copy: float = COPY, **options: Any
) -> VirtualSystem:
    """Two Rabbits with two nodes each."""
    latency = table({"DataOut": copy, "Teardown": 0.5})
    return started(
        topology=Topology.regular(4, 2, capacity=200 * GIB),
        options=Options(
            latency=latency, faults=faults or (BROKEN,), report_interval=60.0
        ),
        config=Config.parse({**KEEP, **(config or {})}),
        **options,
    )


def submit(
    system: VirtualSystem, dw: Any = (XFS, COPY_OUT), nodes: int = 4, **more: Any
) -> int:
    return system.instance.submit(spec_of(list(dw), nodes, **more))


def is_kept(system: VirtualSystem, jobid: int) -> bool:
    """Whether the job has ended and its storage is kept for a rescue."""
    marks = annotations(system, jobid)
    return (
        system.instance.job(jobid).state is JobState.INACTIVE
        and desired(system, jobid) == "DataOut"
        and FAILED_UNTIL in marks
        and NODES_RELEASED in marks
    )


def kept_until(system: VirtualSystem, jobid: int) -> float:
    until = parse_timestamp(annotations(system, jobid)[FAILED_UNTIL])
    assert until is not None
    return until


def kept(system: VirtualSystem, dw: Any = (XFS, COPY_OUT), **more: Any) -> int:
    """Run a job to the point at which its storage is kept."""
    jobid = submit(system, dw, **more)
    run_until_inactive(system, jobid)
    assert system.loop.run(lambda: is_kept(system, jobid), timeout=HOUR)
    return jobid


def wait(system: VirtualSystem, seconds: float) -> None:
    system.loop.run(timeout=seconds)


def rescue(system: VirtualSystem, jobid: int, **more: Any) -> Json:
    return query(system, "rescue", {"id": jobid, **more})


def record(system: VirtualSystem, jobid: int, key: str = "rabbit_data_out") -> Json:
    found: Json = json.loads(system.instance.job(jobid).kvs[key])
    return found


def show(system: VirtualSystem, jobid: int) -> Json:
    return query(system, "job-show", {"id": jobid})


def settle_with(system: VirtualSystem, jobid: int, loss: str = "") -> None:
    """Run to the end: the data is out, or what is lost of it is reported."""
    settle(system, 3 * DAY)
    found = record(system, jobid)
    assert found["success"] is not bool(loss), found
    assert loss in found.get("errstr", "")
    assert drained(system) == {}


def test_a_job_whose_copy_fails_ends_and_its_storage_is_kept_for_as_long_as_set() -> (
    None
):
    system = system_of(FOREVER)
    jobid = kept(system)
    begun = system.loop.now()
    (told,) = exceptions(system, jobid)
    until = format_seconds(kept_until(system, jobid))
    assert (told["type"], told["severity"]) == ("dws", 0)
    assert told["note"].startswith("DWS failed in DataOut: ")
    assert "no space" in told["note"] and LOST in told["note"]
    hint = f"its storage is kept until {until}: flux dws rescue {f58(jobid)}"
    assert hint in told["note"]
    found = record(system, jobid, "rabbit_data_failed")
    assert found["until"] == pytest.approx(kept_until(system, jobid), abs=1e-3)
    assert "rabbit_data_out" not in system.instance.job(jobid).kvs
    assert lines(system, f"{f58(jobid)}: its data is not out: DWS failed in DataOut")
    wait(system, DAY - 60)
    assert is_kept(system, jobid)
    settle_with(system, jobid, LOST)
    assert system.loop.now() - begun < DAY + 600
    assert lines(system, f"{f58(jobid)}: its data is not out: DWS failed in DataOut: ")


def test_by_default_storage_is_not_kept() -> None:
    system = system_of(config={"keep_failed": 0})
    jobid = submit(system)
    run_until_inactive(system, jobid)
    (told,) = exceptions(system, jobid)
    assert "kept" not in told["note"]
    settle(system, 60.0)


def test_a_copy_that_is_started_again_saves_the_data() -> None:
    system = system_of()
    jobid = kept(system)
    wait(system, 3 * HOUR)
    assert rescue(system, jobid)["copies"] == 4
    assert RESCUED in annotations(system, jobid)
    assert FAILED_UNTIL not in annotations(system, jobid)
    settle_with(system, jobid)
    assert lines(system, f"{f58(jobid)}: its data is out")
    assert lines(system, f"{f58(jobid)}: user 500 has its data copied again: 4 copies")


def test_only_copies_that_have_failed_are_made_again() -> None:
    system = system_of(Fault("DataOut", "copy", node="rabbit-02", duration=2 * HOUR))
    jobid = kept(system)
    wait(system, 3 * HOUR)
    assert rescue(system, jobid)["copies"] == 2
    settle_with(system, jobid)


def test_a_copy_that_fails_again_has_the_storage_kept_again() -> None:
    system = system_of()
    jobid = kept(system)
    first = kept_until(system, jobid)
    wait(system, HOUR)
    rescue(system, jobid)
    assert system.loop.run(
        lambda: FAILED_UNTIL in annotations(system, jobid), timeout=120.0
    )
    wait(system, 1.0)
    assert kept_until(system, jobid) > first + HOUR / 2
    assert len(exceptions(system, jobid)) == 1
    assert len(lines(system, f"{f58(jobid)}: its data is not out")) == 2
    wait(system, 2 * HOUR)
    rescue(system, jobid)
    settle_with(system, jobid)


def test_a_user_who_has_copies_fail_again_and_again_does_not_fill_the_log() -> None:
    system = system_of(FOREVER, copy=0.0)
    jobid = kept(system)
    for _ in range(30):
        rescue(system, jobid)
        assert system.loop.run(lambda: is_kept(system, jobid), timeout=HOUR)
    assert len(lines(system, "its data is not out")) == 11
    assert len(lines(system, "has its data copied again")) == 10
    rescue(system, jobid, give_up=True)
    settle_with(system, jobid, LOST)
    assert len(lines(system, "its data is not out")) == 12


def test_the_storage_goes_at_once_when_it_is_given_up() -> None:
    system = system_of()
    jobid = kept(system)
    rescue(system, jobid, give_up=True)
    settle(system, 60.0)
    assert LOST in record(system, jobid)["errstr"]
    assert lines(system, f"{f58(jobid)}: user 500 gives its data up")


def test_a_copy_that_is_made_again_may_be_given_up() -> None:
    system = system_of(FOREVER)
    jobid = kept(system)
    rescue(system, jobid)
    rescue(system, jobid, give_up=True)
    rescue(system, jobid, give_up=True)
    settle(system, 60.0)
    assert LOST in record(system, jobid)["errstr"]


@pytest.mark.parametrize("release", ["teardown", "unmounted"])
def test_a_job_that_depends_on_the_data_waits_until_it_is_rescued(release: str) -> None:
    system = system_of()
    jobid = kept(system, dw_release=release)
    needs = {"dependencies": [{"scheme": "dws-out", "value": f58(jobid)}]}
    waits, fails = (system.instance.submit(spec_of("", 1, **needs)) for _ in range(2))
    system.instance.cancel(fails)
    wait(system, 3 * HOUR)
    assert system.instance.job(waits).state is JobState.DEPEND
    rescue(system, jobid)
    settle_with(system, jobid)
    assert "start" in names(system, waits)


def test_a_job_that_depends_on_data_that_is_given_up_fails() -> None:
    system = system_of()
    jobid = kept(system)
    needs = {"dependencies": [{"scheme": "dws-out", "value": f58(jobid)}]}
    waits = system.instance.submit(spec_of("", 1, **needs))
    rescue(system, jobid, give_up=True)
    settle_with(system, jobid, LOST)
    (told,) = exceptions(system, waits)
    assert LOST in told["note"]


def test_a_job_that_had_ended_before_is_told_by_its_record_and_the_log() -> None:
    system = system_of()
    jobid = kept(system, **UNMOUNTED)
    assert not exceptions(system, jobid)
    assert "no space" in record(system, jobid, "rabbit_data_failed")["errstr"]
    wait(system, 3 * HOUR)
    rescue(system, jobid)
    settle_with(system, jobid)


def test_the_nodes_run_other_jobs_and_the_storage_goes_to_none() -> None:
    system = system_of()
    jobid = kept(system, (ALL, COPY_OUT))
    plain, other = submit(system, (), 4), submit(system, (ALL,), 1)
    run_until_inactive(system, plain)
    assert "alloc" not in names(system, other)
    wait(system, 2 * HOUR)
    rescue(system, jobid)
    settle_with(system, jobid)
    assert "start" in names(system, other)


@pytest.mark.parametrize("release", ["teardown", "unmounted"])
@pytest.mark.parametrize("end", ["kill_module", "unload_module"])
def test_a_module_that_is_loaded_again_goes_on(end: str, release: str) -> None:
    system = system_of()
    jobid = kept(system, dw_release=release)
    until = kept_until(system, jobid)
    for _ in range(2):
        getattr(system, end)()
        wait(system, 600.0)
        system.load_module()
        wait(system, 600.0)
        assert is_kept(system, jobid) and kept_until(system, jobid) == until
    wait(system, 2 * HOUR)
    rescue(system, jobid)
    getattr(system, end)()
    system.load_module()
    settle_with(system, jobid)
    assert not lines(system, "tearing down a Workflow whose job has ended")


def test_time_that_is_over_while_the_module_is_away_is_over() -> None:
    system = system_of()
    jobid = kept(system)
    system.kill_module()
    wait(system, 2 * DAY)
    assert is_kept(system, jobid)
    system.load_module()
    settle_with(system, jobid, LOST)


def test_a_copy_that_succeeds_after_all_needs_no_rescue() -> None:
    system = system_of(STALLED, config={"teardown_after": 600})
    jobid = kept(system)
    (told,) = exceptions(system, jobid)
    assert told["note"].startswith("PostRun and DataOut took more than teardown_after=")
    settle_with(system, jobid)


@pytest.mark.parametrize("limit", ["stall_timeout", "teardown_after"])
def test_limits_count_anew_from_a_rescue(limit: str) -> None:
    system = system_of(
        Fault("DataOut", "stall"), config={limit: 600, "keep_failed": 3600}
    )
    jobid = kept(system)
    wait(system, 60.0)
    assert rescue(system, jobid)["copies"] == 0
    (found,) = show(system, jobid)["limits"]
    assert found["name"] == limit
    assert found["at"] == pytest.approx(system.loop.now() + 600.0, abs=5.0)
    wait(system, 550.0)
    assert FAILED_UNTIL not in annotations(system, jobid)
    wait(system, 100.0)
    assert is_kept(system, jobid)
    settle_with(system, jobid, LOST)


def test_show_says_what_has_failed_until_when_it_is_kept_and_what_to_do() -> None:
    system = system_of()
    jobid = kept(system)
    until = kept_until(system, jobid)
    found = show(system, jobid)
    assert (found["state"], found["status"]) == ("DataOut", "Error")
    assert "no space" in found["failed"] and LOST in found["failed"]
    assert found["kept_until"] == until
    assert found["limits"] == [{"name": "keep_failed", "at": until}]
    assert found["waits"] == (
        f"flux dws rescue {f58(jobid)}: its data is not out, and is kept until"
        f" {format_seconds(until)}"
    )
    wait(system, 3 * HOUR)
    rescue(system, jobid)
    found = show(system, jobid)
    assert (found["failed"], found["kept_until"], found["waits"]) == ("", None, "")
    settle_with(system, jobid)


def test_only_the_user_of_a_job_and_the_instance_owner_may_rescue_its_data() -> None:
    system = system_of()
    jobid = system.instance.submit(spec_of([XFS, COPY_OUT], 4), userid=GUEST)
    run_until_inactive(system, jobid)
    payload = {"id": jobid}
    for more in ({}, {"give_up": True}):
        found = refusal(system, "rescue", {**payload, **more}, OTHER)
        assert found == (errno.EPERM, f"job {f58(jobid)} is not yours")
    assert is_kept(system, jobid)
    wait(system, 3 * HOUR)
    query(system, "rescue", payload, GUEST)
    settle_with(system, jobid)


def test_a_rescue_that_makes_no_sense_is_refused_with_the_reason() -> None:
    system = system_of(FOREVER)
    jobid = submit(system)
    assert system.loop.run(lambda: "start" in names(system, jobid), timeout=HOUR)
    name = f"job {f58(jobid)}"
    none = f"{name}: no data of it has failed and is kept"
    assert refusal(system, "rescue", {"id": jobid}) == (errno.EINVAL, none)
    assert refusal(system, "rescue", {"id": jobid, "give_up": True})[1] == none
    assert refusal(system, "rescue", {"id": 1})[0] == errno.ENOENT
    for bad in ({}, {"id": "x"}, {"id": jobid, "give_up": 1}):
        assert refusal(system, "rescue", bad)[0] == errno.EPROTO
    run_until_inactive(system, jobid)
    rescue(system, jobid)
    again = refusal(system, "rescue", {"id": jobid})
    assert again == (errno.EALREADY, f"{name}: its data is being copied again already")
    rescue(system, jobid, give_up=True)
    settle_with(system, jobid, LOST)
    assert refusal(system, "rescue", {"id": jobid})[0] == errno.ENOENT


@pytest.mark.parametrize("verb", ["list", "patch_status"])
def test_a_permission_that_is_missing_is_named_and_nothing_changes(verb: str) -> None:
    denied: list[str] = []

    def faults(request: direct.Request) -> Optional[direct.Fault]:
        if request.kind == NNFDATAMOVEMENT and request.verb in denied:
            text = "nnfdatamovements is forbidden"
            return direct.Fault(error=KubeError(403, "Forbidden", text))
        return None

    system = system_of(faults=faults)
    jobid = kept(system)
    wait(system, 3 * HOUR)
    denied.append(verb)
    what = "nnfdatamovements/status" if verb == "patch_status" else "nnfdatamovements"
    errnum, text = refusal(system, "rescue", {"id": jobid})
    assert errnum == errno.EACCES
    assert f"does not allow the dws module to {verb[:5].rstrip('_')} {what}" in text
    assert "rbac.yaml" in text
    assert is_kept(system, jobid)
    denied.clear()
    rescue(system, jobid)
    settle_with(system, jobid)


def test_data_that_is_given_up_when_its_storage_is_gone_already_is_not_there() -> None:
    system = system_of()
    jobid = kept(system)

    def purge(request: direct.Request) -> Optional[direct.Fault]:
        if request.kind == WORKFLOW and request.verb == "patch" and system.workflows():
            key = WORKFLOW, "default", request.name
            system.store.delete(*key)
            system.store.merge_patch(*key, {"metadata": {"finalizers": None}})
        return None

    assert system.service_kube is not None
    system.service_kube.faults = purge
    found = refusal(system, "rescue", {"id": jobid, "give_up": True})
    text = f"job {f58(jobid)}: no data of it has failed and is kept"
    assert found == (errno.EINVAL, text)
    assert not lines(system, "a query failed")


def test_a_rescue_in_the_last_moment_holds_off_the_loss() -> None:
    slow: list[str] = []

    def faults(request: direct.Request) -> Optional[direct.Fault]:
        delayed = request.kind == NNFDATAMOVEMENT and request.verb in slow
        return direct.Fault(delay=20.0) if delayed else None

    system = system_of(faults=faults)
    jobid = kept(system)
    wait(system, kept_until(system, jobid) - system.loop.now() - 1.0)
    slow.append("list")
    rescue(system, jobid)
    settle_with(system, jobid)


@pytest.mark.parametrize("delay", [0.5, 5.0, 50.0])
def test_a_copy_that_ends_before_the_workflow_is_marked_is_a_rescue(
    delay: float,
) -> None:
    slow: list[str] = []

    def faults(request: direct.Request) -> Optional[direct.Fault]:
        if request.kind != WORKFLOW or request.verb not in slow:
            return None
        slow.clear()
        return direct.Fault(delay=delay)

    system = system_of(faults=faults, copy=0.1)
    jobid = kept(system)
    wait(system, 3 * HOUR)
    slow.append("patch")
    assert rescue(system, jobid)["copies"] == 4
    settle_with(system, jobid)


def test_storage_that_could_not_be_kept_from_others_is_not_kept() -> None:
    def forbid(request: direct.Request) -> Optional[direct.Fault]:
        watch = request.verb == "watch" and request.kind == SERVERS
        error = KubeError(403, "Forbidden", "servers is forbidden")
        return direct.Fault(error=error) if watch else None

    system = system_of(faults=forbid)
    jobid = submit(system)
    run_until_inactive(system, jobid)
    (told,) = exceptions(system, jobid)
    assert "its storage is kept" not in told["note"]
    settle_with(system, jobid, LOST)


def test_an_instance_without_fluxion_keeps_storage_as_well() -> None:
    system = system_of(scheduler="none")
    jobid = kept(system)
    wait(system, 3 * HOUR)
    rescue(system, jobid)
    settle_with(system, jobid)


def test_a_job_that_is_cancelled_in_its_epilog_has_its_storage_go() -> None:
    system = system_of(Fault("DataOut", "slow", duration=HOUR))
    jobid = submit(system)
    assert system.loop.run(lambda: "epilog-start" in names(system, jobid), timeout=HOUR)
    wait(system, 30.0)
    system.instance.cancel(jobid)
    run_until_inactive(system, jobid)
    settle(system, 60.0)


def test_a_job_that_is_cancelled_while_the_module_is_away_keeps_nothing() -> None:
    system = system_of()
    jobid = submit(system)
    assert system.loop.run(lambda: "epilog-start" in names(system, jobid), timeout=HOUR)
    wait(system, 1.0)
    system.unload_module()
    system.instance.cancel(jobid)
    wait(system, 60.0)
    system.load_module()
    run_until_inactive(system, jobid)
    settle(system, 60.0)


def test_an_epilog_that_is_given_up_keeps_nothing() -> None:
    system = system_of(plugin_conf={"epilog-timeout": 10.0})
    jobid = submit(system)
    run_until_inactive(system, jobid)
    wait(system, 60.0)
    (workflow,) = system.workflows()
    assert workflow["spec"]["desiredState"] == "Teardown"
    assert FAILED_UNTIL not in annotations(system, jobid)


def test_a_job_without_data_to_be_copied_keeps_no_storage() -> None:
    system = system_of(Fault("DataOut", "error", message="it broke"))
    jobid = submit(system, (XFS,))
    run_until_inactive(system, jobid)
    settle(system, 60.0)


def test_that_data_is_not_out_is_logged_once_though_the_mark_is_refused_first() -> None:
    system = system_of()
    refused: list[direct.Request] = []

    def fault(request: direct.Request) -> Optional[direct.Fault]:
        if len(refused) > 2 or FAILED_UNTIL not in json.dumps(request.body):
            return None
        refused.append(request)
        return direct.Fault(error=KubeError(500, "InternalError", "no leader"))

    assert system.service_kube is not None
    system.service_kube.faults = fault
    jobid = kept(system)
    assert len(refused) == 3
    assert len(lines(system, f"{f58(jobid)}: its data is not out")) == 1


class Broken(dict[str, Any]):
    """A data movement that breaks whoever reads it."""

    def get(self, key: str, default: Any = None) -> Any:
        if key != "metadata":
            raise RuntimeError("it is broken")
        return super().get(key, default)


def test_a_rescue_that_breaks_is_an_error_of_the_query_and_not_of_the_service() -> None:
    """Whatever it is that breaks it."""

    def fault(request: direct.Request) -> Optional[direct.Fault]:
        if request.verb != "list" or request.kind != NNFDATAMOVEMENT:
            return None
        items = [Broken(metadata={"name": "m"})]
        answer = {"kind": "NnfDataMovementList", "metadata": {}, "items": items}
        return direct.Fault(answer=answer)

    system = system_of()
    jobid = kept(system)
    assert system.service_kube is not None
    system.service_kube.faults = fault
    service = system.service
    errnum, text = refusal(system, "rescue", {"id": jobid})
    assert (errnum, text) == (errno.EINVAL, "internal error, the log has more")
    assert lines(system, "a query failed")
    assert system.service is service and is_kept(system, jobid)
    system.service_kube.faults = None
    assert rescue(system, jobid)["copies"]
