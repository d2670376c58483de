# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What news of the Rabbits cost a real Fluxion: how long it does nothing else.

Its ``sched-fluxion-resource`` takes one request after another on one thread. What
that takes of a processor is what jobs wait for.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import subprocess
from collections.abc import Iterator
from typing import Any

from flux_k8s.formats import rset
from flux_k8s.formats.directives import GIB
from flux_k8s.objects import mapping as rabbitmapping
from flux_k8s.rules import jgfwriter
from flux_k8s.rules.jgfwriter import DEFAULT_CHUNKS

from .bench import Bench, System
from .child import Child
from .hardware import EL_CAPITAN, NODES_PER_RABBIT, PREFIX
from .realflux import CORES, instance
from .rows import REAL_FLUX, Row

NAME = "flux-fluxion"
NODES = 128
WAITING = 100
LARGE = "#DW jobdw type=xfs capacity=20TiB name=p1"
"""More than half of a Rabbit."""

AMENDER = """\
import json

def amend(R, hwloc_xml=None):
    with open({graph!r}) as file:
        R["scheduling"] = json.load(file)
    return R
"""
"""How the graph comes into an R of nodes that there are not."""


def present() -> bool:
    """Fluxion is installed."""
    command = ["flux", "ion-resource", "--help"]
    return subprocess.run(command, capture_output=True).returncode == 0


def measure(bench: Bench) -> Iterator[Row]:
    rabbits = bench.number(NODES // NODES_PER_RABBIT, 2)
    with running_system(bench) as (system, flux):
        yield from _outages(system, flux, range(rabbits), "")
        full = NODES // NODES_PER_RABBIT
        flux.call("occupy", directive=LARGE, running=full, waiting=WAITING)
        flux.call("switched", down=0)
        yield from _outages(system, flux, range(rabbits), f", {WAITING} jobs wait")
        flux.call("cancel")
    yield from _reserved(bench, NODES)
    if not bench.quick:
        yield from _reserved(bench, EL_CAPITAN)


@contextlib.contextmanager
def running_system(bench: Bench) -> Iterator[tuple[System, Child]]:
    """Kubernetes, DWS and a Flux instance with Fluxion, the plugin and the module."""
    with bench.cluster(NODES) as system:
        with instance(bench, system, NODES, _config(system, NODES)) as flux:
            flux.call("load_module", arguments=[])
            flux.call("switched", down=0)
            yield system, flux
            flux.call("unload_module")


def _outages(system: System, flux: Child, rabbits: range, what: str) -> Iterator[Row]:
    """One Rabbit after another goes down and comes back."""
    seconds: dict[bool, list[float]] = {True: [], False: []}
    for number in rabbits:
        for down, taken in seconds.items():
            before = flux.call("scheduler")
            name = f"rabbit{number}"
            system.cluster.call("disable", rabbit=name, disabled=down)
            after = flux.call("switched", down=DEFAULT_CHUNKS if down else 0)
            taken.append(after - before)
    for down, taken in seconds.items():
        yield _row(
            f"Fluxion busy when a Rabbit {'goes down' if down else 'is back'}{what}",
            taken,
            f"{DEFAULT_CHUNKS} ssd, {NODES} nodes",
        )


def _reserved(bench: Bench, nodes: int) -> Iterator[Row]:
    """Storage that is no job's comes, and goes."""
    seconds: dict[bool, list[float]] = {True: [], False: []}
    with bench.cluster(nodes) as system:
        with instance(bench, system, nodes, _config(system, nodes)) as flux:
            flux.call("load_module", arguments=[])
            flux.call("switched", down=0)
            for number in range(bench.number(5, 1)):
                for down, taken in seconds.items():
                    before = flux.call("scheduler")
                    if down:
                        name, size = f"rabbit{number}", 1000 * GIB
                        system.cluster.call(
                            "reserve", name=name, rabbit=name, size=size
                        )
                    else:
                        system.cluster.call("release", name=name)
                    after = flux.call("switched", down=2 if down else 0)
                    taken.append(after - before)
            flux.call("unload_module")
    for down, taken in seconds.items():
        yield _row(
            f"Fluxion busy when persistent storage {'comes' if down else 'goes'},"
            f" {nodes} nodes",
            taken,
            "2 ssd",
        )


def _row(what: str, seconds: list[float], note: str) -> Row:
    values = [1e3 * each for each in seconds]
    longest = f"median of {len(values)}, longest {max(values):.1f} ms; {note}"
    return Row(REAL_FLUX, NAME, what, values, "ms", note=longest)


def _config(system: System, nodes: int) -> list[str]:
    """Fluxion with a graph of the Rabbits: lines of the configuration."""
    graph, amender = system.folder / "graph.json", system.folder / "amend.py"
    _write_graph(graph, system.rabbits, nodes)
    amender.write_text(AMENDER.format(graph=str(graph)), encoding="utf-8")
    return [
        f"amend-r = {json.dumps(str(amender))}",
        "[sched-fluxion-resource]",
        'match-policy = "firstnodex"',
        'match-format = "rv1"',
        'prune-filters = "ALL:core,ALL:ssd"',
    ]


def _write_graph(path: pathlib.Path, rabbits: dict[str, Any], nodes: int) -> None:
    R = {
        "version": 1,
        "execution": {
            "R_lite": [
                {"rank": f"0-{nodes - 1}", "children": {"core": f"0-{CORES - 1}"}}
            ],
            "nodelist": [f"{PREFIX}[0-{nodes - 1}]"],
        },
    }
    mapping = rabbitmapping.parse(rabbits)
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(jgfwriter.scheduling(rset.parse(R), mapping))
