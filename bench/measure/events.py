# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The processor time of the module where a watch shows as much as on a real system.

The real controllers write a Workflow about forty times on its way, and its Servers
about ten times. DWS takes as long as was recorded of the real one.
"""

from __future__ import annotations

from collections.abc import Iterator

from . import floors, realflux
from .bench import Bench, System
from .child import Child
from .jobs import run
from .rows import REAL_FLUX, STAND_IN, Floor, Row, median

NAME = "events"
FLUX = "flux-events"

JOBS = 100
"""Jobs at once."""

WAITING = 20
"""Jobs whose Workflows change without a meaning for the service."""

RATE = 400
"""Changes a second."""

PER_JOB = 10
PER_EVENT = 20


def alone(bench: Bench) -> Iterator[Row]:
    """The service in a process that does nothing else."""
    ideal = _ideal(bench)
    costs: list[float] = []
    with bench.cluster(128, "recorded", full_events=True) as system:
        with bench.child("alone") as module:
            module.call("start", kubeconfig=system.kubeconfig, rabbits=system.rabbits)
            module.call("jobs", count=10)
            system.cluster.call("events")
            runs = [
                module.call("jobs", count=JOBS)["cpu"]
                for _ in range(bench.number(3, 1))
            ]
            shown = system.cluster.call("events") / len(runs) / JOBS
            module.call("begin", count=WAITING, run_seconds=600.0, spread=1.0)
            module.call("run", seconds=8.0)
            costs = _costs(bench, system, module, "run")
            parsing = floors.parsing(system)
        with bench.child("client") as ideal_client:
            ideal_client.call("start", url=system.url, rabbits=system.rabbits)
            least = median(_costs(bench, system, ideal_client, "watch"))
    note = f"with next to no Flux; {shown:.0f} events"
    yield _per_job(STAND_IN, NAME, runs, note, ideal)
    yield Row(
        STAND_IN,
        NAME,
        "module processor time per event of no meaning",
        costs,
        "µs",
        PER_EVENT,
        f"an annotation changes {RATE} times a second; {len(costs)} windows less one "
        "without events before each",
        floor=Floor(
            least, f"an ideal client; {parsing.of} take {parsing.value:.0f} µs"
        ),
    )


def with_flux(bench: Bench) -> Iterator[Row]:
    """The processes of the module in a real Flux."""
    ideal = _ideal(bench)
    with realflux.running_system(bench, "recorded", full_events=True) as (system, flux):
        run(system, flux, 10)
        system.cluster.call("events")
        count = bench.number(3, 1)
        runs = [run(system, flux, JOBS)["module"] for _ in range(count)]
        shown = system.cluster.call("events") / len(runs) / JOBS
    yield _per_job(REAL_FLUX, FLUX, runs, f"{shown:.0f} events", ideal)


def _costs(bench: Bench, system: System, child: Child, command: str) -> list[float]:
    """The processor time for each event of no meaning, in µs, in some windows."""
    window = bench.number(3, 2)
    costs = []
    for _ in range(bench.number(5, 1)):
        quiet = child.call(command, seconds=window)["cpu"]
        child.send(command, seconds=window)
        count = system.cluster.call("touch", rate=RATE, seconds=window - 1.0)
        costs.append((child.receive()["cpu"] - quiet) / count * 1e6)
    return costs


def _ideal(bench: Bench) -> Floor:
    runs = floors.ideal_runs(bench, 128, "recorded", JOBS, 1, full_events=True)
    return floors.cpu_per_job(list(runs))


def _per_job(
    section: str, name: str, runs: list[float], note: str, floor: Floor
) -> Row:
    return Row(
        section,
        name,
        "module processor time per job, events as of a real system",
        [seconds / JOBS * 1e3 for seconds in runs],
        "ms",
        PER_JOB,
        f"{JOBS} at once, {note} for each ({len(runs)} runs)",
        floor=floor,
    )
