# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The settings of the service, from the configuration and the module's arguments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from flux_k8s.config.table import Config
from flux_k8s.objects.mapping import RabbitMapping

Queues = Optional[tuple[frozenset[str], ...]]
"""The properties that the nodes of each queue have; None for all nodes."""


@dataclass(frozen=True)
class Identity:
    """The Flux instance, as its Workflows name it. Others may use the same cluster.

    Attributes:
        name: the value of the label; "" for no label.
        former: another value, which the Workflows of this instance may have as well.
        shares: there are other instances, whose Workflows may have no label yet.
        names: those that the instance has had. Others may have them now.
    """

    name: str = ""
    former: str = ""
    shares: bool = False
    names: frozenset[str] = frozenset()

    def may_own(self, label: str) -> bool:
        """Whether a Workflow with this label may be one of this instance: it is, if its
        job is. One without a label ("") was made before there were labels."""
        return label == "" or label in self.names or self.owns(label)

    def owns(self, label: str) -> bool:
        """Whether a Workflow with this label is one of this instance, although none of
        its jobs is known to have had it."""
        if label == "":
            return not self.shares
        return not self.name or label in (self.name, self.former)


@dataclass
class Settings:
    """The service's settings. ``config`` is replaced at a reload.

    Attributes:
        config: the ``[rabbit]`` table.
        mapping: the PCIe topology.
        scheduler: whether the scheduler knows Rabbits (Fluxion, sched-rabbit). Without
            one the ``resources`` of jobs are not changed.
        owner: the user ID of the instance's owner.
        namespace: the namespace of Workflows and Storages.
        queues: sets of properties. A node that has all of a set is drained, or marked,
            when its connection to a Rabbit breaks. None for all nodes.
        ssds_by_status: the most ``ssd`` of a Rabbit that are taken out of service one
            by one. A Rabbit with more is taken out by a property of its nodes
            (:mod:`flux_k8s.machine.fluxion`).
        identity: of the Flux instance.
        graph_file: of Fluxion's resource graph, for messages; empty if it is not known.
    """

    config: Config
    mapping: RabbitMapping
    scheduler: bool = True
    owner: int = 0
    namespace: str = "default"
    queues: Queues = None
    ssds_by_status: int = 64
    identity: Identity = Identity()
    graph_file: str = ""
