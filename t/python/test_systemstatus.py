# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Which nodes DWS is not to wait for, and how that is told."""

from __future__ import annotations

from typing import Callable, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.formats.resourcestatus import NodeStates
from flux_k8s.machine.wanted import disabled_nodes
from flux_k8s.objects.systemstatus import (
    SystemStatusView,
    changes,
    patch,
)
from flux_k8s.ports import SYSTEMSTATUS, KubeError, Request
from rabbitsim.kube.direct import Fault
from rabbitsim.system import VirtualSystem
from support.rabbits import disable, run_job, shown, system_of, wait
from support.service import XFS, exceptions, jobspec, lines, settle, started

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
    disabled = disabled_nodes(nodes) - awaited
    written = changes(nodes.hosts, view, disabled)
    body = patch(view, written)
    assert body["metadata"]["resourceVersion"] == "7"
    after = SystemStatusView.parse(
        {"metadata": body["metadata"], "data": {"nodes": {**before, **written}}}
    )
    assert after.disabled_by_others == view.disabled_by_others
    for host in HOSTS:
        wanted = host in disabled or host in view.disabled_by_others
        assert (after.nodes.get(host) == "Disabled") == wanted
    assert after.nodes.get("rabbit") == before.get("rabbit")
    assert changes(nodes.hosts, after, disabled) == {}
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


def test_a_node_that_storage_is_kept_for_is_not_disabled_before_it_cannot_write() -> (
    None
):
    """One that Flux has disabled stays so, as long as it is drained or offline."""
    mounted = "fABC: Rabbit storage could not be unmounted"
    drained = {"a": mounted, "c": "fan"}
    nodes = NodeStates(HOSTS, frozenset({"b"}), drained, {})
    keeps: Callable[[str], bool] = {"a"}.__contains__
    assert disabled_nodes(nodes) == {"a", "b"}
    assert disabled_nodes(nodes, may_write=keeps) == {"b"}
    assert disabled_nodes(nodes, {"a"}, may_write=keeps) == {"a", "b"}
    assert disabled_nodes(nodes, {"c"}, may_write=keeps) == {"b", "c"}
    assert disabled_nodes(nodes, fenced={"c"}) == {"a", "b", "c"}


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


# Changes of other programs (what follows for nodes: test_storage.py; for jobs:
# stories/broken.py)


def test_without_fluxion_a_node_that_another_program_disabled_is_avoided_as_well() -> (
    None
):
    system = system_of(scheduler=False)
    disable(system, "compute-01")
    wait(system)
    assert run_job(system) != "compute-01"
    disable(system, "compute-01", "Enabled")
    wait(system)
    assert lines(system, "compute-01 is disabled by somebody else")
    assert lines(system, "compute-01 is not disabled any more")


def test_a_node_that_another_program_disables_during_a_write_is_not_annotated() -> None:
    """They are a moment faster than our patch."""
    done: list[Request] = []

    def meddle(request: Request) -> Optional[Fault]:
        if request.kind == SYSTEMSTATUS and request.verb == "patch" and not done:
            done.append(request)
            disable(system, "compute-02")
        return None

    system = system_of(faults=meddle)
    system.instance.set_up("compute-02", False)
    wait(system)
    assert done
    system.instance.set_up("compute-02", True)
    wait(system)
    assert shown(system) == {"compute-02": "Disabled"}


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
    disable(system, "compute-01")
    wait(system)
    for bad in (True, False):
        requests.clear()
        jobid = system.instance.submit(jobspec(XFS, nodes=1))
        settle(system)
        assert exceptions(system, jobid) == []
        listed = [r for r in requests if r.kind.plural == "clientmounts"]
        assert bool(listed) == bad
    assert not [line for _, _, line in system.log if "not disabled any more" in line]
