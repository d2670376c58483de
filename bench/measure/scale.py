# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The module in a system as large as there are, with many Workflows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .bench import Bench, System
from .child import Child
from .hardware import EL_CAPITAN
from .rows import STAND_IN, Row, Target, median, percentile
from .workload import FIRST_JOB

NAME = "scale"
WORKFLOWS = 10_000
ENDING = 100
"""Jobs that end while the module is away, or the API server."""


def measure(bench: Bench) -> Iterator[Row]:
    """Start the module among running jobs; then let the API server hang."""
    count = bench.number(WORKFLOWS, 1000)
    template, _ = running_workflow(bench)
    with bench.cluster(EL_CAPITAN, controllers=False) as system:
        system.cluster.call("populate", template=template, count=count)
        system.cluster.call("marks")
        with bench.child("alone") as module:
            start = module.call(
                "start",
                kubeconfig=system.kubeconfig,
                rabbits=system.rabbits,
                running=count - ENDING,
                ended=ENDING,
            )
            seconds = _reconciled(system, module) - start["begin"]
            rounds = range(bench.number(5, 2))
            hanging = [_hang(system, module, round) for round in rounds]
            module.call("end", first=len(rounds) * ENDING, count=count // 5)
            busy = module.call("run", seconds=bench.number(5, 2))["gaps"]
    what = f"{count:,} Workflows"
    yield Row(
        STAND_IN,
        NAME,
        f"module memory with {what}, 11,136 nodes, 696 Rabbits",
        start["memory"],
        "MiB",
        Target(200),
        f"RSS; {start['most']:.0f} MiB at most, while they were listed",
    )
    yield Row(
        STAND_IN,
        NAME,
        f"restart with {what} to fully reconciled",
        seconds,
        "s",
        Target(10),
        f"until the last of {ENDING} that ended meanwhile is in PostRun",
    )
    yield Row(
        STAND_IN,
        NAME,
        f"longest reactor stall, API server hangs, {what}",
        median(hanging) * 1e3,
        "ms",
        Target(20),
        f"each time {ENDING} jobs end and {ENDING} come; median of {len(rounds)} "
        f"times, longest {max(hanging) * 1e3:.1f} ms",
    )
    yield Row(
        STAND_IN,
        NAME,
        f"longest reactor stall, {count // 5:,} of {count:,} jobs end at once",
        max(busy) * 1e3,
        "ms",
        note=f"p99.9 {percentile(busy, 99.9) * 1e3:.1f} ms",
    )


def running_workflow(bench: Bench) -> tuple[Any, Any]:
    """A Workflow of a job that runs, as DWS leaves it, and its Servers."""
    name = f"fluxjob-{FIRST_JOB}"
    with bench.cluster(16) as system, bench.child("alone") as module:
        module.call("start", kubeconfig=system.kubeconfig, rabbits=system.rabbits)
        module.call("begin", count=1, run_seconds=60.0, spread=1.0)
        workflow = system.cluster.call("get", name=name)
        servers = system.cluster.call("servers", name=name)
    if workflow["status"]["state"] != "PreRun":
        raise RuntimeError(f"the Workflow is in {workflow['status']['state']}")
    return workflow, servers


def _reconciled(system: System, module: Child) -> float:
    """When the Workflows of all jobs that had ended were moved on. The service
    looks at them after all others."""
    moved: list[float] = []
    for _ in range(60):
        marks = system.cluster.call("marks")
        moved += [mark[0] for history in marks.values() for mark in history]
        if len(moved) >= ENDING:
            return max(moved)
        module.call("run", seconds=0.5)
    raise TimeoutError(f"{len(moved)} of {ENDING} Workflows were moved on")


def _hang(system: System, module: Child, round: int) -> float:
    """The longest that the event loop was held up while the API server hung."""
    system.cluster.pause()
    try:
        module.call("end", first=round * ENDING, count=ENDING)
        module.call("submit", count=ENDING)
        return float(max(module.call("run", seconds=2.0)["gaps"]))
    finally:
        system.cluster.resume()
        module.call("run", seconds=0.5)
