# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Measure, print a table, and write a file of bench/results.

What is measured is what has a target (``measure/rows.py``), on the stand-in for
Flux, and on a real Flux when one is on PATH. Kubernetes and DWS are always the
stand-in.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Callable

from measure import (
    check,
    commands,
    events,
    flight,
    graph,
    ideal,
    jobs,
    rabbits,
    realflux,
    realfluxion,
    results,
    scale,
    servers,
    stats,
)
from measure.bench import Bench
from measure.child import ChildError
from measure.rows import Row, print_rows

Measurement = Callable[[Bench], Iterator[Row]]

STAND_IN: dict[str, Measurement] = {
    servers.NAME: servers.measure,
    servers.ALLOCATION: servers.allocation,
    jobs.SINGLE: jobs.one_by_one,
    jobs.AT_ONCE: jobs.at_once,
    jobs.ALONE: jobs.alone,
    flight.NAME: flight.measure,
    ideal.NAME: ideal.measure,
    scale.NAME: scale.measure,
    graph.NAME: graph.measure,
    stats.NAME: stats.measure,
    rabbits.NAME: rabbits.measure,
    commands.QUERIES: commands.queries,
    events.NAME: events.alone,
}


def main() -> int:
    """Measure; the exit status says whether everything could be measured."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    problem = realflux.missing()
    measurements = dict(STAND_IN)
    if problem is None:
        measurements.update(realflux.MEASUREMENTS)
        measurements[events.FLUX] = events.with_flux
        measurements[commands.COMMANDS] = commands.commands
        if realfluxion.present():
            measurements[realfluxion.NAME] = realfluxion.measure
        measurements[check.FLUX] = check.with_flux
    measurements[check.NAME] = check.without_flux
    args = _arguments(measurements)
    found = results.begin(args.quick)
    with tempfile.TemporaryDirectory(prefix="flux-dws-bench-") as scratch:
        bench = Bench(args.quick, pathlib.Path(scratch))
        for name in args.only or measurements:
            _measure(name, measurements[name], bench, found)
    path = args.output or results.FOLDER / f"{found.name}.json"
    results.write(path, found)
    for facts in found.machine, found.versions:
        print(", ".join(f"{key} {value}" for key, value in facts.items()))
    print_rows(found.rows)
    if found.used_by_others:
        shares = _shares(found.used_by_others)
        print(f"\nmeanwhile others used {shares} of the processors")
    if problem is not None:
        print(f"\nreal Flux: not measured: {problem}")
    print(f"\nwritten to {os.path.relpath(path)}")
    return 1 if found.failed else 0


def _measure(
    name: str, measurement: Measurement, bench: Bench, found: results.Results
) -> None:
    """Add what is measured to the results, or that it failed."""
    begin, before = time.monotonic(), _processor_time()
    print(f"{name}...", end="", file=sys.stderr, flush=True)
    try:
        found.rows.extend(measurement(bench))
    except (ChildError, OSError) as error:
        print(f" failed\n{error}{bench.logs()}", file=sys.stderr)
        found.failed.append(name)
        return
    seconds = time.monotonic() - begin
    found.used_by_others[name] = _others(before, _processor_time(), seconds)
    print(f" {seconds:.0f} s", file=sys.stderr)


def _arguments(measurements: dict[str, Measurement]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--only",
        action="append",
        choices=list(measurements),
        metavar="NAME",
        help=f"do this one; may be repeated ({', '.join(measurements)})",
    )
    parser.add_argument(
        "--quick", action="store_true", help="fewer jobs: to see that it works"
    )
    parser.add_argument(
        "--output",
        type=pathlib.Path,
        metavar="FILE",
        help="where to write the results as JSON (bench/results/TIME-COMMIT.json)",
    )
    return parser.parse_args()


def _processor_time() -> tuple[float, float]:
    """Seconds of processor time that were used so far: by all, and by us with
    the programs that have ended."""
    with open("/proc/stat", encoding="ascii") as file:
        user, nice, system = map(int, file.readline().split()[1:4])
    return (user + nice + system) / os.sysconf("SC_CLK_TCK"), sum(os.times()[:4])


def _others(
    before: tuple[float, float], after: tuple[float, float], seconds: float
) -> float:
    """The part of the processors that was used by others: what they take is
    missing here, and makes times longer."""
    everything, ours = (now - then for now, then in zip(after, before))
    return max(0.0, (everything - ours) / seconds / (os.cpu_count() or 1))


def _shares(others: dict[str, float]) -> str:
    low, high = min(others.values()), max(others.values())
    return f"{100 * low:.0f} % to {100 * high:.0f} %"


if __name__ == "__main__":
    sys.exit(main())
