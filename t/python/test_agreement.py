# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The rabbit mapping, the scheduler's graph and the cluster do not agree."""

from __future__ import annotations

from typing import Any, Optional

import pytest

from flux_k8s.config.table import Config
from flux_k8s.formats.directives import GIB
from flux_k8s.machine.storages import parse_storage
from flux_k8s.objects import mapping as rabbitmapping
from flux_k8s.objects.mapping import RabbitMapping
from flux_k8s.ports import STORAGE, Json
from flux_k8s.rules.agreement import (
    Files,
    GraphRabbit,
    Kind,
    Sizes,
    compare,
    lines,
)
from rabbitsim.dws.topology import Topology
from rabbitsim.system import VirtualSystem
from support.queries import query
from support.rabbits import PERSISTENT, hosts, small, ssds_free, submit, wait
from support.service import (
    LIFE,
    XFS,
    exceptions,
    jobspec,
    memos,
    names,
    settle,
)
from support.service import (
    lines as lines_with,
)

COPY_IN = "#DW copy_in source=/lustre/in destination=$DW_JOB_p1/"

FILES = Files("map.json", "graph.json")


def mapping(capacity: int = 64 * GIB, **hosts_of: str) -> RabbitMapping:
    """A mapping of Rabbits with these nodes."""
    known = {name: tuple(text.split()) for name, text in hosts_of.items()}
    return rabbitmapping.assemble(known, dict.fromkeys(known, capacity))


def vertex(nodes: Optional[str] = None, ssds: int = 8, size: int = 8) -> GraphRabbit:
    return GraphRabbit(ssds, size, None if nodes is None else frozenset(nodes.split()))


def sizes(free: int = 64, drives: Optional[int] = 64) -> Sizes:
    return Sizes(free * GIB, None if drives is None else drives * GIB)


@pytest.mark.parametrize(
    ("graph", "cluster"),
    [
        ({"r1": vertex("n1 n2"), "r2": vertex("n3")}, {"r1": sizes(), "r2": sizes(10)}),
        # The graph leaves nodes out, or has no Rabbits.
        *(({"r1": vertex(nodes), "r2": vertex()}, None) for nodes in ("n1", "", None)),
        ({}, None),
        # NNF tells what was free at some time, and not how much there is.
        *(({}, {"r1": sizes(free), "r2": sizes(64, None)}) for free in (0, 1, 63, 64)),
    ],
)
def test_nothing_is_found_where_all_agree(graph: Any, cluster: Any) -> None:
    known = mapping(r1="n1 n2", r2="n3")
    assert compare(known, graph, cluster or {"r1": sizes(), "r2": sizes()}) == ()


# A graph, a cluster beside that of a mapping of r1 with n1, and what is found.

BOTH = {"r1": sizes(), "r2": sizes()}
FOUND: dict[Kind, tuple[Any, Any, str]] = {
    Kind.UNMAPPED: (
        *({"r1": vertex("n1"), "r2": vertex("n2")}, BOTH),
        "map.json lacks r2, which graph.json has: no job gets storage there until both"
        " agree (flux rabbitmapping, flux dws2jgf)",
    ),
    Kind.UNUSED: (
        *({"r1": vertex("n1")}, BOTH),
        "rabbit.mapping lacks r2: no job gets storage there; flux rabbitmapping writes"
        " a new one",
    ),
    Kind.NOT_IN_GRAPH: (
        *({"r3": vertex("n3")}, {"r1": sizes()}),
        "graph.json lacks r1, which map.json has: no job gets storage there; flux"
        " dws2jgf writes a new one",
    ),
    Kind.NOT_IN_CLUSTER: (
        *({"r1": vertex("n1")}, {}),
        "the cluster lacks r1, which map.json has",
    ),
    Kind.OTHER_NODES: (
        *({"r1": vertex("n1 n2 n3")}, {"r1": sizes()}),
        "graph.json has n[2-3] below r1, and map.json does not: no job gets storage"
        " there until both agree (flux rabbitmapping, flux dws2jgf)",
    ),
    Kind.OTHER_SSDS: (
        *({"r1": vertex("n1", size=16)}, {"r1": sizes()}),
        "graph.json has 8 ssd of 16 GiB on r1, by map.json they have 8 GiB: jobs get"
        " too much or too little there; flux dws2jgf writes a new one",
    ),
    Kind.TOO_LARGE: (
        *({"r1": vertex("n1")}, {"r1": sizes(30, 32)}),
        "map.json has 64 GiB on r1, whose drives have 32 GiB: jobs get nodes, and then"
        " not their storage; flux rabbitmapping writes a new one",
    ),
    Kind.TOO_SMALL: (
        *({"r1": vertex("n1")}, {"r1": sizes(100, 128)}),
        "map.json has 64 GiB on r1, where 100 GiB are free: jobs that would fit are"
        " refused; flux rabbitmapping writes a new one",
    ),
}


