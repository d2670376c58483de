# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What torture found, each reduced to one small case (doc/torture.md)."""

from __future__ import annotations

from typing import Any, Optional

import pytest

from flux_k8s.config.table import Config
from flux_k8s.formats.jobid import workflow_name
from flux_k8s.objects.workflowview import FINALIZER
from flux_k8s.ports import STORAGE, SYSTEMSTATUS, WORKFLOW, Json, KubeError, Request
from rabbitsim.dws.options import Fault as DwsFault
from rabbitsim.dws.options import Options, table
from rabbitsim.flux.events import JobState
from rabbitsim.kube.direct import Fault
from rabbitsim.kube.store import Event as Change
from rabbitsim.system import VirtualSystem
from support.service import (
    COPY_OUT,
    HOUR,
    LIFE,
    XFS,
    exceptions,
    in_state,
    jobspec,
    memo,
    names,
    settle,
    started,
)

RAW = "#DW jobdw type=raw capacity=1GiB name=p1"


def long(seconds: int) -> Json:
    return {"exec": {"test": {"run_duration": f"{seconds}s"}}}


def test_a_job_that_runs_longer_than_postrun_timeout_keeps_its_data() -> None:
    """Just after the move to PostRun the status is still that of PreRun."""
    system = started(config=Config(postrun_timeout=20.0, teardown_after=20.0))
    jobid = system.instance.submit(jobspec([XFS, COPY_OUT], **long(60)))
    settle(system)
    assert names(system, jobid) == LIFE
    assert "rabbit_dataout_timing" in system.instance.job(jobid).kvs


def test_a_job_that_waits_longer_than_setup_timeout_for_nodes_gets_its_storage() -> (
    None
):
    """Just after the move to Setup the status is still that of Proposal."""
    system = started(config=Config(setup_timeout=20.0))
    system.instance.submit(jobspec(nodes=4, **long(600)))
    waits = system.instance.submit(jobspec(nodes=4))
    settle(system)
    assert names(system, waits) == LIFE


@pytest.mark.parametrize("key", ["setup_timeout", "prerun_timeout", "postrun_timeout"])
@pytest.mark.parametrize("noticed", [True, False])
def test_a_state_that_was_reached_in_time_unseen_costs_a_job_nothing(
    key: str, noticed: bool
) -> None:
    """The watch is interrupted, or hangs, while DWS gets a state done."""
    state = {"setup": "Setup", "prerun": "PreRun", "postrun": "PostRun"}
    config = Config.parse({key: 60.0})
    latency = table({"Setup": 5.0, "PreRun": 5.0, "PostRun": 5.0})
    system = started(config=config, options=Options(latency=latency))
    jobid = system.instance.submit(jobspec([XFS, COPY_OUT]))
    assert system.loop.run(in_state(system, state[key.partition("_")[0]]), HOUR)
    system.loop.run(timeout=1.0)
    interrupt(system, 600.0, noticed)
    settle(system)
    assert names(system, jobid) == LIFE


def interrupt(system: VirtualSystem, seconds: float, noticed: bool) -> None:
    """Kubernetes is out of reach for a while; or only its events stay away."""
    kube = system.service_kube
    assert kube is not None
    until = system.loop.now() + seconds

    def refused(request: Request) -> Optional[Fault]:
        if system.loop.now() >= until:
            return None
        return Fault(error=KubeError(0, "ConnectionRefused", "connection refused"))

    if noticed:
        kube.faults = refused
        kube.drop_watches()
    else:
        kube.silence_watches()
        system.loop.call_later(seconds, kube.drop_watches)


def test_a_transient_condition_that_ended_unseen_costs_a_job_nothing() -> None:
    fault = DwsFault("Setup", "transient", duration=3.0)
    system = started(options=Options(faults=(fault,)))
    jobid = system.instance.submit(jobspec())
    assert system.loop.run(in_state(system, "Setup"), HOUR)
    system.loop.run(timeout=1.0)
    interrupt(system, 600.0, noticed=True)
    settle(system)
    assert names(system, jobid) == LIFE


def given_up(dw: Any = XFS) -> tuple[VirtualSystem, int]:
    """A job whose epilog was given up."""
    faults = (DwsFault("PostRun", "mount"), DwsFault("Teardown", "never"))
    system = started(
        options=Options(faults=faults), plugin_conf={"epilog-timeout": 60.0}
    )
    jobid = system.instance.submit(jobspec(dw))
    assert system.loop.run(system.instance.idle, timeout=HOUR)
    system.loop.run(timeout=1.0)
    return system, jobid


