# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What the world should look like, given what is known of the machine. Each reconciler
compares its part with what is there, and sends the difference.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import AbstractSet, Callable, Mapping, Optional

from flux_k8s.config.settings import Settings
from flux_k8s.formats.resourcestatus import NodeStates
from flux_k8s.machine.storages import RabbitState
from flux_k8s.rules.drainreason import LOST_CONNECTION, cannot_mount, is_mounted

OFFLINE = "Offline"
"""The status of a link by which a node reaches nothing on its Rabbit."""

BAD_RABBIT = "badrabbit"
"""The property of nodes that must not get jobs with Rabbit storage."""

ALLOC_RABBIT = "alloc_rabbit"
"""The property of nodes whose Rabbit has a job's storage, where the scheduler
does not know the storage itself."""

PROPERTIES = (BAD_RABBIT, ALLOC_RABBIT)


FIRST_HOLD, LAST_HOLD = 2.0, 300.0
"""Seconds for which hardware has to be well before it is used again, as routers have
it: twice as many each time that it breaks again, up to ``LAST_HOLD``. Each failure and
each return is a change for many nodes, and may go on for ever."""

FORGET = 3600.0
"""Seconds of good health after which earlier failures do not count any more."""


class HoldDown:
    """Which of many things have recovered, and are not used yet. Names stand for
    things; those that are well for long cost nothing."""

    def __init__(self) -> None:
        # Since when it is well, infinite as long as it is broken; and its hold.
        self._known: dict[str, tuple[float, float]] = {}

    def update(self, broken: AbstractSet[str], now: float) -> frozenset[str]:
        """Note which things are ``broken`` now.

        Returns:
            Those that are not, and are held down.
        """
        known: dict[str, tuple[float, float]] = {}
        for name in broken:
            since, hold = self._known.get(name, (-inf, FIRST_HOLD))
            if since < inf:  # it was well
                again = now < since + FORGET
                hold = min(2 * hold, LAST_HOLD) if again else FIRST_HOLD
            known[name] = inf, hold
        for name in self._known.keys() - broken:
            since, hold = self._known[name]
            since = min(since, now)  # inf: it was broken until now
            if now < since + FORGET:
                known[name] = since, hold
        self._known = known
        held = {n for n, (since, hold) in known.items() if now < since + hold}
        return frozenset(held - broken)

    def next_end(self, now: float) -> float:
        """The end of the next hold-down, unless something breaks before; infinite
        for none."""
        ends = (since + hold for since, hold in self._known.values())
        return min((end for end in ends if end > now), default=inf)


def lost_connection_reason(rabbit: str, status: str) -> str:
    """The drain reason of a node that cannot reach its Rabbit."""
    return f"{LOST_CONNECTION}{rabbit} is {status}"


def lost_links(
    unwell: Mapping[str, RabbitState], down: AbstractSet[str]
) -> dict[str, str]:
    """The nodes that cannot reach their Rabbit, with the reasons for which they are
    drained. The connections of a Rabbit that is ``down`` do not matter: jobs with
    Rabbit storage avoid its nodes, and other jobs need no connection."""
    return {
        host: lost_connection_reason(name, status)
        for name, state in unwell.items()
        if name not in down
        for host, status in state.lost.items()
    }


@dataclass(frozen=True)
class Machine:
    """What is known of Rabbits and nodes.

    Attributes:
        broken: the Rabbits that do not serve, with their status.
        down: these, and those that have only just recovered.
        disagreeing: those about which mapping, graph and cluster do not agree.
        emptied: those that have lost the storage on them.
        lost: the nodes that cannot reach their Rabbit, and those that have reached it
            again only just now, with the reasons for which they are drained.
        disabled: the nodes that others have disabled in SystemStatus.
        states: those of the nodes; None as long as they are not known.
        used: the Rabbits with storage of jobs; None as long as that is not known.
        withheld: the bytes on each Rabbit that are claimed without the scheduler's
            knowledge; None as long as they are not known.
    """

    broken: Mapping[str, str] = field(default_factory=dict)
    down: frozenset[str] = frozenset()
    disagreeing: frozenset[str] = frozenset()
    emptied: frozenset[str] = frozenset()
    lost: Mapping[str, str] = field(default_factory=dict)
    disabled: frozenset[str] = frozenset()
    states: Optional[NodeStates] = None
    used: Optional[frozenset[str]] = None
    withheld: Optional[Mapping[str, int]] = None

    @property
    def out_of_service(self) -> frozenset[str]:
        """The Rabbits on which no job gets storage."""
        return self.down | self.disagreeing


