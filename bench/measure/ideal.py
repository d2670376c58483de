# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""A hundred jobs at once: the service, and a client that is nothing but fast.

DWS takes as long as was recorded of the real one. Both are watched from the
API server: from the first Workflow that is made to the last that is torn down.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from .bench import Bench, System
from .child import Child
from .rows import STAND_IN, Row, median
from .workload import Marks, makespan

NAME = "ideal"
JOBS = 100
PAUSE = 0.02
"""Seconds between two looks at whether all Workflows are gone."""


def measure(bench: Bench) -> Iterator[Row]:
    """Pairs of runs, so that both see the same machine. Each is first by turns. Each
    has a cluster of its own: the service would read the events of the other's
    Workflows, which have the names of its own."""
    seconds: list[list[float]] = [[], []]
    with bench.cluster(128, "recorded") as system, bench.child("alone") as module:
        module.call("start", kubeconfig=system.kubeconfig, rabbits=system.rabbits)
        with bench.cluster(128, "recorded") as other, bench.child("client") as client:
            client.call("start", url=other.url, rabbits=other.rabbits)
            pair = (system, module), (other, client)
            for number in range(bench.number(6, 1)):
                for whose in (0, 1) if number % 2 else (1, 0):
                    seconds[whose].append(_seconds(*pair[whose]))
    service, ideal = seconds
    yield Row(
        STAND_IN,
        NAME,
        "100 jobs at once, rate compared with an ideal client's",
        [theirs / ours for ours, theirs in zip(service, ideal)],
        "times",
        0.97,
        f"{median(service):.2f} s against {median(ideal):.2f} s ({len(ideal)} pairs)",
        more_is_better=True,
    )


def _seconds(system: System, program: Child) -> float:
    _, marks = finish(system, program, JOBS)
    return makespan(marks)


def finish(system: System, program: Child, count: int) -> tuple[float, Marks]:
    """Run jobs at once, until all their Workflows are gone. The processor time of the
    program, and what the API server saw."""
    system.cluster.call("marks")
    cpu = program.call("jobs", count=count)["cpu"]
    while system.cluster.call("count"):
        time.sleep(PAUSE)
    return cpu, system.cluster.call("marks")
