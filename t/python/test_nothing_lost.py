# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Nothing is lost in silence: neither data that was to be copied nor a node that
still has a file system mounted. Whole systems under virtual time."""

from __future__ import annotations

import errno
import json
from dataclasses import replace
from functools import partial
from typing import Any, Optional

import pytest

from flux_k8s.config.table import Config
from flux_k8s.dws.workflowmarks import CUT_OFF
from flux_k8s.dws.workflowview import WorkflowView
from flux_k8s.jobs.work import Work
from flux_k8s.ports import STORAGE, SYSTEMSTATUS, WORKFLOW, KubeError, RpcError
from flux_k8s.rfc.jobid import f58
from rabbitsim.dws.options import Fault as DwsFault
from rabbitsim.dws.options import Options, table
from rabbitsim.flux.broker import FluxPort
from rabbitsim.flux.events import JobState
from rabbitsim.kube.direct import Fault, Request
from rabbitsim.system import VirtualSystem
from support.rabbits import drained, set_link, shown
from support.service import (
    COPY_OUT,
    HOUR,
    KEEP,
    USE,
    XFS,
    exceptions,
    in_state,
    jobspec,
    lines,
    more,
    run_until,
    settle,
    started,
)

STUCK = DwsFault("PostRun", "mount", node="compute-02")
LOST = "not copied: $DW_JOB_p1/x to /lustre/x"


def system_of(
    *faults: DwsFault, config: Optional[Config] = None, **options: Any
) -> VirtualSystem:
    latency = table({"PostRun": 0.5, "DataOut": 0.5, "Teardown": 0.5})
    dws = Options(latency=latency, faults=faults)
    system: VirtualSystem = started(options=dws, config=config, **options)
    return system


def run(system: VirtualSystem, dw: Any = XFS) -> int:
    jobid = system.instance.submit(jobspec(dw))
    settle(system)
    return jobid


def severities(system: VirtualSystem, jobid: int) -> list[tuple[str, bool]]:
    return [(e["type"], e["severity"] == 0) for e in exceptions(system, jobid)]


def state_is(system: VirtualSystem, state: str) -> Any:
    return lambda: any(
        w["status"].get("state") == state and not w["status"]["ready"]
        for w in system.workflows()
        if w.get("status")
    )


# At a failure


@pytest.mark.parametrize(
    ("x", "y", "z", "names"),
    [
        ("Error", "Running", "Completed", ("x (failed)", "y")),
        ("Error", "Completed", "Error", ("x", "z")),
        ("Pending", "Running", "Running", ("x", "y", "z")),
    ],
)
def test_of_copies_that_are_not_done_those_that_failed_are_marked(
    x: str, y: str, z: str, names: tuple[str, ...]
) -> None:
    system = system_of(DwsFault("DataOut", "never"))
    copies = [COPY_OUT.replace("/x", f"/{file}") for file in "xyz"]
    system.instance.submit(jobspec([XFS, *copies]))
    assert system.loop.run(state_is(system, "DataOut"), HOUR)
    (workflow,) = system.workflows()
    status = dict(zip((1, 2, 3), (x, y, z)))
    for driver in workflow["status"]["drivers"]:
        if driver["watchState"] == "DataOut":
            driver["status"] = status[driver["dwdIndex"]]
            driver["completed"] = driver["status"] == "Completed"
    assert WorkflowView.parse(workflow).unsaved == tuple(
        f"$DW_JOB_p1/{name[0]} to /lustre/{name}" for name in names
    )


# At a time limit


def test_a_fatal_exception_names_a_copy_that_takes_too_long() -> None:
    fault = DwsFault("DataOut", "never")
    system = system_of(fault, config=Config(teardown_after=60.0))
    jobid = run(system, [XFS, COPY_OUT])
    (told,) = exceptions(system, jobid)
    assert (told["type"], told["severity"]) == ("dws", 0)
    problem = "PostRun and DataOut took more than teardown_after=60s"
    assert told["note"] == f"{problem}; {LOST}{more(jobid)}"
    assert drained(system) == {}


def test_persistent_storage_may_lack_what_a_stuck_node_wrote() -> None:
    system = system_of(STUCK, config=Config(postrun_timeout=60.0))
    run(system, KEEP)
    jobid = run(system, USE)
    note = exceptions(system, jobid)[-1]["note"]
    lost = "compute-02 may not have written everything to keep"
    assert note.endswith(f"; {lost}{more(jobid)}")
    assert severities(system, jobid)[-1] == ("dws", True)


# After an Error, and after a cancel


@pytest.mark.parametrize("restart", [False, True])
def test_data_that_a_forced_dataout_did_not_copy_is_named(restart: bool) -> None:
    """An administrator forces DataOut; the module may be away meanwhile."""
    system = system_of(DwsFault("DataOut", "never"))
    jobid = system.instance.submit(jobspec([XFS, COPY_OUT]))
    assert system.loop.run(state_is(system, "DataOut"), timeout=HOUR)
    system.loop.run(timeout=5.0)
    if restart:
        system.kill_module()
    name = system.workflows()[0]["metadata"]["name"]
    body = {"spec": {"forceReady": True}}
    system.store.merge_patch(WORKFLOW, "default", name, body)
    system.loop.run(timeout=5.0)
    if restart:
        system.load_module()
    settle(system)
    note = exceptions(system, jobid)[-1]["note"]
    assert note == f"the storage is gone; {LOST}{more(jobid)}"


# At epilog-timeout


def given_up(*faults: DwsFault, **options: Any) -> tuple[VirtualSystem, int]:
    system = system_of(STUCK, *faults, plugin_conf={"epilog-timeout": 60.0}, **options)
    jobid = system.instance.submit(jobspec([XFS, COPY_OUT], nodes=4))
    return system, jobid


def disabled(system: VirtualSystem) -> set[str]:
    return {
        storage["metadata"]["name"]
        for storage in system.store.list(STORAGE, None)["items"]
        if storage["spec"].get("state") == "Disabled"
    }


def put_back(system: VirtualSystem) -> None:
    """What an administrator does with Rabbits after an abort."""
    for rabbit in disabled(system):
        body = {"spec": {"state": "Enabled"}}
        system.store.merge_patch(STORAGE, "default", rabbit, body)


NOTE = (
    "epilog-timeout in PostRun: compute-02: still mounted, drained; "
    f"rabbit-[01-02]: still allocated, disabled; {LOST}"
)


def test_at_epilog_timeout_nodes_rabbits_and_state_are_named() -> None:
    system, jobid = given_up(DwsFault("Teardown", "never"))
    assert system.loop.run(system.instance.idle, timeout=HOUR)
    assert severities(system, jobid) == [("dws-epilog-timeout", True), ("dws", True)]
    assert exceptions(system, jobid)[-1]["note"] == NOTE
    reason = f"{f58(jobid)}: storage still in use at epilog-timeout"
    assert drained(system) == {"compute-02": reason}
    assert disabled(system) == {"rabbit-01", "rabbit-02"}
    system.loop.run(timeout=1.0)
    assert shown(system) == {"compute-02": "Disabled"}


def test_a_node_that_is_still_mounted_stays_drained_when_its_connection_is_back() -> (
    None
):
    system, jobid = given_up(DwsFault("Teardown", "never"))
    run_until(system, jobid, "epilog-start")
    set_link(system, "compute-02", up=False)
    system.loop.run(timeout=1.0)
    assert "PCIe" in drained(system)["compute-02"]
    assert system.loop.run(system.instance.idle, timeout=HOUR)
    set_link(system, "compute-02", up=True)
    system.loop.run(timeout=HOUR)
    reason = f"{f58(jobid)}: storage still in use at epilog-timeout"
    assert drained(system) == {"compute-02": reason}


def test_a_drain_that_fails_is_sent_again_and_keeps_no_rabbit_in_service(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drain = FluxPort.drain
    refused: list[str] = []

    def refuse(port: FluxPort, hosts: str, reason: str, done: Any) -> None:
        if mended:
            drain(port, hosts, reason, done)
        else:
            refused.append(hosts)
            error = RpcError(errno.EHOSTUNREACH, "no resource module")
            port.call_later(0.01, partial(done, error))

    mended: list[bool] = []
    monkeypatch.setattr(FluxPort, "drain", refuse)
    system, _ = given_up(DwsFault("Teardown", "never"))
    assert system.loop.run(lambda: bool(refused), timeout=HOUR)
    system.loop.run(timeout=2.0)
    assert disabled(system) == {"rabbit-01", "rabbit-02"}
    assert not system.instance.idle()
    mended.append(True)
    assert system.loop.run(system.instance.idle, timeout=HOUR)
    assert set(drained(system)) == {"compute-02"}


def dark(system_of_now: list[VirtualSystem], until: float, *kinds: str) -> Any:
    """An API that refuses, until some time."""

    def fault(request: Request) -> Optional[Fault]:
        now = system_of_now[0].loop.now() if system_of_now else 0.0
        about = not kinds or request.kind.plural in kinds
        away = until > now - START > 50.0
        return Fault(error=KubeError(503, "Outage", "dark")) if about and away else None

    return fault


START = 1800000000.0


@pytest.mark.parametrize("lost", ["", "module", "plugin", "both"])
def test_an_abort_survives_an_outage_whatever_is_lost_meanwhile(lost: str) -> None:
    systems: list[VirtualSystem] = []
    system, jobid = given_up(
        DwsFault("Teardown", "never"), faults=dark(systems, 1000.0)
    )
    systems.append(system)
    assert system.loop.run(system.instance.idle, timeout=200.0)
    maybe = f"{f58(jobid)}: storage may still be in use at epilog-timeout"
    assert drained(system) == {f"compute-0{n}": maybe for n in range(1, 5)}
    if lost in ("module", "both"):
        system.kill_module()
    if lost in ("plugin", "both"):
        system.instance.unload_plugin()
    system.loop.run(timeout=5.0)
    if lost in ("plugin", "both"):
        system.load_plugin()
    if lost in ("module", "both"):
        system.load_module()
    system.loop.run(timeout=1500.0)
    assert set(drained(system)) == {"compute-02"}
    assert disabled(system) == {"rabbit-01", "rabbit-02"}
    (workflow,) = system.workflows()
    assert workflow["spec"]["desiredState"] == "Teardown"
    assert CUT_OFF in workflow["metadata"]["annotations"]


def test_an_abort_of_a_job_that_services_died_of_is_carried_out() -> None:
    """Services died of giving the job storage, and no plugin asks for its release."""
    systems: list[VirtualSystem] = []
    system, jobid = given_up(
        DwsFault("Teardown", "never"), faults=dark(systems, 1000.0)
    )
    systems.append(system)
    assert system.loop.run(system.instance.idle, timeout=200.0)
    system.kill_module()
    system.instance.unload_plugin()
    system.loop.run(timeout=5.0)
    system.load_plugin()
    system.barred.add(Work(jobid, False))
    system.load_module()
    system.loop.run(timeout=1500.0)
    assert set(drained(system)) == {"compute-02"}
    assert disabled(system) == {"rabbit-01", "rabbit-02"}
    (workflow,) = system.workflows()
    assert workflow["spec"]["desiredState"] == "Teardown"


@pytest.mark.parametrize("ends_with", ["clientmounts", "servers"])
def test_an_abort_is_not_given_up_because_an_outage_ends_in_the_midst_of_it(
    ends_with: str,
) -> None:
    """Kubernetes does not answer what is in use, and a moment later takes writes."""
    over: list[float] = []

    def fault(request: Request) -> Optional[Fault]:
        now = system.loop.now() - START if systems else 0.0
        if over or now < 50.0:
            return None
        if now > 600.0 and request.kind.plural == ends_with:
            over.append(now)
        return Fault(error=KubeError(0, "Timeout", "no answer in time"))

    systems: list[VirtualSystem] = []
    system, _ = given_up(DwsFault("Teardown", "never"), faults=fault)
    systems.append(system)
    system.loop.run(timeout=1500.0)
    assert over
    assert set(drained(system)) == {"compute-02"}
    assert disabled(system) == {"rabbit-01", "rabbit-02"}
    assert not [line for _, _, line in system.log if "given up, see to it" in line]


def test_an_abort_that_the_module_knows_nothing_of_drains_all_without_reading_r(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R may have 100 MB, and parsing it would hold the reactor up for seconds."""
    system = system_of(STUCK)
    jobid = system.instance.submit(jobspec([XFS, COPY_OUT], nodes=4))
    assert system.loop.run(state_is(system, "PostRun"), timeout=HOUR)
    system.kill_module()
    system._faults = lambda request: Fault(error=KubeError(503, "Outage", "dark"))
    system.load_module()
    system.loop.run(timeout=5.0)
    asked: list[Any] = []
    send = system.instance.broker.send

    def listen(topic: str, payload: Any, *others: Any) -> None:
        asked.extend(payload.get("keys", ()))
        send(topic, payload, *others)

    monkeypatch.setattr(system.instance.broker, "send", listen)
    owner = system.instance.broker.owner
    raising = system.instance.manager.raise_exception
    raising(jobid, "dws-epilog-timeout", 0, "enough", owner)
    assert system.loop.run(system.instance.idle, timeout=60.0)
    assert set(drained(system)) == {f"compute-0{n}" for n in range(1, 5)}
    assert "R" not in asked


