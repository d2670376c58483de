# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""A hundred jobs at once: the service, and a client that is nothing but fast.

DWS takes as long as was recorded of the real one. Both are watched from the
API server: from the first Workflow that is made to the last that is torn down.
"""

from __future__ import annotations

from collections.abc import Iterator

from .bench import Bench, System
from .child import Child
from .rows import STAND_IN, Row, Target, median
from .workload import Marks

NAME = "ideal"
JOBS = 100


def measure(bench: Bench) -> Iterator[Row]:
    """Pairs of runs, by turns, so that both see the same machine."""
    pairs = []
    with bench.cluster(128, "recorded") as system:
        with bench.child("alone") as module, bench.child("client") as client:
            module.call("start", kubeconfig=system.kubeconfig, rabbits=system.rabbits)
            client.call("start", url=system.url, rabbits=system.rabbits)
            for _ in range(bench.number(4, 1)):
                ours = _seconds(system, module)
                pairs.append((ours, _seconds(system, client)))
    ratio = median(ours / ideal for ours, ideal in pairs)
    yield Row(
        STAND_IN,
        NAME,
        "100 jobs at once, compared with an ideal client",
        ratio,
        "times",
        Target(1.05),
        f"{median(p[0] for p in pairs):.2f} s against "
        f"{median(p[1] for p in pairs):.2f} s ({len(pairs)} pairs)",
    )


def _seconds(system: System, program: Child) -> float:
    system.cluster.call("marks")
    program.call("jobs", count=JOBS)
    while system.cluster.call("count"):
        pass
    return _makespan(system.cluster.call("marks"))


def _makespan(marks: Marks) -> float:
    begin = min(history[0][0] for history in marks.values())
    end = max(
        when
        for history in marks.values()
        for when, what, state in history
        if (what, state) == ("reached", "Teardown")
    )
    return end - begin
