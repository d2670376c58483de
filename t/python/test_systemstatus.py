# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Which nodes DWS is not to wait for. (How it is told: test_rabbits_system.py.)"""

from __future__ import annotations

from typing import Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.config.table import Config
from flux_k8s.dws.systemstatusview import (
    SystemStatusView,
    changes,
    disabled_nodes,
    patch,
)
from flux_k8s.ports import SYSTEMSTATUS, KubeError
from flux_k8s.rfc.resourcestatus import NodeStates
from rabbitsim.dws.options import Fault as DwsFault
from rabbitsim.dws.options import Options, table
from rabbitsim.kube.direct import Fault, Request
from rabbitsim.system import VirtualSystem
from support.rabbits import drained, marked, run_job, shown, system_of, wait
from support.service import HOUR, XFS, exceptions, jobspec, names, settle, started

HOSTS = ("a", "b", "c")
FAILED = "fABC: Rabbit storage could not be mounted"

states = st.builds(
    NodeStates,
    st.just(HOSTS),
    st.frozensets(st.sampled_from(HOSTS)),
    st.dictionaries(st.sampled_from(HOSTS), st.sampled_from([FAILED, "fan", ""])),
    st.just({}),
)
status = st.sampled_from(["Enabled", "Disabled"])


shown_before = st.dictionaries(st.sampled_from([*HOSTS, "rabbit"]), status)


@given(
    states,
    shown_before,
    st.frozensets(st.sampled_from(HOSTS)),
    st.frozensets(st.sampled_from(HOSTS)),
)
def test_changes_to_the_systemstatus_touch_only_the_nodes_that_differ(
    nodes: NodeStates,
    before: dict[str, str],
    ours: frozenset[str],
    awaited: frozenset[str],
) -> None:
    view = SystemStatusView("7", before, ours)
    written = changes(nodes, view, awaited)
    body = patch(view, written)
    assert body["metadata"]["resourceVersion"] == "7"
    after = SystemStatusView.parse(
        {"metadata": body["metadata"], "data": {"nodes": {**before, **written}}}
    )
    disabled = disabled_nodes(nodes) - awaited
    assert after.disabled_by_others == view.disabled_by_others
    for host in HOSTS:
        wanted = host in disabled or host in view.disabled_by_others
        assert (after.nodes.get(host) == "Disabled") == wanted
    assert after.nodes.get("rabbit") == before.get("rabbit")
    assert changes(nodes, after, awaited) == {}
    assert all(before.get(host, "Enabled") != value for host, value in written.items())


@pytest.mark.parametrize(
    ("reason", "disabled"),
    [
        (FAILED, True),
        ("fABC: storage still in use at epilog-timeout", True),
        ("fABC: Rabbit storage of this node could not be made", False),
        ("dws: PCIe connection to Rabbit r is Offline", False),
        ("broken fan", False),
    ],
)
def test_a_drained_node_is_disabled_for_its_mounts_only(
    reason: str, disabled: bool
) -> None:
    nodes = NodeStates(("a",), frozenset(), {"a": reason}, {})
    assert disabled_nodes(nodes) == ({"a"} if disabled else set())


def test_a_refused_systemstatus_is_logged_once_and_stops_nothing_else() -> None:
    def refuse(request: Request) -> Optional[Fault]:
        if request.kind == SYSTEMSTATUS and request.verb == "patch":
            return Fault(error=KubeError(403, "Forbidden", "may not patch"))
        return None

    system = system_of(faults=refuse)
    system.instance.set_up("compute-02", False)
    wait(system, 600.0)
    assert shown(system) == {}
    lines = [line for _, _, line in system.log if "SystemStatus" in line]
    assert len(lines) == 1 and "may not patch" in lines[0]


@pytest.mark.parametrize(
    "error, most",
    [
        (KubeError(403, "Forbidden", "may not patch"), 16),
        (KubeError(429, "TooManyRequests", "wait", retry_after=120.0), 6),
    ],
)
def test_nodes_that_come_and_go_do_not_flood_a_cluster_that_takes_no_writes(
    error: KubeError, most: int
) -> None:
    requests: list[Request] = []

    def refuse(request: Request) -> Optional[Fault]:
        if request.kind == SYSTEMSTATUS and request.verb == "patch":
            requests.append(request)
            return Fault(error=error)
        return None

    system = system_of(faults=refuse)
    for second in range(600):
        system.instance.set_up("compute-02", second % 2 == 1)
        wait(system, 1.0)
    assert 3 < len(requests) <= most
    assert len([line for _, _, line in system.log if str(error) in line]) == 1


