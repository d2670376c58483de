# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The machine, and what is assumed of it, of its jobs and of its failures."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Mapping

from flux_k8s.objects.storagerequest import PROLOG, TEARDOWN
from flux_k8s.ports import Json

HOUR = 3600.0
DAY = 24 * HOUR
YEAR = 365 * DAY
GB = 1e9

STATES: Mapping[str, float] = {
    "Proposal": 0.2,
    "Setup": 15.0,
    "DataIn": 0.5,
    "PreRun": 6.0,
    "PostRun": 4.0,
    "DataOut": 0.5,
    "Teardown": 10.0,
}
"""Seconds that DWS takes for each state, besides copies; give or take :data:`SPREAD`.
What DWS and NNF take without hardware is less (0.1 s, 0.2, 0, 2.2, 1.1, 0, 0.1), and
nobody has published what devices add."""

SPREAD = 0.5

COSTS: Mapping[str, float] = {
    "workflows": 5e-4,
    "servers": 2e-4,
    "storages": 2e-4,
    "systemstatuses": 2e-3,
    "clientmounts": 1e-4,
    "nnfdatamovements": 1e-4,
    "answer": 8e-4,
    "request": 1e-3,
    "rpc": 5e-4,
    "timer": 1e-4,
}
"""Seconds for which the reactor of the module is busy with each thing, in virtual time:
the events of each kind, the answers to its requests, and the rest. With these, a job
of few nodes takes about 55 ms, which is what the module takes on a real cluster."""

EVENTS = ("workflows", "servers", "storages", "clientmounts", "nnfdatamovements")
"""The kinds that have many events."""

OTHER_COST = 1e-3
"""Seconds for what is not in :data:`COSTS`."""

R_SECONDS = 2e-4
"""Seconds for each node that the reader of large R takes."""

R_NODES = 8
"""Nodes of a job whose R is not large: nodes have about a hundred cores and GPUs."""


@dataclass(frozen=True)
class Site:
    """The size of a machine, and how long and how well it is used.

    Attributes:
        hours: jobs are submitted for so long.
        load: the part of all node hours that the tasks of jobs ask for.
        stage: ``rabbit.stage``: when the data of jobs is copied in.
        release: ``rabbit.release``: when jobs give their nodes back.
        report_interval: seconds between two reports of each data movement.
        rabbit_rate: bytes per second between one Rabbit and the global file system.
        node_rate: bytes per second of the global file system for each node of the
            machine.
        message_latency, kube_latency: the most seconds of a message within Flux, and of
            one way to Kubernetes.
        rabbit_mtbf, node_mtbf, link_mtbf: mean seconds between two failures of one
            Rabbit, of one node, and of one PCIe connection.
        repair: seconds until such a failure is mended.
        mount_failures, unmount_failures: the chance that one node fails to mount, or to
            unmount, the storage of one job.
        setup_failures: the chance that DWS fails in the Setup of a job.
        copy_failures: the chance that one copy fails.
        api_restarts, controller_restarts, module_restarts: each day; the API server is
            away for 20 s, the controllers of DWS for 60 s, and the module for 2 s.
    """

    nodes: int = 11136
    rabbits: int = 696
    jobs: int = 10000
    hours: float = 24.0
    seed: int = 0
    load: float = 0.85
    stage: str = PROLOG
    release: str = TEARDOWN
    report_interval: float = 5.0
    rabbit_rate: float = 20 * GB
    node_rate: float = 0.18 * GB
    message_latency: float = 0.001
    kube_latency: float = 0.010
    rabbit_mtbf: float = 60 * DAY
    node_mtbf: float = 4 * YEAR
    link_mtbf: float = 10 * YEAR
    repair: float = HOUR
    mount_failures: float = 1e-4
    unmount_failures: float = 1e-5
    setup_failures: float = 5e-4
    copy_failures: float = 2e-3
    api_restarts: float = 2.0
    controller_restarts: float = 2.0
    module_restarts: float = 2.0

    def to_json(self) -> Json:
        return {**asdict(self), "states": dict(STATES), "costs": dict(COSTS)}
