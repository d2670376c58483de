# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Whole jobs on the stand-in Flux: one at a time, and many at once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Optional

from . import floors
from .bench import Bench, System
from .child import Child
from .floors import IdealRun
from .probe import PAUSE, Probe
from .rows import P99, STAND_IN, Floor, Row, median, percentile
from .workload import added, transitions

NODES = 1024
SINGLE = "jobs"
AT_ONCE = "at-once"
ALONE = "cpu"

DWS_SECONDS = (0.0, PAUSE)
"""Of a job at a time. A DWS that takes no time has completed a state before we have the
answer to the request for it, and all caches are warm. The round trips that transitions
are compared with find a machine that has rested, and so does a real DWS's event."""

ROUND_TRIPS = 1.1
TRANSITION = 20
ONE_JOB = 0.05
EACH_OF_A_HUNDRED = 0.3
RATE = 100
CPU = 10


def one_by_one(bench: Bench) -> Iterator[Row]:
    """One job at a time, on the stand-in Flux."""
    rounds = bench.number(30, 8)
    for seconds in DWS_SECONDS:
        ideal = list(floors.ideal_runs(bench, 64, seconds, 1, rounds))
        with bench.cluster(64, seconds) as system, bench.child("standin") as flux:
            flux.call("start", kubeconfig=system.kubeconfig, nodes=64)
            rows = STAND_IN, SINGLE, system, flux, rounds, seconds, ideal
            yield from single_rows(*rows)


def single_rows(
    section: str,
    name: str,
    system: System,
    flux: Child,
    rounds: int,
    seconds: float,
    ideal: Sequence[IdealRun] = (),
) -> Iterator[Row]:
    """Rows about one job at a time, where DWS takes so many seconds for a state: what
    we add to its transitions, and to all of it. API round trips, a job without #DW and
    a job with it take turns."""
    flux.call("jobs", count=1)
    system.cluster.call("marks")
    ratios: list[float] = []
    trips: list[float] = []
    times: list[float] = []
    plain: list[float] = []
    more: list[float] = []
    probe = Probe(system.url)
    for _ in range(rounds):
        some = [probe.sample() for _ in range(5)]
        plain += durations(flux.call("jobs", count=1, directive=False))
        job = flux.call("jobs", count=1)["times"]
        marks = system.cluster.call("marks")
        found = list(transitions(marks))
        ratios.append(median(found) / median(some))
        trips += some
        times += found
        more += added(job, marks)
    probe.close()
    where = f"one job, DWS takes {seconds * 1e3:.0f} ms" if seconds else "one job"
    yield from transition_rows(section, name, where, ratios, times, trips, ideal)
    if seconds:
        return
    yield Row(
        section,
        name,
        "time added to a whole job, one at a time",
        more,
        "s",
        ONE_JOB,
        f"median of {len(more)}; a job without #DW takes {median(plain):.3f} s",
    )


def transition_rows(
    section: str,
    name: str,
    where: str,
    ratios: list[float],
    times: list[float],
    trips: list[float],
    ideal: Sequence[IdealRun] = (),
) -> Iterator[Row]:
    """Rows about the time from a watch event in to a patch accepted, ``times``, and
    that compared with API round trips of the same moment, ``ratios``."""
    yield Row(
        section,
        name,
        f"time added per transition, {where}, median",
        ratios,
        "round trips",
        ROUND_TRIPS,
        f"{median(times) * 1e3:.2f} ms; a round trip is {median(trips) * 1e3:.2f} ms "
        f"({len(times)} transitions)",
        floor=floors.transition(ideal, median(trips)) if ideal else None,
    )
    yield Row(
        section,
        name,
        f"time added per transition, {where}, p99",
        [seconds * 1e3 for seconds in times],
        "ms",
        TRANSITION,
        statistic=P99,
    )


def at_once(bench: Bench) -> Iterator[Row]:
    """A hundred jobs at once, and a thousand, a few times."""
    repeat, count = bench.number(3, 1), bench.number(1000, 200)
    ideal = list(floors.ideal_runs(bench, NODES, "recorded", 100, 1))
    with _stand_in(bench, "recorded") as (system, flux):
        plain = flux.call("jobs", count=100, directive=False)
        hundreds = [run(system, flux, 100) for _ in range(repeat)]
        floor = floors.added(ideal)
        yield from hundred_rows(STAND_IN, AT_ONCE, hundreds, plain, floor)
    ideal = list(floors.ideal_runs(bench, NODES, 0.0, count, 1))
    with _stand_in(bench, 0.0) as (system, flux):
        hundreds = [run(system, flux, 100) for _ in range(repeat)]
        yield from rate_rows(STAND_IN, AT_ONCE, hundreds, None)
        thousands = [run(system, flux, count) for _ in range(repeat)]
    yield from rate_rows(STAND_IN, AT_ONCE, thousands, RATE, floors.rate(ideal))
    yield Row(
        STAND_IN,
        AT_ONCE,
        f"RSS of stand-in Flux and module after {count:,} at once",
        [run["memory"] for run in thousands],
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
    section: str,
    name: str,
    runs: list[dict[str, Any]],
    plain: dict[str, Any],
    floor: Optional[Floor] = None,
    taken: str = "",
) -> Iterator[Row]:
    """Rows about a hundred jobs at once, where DWS takes its time. ``taken`` says what
    has taken processor time."""
    late = median(percentile(run["added"], 99) for run in runs)
    yield Row(
        section,
        name,
        "time added to a whole job, each of a hundred at once",
        [median(run["added"]) for run in runs],
        "s",
        EACH_OF_A_HUNDRED,
        f"median over the jobs; p99 {late:.2f} s ({len(runs)} runs). DWS as fast as "
        f"the real one. Jobs without #DW take {median(durations(plain)):.2f} s{taken}",
        floor=floor,
    )


def rate_rows(
    section: str,
    name: str,
    runs: list[dict[str, Any]],
    target: Optional[float],
    floor: Optional[Floor] = None,
) -> Iterator[Row]:
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
        [run["rate"] for run in runs],
        "jobs/s",
        target,
        f"processor time per job: API server and DWS {server:.1f} ms, Flux and "
        f"module {flux:.1f} ms; {added:.1f} s added to each job ({len(runs)} runs)",
        more_is_better=True,
        floor=floor,
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
    count = bench.number(500, 100)
    ideal = list(floors.ideal_runs(bench, NODES, 0.0, count, 1))
    with bench.cluster(NODES) as system, bench.child("alone") as module:
        module.call("start", kubeconfig=system.kubeconfig, rabbits=system.rabbits)
        module.call("jobs", count=10)
        runs = [module.call("jobs", count=count) for _ in range(bench.number(3, 1))]
    yield Row(
        STAND_IN,
        ALONE,
        "module processor time per job",
        [run["cpu"] / count * 1e3 for run in runs],
        "ms",
        CPU,
        "the service in a process of its own, with next to no Flux",
        floor=floors.cpu_per_job(ideal),
    )
    yield Row(
        STAND_IN,
        ALONE,
        f"module RSS after {count:,} at once",
        [run["memory"] for run in runs],
        "MiB",
    )
