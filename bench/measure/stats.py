# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The time until the module answers a request while the API server hangs.

The request is the one that ``flux module stats dws`` makes. Jobs come meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator

from .bench import Bench, System
from .child import Child
from .rows import P99, STAND_IN, Row, median, percentile

NAME = "stats"
NODES = 128
CALLS = 200
INTERVAL = 0.01
"""Seconds between two requests."""

JOBS = 100
"""Jobs that are submitted when the API server hangs."""


def measure(bench: Bench) -> Iterator[Row]:
    """The service in a process of its own, with next to no Flux."""
    with bench.cluster(NODES) as system, bench.child("alone") as module:
        module.call("start", kubeconfig=system.kubeconfig, rabbits=system.rabbits)
        module.call("jobs", count=50)
        yield from rows(STAND_IN, NAME, bench, system, module)


def rows(
    section: str, name: str, bench: Bench, system: System, flux: Child
) -> Iterator[Row]:
    """Ask when all is well, then while the API server hangs."""
    calls = bench.number(CALLS, 50)
    usual = flux.call("stats", count=calls, interval=INTERVAL)
    system.cluster.pause()
    try:
        flux.call("submit", count=JOBS)
        hanging = flux.call("stats", count=calls, interval=INTERVAL)
    finally:
        system.cluster.resume()
    flux.call("drain")
    yield Row(
        section,
        name,
        f"flux module stats dws, API server hangs, {JOBS} jobs come",
        [seconds * 1e3 for seconds in hanging],
        "ms",
        10,
        f"p99 of {calls} requests, median {median(hanging) * 1e3:.2f} ms, longest "
        f"{max(hanging) * 1e3:.1f}; when nothing hangs p99 "
        f"{percentile(usual, 99) * 1e3:.1f}",
        P99,
    )
