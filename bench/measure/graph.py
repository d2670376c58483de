# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""``flux dws2jgf`` for a system as large as there are."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Iterator

from flux_k8s.formats import hostlist
from rabbitsim.system import mapping_of

from .bench import Bench
from .child import ChildError
from .hardware import EL_CAPITAN, topology
from .rows import STAND_IN, Row, median

NAME = "dws2jgf"
COMMAND = pathlib.Path(__file__).parents[2] / "src" / "cmd" / "flux-dws2jgf.py"
CHILDREN = {"core": "0-95", "gpu": "0-3"}


def measure(bench: Bench) -> Iterator[Row]:
    """Write R with the graph to a file, some times."""
    system = topology(EL_CAPITAN)
    mapping = bench.scratch / "mapping.json"
    mapping.write_text(json.dumps(mapping_of(system).to_json()), encoding="utf-8")
    R = {
        "version": 1,
        "execution": {
            "R_lite": [{"rank": f"0-{EL_CAPITAN - 1}", "children": CHILDREN}],
            "nodelist": [hostlist.encode(system.rabbit_of)],
            "properties": {"batch": f"0-{EL_CAPITAN // 2}"},
        },
    }
    source, target = bench.scratch / "R.json", bench.scratch / "R-with-graph.json"
    source.write_text(json.dumps(R), encoding="utf-8")
    rounds = [_run(mapping, source, target) for _ in range(bench.number(5, 1))]
    seconds = [seconds for seconds, _, _ in rounds]
    what = "dws2jgf, 11,136 nodes with 96 cores, 4 GPUs, 696 Rabbits"
    yield Row(
        STAND_IN,
        NAME,
        what,
        seconds,
        "s",
        1,
        f"median of {len(rounds)}, longest {max(seconds):.2f} s; processor time"
        f" {median(cpu for _, cpu, _ in rounds):.2f} s;"
        f" {target.stat().st_size / 2**20:.0f} MiB are written",
    )
    memory = [memory for _, _, memory in rounds]
    yield Row(STAND_IN, NAME, "memory of dws2jgf", memory, "MiB", 500)
    target.unlink()


def _run(
    mapping: pathlib.Path, source: pathlib.Path, target: pathlib.Path
) -> tuple[float, float, float]:
    """Seconds, seconds of processor time, and MiB that the command took."""
    with open(source, "rb") as stdin, open(target, "wb") as stdout:
        begin = time.monotonic()
        command = [sys.executable, str(COMMAND), str(mapping)]
        process = subprocess.Popen(command, stdin=stdin, stdout=stdout)
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.monotonic() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise ChildError(f"flux dws2jgf ended with {process.returncode}")
    return seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024
