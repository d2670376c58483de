# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What Fluxion is told about Rabbits, and in how few requests."""

from __future__ import annotations

from typing import Any, Callable, cast

import pytest

from flux_k8s.errors import BadObject
from flux_k8s.formats.directives import GIB
from flux_k8s.machine.fluxion import Fluxion
from flux_k8s.machine.fluxiongraph import Chassis, Node, read_nodes, read_rabbits
from flux_k8s.machine.wanted import Wanted
from flux_k8s.objects import mapping as rabbitmapping
from flux_k8s.ports import Flux, Json, Timer
from flux_k8s.reasons import Reason
from rabbitsim.dws.topology import Topology
from rabbitsim.loop import VirtualLoop
from rabbitsim.system import VirtualSystem
from support.rabbits import marked, requests, set_status, ssds_free, stats, wait
from support.service import jobspec


def vertex(path: str, type: str = "chassis", **properties: str) -> Json:
    metadata: Json = {"type": type, "paths": {"containment": path}}
    if properties:
        metadata["properties"] = properties
    return {"metadata": metadata}


def found(*vertices: Json) -> Json:
    return {"R": {"graph": {"nodes": list(vertices), "edges": []}}}


def test_rabbits_are_where_their_names_are() -> None:
    rabbits = read_rabbits(
        found(
            vertex("/c/rack1/chassis0", rabbit="r0", ssdcount="36"),
            vertex("/c/chassis1", type="rack", rabbit="r1"),
            vertex("/c/chassis1/node", type="node", rabbit="r1"),
            vertex("/c/chassis1/r1", type="storage_node", rabbit=""),
            vertex("/c", type="cluster"),
        )
    )
    assert rabbits == {
        "r0": Chassis("/c/rack1/chassis0", 36, is_chassis=True),
        "r1": Chassis("/c/chassis1", 0),
    }


def test_nothing_is_found_in_a_graph_without_rabbits() -> None:
    assert read_rabbits({"R": None}) == {}
    assert read_nodes({"R": None}) == {}
    answer = found(vertex("/c/n1", "node"), vertex("/c/n2", "node", badrabbit="dws"))
    assert read_nodes(answer) == {
        "n1": Node("/c/n1"),
        "n2": Node("/c/n2", frozenset({"badrabbit"})),
    }


@pytest.mark.parametrize("answer", [None, [], {"R": 1}, {"R": {"graph": {}}}])
def test_a_malformed_answer_of_fluxion_is_refused(answer: Any) -> None:
    with pytest.raises(BadObject):
        read_rabbits(answer)


def test_a_rabbit_with_few_ssd_goes_down_by_their_status() -> None:
    """And how it comes back: stories/room.py."""
    system = VirtualSystem(topology=Topology.regular(4, 2, capacity=2 * GIB))
    system.start()
    wait(system)
    requests(system)
    set_status(system, "rabbit-01", "Offline")
    wait(system)
    assert (marked(system), ssds_free(system)) == ("", [0, 2])
    assert sum(requests(system).values()) == 2


def haunted(excluded: str = "") -> VirtualSystem:
    """A system whose mapping has two nodes, ranks 8 and 9, that its graph lacks."""
    system = VirtualSystem(topology=Topology.regular(8, 2))
    hosts_of = {
        name: rabbit.computes for name, rabbit in system.topology.rabbits.items()
    }
    first, *others = hosts_of["rabbit-01"]
    hosts_of["rabbit-01"] = (first, "ghost1", "ghost2", *others)
    capacity = dict.fromkeys(hosts_of, system.mapping.capacity("rabbit-01"))
    system.mapping = rabbitmapping.assemble(hosts_of, capacity, sort=False)
    execution = {
        "R_lite": [{"rank": "0-9", "children": {"core": "0"}}],
        "nodelist": ["compute-[01-08],ghost[1-2]"],
    }
    status = {
        "R": {"version": 1, "execution": execution},
        "drain": {},
        "offline": "",
        "exclude": excluded,
    }
    system.instance.broker.register(
        "resource", lambda method, payload, userid, respond: respond(0, "", status)
    )
    system.start()
    wait(system)
    return system


def lacking(system: VirtualSystem) -> list[str]:
    """What the log says of nodes that the graph lacks."""
    return [line for _, _, line in system.log if "not found below" in line]


def test_a_node_that_fluxion_lacks_does_not_spoil_the_others() -> None:
    system = haunted()
    set_status(system, "rabbit-01", "Offline")
    wait(system)
    assert marked(system) == "compute-[01-04]"
    assert stats(system)["fluxion"]["unknown_nodes"] == 2


@pytest.mark.parametrize(
    ("excluded", "told"),
    [("", ["ghost[1-2]"]), ("9", ["ghost1"]), ("0,8-9", [])],
)
def test_a_node_that_fluxion_lacks_is_logged_once_unless_flux_excludes_it(
    excluded: str, told: list[str]
) -> None:
    system = haunted(excluded)
    set_status(system, "rabbit-01", "Offline")
    wait(system)
    found = [line.partition(" of the rabbit mapping")[0] for line in lacking(system)]
    assert found == [f"dws: Fluxion: {hosts}" for hosts in told]
    system.instance.reload_fluxion()
    wait(system)
    assert len(lacking(system)) == 2 * len(told)