@pytest.mark.parametrize("kind", Kind)
def test_each_disagreement_is_a_sentence_that_names_the_files(kind: Kind) -> None:
    graph, cluster, text = FOUND[kind]
    disagreements = compare(mapping(r1="n1"), graph, cluster, FILES)
    (found,) = [each for each in disagreements if each.kind is kind]
    assert found.sentence == text and found.rabbit in text


def test_rabbits_with_the_same_sentence_share_a_line() -> None:
    known = mapping(r1="n1", r2="n2", r3="n3")
    cluster = dict.fromkeys(["r1", "r2", "r3"], sizes())
    (line,) = lines(compare(known, {"r1": vertex()}, cluster, FILES))
    assert line.startswith("graph.json lacks r[2-3], which map.json has: ")


DRIVES = [{"capacity": 7}, {"capacity": 8}]


@pytest.mark.parametrize(
    ("capacity", "devices", "found"),
    [
        ("much", [{"capacity": []}], Sizes()),
        (5, None, Sizes(5)),
        (5, DRIVES, Sizes(5, 15)),
        (5, [*DRIVES, {"capacity": 0}], Sizes(5)),  # a drive is away
    ],
)
def test_a_storage_has_its_sizes_as_far_as_they_are_known(
    capacity: Any, devices: Any, found: Sizes
) -> None:
    status = {"status": "Ready", "capacity": capacity, "devices": devices}
    state = parse_storage({"status": status})
    assert state.serving and state.sizes == found


# A whole system

SMALL = Topology.regular(4, 2, capacity=32 * GIB)


def system_with(known: RabbitMapping, **options: Any) -> VirtualSystem:
    """A system with another mapping than that of its graph."""
    config = Config(mapping="/etc/flux/mapping.json")
    system = VirtualSystem(topology=SMALL, config=config, **options)
    system.mapping = known
    system.start()
    wait(system)
    return system


def without_second(**options: Any) -> VirtualSystem:
    """A mapping from which somebody has taken rabbit-02."""
    known = mapping(32 * GIB, **{"rabbit-01": "compute-01 compute-02"})
    return system_with(known, **options)


def ran(system: VirtualSystem, *jobids: int) -> bool:
    """Whether jobs, in the end, have run as all do."""
    settle(system)
    return all(
        exceptions(system, jobid) == [] and names(system, jobid) == LIFE
        for jobid in jobids
    )


def rows(system: VirtualSystem) -> dict[str, Json]:
    return {row["name"]: row for row in query(system, "rabbit-list", {})["rabbits"]}


def test_a_job_that_wants_no_ssd_runs_on_nodes_below_such_a_rabbit() -> None:
    """Lustre that is there already is reached from any node."""
    system = without_second()
    create = "#DW create_persistent type=lustre capacity=1GiB name=keep"
    system.instance.submit(jobspec(create, 1))
    settle(system)
    first = submit(system, nodes=2)
    second = system.instance.submit(jobspec("#DW persistentdw name=keep", 1))
    assert ran(system, first, second)
    assert hosts(system, first) == "compute-[01-02]"
    assert hosts(system, second) in ("compute-03", "compute-04")


