# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What the administrator decided, gathered for the service."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from flux_k8s.config.table import Config
from flux_k8s.dws.mapping import RabbitMapping

Queues = Optional[tuple[frozenset[str], ...]]
"""For each of some queues, the properties that its nodes have; None for all nodes."""


@dataclass
class Settings:
    """The service's settings. ``config`` is replaced at a reload.

    Attributes:
        config: the ``[rabbit]`` table.
        mapping: the PCIe topology.
        scheduler: false for an instance without Fluxion: jobs' ``resources``
            are left alone then.
        owner: the user ID of the instance's owner.
        namespace: where Workflows are made, and where Storages are.
        queues: the properties of the nodes that are drained, or marked, when
            their connection to a Rabbit breaks: those that have all of a set.
            None for all nodes.
        ssds_by_status: a Rabbit with more ``ssd`` than this is taken out of service
            by its nodes (:mod:`flux_k8s.rabbits.fluxion`).
    """

    config: Config
    mapping: RabbitMapping
    scheduler: bool = True
    owner: int = 0
    namespace: str = "default"
    queues: Queues = None
    ssds_by_status: int = 64
