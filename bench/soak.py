# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Run jobs on a real Flux for an hour, in rounds, and tell what each round took.

What grows from one round to the next, time or memory, grows for ever on a machine. The
scheduler is Fluxion where it is installed. Kubernetes and DWS are the stand-in, and DWS
takes no time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any

from measure import realflux, realfluxion, results
from measure.bench import Bench, System
from measure.child import Child, ChildError

SECONDS = 3600.0
JOBS = 300
SHOWN = 8
"""Threads of the broker that are named: those that took the most."""

Round = dict[str, Any]


def main() -> int:
    """Run; the exit status says whether that was possible."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    now = results.begin(False)
    args = _arguments(now.name)
    problem = realflux.missing()
    if problem is not None:
        print(f"soak: not possible: {problem}", file=sys.stderr)
        return 1
    found: list[Round] = []
    with tempfile.TemporaryDirectory(prefix="flux-dws-soak-") as scratch:
        bench = Bench(False, pathlib.Path(scratch))
        try:
            with _running_system(bench) as (system, flux):
                end = time.monotonic() + args.seconds
                while time.monotonic() < end:
                    found.append(_round(system, flux, args.jobs))
                    print(_line(len(found), args.jobs, found[-1]), flush=True)
        except (ChildError, OSError) as error:
            print(f"soak: {error}{bench.logs()}", file=sys.stderr)
            return 1
    print(_threads(found[1:] or found))
    facts = {"machine": now.machine, "versions": now.versions, "commit": now.commit}
    text = json.dumps({**facts, "jobs": args.jobs, "rounds": found}, indent=1)
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(text + "\n", encoding="utf-8")
    print(f"written to {os.path.relpath(args.output)}")
    return 0


def _arguments(name: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, metavar="NUMBER", help="for so long"
    )
    parser.add_argument(
        "--jobs", type=int, default=JOBS, metavar="NUMBER", help="jobs of a round"
    )
    parser.add_argument(
        "--output",
        type=pathlib.Path,
        default=results.FOLDER / f"{name}-soak.json",
        metavar="FILE",
        help="where to write the numbers as JSON (bench/results/TIME-COMMIT-soak.json)",
    )
    return parser.parse_args()


@contextlib.contextmanager
def _running_system(bench: Bench) -> Iterator[tuple[System, Child]]:
    if realfluxion.present():
        with realfluxion.running_system(bench) as both:
            yield both
    else:
        with realflux.running_system(bench, 0.0) as both:
            yield both


def _round(system: System, flux: Child, count: int) -> Round:
    """Jobs at once, until all have ended: the seconds, the processor time of each part
    in seconds, and its memory in MiB afterwards."""
    before, cluster = flux.call("threads"), system.cluster.call("cpu")
    begin = time.monotonic()
    ran = flux.call("jobs", count=count)
    seconds = time.monotonic() - begin
    system.cluster.call("marks")
    threads = {
        name: taken - before.get(name, 0.0)
        for name, taken in flux.call("threads").items()
    }
    return {
        "seconds": seconds,
        "module": ran["module"],
        "cluster": system.cluster.call("cpu") - cluster,
        "threads": threads,
        "memory": {
            "module": flux.call("memory"),
            "broker": flux.call("broker_memory"),
            "cluster": system.cluster.call("memory"),
        },
    }


def _line(number: int, count: int, found: Round) -> str:
    memory = ", ".join(f"{name} {size:.1f}" for name, size in found["memory"].items())
    broker = sum(found["threads"].values())
    return (
        f"round {number}: {found['seconds']:.2f} s; ms of processor for each job: "
        f"module {1e3 * found['module'] / count:.1f}, broker "
        f"{1e3 * broker / count:.1f}, cluster {1e3 * found['cluster'] / count:.1f}; "
        f"MiB: {memory}"
    )


def _threads(rounds: Sequence[Round]) -> str:
    """What the broker's threads took in the first round, and in the last."""
    first, last = rounds[0]["threads"], rounds[-1]["threads"]
    names = sorted(last, key=last.__getitem__, reverse=True)[:SHOWN]
    parts = (f"{name} {first.get(name, 0.0):.2f}, {last[name]:.2f}" for name in names)
    return "seconds of the broker's threads, first and last: " + "; ".join(parts)


if __name__ == "__main__":
    sys.exit(main())