def test_the_log_says_why_a_rabbit_was_disabled() -> None:
    system, _ = given_up()
    lines = [line for _, _, line in system.log if line.startswith("dws: disabling")]
    for storage in system.store.list(STORAGE, None)["items"]:
        if storage["spec"]["state"] == "Disabled":
            assert any(storage["metadata"]["name"] in line for line in lines)
    assert lines and all("still in use at epilog-timeout" in line for line in lines)


def test_rabbits_are_not_drained_as_if_they_were_nodes() -> None:
    """They have ClientMounts of their own, and Flux refuses to drain any node
    of a list in which it does not know one."""
    system, _ = given_up(RAW)
    assert not [line for _, _, line in system.log if "there is no node" in line]
    nodes = system.instance.scheduler.pool.nodes
    assert any(node.drained is not None for node in nodes)


def test_the_memo_of_a_workflow_survives_a_lost_answer() -> None:
    lost = [Fault(error=KubeError(0, "ConnectionLost", "lost"), carried_out=True)]

    def faults(request: Request) -> Optional[Fault]:
        return lost.pop() if request.verb == "create" and lost else None

    system = started(faults=faults)
    jobid = system.instance.submit(jobspec())
    settle(system)
    assert memo(system, jobid, "rabbit_workflow") == workflow_name(jobid)


@pytest.mark.parametrize("state", ["Proposal", "Setup", "PostRun", "DataOut"])
def test_the_time_a_state_took_is_recorded_though_the_module_was_away(
    state: str,
) -> None:
    latency = table({"Proposal": 1.0, "Setup": 1.0, "PostRun": 1.0, "DataOut": 1.0})
    system = started(options=Options(latency=latency))
    jobid = system.instance.submit(jobspec())
    assert system.loop.run(in_state(system, state), HOUR)
    system.kill_module()
    system.loop.run(timeout=10.0)
    system.load_module()
    settle(system)
    assert f"rabbit_{state.lower()}_timing" in system.instance.job(jobid).kvs


def test_a_job_waits_for_a_workflow_that_is_on_its_way_out_at_a_restart() -> None:
    """Our finalizer is gone from it, those of DWS are not: its storage is there."""
    system = started(options=Options(latency=table({"Teardown": 50.0})))
    jobid = system.instance.submit(jobspec(**long(5)))
    assert system.loop.run(
        lambda: system.instance.job(jobid).state is JobState.CLEANUP, HOUR
    )
    name = workflow_name(jobid)
    system.store.delete(WORKFLOW, "default", name)

    def leaving() -> bool:
        found = system.store.find(WORKFLOW, "default", name)
        return found is None or FINALIZER not in found["metadata"]["finalizers"]

    assert system.loop.run(leaving, HOUR)
    assert system.store.find(WORKFLOW, "default", name) is not None
    system.kill_module()
    system.load_module()
    assert system.loop.run(
        lambda: "epilog-finish" in names(system, jobid), timeout=HOUR
    )
    assert system.store.find(WORKFLOW, "default", name) is None
    settle(system)


@pytest.mark.parametrize("latency", [0.0, 0.5])
def test_a_failure_of_dws_in_the_epilog_is_one_exception(latency: float) -> None:
    """The module dies after it told, and a late request tells the next one that
    the plugin knows: what hello says comes before."""
    fault = DwsFault("DataOut", "error", message="it broke")
    system = started(options=Options(faults=(fault,)), message_latency=latency)
    jobid = system.instance.submit(jobspec([XFS, COPY_OUT]))
    assert system.loop.run(lambda: len(exceptions(system, jobid)) == 1, HOUR)
    system.kill_module()
    system.load_module()
    settle(system)
    assert len(exceptions(system, jobid)) == 1


@pytest.mark.parametrize("how", ["moved to Teardown", "deleted"])
@pytest.mark.parametrize("state", ["PostRun", "DataOut"])
def test_a_job_whose_workflow_is_deleted_in_its_epilog_gets_an_exception(
    state: str, how: str
) -> None:
    latency = table({"PostRun": 5.0, "DataOut": 5.0})
    system = started(options=Options(latency=latency))
    jobid = system.instance.submit(jobspec([XFS, COPY_OUT]))
    assert system.loop.run(in_state(system, state), HOUR)
    system.loop.run(timeout=1.0)
    take_away(system, jobid, how)
    settle(system)
    (exception,) = exceptions(system, jobid)
    name = workflow_name(jobid)
    assert exception["note"].startswith(f"Workflow {name} was {how} under the job")


