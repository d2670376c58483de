# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The floors of rows.

Most are what an ideal client takes, which reads the same events and sends the same
patches, and does nothing else.
"""

from __future__ import annotations

import json
import timeit
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from flux_k8s.ports import DWS_GROUP

from .bench import Bench, System
from .ideal import finish
from .rows import Floor, median
from .workload import Marks, dws_seconds, makespan, torn_down, transitions


@dataclass(frozen=True)
class IdealRun:
    """Jobs at once of an ideal client.

    Attributes:
        count: the number of jobs.
        cpu: seconds of processor time.
        server_cpu: those of the API server and DWS.
        marks: what the API server saw.
    """

    count: int
    cpu: float
    server_cpu: float
    marks: Marks


def ideal_runs(
    bench: Bench, nodes: int, seconds: Any, count: int, repeat: int, **more: Any
) -> Iterator[IdealRun]:
    """Run jobs at once, a few times, where DWS takes so many seconds for a state."""
    with (
        bench.cluster(nodes, seconds, **more) as system,
        bench.child("client") as ideal,
    ):
        ideal.call("start", url=system.url, rabbits=system.rabbits)
        finish(system, ideal, 1)
        for _ in range(repeat):
            before = system.cluster.call("cpu")
            cpu, marks = finish(system, ideal, count)
            server_cpu = system.cluster.call("cpu") - before
            yield IdealRun(count, cpu, server_cpu, marks)


def cpu_per_job(runs: Sequence[IdealRun]) -> Floor:
    """Milliseconds of processor time."""
    return _ideal([run.cpu / run.count * 1e3 for run in runs])


def rate(runs: Sequence[IdealRun]) -> Floor:
    """Jobs per second."""
    return _ideal([run.count / makespan(run.marks) for run in runs])


def added(runs: Sequence[IdealRun]) -> Floor:
    """Seconds of each job that DWS did not need."""
    return _ideal(
        [
            median(
                torn_down(history) - history[0][0] - dws_seconds(history)
                for history in run.marks.values()
            )
            for run in runs
        ]
    )


def transition(runs: Sequence[IdealRun], trip: float) -> Floor:
    """From a watch event in to a patch accepted, in round trips of ``trip`` seconds."""
    return _ideal([found / trip for run in runs for found in transitions(run.marks)])


def _ideal(values: list[float]) -> Floor:
    return Floor(median(values), "an ideal client in Python")


def flux(values: Sequence[float]) -> Floor:
    """What was measured on a real Flux that has an ideal client in place of the
    module."""
    return Floor(median(values), "an ideal client in Python in place of the module")


def parsing(system: System) -> Floor:
    """Microseconds to read the JSON of an event of a Workflow."""
    version = _get(f"{system.url}/apis/{DWS_GROUP}")["preferredVersion"]["groupVersion"]
    url = f"{system.url}/apis/{version}/namespaces/default/workflows"
    workflow = _get(url)["items"][0]
    line = json.dumps({"type": "MODIFIED", "object": workflow}, separators=(",", ":"))
    seconds = min(timeit.repeat(lambda: json.loads(line), number=1000, repeat=5))
    return Floor(seconds * 1e3, f"json.loads of its {len(line):,} bytes")


def _get(url: str) -> Any:
    with urllib.request.urlopen(url) as answer:
        return json.load(answer)
