# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What the scheduler has to know of a job's storage: how much there is to be, and
from which nodes the job can reach it.

Jobs that use storage which exists already (``persistentdw``) ask for no ``ssd``, so
ssd that are out of service do not keep them off a Rabbit that is broken. A property
of its nodes would, but Fluxion 0.54 denies a job whose constraint fits no node, for
good, whereas a Rabbit that is broken will be mended. So such a job waits in DEPEND
until it has enough nodes below Rabbits that serve, and may have only these; and so
does one whose storage needs labels that only some Rabbits carry. When
one of these breaks before the job has nodes, the job may get nodes below it, and
waits in its prolog (:mod:`flux_k8s.jobs.planning`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Iterable, Mapping, Optional, Sequence

from flux_k8s.config.settings import Settings
from flux_k8s.dws.directivebreakdown import (
    Breakdown,
    Reference,
    apply_breakdowns,
    check_enough,
    check_size,
    labelled_hosts,
    near_hosts,
    requested_nodes,
    required_daemons,
    wished_hosts,
)
from flux_k8s.dws.mapping import RabbitMapping
from flux_k8s.errors import AllocationError, StorageUnavailable
from flux_k8s.jobs.machine import Rabbits
from flux_k8s.ports import Json
from flux_k8s.rfc import hostlist
from flux_k8s.rfc.constraints import conjunction, only_hosts

Hosts = Optional[frozenset[str]]
"""The nodes that a job may have; None for all nodes."""


@dataclass(frozen=True)
class Proposal:
    """What ``resource-update`` tells the plugin."""

    resources: list[Any]
    exclude: Json


def propose(
    resources: Sequence[Any],
    breakdowns: Sequence[Breakdown],
    servers: Mapping[Reference, Json],
    rabbits: Rabbits,
    settings: Settings,
    constraint: Json,
) -> Proposal:
    """Add a job's storage to its request.

    Args:
        resources: what the job asks for.
        servers: those that :func:`~flux_k8s.dws.directivebreakdown.existing_servers`
            names.
        constraint: what every job with Rabbit storage gets.

    Raises:
        DWSError: the job cannot have its storage.
        StorageUnavailable: it cannot have it yet.
    """
    required_daemons(breakdowns, settings.config.daemons)
    if settings.scheduler:
        check_size(breakdowns, settings.mapping)
        resources = apply_breakdowns(breakdowns, resources)
    nodes, mapping = requested_nodes(resources), settings.mapping
    labelled = labelled_hosts(breakdowns, rabbits.all_labels, mapping, nodes)
    near = near_hosts(breakdowns, servers, mapping, nodes)
    hosts = labelled if near is None else _both(near, labelled, nodes)
    if hosts is not None:
        hosts = _serving(hosts, rabbits.broken, mapping, nodes)
    wished = wished_hosts(breakdowns, servers, mapping)
    hosts = _wished(hosts, wished, rabbits.broken, mapping, nodes)
    where = None if hosts is None else only_hosts(hosts)
    return Proposal(list(resources), conjunction(constraint, where))


def _both(near: frozenset[str], labelled: Hosts, nodes: int) -> frozenset[str]:
    """The nodes that can reach persistent storage and have Rabbits with the labels
    that the job's own storage needs."""
    if labelled is None:
        return near
    hosts = near & labelled
    if not hosts:
        raise AllocationError(
            "no compute node can reach the persistent storage of the job and is below"
            " a Rabbit with the labels that its own storage needs"
        )
    text = "can reach its persistent storage, and are below Rabbits with the labels"
    check_enough(hosts, nodes, f"{text} that its own storage needs")
    return hosts


def _wished(
    hosts: Hosts,
    wished: Hosts,
    broken: Mapping[str, str],
    mapping: RabbitMapping,
    nodes: int,
) -> Hosts:
    """Those of the nodes that the job is to have if it can, when their Rabbits serve
    and they are enough."""
    if not wished:
        return hosts
    best = wished.difference(*map(mapping.hosts_of, broken))
    best = best if hosts is None else best & hosts
    return best if best and len(best) >= nodes else hosts


def _serving(
    hosts: frozenset[str],
    broken: Mapping[str, str],
    mapping: RabbitMapping,
    nodes: int,
) -> frozenset[str]:
    """Those of the nodes whose Rabbits serve, if they are enough."""
    away = {rabbit for rabbit in map(mapping.rabbit_of, hosts) if rabbit in broken}
    left = hosts.difference(*map(mapping.hosts_of, filter(None, away)))
    if len(left) < nodes or not left:
        raise StorageUnavailable(not_serving(filter(None, away), broken))
    return left


def not_serving(rabbits: Iterable[str], broken: Mapping[str, str]) -> str:
    """Which Rabbits that a job needs are broken, for a message."""
    names = sorted(rabbits, key=hostlist.natural_key)
    states = ", ".join(f"{name} is {broken[name]}" for name in names)
    return f"the Rabbits that it needs: {states}"
