# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The requests of Fluxion that sched-rabbit takes."""

from __future__ import annotations

import errno
from typing import Any, Callable, Optional, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.formats import bits
from flux_k8s.formats.directives import GIB
from flux_k8s.machine.fluxion import RABBIT_MODULE, Fluxion
from flux_k8s.machine.wanted import Wanted
from flux_k8s.ports import Flux, Json, RpcError, Timer
from flux_k8s.reasons import Reason
from flux_k8s.scheduler.graph import ALLOCATED, RequestError, ResourceGraph
from flux_k8s.scheduler.pool import Pool
from rabbitsim.flux import pool as standin
from rabbitsim.flux.fluxion import Fluxion as StandinFluxion
from rabbitsim.flux.scheduler import Scheduler
from rabbitsim.loop import VirtualLoop
from support.effort import examples
from support.schedpool import (
    CHUNKS,
    CORES,
    GPUS,
    NODES,
    SSD_SIZE,
    make_pool,
    rabbit,
    request,
    topology,
)

PATHS = [
    *(f"/cluster0/chassis{rank // 2}/node{rank}" for rank in range(4)),
    *(f"/cluster0/node{rank}" for rank in range(4, NODES)),
    *(f"/cluster0/chassis{number}" for number in range(2)),
    "/cluster0/node0",
    "/cluster0/chassis1/node0",
    "/cluster0/chassis0/node9",
    "/nowhere",
]
SSDS = [f"/cluster0/chassis{n}/ssd{id}" for n in range(3) for id in range(CHUNKS)]
KEYS = st.sampled_from(["badrabbit", "alloc_rabbit", "other"])
CRITERIA = [f"property={name}" for name in ("rabbit", "badrabbit", "nosuch")]
CRITERIA += ["names=node1", "names=node5", ALLOCATED]
SOME_PATHS = st.lists(st.sampled_from(PATHS), max_size=3)


def method(name: str, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.tuples(st.just(name), st.fixed_dictionaries(fields))


REQUESTS = st.one_of(
    method(
        "set_property",
        sp_resource_path=SOME_PATHS,
        sp_keyval=KEYS.map("{}=dws".format) | st.just("badrabbit="),
    ),
    method("remove_property", resource_path=SOME_PATHS, key=KEYS),
    method(
        "set_status",
        resource_path=st.sampled_from([*SSDS, "/cluster0"]),
        status=st.sampled_from(["up", "down"]),
    ),
    method("find", criteria=st.sampled_from(CRITERIA), format=st.just("jgf")),
)


def make_graph() -> ResourceGraph:
    return ResourceGraph(make_pool(), lambda: None)


def outcome(handle: Any, *args: Any) -> tuple[Optional[int], Any]:
    """The error number of a request, or its answer, whose vertices are in any order."""
    try:
        answer = handle(*args)
    except RequestError as error:
        return error.errnum, None
    except OSError as error:
        return error.errno, None
    if not answer or not answer.get("R"):
        return None, answer
    found = [vertex["metadata"] for vertex in answer["R"]["graph"]["nodes"]]
    return None, sorted(found, key=lambda each: str(each["paths"]["containment"]))


@examples(50)
@given(st.lists(REQUESTS, max_size=12), st.integers(0, 4))
def test_the_answers_are_those_of_the_standins_fluxion(
    sent: list[tuple[str, Json]], nodes: int
) -> None:
    names = [f"node{rank}" for rank in range(NODES)]
    made = standin.make_nodes(names, topology(), CORES, GPUS, {})
    other = standin.Pool(made, topology(), CHUNKS)
    fluxion = StandinFluxion(
        Scheduler(VirtualLoop(), other, lambda: (), lambda *_: None, lambda *_: None)
    )
    pool = make_pool()
    graph = ResourceGraph(pool, lambda: None)
    if nodes:
        pool.allocate(1, request(rabbit(nodes, 1)))
        other.allocate([rabbit(nodes, 1)], lambda node: True)
    for method, payload in sent:
        expected = outcome(fluxion.methods[method], payload, 0)
        assert outcome(graph.handle, method, payload) == expected


class WithSchedulers:
    """A Flux in which schedulers are loaded and removed.

    Attributes:
        graph: of sched-rabbit; None while it is not loaded.
        lines: of the log.
    """

    def __init__(self) -> None:
        self.loop = VirtualLoop(1_800_000_000.0)
        self.graph: Optional[ResourceGraph] = None
        self.lines: list[str] = []
        self._watchers: dict[str, Callable[[], None]] = {}

    def now(self) -> float:
        return self.loop.now()

    def call_later(self, delay: float, function: Callable[[], None]) -> Timer:
        return self.loop.call_later(delay, function)

    def log(self, level: int, message: str, reason: Reason) -> None:
        self.lines.append(message)

    def watch_module(self, name: str, loaded: Callable[[], None]) -> None:
        self._watchers[name] = loaded

    def load(self, pool: Pool) -> None:
        self.graph = ResourceGraph(pool, lambda: None)
        self._watchers[RABBIT_MODULE]()

    def rpc(self, topic: str, payload: Json, done: Callable[[Any], None]) -> None:
        module, _, method = topic.partition(".")
        answer: Any = RpcError(errno.ENOSYS, "no such service")
        if module == RABBIT_MODULE and self.graph is not None:
            answer = self.graph.handle(method, payload)
        self.loop.call_later(0.001, lambda: done(answer))


def test_the_module_waits_for_a_scheduler_and_tells_each_what_it_must_not_give() -> (
    None
):
    flux = WithSchedulers()
    service = Fluxion(cast(Flux, flux), topology())
    withheld = {"rabbit0": SSD_SIZE * GIB}
    service.want(Wanted({}, frozenset({"rabbit1"}), withheld))
    flux.loop.run(timeout=20.0)
    assert not service.present
    (line,) = flux.lines
    assert "neither Fluxion nor sched-rabbit is loaded (yet)" in str(line)
    for pool in (make_pool(), make_pool()):
        flux.load(pool)
        flux.loop.run(timeout=20.0)
        assert service.present
        assert list(map(bits.size, pool.down_ssds)) == [1, CHUNKS]


@pytest.mark.parametrize("method", ["find", "set_property", "set_status"])
@pytest.mark.parametrize("payload", [None, [], {}, {"criteria": 3}, {"criteria": "x"}])
def test_a_malformed_request_is_refused(method: str, payload: Any) -> None:
    with pytest.raises(RequestError) as caught:
        make_graph().handle(method, payload)
    assert caught.value.errnum in (errno.EPROTO, errno.EINVAL)
