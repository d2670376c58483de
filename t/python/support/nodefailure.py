# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""A job on four nodes and two Rabbits, of which some may have failed."""

from __future__ import annotations

from hypothesis import strategies as st

from flux_k8s.dws import mapping
from flux_k8s.dws.directivebreakdown import AllocationSet, Breakdown, Reference
from flux_k8s.dws.nodefailure import (
    Survey,
)
from flux_k8s.dws.workflowstate import State
from flux_k8s.ports import Json

JOBID = 1234
NOW = 1000.0
HOSTS = ("node1", "node2", "node3", "node4")
MAPPING = mapping.parse(
    {
        "computes": {
            "node1": "rabbit1",
            "node2": "rabbit1",
            "node3": "rabbit2",
            "node4": "rabbit2",
        },
        "rabbits": {
            "rabbit1": {"capacity": 1, "hostlist": "node[1-2]"},
            "rabbit2": {"capacity": 1, "hostlist": "node[3-4]"},
        },
    }
)
SERVERS = Reference("default", "w-0")


def computes(*hosts: str) -> Json:
    return {"metadata": {"name": "w"}, "data": [{"name": host} for host in hosts]}


def servers(ready: dict[str, bool], label: str = "xfs") -> Json:
    entries = [{"name": name, "allocationCount": 2} for name in ready]
    shown = {
        name: {"allocationSize": 9, "ready": is_ready}
        for name, is_ready in ready.items()
    }
    spec = {"label": label, "allocationSize": 9, "storage": entries}
    return {
        "metadata": {"name": "w-0"},
        "spec": {"allocationSets": [spec]},
        "status": {"allocationSets": [{"label": label, "storage": shown}]},
    }


def breakdown(strategy: str, label: str = "xfs", lifetime: str = "job") -> Breakdown:
    entry = AllocationSet(label, strategy, 9)
    return Breakdown("b", "#DW", lifetime, (entry,), SERVERS)


SUBSETS = st.sets(st.sampled_from(HOSTS))


@st.composite
def surveys(draw: st.DrawFn) -> Survey:
    present = draw(SUBSETS)
    return Survey(
        draw(st.sampled_from([State.Setup, State.PreRun])),
        draw(st.floats(0, 2 * NOW)),
        tuple(host for host in HOSTS if host in present),
        tuple(host for host in HOSTS if host in present & draw(SUBSETS)),
        draw(st.booleans()),
        draw(st.none() | st.floats(0, 2 * NOW)),
    )
