# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The cost of changes of Rabbits: events of Storages, and requests to Fluxion.

The events are of the largest machine, 696 Rabbits with 16 nodes each, of which a
few go down and come back all the time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Optional

import msgspec

from flux_k8s.config.context import Context
from flux_k8s.config.settings import Settings
from flux_k8s.config.table import Config
from flux_k8s.formats.directives import GIB
from flux_k8s.kube.cache import identify
from flux_k8s.machine.storages import Storages
from flux_k8s.ports import Json, Seen
from flux_k8s.rules.jgfwriter import DEFAULT_CHUNKS
from rabbitsim.dws.topology import Topology, storage
from rabbitsim.system import VirtualSystem, mapping_of

from .bench import Bench
from .rows import COUNT, STAND_IN, Floor, Row

NAME = "rabbits"
RABBITS = 696
NODES = 11_136
EVENTS = 10_000


def measure(bench: Bench) -> Iterator[Row]:
    events, repeat = bench.number(EVENTS, 2_000), bench.number(5, 1)
    yield Row(
        STAND_IN,
        NAME,
        f"Storage events taken in, of {RABBITS} Rabbits",
        [events / _seconds(events) for _ in range(repeat)],
        "events/s",
        10_000,
        f"{events} events, one in ten of which changes a Rabbit's state",
        more_is_better=True,
    )
    for ssds in (DEFAULT_CHUNKS, Settings.ssds_by_status + 1):
        down, back = _requests(ssds)
        for when, requests in ("goes down", down), ("is back", back):
            yield Row(
                STAND_IN,
                NAME,
                f"requests to Fluxion when a Rabbit with {ssds} ssd {when}",
                [requests],
                "",
                3,
                "of 16 nodes",
                COUNT,
                floor=_each_ssd(ssds),
            )


def _each_ssd(ssds: int) -> Optional[Floor]:
    """Jobs that only fit on Rabbits whose ``ssd`` are down wait. Without them, by the
    property of nodes that is one request, Fluxion would deny these jobs."""
    if ssds > Settings.ssds_by_status:
        return None
    return Floor(ssds, "each ssd is a request")


def _seconds(count: int) -> float:
    """The seconds to take in so many events."""
    topology = Topology.regular(NODES, RABBITS)

    nothing: Any = object()
    settings = Settings(Config(), mapping_of(topology))
    context = Context(_NoFlux(), nothing, settings)  # type: ignore[arg-type]
    manager = Storages(context, lambda: None)
    objects = [storage(rabbit) for rabbit in topology.rabbits.values()]
    for item in objects:
        manager.event("ADDED", _seen(item))
    events: list[Seen] = []
    for number in range(count):
        item = objects[number % len(objects)]
        state = "Offline" if number % 10 == 0 else "Ready"
        status = {**item["status"], "status": state, "capacity": number}
        events.append(_seen({**item, "status": status}))
    begin = time.perf_counter()
    for event in events:
        manager.event("MODIFIED", event)
    return time.perf_counter() - begin


def _seen(item: Json) -> Seen:
    return identify(msgspec.json.encode(item))


class _NoFlux:
    """An instance that is told nothing."""

    def log(self, level: int, message: str, reason: object) -> None:
        return None


def _requests(ssds: int) -> tuple[int, int]:
    """Requests to Fluxion when a Rabbit with so many ``ssd`` goes down, and when it
    is back."""
    system = VirtualSystem(topology=Topology.regular(64, 4, capacity=ssds * GIB))
    system.start()
    counts = []
    for status in ("Ready", "Offline", "Ready"):
        system.instance.fluxion.requests.clear()
        system.controllers.rabbits.set_status("rabbit-02", status)
        system.loop.run(timeout=60.0)
        counts.append(sum(system.instance.fluxion.requests.values()))
    return counts[1], counts[2]