# Storage that no job holds


def of_jobs(system: VirtualSystem) -> int:
    """The ``ssd`` that jobs have, of one Rabbit."""
    return len(system.instance.scheduler.pool.ssds_taken(0))


def of_others(system: VirtualSystem) -> int:
    """The ``ssd`` that it takes to hold what no job does."""
    return sum(-(-size // GIB) for size in stats(system)["reserved"].values())


def one_rabbit() -> VirtualSystem:
    """Sixteen nodes on a Rabbit with sixteen ``ssd``."""
    system = VirtualSystem(topology=Topology.regular(16, 1, capacity=16 * GIB))
    system.start()
    wait(system)
    return system


def submit_for(system: VirtualSystem, dw: str, seconds: int) -> int:
    spec = jobspec(dw, nodes=1)
    spec["attributes"]["system"]["exec"] = {"test": {"run_duration": f"{seconds}s"}}
    return system.instance.submit(spec)


@pytest.mark.parametrize("ends", ["early", "late"])
def test_an_ssd_that_a_job_has_does_not_count_for_storage_of_others(ends: str) -> None:
    system = one_rabbit()
    early, late = (50, 5000) if ends == "early" else (5000, 50)
    submit_for(system, "#DW jobdw type=xfs capacity=7GiB name=p1", early)
    submit_for(system, "#DW jobdw type=xfs capacity=6GiB name=p1", late)
    wait(system, 20.0)
    assert ssds_free(system) == [1]
    wait(system, 100.0)
    held = of_jobs(system)
    submit_for(system, "#DW create_persistent type=xfs capacity=3GiB name=keep", 1)
    wait(system, 200.0)
    assert (of_jobs(system), of_others(system)) == (held, 4)
    assert ssds_free(system) == [16 - held - 4]
    wait(system, 10_000.0)
    assert (of_jobs(system), ssds_free(system)) == (0, [12])


class OfJobs:
    """A Flux whose Fluxion says that jobs have each of the four ``ssd`` of a Rabbit.

    Attributes:
        asked: when it was asked for that, in the time of the loop.
    """

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self.asked: list[float] = []

    def now(self) -> float:
        return self.loop.now()

    def call_later(self, delay: float, function: Callable[[], None]) -> Timer:
        return self.loop.call_later(delay, function)

    def log(self, level: int, message: str, reason: Reason) -> None:
        raise AssertionError(message)

    def watch_module(self, name: str, loaded: Callable[[], None]) -> object:
        return None

    def rpc(self, topic: str, payload: Json, done: Callable[[Json], None]) -> None:
        answer: Json = {}
        if "sched-now" in payload.get("criteria", ""):
            self.asked.append(self.loop.now())
            ssds = (vertex(f"/c/rabbit-01/ssd{i}", "ssd") for i in range(4))
            answer = found(*ssds)
        elif topic.endswith(".find"):
            answer = found(vertex("/c/rabbit-01", rabbit="rabbit-01", ssdcount="4"))
        self.loop.call_later(0.001, lambda: done(answer))


def test_fluxion_is_asked_again_whether_jobs_have_given_ssd_back() -> None:
    flux = OfJobs(VirtualLoop(1_800_000_000.0))
    sizes = {"rabbit-01": 4 * GIB}
    mapping = rabbitmapping.assemble({"rabbit-01": ["compute-01"]}, sizes, {})
    fluxion = Fluxion(cast(Flux, flux), mapping)
    fluxion.want(Wanted(withheld={"rabbit-01": 2 * GIB}))
    flux.loop.run(timeout=20.0)
    assert flux.asked
    flux.asked.clear()
    flux.loop.run(timeout=120.0)
    assert flux.asked


class WithoutRabbits(OfJobs):
    """Flux with a Fluxion whose graph has nodes only."""

    def __init__(self) -> None:
        super().__init__(VirtualLoop(1_800_000_000.0))
        self.lines: list[str] = []

    def log(self, level: int, message: str, reason: Reason) -> None:
        self.lines.append(message)

    def rpc(self, topic: str, payload: Json, done: Callable[[Json], None]) -> None:
        is_node = payload.get("criteria") == "agfilter=true"
        node = (vertex("/cluster0/compute-01", "node"),) if is_node else ()
        answer: Json = found(*node) if topic.endswith(".find") else {}
        self.loop.call_later(0.001, lambda: done(answer))


@pytest.mark.parametrize("schedules", [True, False])
def test_a_graph_without_rabbits_is_logged_where_fluxion_schedules_storage(
    schedules: bool,
) -> None:
    flux = WithoutRabbits()
    sizes = {"rabbit-01": 4 * GIB}
    mapping = rabbitmapping.assemble({"rabbit-01": ["compute-01"]}, sizes, {})
    Fluxion(cast(Flux, flux), mapping, schedules=schedules).want(Wanted())
    flux.loop.run(timeout=20.0)
    assert [line for line in flux.lines if "no Rabbit" in line] == schedules * [
        "Fluxion: no Rabbit of the rabbit mapping found in its graph (flux dws2jgf):"
        " jobs with storage wait"
    ]
