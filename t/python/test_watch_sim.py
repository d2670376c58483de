# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Watches against rabbitsim's API server, with its faults."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Optional

import pytest

import flux_k8s.kube.watch
from flux_k8s.ports import COMPUTES, WORKFLOW
from rabbitsim.kube.handler import HttpFault
from rabbitsim.kube.server import KubeServer
from rabbitsim.kube.store import Store
from support.client import Recorder, Service, computes


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    monkeypatch.setattr(flux_k8s.kube.watch, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(flux_k8s.kube.watch, "LONGEST_PAUSE", 0.05)
    with Service() as service:
        yield service


@pytest.fixture
def server() -> Iterator[KubeServer]:
    store = Store(time.time, random.Random(1), history=30)
    server = KubeServer(
        store, tokens={"t": "flux"}, bookmark_every=0.05, watch_timeout=0.3
    )
    server.start()
    yield server
    server.stop()


@pytest.fixture
def kubeconfig(server: KubeServer, tmp_path: Path) -> str:
    path = str(tmp_path / "kubeconfig")
    server.write_kubeconfig(path)
    return path


class Chaos:
    """Random changes of a cluster whose server misbehaves, from a seed."""

    FAULTS = (
        HttpFault(status=500),
        HttpFault(status=429),
        HttpFault(status=410),
        HttpFault(close=True),
        HttpFault(close=True, carried_out=True),
        HttpFault(truncate=True),
        HttpFault(malformed=True),
        HttpFault(hang=0.02),
    )

    def __init__(self, server: KubeServer, seed: int) -> None:
        self.server = server
        self.rng = random.Random(seed)

    def fault(
        self, method: str, path: str, query: Mapping[str, str]
    ) -> Optional[HttpFault]:
        return self.rng.choice(self.FAULTS) if self.rng.random() < 0.4 else None

    def change(self) -> None:
        store, name = self.server.store, self.rng.choice("abcdef")
        if store.find(COMPUTES, "default", name) is None:
            store.create(COMPUTES, "default", computes(name))
        elif self.rng.random() < 0.3:
            store.delete(COMPUTES, "default", name)
        else:
            data = [{"name": f"node{self.rng.randrange(1000)}"}]
            store.merge_patch(COMPUTES, "default", name, {"data": data})

    def step(self) -> None:
        for _ in range(self.rng.randrange(20)):
            self.server.call(self.change)
        dice = self.rng.random()
        if dice < 0.1:
            self.server.drop_watches()
        elif dice < 0.2:
            self.server.call(self.server.store.forget_history)
        elif dice < 0.3:
            self.server.pause()
            self.server.call(self.change)
            self.server.resume()


@pytest.mark.parametrize("seed", range(4))
def test_whatever_goes_wrong_the_view_ends_equal_to_the_store(
    service: Service, server: KubeServer, kubeconfig: str, seed: int
) -> None:
    chaos = Chaos(server, seed)
    client = service.client(kubeconfig, read_timeout=1.0, watch_timeout=1.0)
    handler = Recorder()
    server.faults = chaos.fault
    client.watch(COMPUTES, "default", handler)
    for _ in range(40):
        chaos.step()
        service.loop.run(lambda: False, 0.005)
    server.faults = None

    def settled() -> bool:
        page = server.call(lambda: server.store.list(COMPUTES, "default"))
        store = {item["metadata"]["name"]: item for item in page["items"]}
        return handler.view == store

    service.run(settled)


def test_an_outage_is_reported_to_the_watch_handler_and_ends(
    service: Service, server: KubeServer, kubeconfig: str
) -> None:
    client = service.client(kubeconfig)
    handler = Recorder()
    client.watch(COMPUTES, None, handler)
    service.run(lambda: handler.calls == ["synced"])
    server.pause()
    service.run(lambda: handler.calls[-1] == "trouble ConnectionRefused")
    error = service.refused(client.get, WORKFLOW, "default", "w")
    assert (error.status, error.reason) == (0, "ConnectionRefused")
    server.resume()
    service.run(lambda: handler.calls[-1] == "synced")
    assert service.refused(client.get, WORKFLOW, "default", "w").status == 404