@pytest.mark.parametrize("reload", [False, True])
def test_a_node_that_unmounts_long_after_an_outage_is_given_back(reload: bool) -> None:
    """Kubernetes is back, the node has not unmounted yet. It has an hour later."""
    systems: list[VirtualSystem] = []
    system = system_of(
        replace(STUCK, duration=HOUR),
        DwsFault("Teardown", "slow", duration=HOUR),
        faults=dark(systems, 200.0),
        plugin_conf={"epilog-timeout": 60.0},
    )
    jobid = system.instance.submit(jobspec(nodes=4))
    systems.append(system)
    assert system.loop.run(system.instance.idle, timeout=HOUR)
    assert len(drained(system)) == 4
    system.loop.run(timeout=600.0)
    assert set(drained(system)) == {"compute-02"}
    if reload:
        system.kill_module()
        system.load_module()
    system.loop.run(timeout=600.0)
    assert set(drained(system)) == {"compute-02"}
    system.loop.run(timeout=2 * HOUR)
    assert drained(system) == {}
    text = f"{f58(jobid)}: undraining compute-02: storage is not mounted there"
    assert lines(system, f"dws: {text} ") == [f"dws: {text} [node-back]"]


def test_a_node_that_unmounts_while_no_module_is_there_is_given_back() -> None:
    systems: list[VirtualSystem] = []
    system, _ = given_up(faults=dark(systems, 200.0))
    systems.append(system)
    assert system.loop.run(system.instance.idle, timeout=HOUR)
    system.kill_module()
    for workflow in system.workflows():
        remove_workflow(system, workflow["metadata"]["name"])
    system.loop.run(timeout=600.0)
    assert len(drained(system)) == 4
    system.load_module()
    system.loop.run(timeout=60.0)
    assert drained(system) == {}


