# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Which nodes DWS is not to wait for. (How it is told: test_rabbits_system.py.)"""

from __future__ import annotations

from typing import Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_rabbits_system import shown, system_of, wait

from flux_k8s.nodes import NodeStates
from flux_k8s.ports import SYSTEMSTATUS, KubeError
from flux_k8s.systemstatus import changes, disabled_nodes
from rabbitsim.kube.direct import Fault, Request

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


@given(
    states,
    st.dictionaries(st.sampled_from([*HOSTS, "rabbit"]), status),
    st.frozensets(st.sampled_from(HOSTS)),
)
def test_what_is_told_makes_it_true_and_touches_nothing_else(
    nodes: NodeStates, before: dict[str, str], awaited: frozenset[str]
) -> None:
    told = changes(nodes, before, awaited)
    after = {**before, **told}
    disabled = disabled_nodes(nodes) - awaited
    for host in HOSTS:
        assert (after.get(host) == "Disabled") == (host in disabled)
    assert after.get("rabbit") == before.get("rabbit")
    assert changes(nodes, after, awaited) == {}
    assert all(before.get(host, "Enabled") != value for host, value in told.items())


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


def test_a_refusal_is_told_once_and_keeps_nothing_else_from_working() -> None:
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
