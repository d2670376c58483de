# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What follows from the health of Rabbits and nodes: which nodes are marked, and which
are drained or undrained.

The reasons of the module's own drains begin with
:data:`~flux_k8s.dws.drainreason.LOST_CONNECTION`. Drains with other reasons are left
alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import AbstractSet, Mapping, Optional, Sequence

from flux_k8s.config.settings import Settings
from flux_k8s.dws.drainreason import LOST_CONNECTION
from flux_k8s.rabbits.storage import RabbitState
from flux_k8s.rfc.resourcestatus import NodeStates

OFFLINE = "Offline"
"""The status of a link by which a node reaches nothing on its Rabbit."""


def drain_reason(rabbit: str, status: str) -> str:
    """The drain reason of a node that cannot reach its Rabbit."""
    return f"{LOST_CONNECTION}{rabbit} is {status}"


def lost_links(
    unwell: Mapping[str, RabbitState], down: AbstractSet[str]
) -> dict[str, str]:
    """The nodes that cannot reach their Rabbit, with the reasons for which they are
    drained. The connections of a Rabbit that is ``down`` do not matter: jobs with
    Rabbit storage avoid its nodes, and other jobs need no connection."""
    return {
        host: drain_reason(name, status)
        for name, state in unwell.items()
        if name not in down
        for host, status in state.lost.items()
    }


def hosts_to_drain(lost: Mapping[str, str], states: NodeStates) -> dict[str, list[str]]:
    """The nodes to be drained, by reason."""
    by_reason: dict[str, list[str]] = {}
    for host in states.hosts:
        if host in lost and host not in states.drained:
            by_reason.setdefault(lost[host], []).append(host)
    return by_reason


def hosts_to_undrain(lost: Mapping[str, str], states: NodeStates) -> list[str]:
    """The nodes that this module has drained, and that are not cut off any more."""
    return [
        host
        for host, reason in states.drained.items()
        if reason.startswith(LOST_CONNECTION) and host not in lost
    ]


@dataclass(frozen=True)
class Health:
    """What is known of Rabbits and nodes.

    Attributes:
        unwell: the Rabbits that do not serve, or have lost nodes.
        broken: the Rabbits that do not serve.
        down: these, and those that have only just recovered.
        lost: the nodes that cannot reach their Rabbit, and those that have reached it
            again only just now, with the reasons for which they are drained.
        disabled: the nodes that others have disabled in SystemStatus.
        states: those of the nodes; None as long as they are not known.
    """

    unwell: Mapping[str, RabbitState]
    broken: frozenset[str]
    down: frozenset[str]
    lost: Mapping[str, str]
    disabled: frozenset[str]
    states: Optional[NodeStates]


@dataclass(frozen=True)
class Verdict:
    """What follows from the health.

    Attributes:
        marked: nodes with the property ``badrabbit``. Those of a Rabbit that is out of
            service may have it, too (:mod:`flux_k8s.rabbits.fluxion`).
        avoided: the nodes that a job gets a constraint against, where the scheduler
            does not know of properties.
        to_drain: the nodes to be drained, by reason.
        to_undrain: the nodes whose drain is over.
    """

    marked: frozenset[str]
    avoided: frozenset[str]
    to_drain: Mapping[str, Sequence[str]]
    to_undrain: Sequence[str]


def decide(health: Health, settings: Settings) -> Verdict:
    """What follows from the health of Rabbits and nodes."""
    config, mapping, states = settings.config, settings.mapping, health.states
    lost = health.lost
    if settings.queues is not None:
        # The module sees to the nodes of these queues only.
        queues = () if states is None else map(states.with_all, settings.queues)
        ours = frozenset[str]().union(*queues)
        lost = {host: reason for host, reason in lost.items() if host in ours}
    soft = config.soft_drain and not config.drain_compute_nodes
    marked = health.disabled.union(lost if soft else ())
    drained = lost if config.drain_compute_nodes else {}
    return Verdict(
        marked,
        # A job keeps its constraint: Rabbits that have recovered are not in it.
        marked | mapping.hosts_below(health.broken),
        {} if states is None else hosts_to_drain(drained, states),
        [] if states is None else hosts_to_undrain(drained, states),
    )
