# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The module in a system as large as there are, with many Workflows."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

from .bench import Bench, System
from .child import Child
from .hardware import EL_CAPITAN
from .rows import STAND_IN, Row, percentile
from .workload import FIRST_JOB

NAME = "scale"
WORKFLOWS = 10_000
ENDING = 100
"""Jobs that end while the module is away, or the API server."""


def measure(bench: Bench) -> Iterator[Row]:
    """Start the module among running jobs, some times; then let the API server
    hang."""
    count, repeat = bench.number(WORKFLOWS, 1000), bench.number(3, 1)
    template, _ = running_workflow(bench)
    starts = []
    with bench.cluster(EL_CAPITAN, controllers=False) as system:
        system.cluster.call("populate", template=template, count=count)
        for number in range(1, repeat + 1):
            with bench.child("alone") as module:
                starts.append(_start(system, module, count, number * ENDING))
                if number == repeat:
                    hangs = bench.number(5, 2)
                    hanging = [_hang(system, module, each) for each in range(hangs)]
                    busy = [
                        _end(bench, module, hangs * ENDING + each * (count // 5), count)
                        for each in range(repeat)
                    ]
    what = f"{count:,} Workflows"
    yield from _start_rows(what, starts)
    yield Row(
        STAND_IN,
        NAME,
        f"longest reactor stall, API server hangs, {what}",
        [max(gaps) * 1e3 for gaps in hanging],
        "ms",
        10,
        f"each time {ENDING} jobs end and {ENDING} come; median of {len(hanging)} "
        f"times, longest {max(map(max, hanging)) * 1e3:.1f} ms",
    )
    yield Row(
        STAND_IN,
        NAME,
        f"longest reactor stall, {count // 5:,} of {count:,} jobs end at once",
        [max(gaps) * 1e3 for gaps in busy],
        "ms",
        note=f"median of {len(busy)} times; p99.9 "
        f"{percentile(chain.from_iterable(busy), 99.9) * 1e3:.1f} ms",
    )


def _start(system: System, module: Child, count: int, ended: int) -> dict[str, Any]:
    """Start the module when so many of the jobs have ended, of which the last
    ``ENDING`` did while it was away."""
    system.cluster.call("marks")
    start: dict[str, Any] = module.call(
        "start",
        kubeconfig=system.kubeconfig,
        rabbits=system.rabbits,
        running=count - ended,
        ended=ended,
    )
    start["seconds"] = _reconciled(system, module) - start["begin"]
    return start


def _start_rows(what: str, starts: list[dict[str, Any]]) -> Iterator[Row]:
    most = max(start["most"] for start in starts)
    yield Row(
        STAND_IN,
        NAME,
        f"module memory with {what}, 11,136 nodes, 696 Rabbits",
        [start["memory"] for start in starts],
        "MiB",
        120,
        f"RSS; {most:.0f} MiB at most, while they were listed",
    )
    yield Row(
        STAND_IN,
        NAME,
        f"restart with {what} to fully reconciled",
        [start["seconds"] for start in starts],
        "s",
        5,
        f"until the last of {ENDING} that ended meanwhile is in PostRun; median of "
        f"{len(starts)} times",
    )
    stalls = [max(start["gaps"]) * 1e3 for start in starts]
    yield Row(
        STAND_IN,
        NAME,
        f"longest reactor stall, restart with {what}",
        stalls,
        "ms",
        10,
        f"until all are known; median of {len(starts)} times, longest "
        f"{max(stalls):.1f} ms",
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


def _hang(system: System, module: Child, round: int) -> list[float]:
    """How late each turn of the event loop was while the API server hung."""
    system.cluster.pause()
    try:
        module.call("end", first=round * ENDING, count=ENDING)
        module.call("submit", count=ENDING)
        gaps: list[float] = module.call("run", seconds=2.0)["gaps"]
        return gaps
    finally:
        system.cluster.resume()
        module.call("run", seconds=0.5)


def _end(bench: Bench, module: Child, first: int, count: int) -> list[float]:
    """How late each turn of the event loop was when a fifth of the jobs ended."""
    module.call("end", first=first, count=count // 5)
    gaps: list[float] = module.call("run", seconds=bench.number(5, 2))["gaps"]
    return gaps