@pytest.mark.parametrize("how", ["moved to Teardown", "deleted", "deleted at once"])
@pytest.mark.parametrize("epilog_timeout", [None, 3.0])
def test_a_job_that_is_given_up_learns_what_is_lost_though_its_workflow_is_deleted(
    how: str, epilog_timeout: Optional[float]
) -> None:
    """Its user cancels it in its epilog, or its time is over, and at that moment
    somebody takes its Workflow away."""
    conf = None if epilog_timeout is None else {"epilog-timeout": epilog_timeout}
    latency = table({"PostRun": 5.0, "DataOut": 5.0})
    system = started(options=Options(latency=latency), plugin_conf=conf)
    jobid = system.instance.submit(jobspec([XFS, COPY_OUT]))
    assert system.loop.run(lambda: "epilog-start" in names(system, jobid), HOUR)
    if epilog_timeout is None:
        system.loop.run(timeout=1.0)
        system.instance.cancel(jobid)
    else:
        assert system.loop.run(lambda: "exception" in names(system, jobid), HOUR)
    take_away(system, jobid, how)
    assert system.loop.run(system.instance.idle, HOUR)
    notes = [exception["note"] for exception in exceptions(system, jobid)]
    assert [note for note in notes if "not copied: $DW_JOB_p1/x" in note]


@pytest.mark.parametrize("how", ["moved to Teardown", "deleted", "deleted at once"])
@pytest.mark.parametrize("away", [False, True])
def test_a_job_whose_workflow_is_deleted_while_it_runs_learns_what_is_lost(
    how: str, away: bool
) -> None:
    """With the Workflow may go all that tells what was to be copied."""
    system = started()
    jobid = system.instance.submit(jobspec([XFS, COPY_OUT], **long(60)))
    assert system.loop.run(lambda: "start" in names(system, jobid), HOUR)
    system.loop.run(timeout=1.0)
    if away:
        system.kill_module()
    take_away(system, jobid, how)
    system.loop.run(timeout=1.0)
    if away:
        system.load_module()
    settle(system)
    (exception,) = exceptions(system, jobid)
    unknown = away and how == "deleted at once"
    loss = "may not be copied" if unknown else "not copied: $DW_JOB_p1/x to /lustre/x"
    assert loss in exception["note"]


def take_away(system: VirtualSystem, jobid: int, how: str) -> None:
    """Somebody else deletes a Workflow, or moves it to Teardown."""
    name = workflow_name(jobid)
    if how == "moved to Teardown":
        patch: Json = {"spec": {"desiredState": "Teardown"}}
        system.store.merge_patch(WORKFLOW, "default", name, patch)
        return
    if how == "deleted at once":
        body: Json = {"metadata": {"finalizers": None}}
        system.store.merge_patch(WORKFLOW, "default", name, body)
    system.store.delete(WORKFLOW, "default", name)


def test_messages_to_the_job_manager_stay_in_order() -> None:
    """The exception must be there before the epilog ends: one module gets both."""
    for seed in range(20):
        fault = DwsFault("DataOut", "error", message="it broke")
        system = started(
            seed=seed, options=Options(faults=(fault,)), message_latency=0.5
        )
        jobid = system.instance.submit(jobspec([XFS, COPY_OUT]))
        settle(system)
        assert len(exceptions(system, jobid)) == 1


@pytest.mark.parametrize("how", ["moved to Teardown", "deleted", "deleted at once"])
@pytest.mark.parametrize("state", ["PostRun", "DataOut"])
@pytest.mark.parametrize("cancelled", [False, True])
def test_a_job_whose_workflow_is_deleted_while_the_module_is_away_gets_an_exception(
    state: str, how: str, cancelled: bool
) -> None:
    """What is left tells that it was not us; or nothing is left, which does too."""
    latency = table({"PostRun": 5.0, "DataOut": 5.0, "Teardown": 50.0})
    system = started(options=Options(latency=latency))
    jobid = system.instance.submit(jobspec([XFS, COPY_OUT]))
    assert system.loop.run(in_state(system, state), HOUR)
    system.loop.run(timeout=1.0)
    system.kill_module()
    if cancelled:
        system.instance.cancel(jobid)
    take_away(system, jobid, how)
    system.loop.run(timeout=1.0)
    system.load_module()
    settle(system)
    (exception,) = (e for e in exceptions(system, jobid) if e["type"] == "dws")
    name, told = workflow_name(jobid), how.replace(" at once", "")
    assert exception["note"].startswith(f"Workflow {name} was {told} under the job")
    assert "copied" in exception["note"]


