# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What users ask, in a system with many active jobs."""

from __future__ import annotations

import time
from collections.abc import Iterator

from . import realflux, scale
from .bench import Bench
from .hardware import EL_CAPITAN
from .rows import REAL_FLUX, STAND_IN, Row, median

QUERIES = "queries"
COMMANDS = "flux-commands"
JOBS = 10_000
GUESTS = 16
"""Guests who ask at the same time."""

PATIENCE = 900.0
"""Seconds until all jobs have a Workflow."""


def queries(bench: Bench) -> Iterator[Row]:
    """Queries to the module, and how long they hold up its event loop."""
    count = bench.number(JOBS, 1000)
    template, servers = scale.running_workflow(bench)
    with bench.cluster(EL_CAPITAN, controllers=False) as system:
        system.cluster.call("populate", template=template, count=count, servers=servers)
        with bench.child("alone") as module:
            module.call(
                "start",
                kubeconfig=system.kubeconfig,
                rabbits=system.rabbits,
                running=count,
            )
            module.call("queries", guests=GUESTS)
            rounds = [
                module.call("queries", guests=GUESTS) for _ in range(bench.number(9, 3))
            ]
    if any(each["with_rabbits"] != count for each in rounds):
        raise OSError(f"not all of {count} jobs were listed with their Rabbits")
    longest = [max(each["gaps"]) for each in rounds]
    used = [max(each["used"]) for each in rounds]
    yield Row(
        STAND_IN,
        QUERIES,
        f"longest reactor stall, {count:,} jobs listed, {GUESTS} guests",
        [seconds * 1e3 for seconds in used],
        "ms",
        10,
        "of processor time; and Rabbits, metrics, module stats, one job; median of"
        f" {len(rounds)} times, longest {max(used) * 1e3:.1f} ms; by the clock"
        f" {median(longest) * 1e3:.1f} ms",
    )
    yield Row(
        STAND_IN,
        QUERIES,
        f"all {count:,} jobs in answers of the module, meanwhile",
        [each["listed"] for each in rounds],
        "s",
    )


def commands(bench: Bench) -> Iterator[Row]:
    """The commands themselves, with their start. The jobs wait for a DWS that does
    nothing, and the instance is killed in the end."""
    count = bench.number(JOBS, 500)
    repeat = bench.number(5, 2)
    with realflux.running_system(bench, 0.0, controllers=False) as (_, flux):
        flux.call("submit", count=count)
        end = time.monotonic() + PATIENCE
        while flux.call("active")["jobs"] < count:
            if time.monotonic() > end:
                raise TimeoutError(f"not all of {count} jobs have a Workflow")
            time.sleep(1.0)
        path = str(bench.scratch / "jobs.svg")
        words = {
            "list": ["list", "-A"],
            "timeline": ["timeline", "-A", "-o", path],
            "report": ["report", "-o", path],
        }
        seconds = {
            name: flux.call("command", words=["flux", "dws", *each], count=repeat)
            for name, each in words.items()
        }
        start = flux.call("command", words=["flux", "dws", "list", "-h"], count=repeat)
        restarts = [flux.call("restart", count=count) for _ in range(repeat)]
    targets = {"list": 1, "timeline": 3}
    for name, found in seconds.items():
        note = f"median of {repeat}, fastest {min(found):.2f} s"
        if name == "list":
            note += f"; flux dws list -h takes {median(start):.2f} s"
        yield Row(
            REAL_FLUX,
            COMMANDS,
            f"flux dws {name}, {count:,} active jobs",
            found,
            "s",
            targets.get(name),
            note,
        )
    yield from _restart_rows(f"{count:,} active jobs", restarts)


def _restart_rows(what: str, restarts: list[dict[str, float]]) -> Iterator[Row]:
    yield Row(
        REAL_FLUX,
        COMMANDS,
        f"restart with {what} to fully reconciled",
        [each["seconds"] for each in restarts],
        "s",
        5,
        f"from flux module load; median of {len(restarts)}",
    )
    yield Row(
        REAL_FLUX,
        COMMANDS,
        f"job manager busy between two answers, restart with {what}",
        [each["most"] * 1e3 for each in restarts],
        "ms",
        10,
        f"the most processor time that others wait for; median of {len(restarts)}",
    )
