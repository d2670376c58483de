# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""flux_k8s.machine.nodes: until when nodes have jobs."""

from __future__ import annotations

import errno
from math import inf
from types import SimpleNamespace
from typing import Any, Optional, Union

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.control.coroutines import drive
from flux_k8s.formats import idset
from flux_k8s.machine.nodes import (
    INTERVAL,
    MOST_JOBS,
    PATIENCE,
    SOON,
    NodeUse,
    parse_use,
)
from flux_k8s.ports import Json, RpcError
from rabbitsim.loop import VirtualLoop

NODES: Any = SimpleNamespace(
    states=SimpleNamespace(host_of={rank: f"n{rank}" for rank in range(8)})
)


class JobList:
    """The part of Flux that lists jobs.

    Args:
        delay: seconds until it answers; None for never.
    """

    def __init__(self, answer: Union[Any, RpcError], delay: Optional[float] = 0.1):
        self.loop = VirtualLoop(1000.0)
        self.now = self.loop.now
        self.call_later = self.loop.call_later
        self.answer = answer
        self.delay = delay
        self.asked: list[float] = []

    def rpc(self, topic: str, payload: Any, done: Any) -> None:
        assert topic == "job-list.list"
        self.asked.append(self.loop.now())
        if self.delay is not None:
            self.loop.call_later(self.delay, lambda: done(self.answer))


def job(ranks: str, expiration: float = 0.0) -> Json:
    return {"id": 1, "ranks": ranks, "expiration": expiration}


def update(use: NodeUse, flux: Any) -> float:
    """The seconds that an update takes."""
    done: list[float] = []
    begun = flux.now()
    drive(use.update(), lambda _: done.append(flux.now() - begun), ())
    flux.loop.run(lambda: bool(done), timeout=60.0)
    return done[0]


@given(
    st.lists(
        st.tuples(
            st.sets(st.integers(0, 9), min_size=1),
            st.sampled_from((0.0, 5.0, 1005.0, 2000.0)),
        )
    )
)
def test_a_node_has_jobs_until_the_last_of_them_ends(
    jobs: list[tuple[set[int], float]],
) -> None:
    flux: Any = JobList({"jobs": [job(idset.encode(r), end) for r, end in jobs]})
    use = NodeUse(flux, NODES)
    update(use, flux)
    ends: dict[str, list[float]] = {}
    for ranks, end in jobs:
        for rank in ranks & set(range(8)):
            ends.setdefault(f"n{rank}", []).append(end or inf)
    soon = flux.asked[0] + flux.delay + SOON
    assert use.until == {host: max(*found, soon) for host, found in ends.items()}


def test_flux_is_not_asked_again_at_once_however_often_somebody_wants_to_know() -> None:
    flux: Any = JobList({"jobs": [job("0-3", 2000.0)]})
    use = NodeUse(flux, NODES)
    while flux.now() < 1000.0 + 4 * INTERVAL - 0.5:
        update(use, flux)
        flux.loop.run(timeout=0.01)
    assert len(flux.asked) == 4


@pytest.mark.parametrize("delay", [None, 10.0])
def test_an_answer_is_not_awaited_for_long(delay: Optional[float]) -> None:
    flux: Any = JobList({"jobs": [job("0-3", 2000.0)]}, delay)
    use = NodeUse(flux, NODES)
    assert update(use, flux) == PATIENCE
    assert use.until == {}
    flux.loop.run(timeout=60.0)
    assert len(use.until) == (0 if delay is None else 4), "a late answer is noted"


@pytest.mark.parametrize(
    "answer",
    [
        RpcError(errno.ENOSYS, "job-list is not loaded"),
        {},
        {"jobs": {}},
        {"jobs": [0]},
        {"jobs": [job("3-1")]},
        {"jobs": [{"id": 1, "ranks": 3}]},
        {"jobs": [{"id": 1, "ranks": "0", "expiration": "never"}]},
        {"jobs": [{"id": 1}]},
    ],
)
def test_without_an_answer_that_can_be_read_nothing_is_known(answer: Any) -> None:
    flux: Any = JobList({"jobs": [job("0-3", 2000.0)]})
    use = NodeUse(flux, NODES)
    update(use, flux)
    flux.answer = answer
    flux.loop.run(timeout=2 * INTERVAL)
    update(use, flux)
    assert len(flux.asked) == 2
    assert use.until == {}


def test_of_a_job_with_all_ranks_that_there_can_be_only_the_nodes_are_read() -> None:
    assert parse_use({"jobs": [job("0-4294967293", 5.0)]}, 3) == dict.fromkeys(
        range(4), 5.0
    )


@pytest.mark.parametrize(
    "jobs, more",
    [
        ([job("0")] * MOST_JOBS, job("0")),
        ([job("0-1023")] * 64, job("0")),
        ([job(",".join(map(str, range(0, 1000, 2))))] * 16, job("9" * 2**15)),
    ],
)
def test_of_more_than_can_be_read_in_one_turn_nothing_is_read(
    jobs: list[Json], more: Json
) -> None:
    assert parse_use({"jobs": jobs}, 2000)
    assert not parse_use({"jobs": [*jobs, more]}, 2000)