def test_a_teardown_by_the_service_is_no_interference_after_a_restart() -> None:
    system = started(options=Options(latency=table({"Teardown": 50.0})))
    jobid = system.instance.submit(jobspec([XFS, COPY_OUT]))
    assert system.loop.run(in_state(system, "Teardown"), HOUR)
    system.kill_module()
    system.load_module()
    settle(system)
    assert names(system, jobid) == LIFE


def test_an_abort_is_remembered_when_the_plugin_is_loaded_again() -> None:
    """The plugin that asked for it has gone; nodes and Rabbits are still in use."""
    faults = (DwsFault("PostRun", "mount"), DwsFault("Teardown", "never"))
    system = started(
        options=Options(faults=faults), plugin_conf={"epilog-timeout": 60.0}
    )
    jobid = system.instance.submit(jobspec(RAW))
    assert system.loop.run(in_state(system, "PostRun"), HOUR)
    interrupt(system, 600.0, noticed=True)
    assert system.loop.run(system.instance.idle, timeout=HOUR)
    system.loop.run(timeout=1.0)
    system.instance.unload_plugin()
    system.load_plugin()
    system.loop.run(timeout=HOUR)
    assert system.instance.job(jobid).state is JobState.INACTIVE
    nodes = system.instance.scheduler.pool.nodes
    assert any(node.drained is not None for node in nodes)
    storages = system.store.list(STORAGE, None)["items"]
    assert any(storage["spec"]["state"] == "Disabled" for storage in storages)


def test_an_interference_during_the_run_is_one_exception() -> None:
    """Its Workflow is deleted while it runs; what is left of that goes while the
    module is away."""
    system = started(options=Options(latency=table({"Teardown": 50.0})))
    jobid = system.instance.submit(jobspec(**long(60)))
    assert system.loop.run(lambda: "start" in names(system, jobid), HOUR)
    name = workflow_name(jobid)
    system.store.delete(WORKFLOW, "default", name)
    assert system.loop.run(lambda: "epilog-start" in names(system, jobid), HOUR)
    system.kill_module()
    body: Json = {"metadata": {"finalizers": None}}
    system.store.merge_patch(WORKFLOW, "default", name, body)
    system.load_module()
    settle(system)
    assert len(exceptions(system, jobid)) == 1


def node_status(system: VirtualSystem, host: str) -> Any:
    found = system.store.get(SYSTEMSTATUS, "default", "default")
    return found["data"]["nodes"].get(host)


REASON = "fABC: Rabbit storage could not be mounted"


def test_dws_waits_for_nodes_that_a_job_got_as_soon_as_they_were_undrained() -> None:
    """It knows that they are back before it mounts anything there."""
    system = started(options=Options(latency=table({})))
    system.instance.drain("compute-01", REASON)
    system.loop.run(timeout=10.0)
    assert node_status(system, "compute-01") == "Disabled"
    jobid = system.instance.submit(jobspec(nodes=4))
    system.loop.run(timeout=10.0)
    seen: list[Any] = []

    def see(change: Change) -> None:
        if change.object["spec"]["desiredState"] == "PreRun":
            seen.append(node_status(system, "compute-01"))

    system.store.watch(WORKFLOW, None, see, resource_version=str(system.store.version))
    system.instance.undrain("compute-01")
    settle(system)
    assert set(seen) == {"Enabled"}
    assert "start" in names(system, jobid)


def test_a_node_is_not_disabled_as_long_as_a_job_waits_for_its_mounts() -> None:
    """Not by a module that is only just loaded, and knows little, either."""
    system = started(options=Options(latency=table({"PreRun": 30.0})))
    jobid = system.instance.submit(jobspec(nodes=4))
    assert system.loop.run(in_state(system, "PreRun"), HOUR)
    system.instance.drain("compute-01", REASON)
    system.loop.run(timeout=5.0)
    system.kill_module()
    system.load_module()
    system.loop.run(timeout=5.0)
    assert "start" not in names(system, jobid)
    assert node_status(system, "compute-01") != "Disabled"
    settle(system)
    system.loop.run(timeout=5.0)
    assert node_status(system, "compute-01") == "Disabled"
