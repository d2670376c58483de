# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Jobs that tolerate failed nodes, in a whole system under virtual time (seed 001,
"Node failure tolerance" and "State timeouts")."""

from __future__ import annotations

from typing import Any, Optional, Sequence

import pytest

from flux_k8s.config.table import Config
from flux_k8s.dws.nodefailure import EXCLUSION_DATE
from flux_k8s.ports import (
    CLIENTMOUNT,
    COMPUTES,
    STORAGE,
    SYSTEMSTATUS,
    WORKFLOW,
    Json,
    Kind,
    KubeError,
)
from flux_k8s.rfc import hostlist
from flux_k8s.rfc.jobid import f58
from rabbitsim.dws.options import Fault, Options, table
from rabbitsim.flux.events import Event, JobState
from rabbitsim.flux.job import Job
from rabbitsim.kube.direct import Fault as ApiFault
from rabbitsim.kube.direct import Request
from rabbitsim.kube.store import Event as Change
from rabbitsim.system import VirtualSystem
from support.effort import SOAKING
from support.rabbits import MOUNT, STATES
from support.service import (
    COPY_OUT,
    HOUR,
    LIFE,
    XFS,
    exceptions,
    jobspec,
    names,
    run_to,
    settle,
    started,
)

TYPE = "dws-node-failure"
COPY_IN = "#DW copy_in source=/lustre/x destination=$DW_JOB_p1/"


class Watched:
    """A system, and what its Workflow and Computes went through."""

    def __init__(
        self, *faults: Fault, config: Optional[Config] = None, **options: Any
    ) -> None:
        dws = Options(latency=table(STATES), faults=faults)
        self.system: VirtualSystem = started(options=dws, config=config, **options)
        self.statuses: list[Json] = []
        self.forced: set[str] = set()
        self.computes: list[tuple[str, ...]] = []
        self.mounted: set[str] = set()
        self.system.instance.manager.listeners.append(self._event)
        version = str(self.system.store.version)
        for kind in (WORKFLOW, COMPUTES):
            self.system.store.watch(kind, None, self._see, resource_version=version)

    def _see(self, change: Change) -> None:
        found = change.object
        if found["kind"] == "Computes":
            self.computes.append(tuple(e["name"] for e in found.get("data", ())))
            return
        self.statuses.append(found.get("status", {}))
        state = found["spec"]["desiredState"]
        if found["spec"]["forceReady"] and found["status"]["state"] == state:
            self.forced.add(state)

    def _event(self, job: Job, event: Event, before: JobState) -> None:
        if event.name == "start":
            items = self.system.store.list(CLIENTMOUNT, None)["items"]
            self.mounted = {
                item["metadata"]["namespace"]
                for item in items
                if (item.get("status") or {}).get("allReady")
            }

    def submit(
        self, tolerance: int = 1, nodes: int = 4, dw: Any = XFS, **system: Any
    ) -> int:
        spec = jobspec(dw, nodes=nodes, dw_failure_tolerance=tolerance, **system)
        return self.system.instance.submit(spec)

    def run(self, tolerance: int = 1, nodes: int = 4, dw: Any = XFS) -> int:
        jobid = self.submit(tolerance, nodes, dw)
        settle(self.system)
        return jobid

    def said(self, message: str) -> bool:
        return any(status.get("message") == message for status in self.statuses)

    @property
    def drained(self) -> dict[str, str]:
        nodes = self.system.instance.scheduler.pool.nodes
        return {node.host: str(node.drained) for node in nodes if node.drained}


def check_goes_on(watched: Watched, jobid: int, *failed: Sequence[str]) -> None:
    """The job ran, without storage on the nodes that ``failed``: for each
    exception the nodes that it tells of."""
    check_told(watched, jobid, exceptions(watched.system, jobid), failed)


def check_told(
    watched: Watched,
    jobid: int,
    posted: Sequence[Json],
    failed: Sequence[Sequence[str]],
    disabled: Sequence[str] = (),
) -> None:
    """``disabled`` are nodes that DWS may have been told not to wait for."""
    happened = names(watched.system, jobid)
    assert [name for name in happened if name != "exception"] == LIFE
    assert [(e["type"], e["severity"] > 0) for e in posted] == [(TYPE, True)] * len(
        failed
    )
    for exception, hosts in zip(posted, failed):
        assert hostlist.decode(exception["note"].partition(": ")[0]) == tuple(hosts)
    out = {host for hosts in failed for host in hosts}
    assert set(watched.drained) == out
    last = {*[computes for computes in watched.computes if computes][-1]} - {*disabled}
    assert not out & last
    assert last <= watched.mounted


def check_fails(watched: Watched, jobid: int, *texts: str) -> None:
    """The job never ran, and one fatal exception says why."""
    assert "start" not in names(watched.system, jobid)
    (fatal,) = (e for e in exceptions(watched.system, jobid) if e["severity"] == 0)
    for text in texts:
        assert text in fatal["note"]


# Mounting


def test_a_job_goes_on_without_a_node_that_cannot_mount() -> None:
    watched = Watched(MOUNT)
    jobid = watched.run(tolerance=1)
    check_goes_on(watched, jobid, ["compute-04"])
    assert watched.forced == {"PreRun"}


def test_failed_nodes_are_drained_with_a_reason_that_names_the_job() -> None:
    watched = Watched(MOUNT)
    jobid = watched.run()
    (reason,) = watched.drained.values()
    assert reason == f"{f58(jobid)}: Rabbit storage could not be mounted"


def test_a_state_that_dws_gave_up_is_forced() -> None:
    watched = Watched(Fault("PreRun", "error", node="compute-04"))
    jobid = watched.run(tolerance=1)
    check_goes_on(watched, jobid, ["compute-04"])
    assert watched.said("Forced Ready")


def test_force_ready_does_not_outlive_the_state() -> None:
    watched = Watched(Fault("PreRun", "error", node="compute-04"))
    watched.run(dw=[XFS, COPY_IN, COPY_OUT])
    assert watched.forced == {"PreRun"}


@pytest.mark.parametrize("tolerance, nodes", [(1, "[34]"), (4, "*"), (5, "*")])
def test_more_failures_than_are_tolerated_are_fatal(tolerance: int, nodes: str) -> None:
    """One node at least must have its storage."""
    watched = Watched(Fault("PreRun", "mount", node=f"compute-0{nodes}"))
    jobid = watched.run(tolerance)
    hosts = "compute-[03-04]" if nodes == "[34]" else "compute-[01-04]"
    text = f"({hosts}), dw_failure_tolerance={tolerance}"
    check_fails(watched, jobid, "tc_timeout=10s: ", "failed nodes: ", text)
    assert watched.drained == {}


def test_without_a_tolerance_every_failure_is_fatal_and_names_the_node() -> None:
    watched = Watched(MOUNT)
    jobid = watched.run(tolerance=0)
    text = "failed nodes: 1 of 4 (compute-04), dw_failure_tolerance=0"
    check_fails(watched, jobid, "tc_timeout=10s: ", text)
    assert watched.drained == {}


def test_a_job_fails_in_time_although_its_mounts_may_not_be_looked_at() -> None:
    def forbid(request: Request) -> Optional[ApiFault]:
        looks = request.verb == "list" and request.kind == CLIENTMOUNT
        error = KubeError(403, "Forbidden", "no clientmounts for you")
        return ApiFault(error=error) if looks else None

    watched = Watched(MOUNT, faults=forbid)
    jobid = watched.system.instance.submit(jobspec([XFS], nodes=4))
    watched.system.loop.run(timeout=30.0)
    check_fails(watched, jobid, "tc_timeout=10s: ")


@pytest.mark.parametrize("tolerance", [0, 1])
@pytest.mark.parametrize("status", [403, 404, 500])
@pytest.mark.parametrize("kind", [CLIENTMOUNT, STORAGE, COMPUTES])
def test_no_job_waits_for_ever_for_an_answer_about_its_nodes(
    kind: Kind, status: int, tolerance: int
) -> None:
    """Neither in its prolog nor in its epilog. Storages are listed once before."""

    def fault(request: Request) -> Optional[ApiFault]:
        looks = request.kind == kind and request.verb in ("get", "list")
        return ApiFault(error=KubeError(status, "No", "no")) if looks else None

    watched = Watched(MOUNT, faults=fault)
    jobid = watched.run(tolerance=tolerance)
    check_fails(watched, jobid, "unable to mount")
    told = exceptions(watched.system, jobid)[0]["note"]
    assert ("does not say which nodes failed" in told) is (tolerance > 0)
    assert names(watched.system, jobid)[-1] == "clean"


def test_an_answer_that_failed_in_an_earlier_state_does_not_count() -> None:
    """It failed until Setup went well after all, and fails once more minutes later."""
    failed: list[Kind] = []

    def fault(request: Request) -> Optional[ApiFault]:
        (workflow,) = watched.system.workflows() or [{"spec": {"desiredState": ""}}]
        state, looks = workflow["spec"]["desiredState"], request.verb in ("get", "list")
        in_setup = state == "Setup" and request.kind == COMPUTES and looks
        once = state == "PreRun" and request.kind == CLIENTMOUNT and looks
        if not (in_setup or (once and CLIENTMOUNT not in failed)):
            return None
        failed.append(request.kind)
        return ApiFault(error=KubeError(500, "No", "no"))

    watched = Watched(
        Fault("Setup", "transient", node="rabbit-02", duration=15.0),
        Fault("DataIn", "slow", duration=150.0),
        MOUNT,
        faults=fault,
    )
    jobid = watched.run(dw=[XFS, COPY_IN])
    assert {COMPUTES, CLIENTMOUNT} == set(failed)
    check_goes_on(watched, jobid, ["compute-04"])


def disable_in_prerun(system: VirtualSystem, node: str) -> None:
    """An administrator has DWS pass over a node while it is mounting."""

    def mounts() -> bool:
        return any(w["spec"]["desiredState"] == "PreRun" for w in system.workflows())

    assert system.loop.run(mounts, timeout=HOUR)
    body = {"data": {"nodes": {node: "Disabled"}}}
    system.store.merge_patch(SYSTEMSTATUS, "default", "default", body)


@pytest.mark.parametrize("tolerance", [0, 1])
def test_no_job_starts_on_nodes_that_dws_may_have_passed_over(tolerance: int) -> None:
    """An administrator had DWS pass over a node; it is not known which have mounted."""

    def forbid(request: Request) -> Optional[ApiFault]:
        looks = request.verb == "list" and request.kind == CLIENTMOUNT
        return ApiFault(error=KubeError(403, "Forbidden", "no")) if looks else None

    watched = Watched(MOUNT, faults=forbid)
    system = watched.system
    jobid = watched.submit(tolerance)
    disable_in_prerun(system, "compute-04")
    settle(system)
    check_fails(watched, jobid, "Kubernetes does not say which nodes have mounted it")


@pytest.mark.parametrize("tolerance", [0, 1])
@pytest.mark.parametrize("status", [403, 404, 500])
def test_a_job_waits_for_an_answer_about_nodes_that_dws_may_have_passed_over(
    status: int, tolerance: int
) -> None:
    """It did not, and nothing has failed. The answer comes after a while."""
    asked: list[float] = []

    def forbid(request: Request) -> Optional[ApiFault]:
        if request.verb != "list" or request.kind != CLIENTMOUNT:
            return None
        asked.append(system.loop.now())
        over = asked[-1] > asked[0] + 5.0
        return None if over else ApiFault(error=KubeError(status, "No", "no"))

    watched = Watched(faults=forbid)
    system = watched.system
    jobid = watched.submit(tolerance)
    disable_in_prerun(system, "compute-04")
    system.loop.run(timeout=STATES["PreRun"] / 2)
    body = {"data": {"nodes": {"compute-04": "Enabled"}}}
    system.store.merge_patch(SYSTEMSTATUS, "default", "default", body)
    settle(system)
    assert len(asked) > 1 and exceptions(system, jobid) == []


def test_a_node_that_mounts_within_tc_timeout_has_not_failed() -> None:
    watched = Watched(Fault("PreRun", "mount", duration=8.0, node="compute-04"))
    jobid = watched.run()
    check_goes_on(watched, jobid)


def test_a_node_slower_than_the_one_that_failed_has_not_failed_within_tc_timeout() -> (
    None
):
    watched = Watched(
        Fault("PreRun", "error", node="compute-04"),
        Fault("PreRun", "never", duration=5.0, node="compute-03"),
    )
    check_goes_on(watched, watched.run(), ["compute-04"])


def test_after_prerun_timeout_nodes_that_say_nothing_are_left_out() -> None:
    watched = Watched(
        Fault("PreRun", "never", node="compute-04"), config=Config(prerun_timeout=60.0)
    )
    jobid = watched.run()
    check_goes_on(watched, jobid, ["compute-04"])
    (exception,) = exceptions(watched.system, jobid)
    assert "prerun_timeout=60s" in exception["note"]


def test_after_prerun_timeout_more_than_are_tolerated_cancel_the_job() -> None:
    watched = Watched(
        Fault("PreRun", "never", node="compute-0[34]"),
        config=Config(prerun_timeout=60.0),
    )
    jobid = watched.run()
    check_fails(watched, jobid, "prerun_timeout=60s; failed nodes: 2 of 4")


def test_after_prerun_timeout_the_exception_names_the_nodes_without_a_tolerance() -> (
    None
):
    watched = Watched(
        Fault("PreRun", "never", node="compute-04"), config=Config(prerun_timeout=60.0)
    )
    jobid = watched.run(tolerance=0)
    text = "prerun_timeout=60s; failed nodes: 1 of 4 (compute-04)"
    check_fails(watched, jobid, text)
    assert watched.drained == {}


def test_trouble_that_no_node_is_the_reason_of_is_fatal() -> None:
    watched = Watched(Fault("PreRun", "transient", message="it broke"))
    check_fails(watched, watched.run(tolerance=3), "tc_timeout=10s: ", "it broke")
    assert watched.drained == {}


def cut_off(watched: Watched, *hosts: str) -> None:
    for host in hosts:
        watched.system.controllers.rabbits.set_link(host, up=False)


def test_a_node_that_lost_its_rabbit_is_left_out_and_the_others_mount_then() -> None:
    """NNF mounts nowhere before all nodes see their storage: the state may not be
    forced as soon as the one that does not is out of the way."""
    watched = Watched(config=Config(prerun_timeout=60.0))
    jobid = watched.submit()
    watched.system.loop.run(lambda: bool(watched.statuses), timeout=HOUR)
    cut_off(watched, "compute-04")
    settle(watched.system)
    check_goes_on(watched, jobid, ["compute-04"])
    assert watched.forced == set()


def test_a_job_with_two_file_systems_gets_the_variables_of_both() -> None:
    """DWS comes to the second one only when the first one is mounted."""
    watched = Watched(MOUNT)
    second = "#DW jobdw type=lustre capacity=1GiB name=p2"
    jobid = watched.run(dw=[XFS, second])
    check_goes_on(watched, jobid, ["compute-04"])
    (variables,) = (
        event.context["variables"]
        for event in watched.system.instance.eventlog(jobid)
        if event.name == "dws_environment" and event.context
    )
    assert {"DW_JOB_p1", "DW_JOB_p2"} <= set(variables)


def test_a_node_that_did_not_mount_need_not_unmount() -> None:
    watched = Watched(MOUNT, Fault("PostRun", "mount", node="compute-04"))
    check_goes_on(watched, watched.run(dw=[XFS, COPY_OUT]), ["compute-04"])


def test_a_node_that_cannot_unmount_is_not_a_failure_that_is_tolerated() -> None:
    watched = Watched(
        Fault("PostRun", "mount", node="compute-04"), config=Config(postrun_timeout=60)
    )
    jobid = watched.run(tolerance=3)
    assert [n for n in names(watched.system, jobid) if n != "exception"] == LIFE
    (told,) = exceptions(watched.system, jobid)
    assert told["type"] == TYPE and told["note"].startswith("compute-04: PostRun took")
    assert set(watched.computes) == {(), tuple(f"compute-0{i}" for i in range(1, 5))}


# Creation


@pytest.mark.parametrize("kind", ["error", "transient"])
@pytest.mark.parametrize(
    "dw",
    [
        XFS,
        [XFS, COPY_IN, COPY_OUT],
        "#DW jobdw type=raw capacity=1GiB name=p1",
        "#DW jobdw type=gfs2 capacity=1GiB name=p1",
        [XFS, "#DW jobdw type=raw capacity=1GiB name=p2"],
    ],
)
def test_a_job_goes_on_without_the_nodes_of_a_rabbit_that_makes_no_storage(
    dw: Any, kind: str
) -> None:
    watched = Watched(Fault("Setup", kind, node="rabbit-02"))
    check_goes_on(watched, watched.run(2, dw=dw), ["compute-03", "compute-04"])
    assert watched.forced == {"Setup"}


def test_a_job_fails_if_a_rabbit_without_storage_has_more_nodes_than_tolerated() -> (
    None
):
    watched = Watched(Fault("Setup", "error", node="rabbit-02", message="it broke"))
    jobid = watched.run(tolerance=1)
    check_fails(watched, jobid, "it broke; failed nodes: 2 of 4 (compute-[03-04])")


def test_after_setup_timeout_the_job_is_cancelled_all_the_same() -> None:
    watched = Watched(
        Fault("Setup", "never", node="rabbit-02"), config=Config(setup_timeout=60.0)
    )
    check_fails(watched, watched.run(tolerance=2), "setup_timeout=60s")


LUSTRE = "#DW jobdw type=lustre capacity=20GiB name=p1"


def test_a_file_system_that_is_spread_over_rabbits_must_be_made_completely() -> None:
    watched = Watched(Fault("Setup", "transient", node="rabbit-02"))
    check_fails(watched, watched.run(3, dw=LUSTRE), "failed nodes: 4 of 4")


def test_a_file_system_over_several_rabbits_need_not_be_mounted_on_all_nodes() -> None:
    watched = Watched(MOUNT)
    check_goes_on(watched, watched.run(dw=LUSTRE), ["compute-04"])


def test_storage_that_outlives_the_job_must_be_made_completely() -> None:
    keep = "#DW create_persistent type=xfs capacity=1GiB name=keep"
    watched = Watched(Fault("Setup", "error", node="rabbit-02"))
    check_fails(watched, watched.run(3, dw=keep), "failed nodes: 4 of 4")


@pytest.mark.parametrize("tolerance, goes_on", [(2, False), (3, True)])
def test_failures_add_up_over_the_life_of_a_job(tolerance: int, goes_on: bool) -> None:
    watched = Watched(
        Fault("Setup", "error", node="rabbit-02"),
        Fault("PreRun", "mount", node="compute-02"),
    )
    jobid = watched.run(tolerance)
    if goes_on:
        check_goes_on(watched, jobid, ["compute-03", "compute-04"], ["compute-02"])
    else:
        check_fails(watched, jobid, "failed nodes: 3 of 4 (compute-[02-04])")


# Rabbits that are down when nodes have been allocated


def allocated_to_a_rabbit_that_is_down(watched: Watched, tolerance: int) -> int:
    """A job that got its nodes a moment before the module learns it."""
    jobid = watched.submit(tolerance)
    posted = lambda: "prolog-start" in names(watched.system, jobid)  # noqa: E731
    assert watched.system.loop.run(posted, timeout=HOUR)
    watched.system.kill_module()
    watched.system.controllers.rabbits.set_status("rabbit-02", "Offline")
    watched.system.loop.run(timeout=1.0)
    watched.system.load_module()
    settle(watched.system)
    return jobid


def test_a_rabbit_that_is_known_to_be_down_counts_in_setup() -> None:
    watched = Watched()
    jobid = allocated_to_a_rabbit_that_is_down(watched, tolerance=2)
    check_goes_on(watched, jobid, ["compute-03", "compute-04"])
    (told,) = exceptions(watched.system, jobid)
    assert "Rabbit rabbit-02 is Offline; the job goes on" in told["note"]


@pytest.mark.parametrize(
    ("tolerance", "text"),
    [
        (0, "is not fit for use (Offline)"),
        (
            1,
            "Rabbit rabbit-02 is Offline; failed nodes: 2 of 4 (compute-[03-04]), "
            "dw_failure_tolerance=1",
        ),
    ],
)
def test_the_exception_about_a_rabbit_that_is_down_names_its_status(
    tolerance: int, text: str
) -> None:
    watched = Watched()
    jobid = allocated_to_a_rabbit_that_is_down(watched, tolerance)
    check_fails(watched, jobid, text)
    assert watched.drained == {}


# Restarts, and trouble meanwhile


def to_exclusion(watched: Watched) -> None:
    """Up to a moment in PreRun shortly before nodes are left out."""
    computes = len([c for c in watched.computes if c])

    def troubled() -> bool:
        return any(s.get("status") == "TransientCondition" for s in watched.statuses)

    assert computes == 0
    assert watched.system.loop.run(troubled, timeout=HOUR)
    watched.system.loop.run(timeout=9.9)
    assert watched.drained == {}


@pytest.mark.parametrize("steps", range(0, 60, 1 if SOAKING else 5))
def test_no_failure_is_forgotten_when_the_module_is_replaced(steps: int) -> None:
    """One that was told, but not written yet, is told again."""
    watched = Watched(MOUNT)
    jobid = watched.submit()
    to_exclusion(watched)
    run_to(watched.system, steps)
    watched.system.unload_module()
    watched.system.load_module()
    settle(watched.system)
    told = exceptions(watched.system, jobid)
    check_told(watched, jobid, told[-1:], [["compute-04"]], disabled=["compute-04"])
    assert all(exception == told[0] for exception in told)


@pytest.mark.parametrize("steps", range(0, 60, 3))
def test_one_cancel_is_enough_while_nodes_are_left_out(steps: int) -> None:
    watched = Watched(MOUNT)
    jobid = watched.submit()
    to_exclusion(watched)
    run_to(watched.system, steps)
    watched.system.instance.cancel(jobid)
    settle(watched.system)


@pytest.mark.parametrize("kind", ["clientmounts", "computes", "workflows"])
def test_a_failed_node_is_one_exception_while_kubernetes_is_in_trouble(
    kind: str,
) -> None:
    end = 0.0

    def fault(request: Request) -> Optional[ApiFault]:
        dark = request.kind.plural == kind and watched.system.loop.now() < end
        return ApiFault(error=KubeError(503, "Outage", "dark")) if dark else None

    watched = Watched(MOUNT, faults=fault)
    jobid = watched.submit()
    to_exclusion(watched)
    end = watched.system.loop.now() + 120.0
    settle(watched.system)
    check_goes_on(watched, jobid, ["compute-04"])


def test_the_time_at_which_nodes_were_excluded_survives_a_restart() -> None:
    watched = Watched(MOUNT)
    watched.submit()
    to_exclusion(watched)
    watched.system.loop.run(lambda: bool(watched.drained), timeout=HOUR)
    watched.system.loop.run(timeout=0.5)
    (found,) = watched.system.store.list(COMPUTES, None)["items"]
    assert EXCLUSION_DATE in found["metadata"]["annotations"]