def remove_workflow(system: VirtualSystem, name: str) -> None:
    """As an administrator does whom flux-dws does not help."""
    body = {"spec": {"desiredState": "Teardown"}, "metadata": {"finalizers": None}}
    system.store.merge_patch(WORKFLOW, "default", name, body)
    system.store.delete(WORKFLOW, "default", name)


def test_a_node_that_may_be_mounted_goes_to_no_other_job() -> None:
    """Flux needs a moment to carry out a drain, and the job's epilog ends with it."""
    system = system_of(replace(STUCK, state="Teardown"), STUCK)
    jobid = system.instance.submit(jobspec(nodes=4))
    assert system.loop.run(state_is(system, "PostRun"), timeout=HOUR)
    other = system.instance.submit(jobspec([], nodes=4))
    system.instance.cancel(jobid)
    assert system.loop.run(state_is(system, "Teardown"), timeout=HOUR)
    disable(system, "compute-02")
    settle_one(system, jobid)
    system.loop.run(timeout=60.0)
    assert set(drained(system)) == {"compute-02"}
    assert not system.instance.job(other).was_posted("alloc")


def disable(system: VirtualSystem, host: str) -> None:
    """As an administrator does, so that DWS does not wait for a node."""
    body = {"data": {"nodes": {host: "Disabled"}}}
    system.store.merge_patch(SYSTEMSTATUS, "default", "default", body)


