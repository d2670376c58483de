# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Whole jobs on the stand-in Flux: one at a time, and many at once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from .bench import Bench, System
from .child import Child
from .probe import Probe
from .rows import STAND_IN, Row, Target, median, percentile
from .workload import Marks, added, transitions

NODES = 1024
SINGLE = "jobs"
AT_ONCE = "at-once"
ALONE = "cpu"

ONE_JOB = Target(0.15)
EACH_OF_A_HUNDRED = Target(0.5)
RATE = Target(30, most=False)
CPU = Target(10)


def one_by_one(bench: Bench) -> Iterator[Row]:
    """One job at a time: what we add to its transitions, and to all of it."""
    with bench.cluster(64) as system, bench.child("standin") as flux:
        flux.call("start", kubeconfig=system.kubeconfig, nodes=64)
        flux.call("jobs", count=1)
        system.cluster.call("marks")
        trips: list[float] = []
        times: dict[str, Any] = {}
        plain: list[float] = []
        probe = Probe(system.url)
        for _ in range(bench.number(30, 8)):
            trips += [probe.sample() for _ in range(5)]
            plain += durations(flux.call("jobs", count=1, directive=False))
            times.update(flux.call("jobs", count=1)["times"])
        probe.close()
        marks = system.cluster.call("marks")
    yield from transition_rows(STAND_IN, SINGLE, "one job", marks, trips)
    yield Row(
        STAND_IN,
        SINGLE,
        "time added to a whole job, one at a time",
        median(added(times, marks)),
        "s",
        ONE_JOB,
        f"median of {len(times)}; a job without #DW takes {median(plain):.3f} s",
    )


def transition_rows(
    section: str, name: str, where: str, marks: Marks, trips: list[float]
) -> Iterator[Row]:
    """Rows about the time from a watch event in to a patch accepted."""
    times = list(transitions(marks))
    trip = median(trips)
    yield Row(
        section,
        name,
        f"time added per transition, {where}, median",
        median(times) / trip,
        "round trips",
        Target(2),
        f"{median(times) * 1e3:.2f} ms; a round trip is {trip * 1e3:.2f} ms "
        f"({len(times)} transitions)",
    )
    yield Row(
        section,
        name,
        f"time added per transition, {where}, p99",
        percentile(times, 99) * 1e3,
        "ms",
        Target(50),
    )


def at_once(bench: Bench) -> Iterator[Row]:
    """A hundred jobs at once, a few times, and a thousand."""
    repeat = bench.number(3, 1)
    with _stand_in(bench, "recorded") as (system, flux):
        plain = flux.call("jobs", count=100, directive=False)
        hundreds = [run(system, flux, 100) for _ in range(repeat)]
        yield from hundred_rows(STAND_IN, AT_ONCE, hundreds, plain)
    with _stand_in(bench, 0.0) as (system, flux):
        yield from rate_rows(
            STAND_IN, AT_ONCE, [run(system, flux, 100) for _ in range(repeat)]
        )
        many = run(system, flux, bench.number(1000, 200))
        yield from rate_rows(STAND_IN, AT_ONCE, [many])
        yield Row(
            STAND_IN,
            AT_ONCE,
            "RSS of stand-in Flux and module after that",
            many["memory"],
            "MiB",
        )


@contextlib.contextmanager
def _stand_in(bench: Bench, seconds: Any) -> Iterator[tuple[System, Child]]:
    """A system and a Flux, that have warmed up."""
    with bench.cluster(NODES, seconds) as system, bench.child("standin") as flux:
        flux.call("start", kubeconfig=system.kubeconfig, nodes=NODES)
        run(system, flux, 10)
        yield system, flux


def durations(result: dict[str, Any]) -> list[float]:
    """The seconds of each job from its submission to its end."""
    return [end - begin for begin, end in result["times"].values()]


def hundred_rows(
    section: str, name: str, runs: list[dict[str, Any]], plain: dict[str, Any]
) -> Iterator[Row]:
    """Rows about a hundred jobs at once, where DWS takes its time."""
    middle = median(median(run["added"]) for run in runs)
    late = median(percentile(run["added"], 99) for run in runs)
    yield Row(
        section,
        name,
        "time added to a whole job, each of a hundred at once",
        middle,
        "s",
        EACH_OF_A_HUNDRED,
        f"median over the jobs; p99 {late:.2f} s ({len(runs)} runs). DWS as fast as "
        f"the real one. Jobs without #DW take {median(durations(plain)):.2f} s",
    )


def rate_rows(section: str, name: str, runs: list[dict[str, Any]]) -> Iterator[Row]:
    """Rows about many jobs at once, where DWS takes no time."""
    jobs = len(runs[0]["times"])
    server, flux = (
        median(run[key] for run in runs) / jobs * 1e3 for key in ("server_cpu", "cpu")
    )
    added = median(median(run["added"]) for run in runs)
    yield Row(
        section,
        name,
        f"jobs per second, {jobs:,} at once, DWS without delay",
        median(run["rate"] for run in runs),
        "jobs/s",
        RATE,
        f"processor time per job: API server and DWS {server:.1f} ms, Flux and "
        f"module {flux:.1f} ms; {added:.1f} s added to each job",
    )


def run(system: System, flux: Child, count: int) -> dict[str, Any]:
    """Run jobs at once."""
    flux.call("settle", seconds=0.3)
    system.cluster.call("marks")
    server_cpu = system.cluster.call("cpu")
    result: dict[str, Any] = flux.call("jobs", count=count)
    result["server_cpu"] = system.cluster.call("cpu") - server_cpu
    times = result["times"].values()
    seconds = max(end for _, end in times) - min(begin for begin, _ in times)
    result["rate"] = count / seconds
    result["added"] = added(result["times"], system.cluster.call("marks"))
    return result


def alone(bench: Bench) -> Iterator[Row]:
    """The service in a process that does nothing else: its time and memory."""
    with bench.cluster(NODES) as system, bench.child("alone") as module:
        module.call("start", kubeconfig=system.kubeconfig, rabbits=system.rabbits)
        module.call("jobs", count=10)
        count = bench.number(500, 100)
        runs = [module.call("jobs", count=count) for _ in range(bench.number(3, 1))]
    yield Row(
        STAND_IN,
        ALONE,
        "module processor time per job",
        median(run["cpu"] / count for run in runs) * 1e3,
        "ms",
        CPU,
        "the service in a process of its own, with next to no Flux",
    )
    yield Row(
        STAND_IN,
        ALONE,
        f"module RSS after {count * len(runs):,} jobs",
        runs[-1]["memory"],
        "MiB",
    )
