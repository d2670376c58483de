# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Fluxion has what is wanted in the end, whatever it had before, and whatever becomes
of requests."""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import Any, Callable, Optional, Union, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.control.coroutines import drive
from flux_k8s.formats.directives import GIB
from flux_k8s.machine.fluxion import Fluxion
from flux_k8s.machine.wanted import ALLOC_RABBIT, BAD_RABBIT, PROPERTIES, Wanted
from flux_k8s.objects import mapping as rabbitmapping
from flux_k8s.ports import Flux, Json, RpcError, Timer
from flux_k8s.reasons import Reason
from rabbitsim.loop import VirtualLoop
from support.effort import examples

FEW = 4
"""The ``ssd`` of a Rabbit that is taken out of service by their status."""

SSDS = {"r0": FEW, "r1": 5 * FEW}
"""r2 is not in the graph."""

HOSTS = {name: tuple(f"{name}n{i}" for i in range(4)) for name in ("r0", "r1", "r2")}
EVERYWHERE = frozenset(host for hosts in HOSTS.values() for host in hosts)
MAPPING = rabbitmapping.assemble(HOSTS, dict.fromkeys(HOSTS, FEW * 2**30))
GHOSTS = frozenset({"r0n1", "r1n3"})
"""Nodes that Fluxion lacks."""

KNOWN = EVERYWHERE - GHOSTS - {*HOSTS["r2"]}


class Graph:
    """A Flux with Fluxion.

    Args:
        shows_nodes: its graph has pruning filters at nodes.

    Attributes:
        carried_out: the requests that changed something.
        lost: the numbers of requests whose answers are lost.
        allocated: the ``ssd`` that jobs have.
        refused: no status can be set.
    """

    def __init__(self, shows_nodes: bool = True) -> None:
        self.loop = VirtualLoop(1_800_000_000.0)
        self.shows_nodes = shows_nodes
        self.carry: dict[str, set[str]] = {key: set() for key in PROPERTIES}
        self.down: set[str] = set()
        self.carried_out: list[tuple[str, Any]] = []
        self.lines: list[str] = []
        self.lost: set[int] = set()
        self.allocated: set[str] = set()
        self.refused = False
        self.requests = 0
        self.now = self.loop.now

    def call_later(self, delay: float, function: Callable[[], None]) -> Timer:
        return self.loop.call_later(delay, function)

    def log(self, level: int, message: str, reason: Reason) -> None:
        self.lines.append(message)

    def watch_module(self, name: str, loaded: Callable[[], None]) -> Graph:
        return self

    def stop(self) -> None:
        """The watch ends."""

    def rpc(
        self, topic: str, payload: Json, done: Callable[[Union[Json, RpcError]], None]
    ) -> None:
        self.requests += 1
        method, answer = topic.rpartition(".")[2], None
        result: Union[Json, RpcError]
        try:
            answer = self.carry_out(method, payload)
            result = {} if answer is None else answer
        except OSError as error:
            result = RpcError(error.errno or 0, str(error))
        if self.requests in self.lost:
            result = RpcError(errno.ETIMEDOUT, "lost")
        self.loop.call_later(0.001, lambda: done(result))

    def carry_out(self, method: str, payload: Json) -> Optional[Json]:
        if method == "find":
            nodes = [{"metadata": found} for found in self.find(payload["criteria"])]
            return {"R": {"graph": {"nodes": nodes, "edges": []}} if nodes else None}
        if method == "set_status":
            path = payload["resource_path"]
            if self.refused and path != "/c":
                raise OSError(errno.EINVAL, path)
            change = set.add if payload["status"] == "down" else set.discard
            change(self.down, path)
            self.carried_out.append((payload["status"], path))
        elif method in ("set_property", "remove_property"):
            present = method == "set_property"
            names = payload["sp_resource_path" if present else "resource_path"]
            key = payload["sp_keyval"].partition("=")[0] if present else payload["key"]
            for path in names:
                host = path.rpartition("/")[2]
                if host not in KNOWN:
                    raise OSError(errno.ENOENT, path)
                (set.add if present else set.discard)(self.carry[key], host)
            self.carried_out.append((f"{'' if present else 'no '}{key}", names))
        return None

    def find(self, criteria: str) -> list[Json]:
        rabbits = [
            {
                "type": "chassis",
                "properties": {"rabbit": name, "ssdcount": str(ssds)},
                "paths": {"containment": f"/c/{name}"},
            }
            for name, ssds in SSDS.items()
        ]
        nodes = [
            {
                "type": "node",
                "properties": {k: "dws" for k in PROPERTIES if host in self.carry[k]},
                "paths": {"containment": f"/c/{host[:2]}/{host}"},
            }
            for host in sorted(KNOWN)
        ]
        if criteria.startswith("property=rabbit"):
            return rabbits
        if criteria == "agfilter=true":
            return rabbits + nodes * self.shows_nodes
        if criteria == "status=down":
            return [
                {"type": "ssd", "paths": {"containment": path}} for path in self.down
            ]
        if criteria.startswith("status=down and"):
            paths = self.down & self.allocated
            return [{"type": "ssd", "paths": {"containment": path}} for path in paths]
        key = criteria.partition("=")[2]
        return [node for node in nodes if key in node["properties"]]


def start(graph: Graph, wanted: Wanted) -> Fluxion:
    fluxion = Fluxion(cast(Flux, graph), MAPPING, FEW)
    fluxion.want(wanted)
    return fluxion


hosts = st.frozensets(st.sampled_from(sorted(EVERYWHERE)))
wishes = st.builds(
    Wanted,
    st.fixed_dictionaries({BAD_RABBIT: hosts}, optional={ALLOC_RABBIT: hosts}),
    st.frozensets(st.sampled_from(sorted(HOSTS))),
    st.just({}),
)


@examples(60)
@given(st.data())
def test_fluxion_has_what_is_wanted_in_the_end_despite_lost_answers(
    data: st.DataObject,
) -> None:
    graph = Graph(data.draw(st.booleans()))
    for key, carried in graph.carry.items():
        carried.update(data.draw(hosts, key) & KNOWN)
    graph.lost = data.draw(st.sets(st.integers(1, 30)))
    wanted = data.draw(wishes)
    fluxion = start(graph, wanted)
    for _ in range(data.draw(st.integers(0, 4))):
        graph.loop.run(timeout=data.draw(st.sampled_from([0.0, 0.022, 0.03, 5.0])))
        change = data.draw(st.sampled_from(["want", "restart"]))
        if change == "restart":
            fluxion.stop()
            fluxion = start(graph, wanted)
        else:
            wanted = data.draw(wishes)
            fluxion.want(wanted)
    graph.loop.run(timeout=1000.0)
    bad = {*wanted.marked[BAD_RABBIT]}
    bad.update(host for name in wanted.out_of_service - {"r0"} for host in HOSTS[name])
    assert graph.carry[BAD_RABBIT] == bad & KNOWN
    if ALLOC_RABBIT in wanted.marked:
        assert graph.carry[ALLOC_RABBIT] == wanted.marked[ALLOC_RABBIT] & KNOWN
    out = "r0" in wanted.out_of_service
    assert graph.down == {f"/c/r0/ssd{n}" for n in range(FEW * out)}


def test_requests_that_take_out_of_service_come_first() -> None:
    graph = Graph()
    wanted = Wanted({BAD_RABBIT: frozenset({"r1n0"})}, withheld={})
    fluxion = start(graph, wanted)
    graph.loop.run(timeout=10.0)
    graph.carried_out.clear()
    marked = {
        ALLOC_RABBIT: frozenset({"r1n1", "r1n2"}),
        BAD_RABBIT: frozenset({"r0n3"}),
    }
    fluxion.want(replace(wanted, marked=marked, out_of_service=frozenset({"r0"})))
    graph.loop.run(timeout=10.0)
    assert graph.carried_out == [
        (ALLOC_RABBIT, ["/c/r1/r1n1", "/c/r1/r1n2"]),
        (BAD_RABBIT, ["/c/r0/r0n3"]),
        (f"no {BAD_RABBIT}", ["/c/r1/r1n0"]),
        *(("down", f"/c/r0/ssd{number}") for number in range(FEW)),
        ("up", "/c"),
    ]


@pytest.mark.parametrize("shows_nodes", [True, False])
def test_nodes_that_the_graph_lacks_spoil_no_request_and_are_logged(
    shows_nodes: bool,
) -> None:
    graph = Graph(shows_nodes)
    start(graph, Wanted({BAD_RABBIT: EVERYWHERE}, withheld={}))
    graph.loop.run(timeout=10.0)
    assert graph.carry[BAD_RABBIT] == KNOWN
    (line,) = graph.lines
    assert line.startswith("Fluxion: r0n1,r1n3 of the rabbit mapping not found")


def test_what_was_carried_out_without_an_answer_is_undone() -> None:
    graph = Graph()
    graph.lost = {4}  # after those that read the graph
    fluxion = start(graph, Wanted({BAD_RABBIT: frozenset({"r1n0"})}, withheld={}))
    graph.loop.run(timeout=1.0)
    assert graph.carry[BAD_RABBIT] == {"r1n0"}
    fluxion.want(Wanted({BAD_RABBIT: frozenset()}, withheld={}))
    graph.loop.run(timeout=10.0)
    assert graph.carry[BAD_RABBIT] == set()


ONE = {"r0": GIB}
NOWHERE: frozenset[str] = frozenset()


def given_out(graph: Graph, fluxion: Fluxion) -> bool:
    answers: list[bool] = []
    drive(fluxion.is_given_out(ONE), answers.append, ())
    graph.loop.run(timeout=1.0)
    return answers.pop()


def test_storage_is_kept_by_an_ssd_that_is_down_and_that_no_job_has() -> None:
    graph = Graph()
    graph.allocated = {"/c/r0/ssd0"}
    fluxion = start(graph, Wanted({BAD_RABBIT: NOWHERE}, withheld=ONE))
    assert not fluxion.keeps(ONE, NOWHERE)
    graph.loop.run(timeout=5.0)
    assert graph.down == {"/c/r0/ssd1"}
    assert fluxion.keeps(ONE, NOWHERE) and not given_out(graph, fluxion)
    assert not fluxion.keeps(ONE, frozenset({"r1n0"}))  # its node is not marked
    graph.lost = {graph.requests + 1}
    fluxion.want(Wanted({BAD_RABBIT: NOWHERE}, withheld={}))
    graph.loop.run(timeout=1.0)
    assert graph.down == set() and not fluxion.keeps(ONE, NOWHERE)


def test_what_is_kept_is_said_however_often_something_else_is_wanted() -> None:
    """An epilog waits for it: it must not wait for a moment without news."""
    graph, kept = Graph(), list[bool]()

    def changed() -> None:
        kept.append(fluxion.keeps(ONE, NOWHERE))

    fluxion = Fluxion(cast(Flux, graph), MAPPING, FEW, changed=changed)
    for number in range(100):
        size = GIB * (1 + number % 2)
        fluxion.want(Wanted({BAD_RABBIT: NOWHERE}, withheld={"r0": size}))
        graph.loop.run(timeout=0.001)
    assert any(kept)


def test_what_is_not_wanted_any_more_is_not_kept() -> None:
    """It is given to jobs at any time from now on: what is claimed then has to be
    wanted first."""
    graph, more = Graph(), {"r0": 2 * GIB}
    node = frozenset({"r0n0"})
    marks = {BAD_RABBIT: NOWHERE, ALLOC_RABBIT: node}
    fluxion = start(graph, Wanted(marks, withheld=more))
    graph.loop.run(timeout=5.0)
    assert fluxion.keeps(more, node)
    fluxion.want(Wanted({**marks, ALLOC_RABBIT: NOWHERE}, withheld=ONE))
    assert not fluxion.keeps({}, node) and not fluxion.keeps(more, NOWHERE)
    assert fluxion.keeps(ONE, NOWHERE)
    graph.loop.run(lambda: len(graph.down) == 1, timeout=1.0)
    assert fluxion.keeps(ONE, NOWHERE)


def test_storage_that_jobs_have_is_given_out_until_they_give_it_back() -> None:
    graph = Graph()
    graph.allocated = {f"/c/r0/ssd{number}" for number in range(FEW)}
    fluxion = start(graph, Wanted({BAD_RABBIT: NOWHERE}, withheld=ONE))
    graph.loop.run(timeout=5.0)
    assert len(graph.down) == FEW
    assert fluxion.keeps(ONE, NOWHERE) and given_out(graph, fluxion)
    graph.allocated.remove("/c/r0/ssd2")
    graph.loop.run(timeout=30.0)
    assert graph.down == {"/c/r0/ssd2"} and not given_out(graph, fluxion)


def test_a_rabbit_whose_ssd_are_refused_keeps_nothing_and_nobody_waits_for_it() -> None:
    graph = Graph()
    graph.refused = True
    fluxion = start(graph, Wanted({BAD_RABBIT: NOWHERE}, withheld=ONE))
    graph.loop.run(timeout=5.0)
    assert fluxion.keeps(ONE, NOWHERE) and given_out(graph, fluxion)
    assert len(graph.lines) == 2  # and that it lacks nodes
    asked = graph.requests
    fluxion.want(Wanted({BAD_RABBIT: NOWHERE}, withheld={"r0": 2 * GIB}))
    graph.loop.run(timeout=5.0)
    assert graph.requests == asked