def test_a_job_says_which_rabbits_it_waits_for_a_mapping_of() -> None:
    """How it goes on: stories/broken.py."""
    others = mapping(**{"rabbit-01": "other-01", "rabbit-02": "other-02"})
    system = system_with(others)
    jobid = submit(system)
    wait(system)
    why = "the rabbit mapping is wrong about rabbit-[01-02]"
    assert why in str(memos(system, jobid))


FIRST = {"rabbit-01": "compute-01 compute-02"}
THREE = {"rabbit-01": "compute-01 compute-02", "rabbit-02": "compute-03 compute-04"}
MOVED = {"rabbit-01": "compute-01 compute-02 compute-03", "rabbit-02": "compute-04"}


@pytest.mark.parametrize(
    ("hosts_of", "rabbit", "text", "reason", "free"),
    [
        (FIRST, "rabbit-02", "mapping.json lacks rabbit-02, which", "", [32, 0]),
        (MOVED, "rabbit-02", "has compute-03 below rabbit-02, and /etc/", "", [32, 0]),
        (
            *({**THREE, "rabbit-03": "compute-05"}, "rabbit-03"),
            *("the graph of Fluxion lacks rabbit-03, which /etc/", "not there"),
            [32, 32],
        ),
    ],
)
def test_one_line_and_the_rabbits_list_name_the_rabbit_and_both_files(
    hosts_of: dict[str, str], rabbit: str, text: str, reason: str, free: list[int]
) -> None:
    system = system_with(mapping(32 * GIB, **hosts_of))
    (line,) = lines_with(system, text)
    assert line.startswith("dws: ") and "/etc/flux/mapping.json" in line
    assert lines_with(system, "not found below") == []
    row = rows(system)[rabbit]
    assert text in row["disagreement"]
    assert row["reason"] == (reason or row["disagreement"])
    if hosts_of is FIRST:
        assert (row["capacity"], row["nodes"], row["state"]) == (0, "", "Ready")
    assert ssds_free(system) == free
    assert ran(system, system.instance.submit(jobspec(nodes=1)))


def test_a_new_graph_with_the_old_mapping_is_found_when_the_scheduler_is_loaded() -> (
    None
):
    system = without_second()
    system.instance.reload_fluxion()
    assert ssds_free(system) == [32, 32]
    wait(system)
    assert ssds_free(system) == [32, 0]
    assert len(lines_with(system, "lacks rabbit-02")) == 1


def resize(system: VirtualSystem, rabbit: str, free: int, drives: int) -> None:
    """Another Rabbit has its place."""
    storage = system.store.get(STORAGE, "default", rabbit)
    devices = [{**d, "capacity": drives // 16} for d in storage["status"]["devices"]]
    status = {"capacity": free, "devices": devices}
    patch = {"status": status}
    system.store.merge_patch(STORAGE, "default", rabbit, patch, subresource="status")


def test_a_mapping_with_other_sizes_than_the_drives_is_named_and_used() -> None:
    system = small()
    resize(system, "rabbit-01", 16 * GIB, 16 * GIB)
    resize(system, "rabbit-02", 128 * GIB, 128 * GIB)
    wait(system)
    assert len(lines_with(system, "rabbit.mapping has 64 GiB on rabbit-01, whose")) == 1
    assert len(lines_with(system, "rabbit.mapping has 64 GiB on rabbit-02, where")) == 1
    assert ssds_free(system) == [64, 64]
    row = rows(system)["rabbit-01"]
    assert row["reason"] == "" and "whose drives have 16 GiB" in row["disagreement"]
    resize(system, "rabbit-01", 32 * GIB, 64 * GIB)
    wait(system)
    assert "disagreement" not in rows(system)["rabbit-01"]


def test_no_line_is_written_while_jobs_come_and_go() -> None:
    system = small()
    for dw in (XFS, PERSISTENT, XFS.replace("10GiB", "40GiB")):
        system.instance.submit(jobspec(dw, nodes=1))
        settle(system)
    for text in ("rabbitmapping", "dws2jgf"):
        assert lines_with(system, text) == []
