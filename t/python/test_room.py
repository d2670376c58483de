# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What Rabbits have left, where no scheduler gives out shares of it."""

from __future__ import annotations

import syslog

from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.formats.directives import GIB
from flux_k8s.machine.ledger import Ledger
from flux_k8s.objects import storageusage, topology
from flux_k8s.ports import (
    SERVERS,
    STORAGE,
    SYSTEMCONFIGURATION,
    Json,
)
from flux_k8s.reasons import Reason
from rabbitsim.system import VirtualSystem
from support.effort import examples
from support.mapping import context_of
from support.queries import query
from support.rabbits import (
    small,
    wait,
)
from support.service import (
    HOUR,
    long,
)
from support.watched import watched

# All who count agree


def on_rabbits(system: VirtualSystem, key: str) -> dict[str, int]:
    """What ``flux dws rabbits`` says of each."""
    rows = query(system, "rabbit-list")["rabbits"]
    return {row["name"]: row[key] for row in rows}


kinds = st.sampled_from(["jobdw type=xfs", "jobdw type=lustre", "create_persistent"])
mixes = st.lists(
    st.tuples(kinds, st.integers(1, 3), st.integers(1, 9), st.booleans()), max_size=5
)


@examples(6)
@given(mixes, st.booleans())
def test_the_counted_room_is_that_of_dws(
    jobs: list[tuple[str, int, int, bool]], scheduler: bool
) -> None:
    """As soon as all is quiet, whatever was made and removed before."""
    system = small(scheduler=scheduler)
    for index, (kind, nodes, size, runs_on) in enumerate(jobs):
        type = kind if "type" in kind else f"{kind} type=raw"
        dw = f"#DW {type} capacity={size}GiB name=keep{index}"
        system.instance.submit(long(dw, nodes, int(10 * HOUR) if runs_on else 30))
        wait(system, 7.0)
    wait(system, HOUR)
    storages = system.store.list(STORAGE, None)["items"]
    shown = {s["metadata"]["name"]: s["status"]["capacity"] for s in storages}
    assert on_rabbits(system, "free") == shown
    configuration = system.store.get(SYSTEMCONFIGURATION, "default", "default")
    servers = system.store.list(SERVERS, None)["items"]
    found = topology.parse(configuration, storages, servers)
    assert found.to_json() == system.mapping.to_json()


# Storage that a scheduler does not know of


def test_storage_whose_colocation_keys_cannot_be_read_is_counted() -> None:
    entry = {"capacity": 60 * GIB, "hostlist": "n1"}
    system: Json = {"computes": {"n1": "r1"}, "rabbits": {"r1": entry}}
    log: list[tuple[int, str, Reason]] = []
    room = Ledger(context_of(system, lambda *line: log.append(line)), print, bool)
    metadata = {
        "namespace": "default",
        "name": "x",
        "annotations": {storageusage.COLOCATION_ANNOTATION: "mgt"},
    }
    made = {"r1": {"allocationSize": GIB}}
    status = {"ready": True, "allocationSets": [{"storage": made}]}
    room.event("ADDED", watched({"metadata": metadata, "status": status}))
    assert room.left([]) == {"r1": 59 * GIB}
    ((level, text, reason),) = log
    assert (level, reason) == (syslog.LOG_ERR, Reason.BAD_OBJECT)
    assert text.startswith("Servers default/x: metadata.annotations[") and "mgt" in text


def test_storage_of_the_system_is_taken_off_a_rabbit_once() -> None:
    """The mapping has it left out of the capacity that Fluxion gives out."""
    entry = {"capacity": 60 * GIB, "system": 40 * GIB, "hostlist": "n1"}
    system: Json = {"computes": {"n1": "r1"}, "rabbits": {"r1": entry}}
    room = Ledger(context_of(system), print, bool)

    def see(type: str, name: str, size: int) -> None:
        made = {"r1": {"allocationSize": size * GIB}}
        status = {"ready": True, "allocationSets": [{"storage": made}]}
        metadata = {"namespace": "default", "name": name}
        room.event(type, watched({"metadata": metadata, "status": status}))

    see("ADDED", "system", 40)
    assert (room.withheld, room.capacity("r1")) == ({}, 60 * GIB)
    assert room.left([]) == {"r1": 60 * GIB}
    see("ADDED", "persistent", 5)
    assert room.withheld == {"r1": 5 * GIB}
    see("MODIFIED", "system", 50)  # the mapping is out of date
    assert room.withheld == {"r1": 15 * GIB}
    assert room.left([]) == {"r1": 45 * GIB}
    see("DELETED", "system", 50)
    assert (room.withheld, room.left([])) == ({}, {"r1": 95 * GIB})