def settle_one(system: VirtualSystem, jobid: int) -> None:
    """Let a job end, while others do not."""
    job = system.instance.job(jobid)
    assert system.loop.run(lambda: job.state is JobState.INACTIVE, timeout=HOUR)


def test_nodes_that_an_administrator_put_back_are_not_drained_again() -> None:
    system, _ = given_up(DwsFault("Teardown", "never"))
    assert system.loop.run(system.instance.idle, timeout=HOUR)
    system.loop.run(timeout=5.0)
    put_back(system)
    system.kill_module()
    system.load_module()
    system.loop.run(timeout=60.0)
    assert disabled(system) == set()


def test_a_refused_part_of_an_abort_does_not_delay_the_others() -> None:
    def fault(request: Request) -> Optional[Fault]:
        if request.verb == "patch" and request.name == "rabbit-01":
            return Fault(error=KubeError(403, "Forbidden", "may not patch it"))
        return None

    system, jobid = given_up(faults=fault)
    assert system.loop.run(system.instance.idle, timeout=200.0)
    assert set(drained(system)) == {"compute-02"}
    assert disabled(system) == {"rabbit-02"}
    system.loop.run(timeout=300.0)
    put_back(system)
    settle(system)
    lines = [line for _, _, line in system.log if "see to it by hand" in line]
    (line,) = lines
    assert "rabbit-01 still holds its storage: may not patch it" in line
    _, found, let_go = (entry["note"] for entry in exceptions(system, jobid))
    assert "rabbit-02: still allocated, disabled; rabbit-01 still holds its" in found
    assert "the dws module has not finished in time" in let_go


