# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Transitions while a thousand jobs are in flight.

DWS takes seconds for each state, as hardware does, so that neither it nor the API
server is what the transitions wait for.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from . import floors
from .bench import Bench
from .jobs import transition_rows
from .probe import Probe
from .rows import STAND_IN, Row, median
from .workload import transitions

NAME = "flight"
JOBS = 1000
SECONDS = (9.0, 15.0)
"""DWS takes between so many seconds for each state."""

RUN_SECONDS = 12.0
BEATS = 1000
"""Turns of the event loop, each a millisecond after the one before, of which the
longest counts."""


def measure(bench: Bench) -> Iterator[Row]:
    """Transitions in a window in which all jobs are somewhere on their way."""
    jobs = bench.number(JOBS, 100)
    window = bench.number(16, 4)
    ideal = list(floors.ideal_runs(bench, 1024, SECONDS, jobs, 1))
    with bench.cluster(1024, SECONDS) as system, bench.child("alone") as module:
        module.call("start", kubeconfig=system.kubeconfig, rabbits=system.rabbits)
        module.call("begin", count=jobs, run_seconds=RUN_SECONDS, spread=24.0)
        system.cluster.call("marks")
        probe = Probe(system.url)
        module.send("run", seconds=window)
        trips = []
        end = time.monotonic() + window
        while time.monotonic() < end:
            trips.append(probe.sample())
            time.sleep(0.05)
        result = module.receive()
        marks = system.cluster.call("marks")
        probe.close()
    where = f"{jobs:,} jobs in flight"
    times = list(transitions(marks))
    trip = median(trips)
    ratios = [seconds / trip for seconds in times]
    yield from transition_rows(STAND_IN, NAME, where, ratios, times, trips, ideal)
    gaps = result["gaps"]
    parts = [gaps[start : start + BEATS] for start in range(0, len(gaps), BEATS)]
    yield Row(
        STAND_IN,
        NAME,
        f"longest reactor stall of {BEATS:,} turns, {where}",
        [max(part) * 1e3 for part in parts],
        "ms",
        note=f"a turn is {median(gaps) * 1e3:.2f} ms late, the longest of all "
        f"{max(gaps) * 1e3:.1f} ms; {result['jobs']:,} jobs; module's processor "
        f"{100 * result['cpu'] / window:.0f} % busy",
    )