# Changes of other programs


def write(system: VirtualSystem, host: str, status: str) -> None:
    """What an administrator does with kubectl."""
    body = {"data": {"nodes": {host: status}}}
    system.store.merge_patch(SYSTEMSTATUS, "default", "default", body)


def test_a_node_that_another_program_disabled_stays_disabled_and_is_avoided() -> None:
    system = system_of()
    write(system, "compute-01", "Disabled")
    wait(system)
    assert shown(system) == {"compute-01": "Disabled"}
    assert marked(system) == "compute-01"
    assert run_job(system) == "compute-02"
    assert any("compute-01 is disabled by somebody else" in x for *_, x in system.log)
    write(system, "compute-01", "Enabled")
    wait(system)
    assert marked(system) == ""
    assert any("compute-01 is not disabled any more" in x for *_, x in system.log)
    assert drained(system) == {}


def test_without_fluxion_a_node_that_another_program_disabled_is_avoided_as_well() -> (
    None
):
    system = system_of(scheduler=False)
    write(system, "compute-01", "Disabled")
    wait(system)
    assert run_job(system) != "compute-01"


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("first", ["we", "they"])
def test_flux_enables_only_the_nodes_that_flux_disabled(
    first: str, restart: bool
) -> None:
    """A node goes offline and comes back. Another program disabled it before that, or
    none did."""
    system = system_of()
    if first == "they":
        write(system, "compute-02", "Disabled")
        wait(system)
    system.instance.set_up("compute-02", False)
    wait(system)
    assert shown(system) == {"compute-02": "Disabled"}
    if restart:
        system.kill_module()
        system.load_module()
        wait(system)
    system.instance.set_up("compute-02", True)
    wait(system)
    assert shown(system) == ({} if first == "we" else {"compute-02": "Disabled"})


def test_a_node_that_another_program_disables_during_a_write_is_not_annotated() -> None:
    """They are a moment faster than our patch."""
    done: list[Request] = []
    systems: list[VirtualSystem] = []

    def meddle(request: Request) -> Optional[Fault]:
        if request.kind == SYSTEMSTATUS and request.verb == "patch" and not done:
            done.append(request)
            write(systems[0], "compute-02", "Disabled")
        return None

    systems.append(system_of(faults=meddle))
    system = systems[0]
    system.instance.set_up("compute-02", False)
    wait(system)
    assert done
    system.instance.set_up("compute-02", True)
    wait(system)
    assert shown(system) == {"compute-02": "Disabled"}


@pytest.mark.parametrize("tolerance", [0, 1])
def test_a_job_does_not_start_without_storage_on_a_node_that_is_disabled_meanwhile(
    tolerance: int,
) -> None:
    system = system_of()
    spec = jobspec(XFS, nodes=2, dw_failure_tolerance=tolerance)
    jobid = system.instance.submit(spec)
    events = system.instance.eventlog
    assert system.loop.run(
        lambda: any(e.name == "prolog-start" for e in events(jobid)), timeout=HOUR
    )
    write(system, "compute-02", "Disabled")
    settle(system)
    told = exceptions(system, jobid)
    assert len(told) == 1 and "compute-02" in told[0]["note"]
    assert "Disabled in SystemStatus" in told[0]["note"]
    assert any(e.name == "start" for e in events(jobid)) == bool(tolerance)
    assert shown(system)["compute-02"] == "Disabled"


def test_a_late_answer_does_not_hide_a_newer_systemstatus() -> None:
    system = system_of()
    assert system.service is not None
    old = system.store.get(SYSTEMSTATUS, "default", "default")
    write(system, "compute-01", "Disabled")
    wait(system)
    system.service._machine.system_status.event("MODIFIED", old)
    wait(system)
    assert marked(system) == "compute-01"
    system.instance.set_up("compute-02", False)
    wait(system)
    assert shown(system) == {"compute-01": "Disabled", "compute-02": "Disabled"}


# A node that does not do its part, and is Disabled so that DWS goes on without it