def test_a_person_who_raises_dws_epilog_timeout_gets_what_it_says() -> None:
    system = system_of(STUCK)
    jobid = system.instance.submit(jobspec([XFS, COPY_OUT], nodes=4))
    assert system.loop.run(state_is(system, "PostRun"), timeout=HOUR)
    system.loop.run(timeout=5.0)
    owner = system.instance.broker.owner
    raising = system.instance.manager.raise_exception
    raising(jobid, "dws-epilog-timeout", 0, "enough", owner)
    assert system.loop.run(system.instance.idle, timeout=20.0)
    assert exceptions(system, jobid)[-1]["note"] == NOTE
    assert set(drained(system)) == {"compute-02"}


def test_a_job_whose_lost_plan_does_not_fit_any_more_is_told_so() -> None:
    system = started(config=Config(presets={"scratch": [XFS]}))
    system.instance.set_up("compute-04", False)
    jobid = system.instance.submit(jobspec("scratch", nodes=4))
    system.loop.run(timeout=10.0)
    system.unload_module()
    remove_workflow(system, system.workflows()[0]["metadata"]["name"])
    system.config = Config(presets={"scratch": [XFS.replace("10GiB", "20GiB")]})
    system.load_module()
    settle_one(system, jobid)
    (told,) = exceptions(system, jobid)
    assert "needs other resources now than Flux was asked for" in told["note"]


def test_data_that_was_copied_while_no_module_was_there_is_out() -> None:
    """A module that dies when it has let the Workflow go cannot know that."""
    system = started(options=Options(latency=table({"DataOut": 600.0})))
    jobid = system.instance.submit(jobspec([XFS, COPY_OUT]))
    assert system.loop.run(in_state(system, "DataOut"), timeout=HOUR)
    system.loop.run(timeout=10.0)
    system.kill_module()
    system.loop.run(timeout=600.0)
    name = system.workflows()[0]["metadata"]["name"]
    system.store.delete(WORKFLOW, "default", name)
    system.load_module()
    settle(system)
    kvs = system.instance.job(jobid).kvs
    assert json.loads(kvs["rabbit_data_out"]) == {"success": True}
    assert not exceptions(system, jobid)
