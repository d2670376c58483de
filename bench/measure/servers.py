# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""One Lustre file system for a job on all nodes of the largest system."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from flux_k8s.formats import rset
from flux_k8s.objects.mapping import RabbitMapping
from flux_k8s.ports import Json
from flux_k8s.rules.directivebreakdown.allocation import job_allocation
from flux_k8s.rules.directivebreakdown.breakdown import parse
from flux_k8s.rules.directivebreakdown.resources import apply_breakdowns
from flux_k8s.rules.directivebreakdown.servers import build_servers
from rabbitsim.dws import Profiles, Topology
from rabbitsim.dws.breakdown import storage_status
from rabbitsim.dws.directive import parse as parse_directive
from rabbitsim.dws.topology import RABBIT_LABEL
from rabbitsim.flux import rwriter
from rabbitsim.flux.pool import Pool, make_nodes
from rabbitsim.system import hosts_of, mapping_of

from .bench import Bench
from .hardware import EL_CAPITAN, topology
from .rows import STAND_IN, Row
from .workload import jobspec

NAME = "servers"
ALLOCATION = "allocation"
DIRECTIVE = "#DW jobdw type=lustre capacity=1000TiB name=all"
CORES = 4

LARGE = 4096
"""The nodes of a large job."""


def measure(bench: Bench) -> Iterator[Row]:
    """The work of the service when a job has its nodes, without I/O."""
    hardware = topology(EL_CAPITAN)
    mapping = mapping_of(hardware)
    breakdown = _breakdown()
    labels = {rabbit: {RABBIT_LABEL: "Rabbit"} for rabbit in mapping.rabbits}
    text = json.dumps(_resource_set(hardware, mapping, breakdown))
    reading, placing = [], []
    for _ in range(bench.number(7, 3)):
        begin = time.perf_counter()
        R = rset.parse(json.loads(text))
        allocation = replace(job_allocation(R, mapping), storages=labels)
        middle = time.perf_counter()
        build_servers([parse(breakdown)], allocation)
        reading.append((middle - begin) * 1e3)
        placing.append((time.perf_counter() - middle) * 1e3)
    yield Row(
        STAND_IN,
        NAME,
        "Lustre breakdown to Servers, 11,136 nodes, 696 Rabbits",
        placing,
        "ms",
        100,
    )
    yield Row(
        STAND_IN,
        NAME,
        "reading that job's R, with Fluxion's graph",
        reading,
        "ms",
        note=f"{len(text) / 2**20:.1f} MiB of JSON, with {CORES} cores per node",
    )


def allocation(bench: Bench) -> Iterator[Row]:
    """Such jobs at the service: from their R to the request for Setup, at which DWS
    stays."""
    for nodes in (LARGE, EL_CAPITAN):
        yield from _allocation(bench, nodes)


def _allocation(bench: Bench, nodes: int) -> Iterator[Row]:
    hardware = topology(nodes)
    path = bench.scratch / f"R-of-{nodes}.json"
    R = _resource_set(hardware, mapping_of(hardware), _breakdown())
    path.write_text(json.dumps(R), encoding="utf-8")
    seconds, stalls = [], []
    with bench.cluster(nodes, {"Setup": 3600.0}) as system:
        with bench.child("alone") as module:
            module.call("start", kubeconfig=system.kubeconfig, rabbits=system.rabbits)
            for _ in range(bench.number(5, 1)):
                job = module.call("allocate", directive=DIRECTIVE, path=str(path))
                history = system.cluster.call("marks")[job["name"]]
                asked = {
                    state: when for when, what, state in history if what == "asked"
                }
                seconds.append(asked["Setup"] - job["allocated"])
                stalls.append(max(job["gaps"]) * 1e3)
    what = f"R of {nodes:,} nodes and {len(hardware.rabbits)} Rabbits"
    yield Row(
        STAND_IN,
        ALLOCATION,
        f"longest reactor stall, {what}",
        stalls,
        "ms",
        10,
        f"{path.stat().st_size / 2**20:.1f} MiB of JSON, with {CORES} cores per node",
    )
    what = f"from {what} to the request for Setup"
    yield Row(STAND_IN, ALLOCATION, what, seconds, "s", 0.3)


def _breakdown() -> Json:
    reference = {"kind": "Servers", "name": "fluxjob-1-0", "namespace": "default"}
    directive = parse_directive(DIRECTIVE)
    return {
        "metadata": {"name": "fluxjob-1-0", "namespace": "default"},
        "spec": {"directive": DIRECTIVE, "userID": 1},
        "status": storage_status(directive, Profiles.default(), reference, "job"),
    }


def _resource_set(hardware: Topology, mapping: RabbitMapping, breakdown: Json) -> Any:
    """The R of a job on all nodes, with storage on all Rabbits."""
    hosts = hosts_of(hardware)
    resources = jobspec(True)["resources"]
    resources[0]["count"] = len(hosts)
    rewritten = list(apply_breakdowns([parse(breakdown)], resources))
    pool = Pool(make_nodes(hosts, mapping, CORES, 0, {}), mapping)
    grant = pool.allocate(rewritten, lambda node: True)
    assert grant is not None
    return rwriter.write(pool, grant, 0.0, 0.0)