@dataclass(frozen=True)
class Wanted:
    """What the world should look like.

    Attributes:
        marked: the nodes to carry a property in Fluxion. A property that is missing
            here stays as an earlier module has left it. The nodes of a Rabbit that is
            out of service may have ``badrabbit``, too.
        out_of_service: the Rabbits on which Fluxion is to give no storage.
        withheld: the bytes of each Rabbit that no job holds in Fluxion, and that jobs
            must not get. None: as an earlier module has left it.
        drains: the nodes that are to be drained for their Rabbit, with the reasons.
        avoided: the nodes that must not get a job with Rabbit storage, with the
            reasons.
    """

    marked: Mapping[str, frozenset[str]] = field(default_factory=dict)
    out_of_service: frozenset[str] = frozenset()
    withheld: Optional[Mapping[str, int]] = None
    drains: Mapping[str, str] = field(default_factory=dict)
    avoided: Mapping[str, str] = field(default_factory=dict)


def wanted(machine: Machine, settings: Settings) -> Wanted:
    """What the world should look like."""
    config, mapping, states = settings.config, settings.mapping, machine.states
    lost = machine.lost
    if settings.queues is not None:
        # The module sees to the nodes of these queues only.
        queues = () if states is None else map(states.with_all, settings.queues)
        ours = frozenset[str]().union(*queues)
        lost = {host: reason for host, reason in lost.items() if host in ours}
    soft = config.soft_drain and not config.drain_compute_nodes
    bad = dict.fromkeys(machine.disabled, "Disabled")
    bad.update(lost if soft else {})
    marked = {BAD_RABBIT: mapping.hosts.intersection(bad)}
    if machine.used is not None:
        used = () if settings.scheduler else machine.used
        marked[ALLOC_RABBIT] = mapping.hosts_below(used)
    withheld = machine.withheld
    if withheld is not None and not settings.scheduler:
        withheld = {}
    # A job keeps its constraint: Rabbits that have recovered are not in it.
    below = {
        host: f"Rabbit {rabbit} is {status}"
        for rabbit, status in machine.broken.items()
        for host in mapping.hosts_of(rabbit)
    }
    return Wanted(
        marked,
        machine.out_of_service,
        withheld,
        lost if config.drain_compute_nodes else {},
        {**below, **bad},
    )


def disabled_nodes(
    states: NodeStates,
    known: AbstractSet[str] = frozenset(),
    fenced: AbstractSet[str] = frozenset(),
    may_write: Optional[Callable[[str], bool]] = None,
) -> frozenset[str]:
    """The nodes that are to be Disabled in SystemStatus unless a job waits for its
    storage to be mounted there: DWS does not wait for them.

    A node for which storage is kept is not Disabled: DWS would report all mounts as
    complete, and the job would go on to mount it again.

    Args:
        known: those that Flux has disabled already. Such a node may boot, and has
            nothing mounted then.
        fenced: the nodes that cannot write, whatever they are drained for.
        may_write: whether a node could write to storage that it has mounted; None if
            storage is not kept for nodes.
    """
    failed = {host for host, why in states.drained.items() if cannot_mount(why)}
    disabled = states.offline | failed | fenced
    if may_write is None:
        return disabled
    # Only nodes that could not write were Disabled, and are left so while they are
    # drained: a service that was started since does not know which are fenced.
    left = known & states.drained.keys()
    mounted = {host for host, why in states.drained.items() if is_mounted(why)}
    kept = filter(may_write, (states.offline | mounted) - known)
    return (disabled | left).difference(kept)
