# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""rabbitsim.kube.direct: Kubernetes without a network, in virtual time."""

from __future__ import annotations

import random
from typing import Any, Optional, Union

from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.objects.decoding import plain
from flux_k8s.ports import (
    COMPUTES,
    Json,
    KubeError,
    Request,
    Seen,
)
from rabbitsim.kube.direct import DirectKube, Fault
from rabbitsim.kube.kinds import load_kinds
from rabbitsim.kube.store import Store
from rabbitsim.loop import VirtualLoop
from support.effort import examples

KINDS = load_kinds()
Answer = Union[Json, KubeError]


class Cluster:
    """A store, a clock and a DirectKube with random latencies."""

    def __init__(self, seed: int = 0, slowest: float = 0.0) -> None:
        self.loop = VirtualLoop()
        self.rng = random.Random(seed)
        self.store = Store(self.loop.now, random.Random(seed + 1), KINDS)
        self.kube = DirectKube(
            self.store, self.loop, lambda: self.rng.uniform(0.0, slowest)
        )

    def ask(self, verb: str, *args: Any, key: str = "k", **options: Any) -> Answer:
        """Make one request and wait for its answer."""
        answers: list[Answer] = []
        self.kube.send(Request(verb, *args, **options), answers.append, key=key)
        assert answers == [], "answered from within the call"
        assert self.loop.run(lambda: bool(answers), timeout=100.0)
        return answers[0]


class Watcher:
    """A WatchHandler that keeps what it is told, and checks the promises."""

    def __init__(self) -> None:
        self.objects: dict[str, Json] = {}
        self.log: list[str] = []
        self.last: Json = {}

    def event(self, type: str, seen: Seen) -> None:
        self.last = object = plain(seen.encoded)
        metadata = object["metadata"]
        name = metadata["name"]
        known = self.objects.get(name)
        if type == "DELETED":
            assert known is not None
            assert known["metadata"]["uid"] == metadata["uid"]
            del self.objects[name]
        else:
            assert (known is None) == (type == "ADDED")
            if known is not None:
                assert known["metadata"]["uid"] == metadata["uid"]
                old, new = (
                    int(o["metadata"]["resourceVersion"]) for o in (known, object)
                )
                assert old < new
            self.objects[name] = object
        self.log.append(f"{type} {name}")

    def synced(self) -> None:
        self.log.append("synced")

    def trouble(self, error: KubeError) -> None:
        self.log.append(f"trouble {error.status}")


def computes(name: str, **metadata: Any) -> Json:
    return {"metadata": {"name": name, **metadata}, "data": []}


@examples(15)
@given(
    seed=st.integers(0, 2**32),
    steps=st.lists(
        st.tuples(
            st.sampled_from(
                ["make", "change", "delete", "drop", "end", "forget", "wait"]
            ),
            st.sampled_from("abc"),
        ),
        max_size=40,
    ),
)
def test_a_watcher_knows_everything_in_the_end(
    seed: int, steps: list[tuple[str, str]]
) -> None:
    cluster = Cluster(seed, slowest=2.0)
    watcher = Watcher()
    cluster.kube.watch(COMPUTES, "default", watcher)
    cluster.kube.faults = lambda request: (
        Fault(delay=cluster.rng.random(), error=KubeError(503))
        if cluster.rng.random() < 0.3
        else None
    )
    store = cluster.store
    for number, (verb, name) in enumerate(steps):
        there = store.find(COMPUTES, "default", name) is not None
        if verb == "make" and not there:
            store.create(COMPUTES, "default", computes(name))
        elif verb == "change" and there:
            patch = {"data": [{"name": f"n{number}"}]}
            store.merge_patch(COMPUTES, "default", name, patch)
        elif verb == "delete" and there:
            store.delete(COMPUTES, "default", name)
        elif verb == "drop":
            cluster.kube.drop_watches()
        elif verb == "end":
            cluster.kube.end_watches()
        elif verb == "forget":
            store.forget_history()
        cluster.loop.run(timeout=cluster.rng.random())
    cluster.loop.run()
    present = {
        obj["metadata"]["name"]: dict(obj) for obj in store.select(COMPUTES).items
    }
    assert watcher.objects == present
    assert "synced" in watcher.log


def test_faults_refuse_delay_and_lose_answers() -> None:
    cluster = Cluster()
    start = cluster.loop.now()
    seen: list[Request] = []
    plan: list[Optional[Fault]] = [
        Fault(delay=5.0, error=KubeError(503, "Unavailable", retry_after=2.0)),
        Fault(error=KubeError(0, "Lost"), carried_out=True),
        Fault(delay=3.0),
        None,
    ]

    def faults(request: Request) -> Optional[Fault]:
        seen.append(request)
        return plan.pop(0)

    cluster.kube.faults = faults
    refused = cluster.ask("create", COMPUTES, "default", body=computes("c"))
    assert isinstance(refused, KubeError)
    assert refused.retry_after == 2.0
    assert cluster.loop.now() == start + 5.0
    assert cluster.store.find(COMPUTES, "default", "c") is None
    lost = cluster.ask("create", COMPUTES, "default", body=computes("c"))
    assert isinstance(lost, KubeError)
    assert lost.status == 0
    assert cluster.store.find(COMPUTES, "default", "c") is not None
    late = cluster.ask("get", COMPUTES, "default", "c")
    assert isinstance(late, dict)
    assert cluster.loop.now() == start + 8.0
    again = cluster.ask("create", COMPUTES, "default", body=computes("c"))
    assert isinstance(again, KubeError)
    assert again.status == 409
    assert [request.verb for request in seen] == ["create", "create", "get", "create"]
    assert seen[2].name == "c"