def goes_on(state: str) -> tuple[VirtualSystem, int]:
    """A job of two nodes, one of which holds up a state."""
    fault = DwsFault(state, "mount", node="compute-02")
    system: VirtualSystem = started(
        config=Config(tc_timeout=HOUR), options=Options(faults=(fault,))
    )
    jobid = system.instance.submit(jobspec(XFS, nodes=2))
    assert system.loop.run(lambda: in_state(system, state), timeout=HOUR)
    wait(system)
    return system, jobid


def in_state(system: VirtualSystem, state: str, ready: bool = False) -> bool:
    statuses = (w.get("status") or {} for w in system.workflows())
    return any((s.get("state"), s.get("ready")) == (state, ready) for s in statuses)


def disable_unnoticed(system: VirtualSystem, state: str, how: str) -> None:
    """DWS goes on. The watch tells of that first, or the node is Enabled again
    before anything is done about it."""
    kube = system.service_kube
    assert kube is not None
    if how == "unseen":
        for watch in tuple(kube._watches.values()):
            if watch.kind == SYSTEMSTATUS:
                watch.silence()
    if how == "restart":
        system.kill_module()
    write(system, "compute-02", "Disabled")
    assert system.loop.run(lambda: in_state(system, state, True), timeout=HOUR)
    if how == "unseen":
        return
    write(system, "compute-02", "Enabled")
    if how == "restart":
        system.load_module()
    if how == "list":
        kube.drop_watches(KubeError(410, "Expired", "too old resource version"))


HOW = ["unseen", "enabled again", "list", "restart"]


@pytest.mark.parametrize("how", HOW)
def test_a_job_does_not_start_where_dws_has_not_waited_for_a_mount(how: str) -> None:
    system, jobid = goes_on("PreRun")
    disable_unnoticed(system, "PreRun", how)
    settle(system)
    (told,) = exceptions(system, jobid)
    assert "compute-02" in told["note"] and "Disabled in SystemStatus" in told["note"]
    assert "start" not in names(system, jobid)


@pytest.mark.parametrize("how", HOW)
def test_a_node_is_drained_where_dws_has_not_waited_for_an_unmount(how: str) -> None:
    system, jobid = goes_on("PostRun")
    disable_unnoticed(system, "PostRun", how)
    assert system.loop.run(
        lambda: "epilog-finish" in names(system, jobid), timeout=HOUR
    )
    assert "compute-02" in drained(system)


@pytest.mark.parametrize("how", ["never", "restart"])
def test_mounts_are_not_read_unless_a_node_may_have_been_disabled(how: str) -> None:
    listed: list[Request] = []

    def note(request: Request) -> Optional[Fault]:
        if request.verb == "list" and request.kind.plural == "clientmounts":
            listed.append(request)
        return None

    system: VirtualSystem = started(
        faults=note, options=Options(latency=table({"PreRun": 5.0}))
    )
    wait(system)
    write(system, "compute-02", "Disabled")
    write(system, "compute-02", "Enabled")
    wait(system)
    jobid = system.instance.submit(jobspec(XFS, nodes=2))
    if how == "restart":
        assert system.loop.run(lambda: in_state(system, "PreRun"), timeout=HOUR)
        system.loop.run(timeout=1.0)
        system.kill_module()
        system.load_module()
    settle(system)
    assert exceptions(system, jobid) == []
    assert bool(listed) == (how == "restart")


@pytest.mark.parametrize("status, reason", [(404, "NotFound"), (403, "Forbidden")])
def test_a_systemstatus_that_is_refused_once_is_neither_gone_nor_unknown_for_good(
    status: int, reason: str
) -> None:
    requests: list[Request] = []

    def fault(request: Request) -> Optional[Fault]:
        requests.append(request)
        asked = request.verb == "get" and request.kind == SYSTEMSTATUS
        return Fault(error=KubeError(status, reason, "no")) if asked and bad else None

    bad = True
    system: VirtualSystem = started(faults=fault)
    write(system, "compute-01", "Disabled")
    wait(system)
    for bad in (True, False):
        requests.clear()
        jobid = system.instance.submit(jobspec(XFS, nodes=1))
        settle(system)
        assert exceptions(system, jobid) == []
        listed = [r for r in requests if r.kind.plural == "clientmounts"]
        assert bool(listed) == bad
    assert not [line for _, _, line in system.log if "not disabled any more" in line]
