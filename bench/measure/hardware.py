# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The hardware of a measured system."""

from __future__ import annotations

from rabbitsim.dws.topology import Rabbit, Topology

PREFIX = "bench"
NODES_PER_RABBIT = 16
EL_CAPITAN = 11136
"""Compute nodes, on 696 Rabbits."""


def topology(nodes: int) -> Topology:
    """A regular system, whose nodes are called as Flux calls fake ones."""
    names = [f"{PREFIX}{index}" for index in range(nodes)]
    return Topology.of(
        [
            Rabbit(
                f"rabbit{start // NODES_PER_RABBIT}",
                30 << 40,
                tuple(names[start : start + NODES_PER_RABBIT]),
            )
            for start in range(0, nodes, NODES_PER_RABBIT)
        ]
    )
