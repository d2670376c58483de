# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Keeps jobs off Rabbits that are broken, and off nodes that cannot reach theirs.

A Rabbit that does not serve is out of service in Fluxion
(:mod:`flux_k8s.rabbits.fluxion`): jobs with Rabbit storage avoid its nodes then, others
do not. A node that lost its PCIe connection to a Rabbit that serves is drained
(``rabbit.drain_compute_nodes``), or only marked ``badrabbit`` (``rabbit.soft_drain``),
or left alone.

All is derived from what Kubernetes and Flux show, and done when they differ: so it
does not matter what happened while the module was away. A drain is ours if its
reason says so: one with another reason is not touched.
"""

from __future__ import annotations

import syslog
from typing import AbstractSet, Callable, Iterable, Iterator, Mapping, Optional

from flux_k8s.config.settings import Settings
from flux_k8s.control.controller import Controller, Options
from flux_k8s.control.holddown import HoldDown
from flux_k8s.ports import Flux, Json, Kind, Kube, KubeError
from flux_k8s.rabbits.fluxion import ALLOC_RABBIT, BAD_RABBIT, Fluxion
from flux_k8s.rabbits.mountwatch import MountWatch
from flux_k8s.rabbits.nodes import Nodes
from flux_k8s.rabbits.storage import RabbitManager, RabbitState
from flux_k8s.rabbits.systemstatus import SystemStatus
from flux_k8s.rfc import hostlist
from flux_k8s.rfc.constraints import conjunction, exclude_properties
from flux_k8s.rfc.resourcestatus import NodeStates

OURS = "dws: PCIe connection to Rabbit "
"""How the reasons of our drains begin."""

SETTLE = 0.05
"""Seconds from a first change until anything is done: events come many at once."""

KEY = "rabbits"


def drain_reason(rabbit: str, status: str) -> str:
    """Why a node is drained that cannot reach its Rabbit."""
    return f"{OURS}{rabbit} is {status}"


class Availability:
    """What becomes of the health of Rabbits and nodes.

    Args:
        watched: is told about the watch of the Storages, as by
            :class:`~flux_k8s.rabbits.storage.RabbitManager`.
        awaited: tells :class:`~flux_k8s.rabbits.systemstatus.SystemStatus` the nodes
            of jobs that wait for their storage to be mounted.
        may_mount: as for :class:`~flux_k8s.rabbits.mountwatch.MountWatch`.
        mended: is called when a Rabbit takes allocations again.

    Attributes:
        rabbits: what is known of the Rabbits.
        nodes: the nodes of the instance.
        system_status: what DWS is told about nodes.
    """

    def __init__(
        self,
        flux: Flux,
        kube: Kube,
        settings: Settings,
        watched: Callable[[Kind, Optional[KubeError]], None],
        awaited: Callable[[], Optional[AbstractSet[str]]],
        may_mount: Callable[[int], bool],
        mended: Callable[[], None] = lambda: None,
    ) -> None:
        self._flux = flux
        self._settings = settings
        self._mended = mended
        self._controller = Controller[str](
            flux, self._reconcile, options=Options(settle=SETTLE)
        )
        self.rabbits = RabbitManager(
            kube,
            settings.mapping,
            settings.namespace,
            flux.log,
            watched,
            self._changed,
        )
        self._fluxion = Fluxion(flux, settings.mapping, settings.ssds_by_status)
        self.nodes = Nodes(flux, self._nodes_changed)
        self.system_status = SystemStatus(
            flux, kube, settings.namespace, awaited, self._changed
        )
        self.mount_watch = MountWatch(flux, kube, self.nodes, may_mount)
        self._rabbit_hold_down = HoldDown()
        self._link_hold_down = HoldDown()
        self._down: frozenset[str] = frozenset()
        self._unmapped: frozenset[str] = frozenset()
        self._avoided: frozenset[str] = frozenset()
        self._fluxion_started = False

    def start(self) -> None:
        self.rabbits.start()
        self.nodes.start()
        self.system_status.start()

    def stop(self) -> None:
        self._controller.stop()
        self.rabbits.stop()
        self.nodes.stop()
        self.system_status.stop()
        self.mount_watch.stop()
        self._fluxion.stop()

    def config_changed(self) -> None:
        """Use the configuration that the settings have now."""
        self._controller.add(KEY, 0.0)

    def jobs_changed(self) -> None:
        """A job may not wait for its mounts any more, or not have any left."""
        self.system_status.jobs_changed()
        self.mount_watch.jobs_changed()

    def constraint(self) -> Json:
        """The constraint that keeps a job with Rabbit storage off nodes that must
        not get it.

        A scheduler without properties that change is told the nodes themselves,
        as they are when the job is planned.
        """
        if self._settings.scheduler:
            return exclude_properties([BAD_RABBIT])
        properties = exclude_properties([BAD_RABBIT, ALLOC_RABBIT])
        if self._fluxion.present or not self._avoided:
            return properties
        hosts = hostlist.encode(sorted(self._avoided, key=hostlist.natural_key))
        return conjunction(properties, {"not": [{"hostlist": [hosts]}]})

    def stats(self) -> Json:
        """What ``dws.stats-get`` tells about the Rabbits."""
        mapping, rabbits = self._settings.mapping, self.rabbits
        unwell = dict(rabbits.unwell)
        return {
            "down": {
                name: state.status
                for name, state in unwell.items()
                if not state.serving
            },
            "links_lost": {
                name: hostlist.encode(state.lost)
                for name, state in unwell.items()
                if state.serving
            },
            "capacity": sum(map(rabbits.capacity, mapping.rabbits)),
            "reserved": dict(rabbits.reserved),
            "unscheduled": dict(rabbits.unscheduled),
            "in_use": len(list(rabbits.in_use)),
            "fluxion": self._fluxion.stats(),
        }

    def _nodes_changed(self) -> None:
        states = self.nodes.states
        if states is not None:
            self.system_status.nodes_changed(states)
            self.mount_watch.nodes_changed(states)
        self._changed()

    def _changed(self) -> None:
        self._controller.add(KEY)

    async def _reconcile(self, key: str) -> Optional[float]:
        """Have Fluxion and Flux know what Kubernetes shows. Returns the seconds until
        the next Rabbit or connection that has recovered may be used."""
        rabbits = self.rabbits
        if not (rabbits.complete and (rabbits.counted or rabbits.uncountable)):
            return None
        now = self._flux.now()
        unwell = dict(rabbits.unwell)
        broken = frozenset(rabbits.broken)
        down = broken | self._rabbit_hold_down.update(broken, now)
        mended = self._down - down
        self._log_changes(down, unwell)
        if mended:
            self._mended()
        states = self.nodes.states
        lost = self._lost_links(unwell, down, now)
        if self._settings.queues is not None:
            lost = {} if states is None else self._within_queues(lost, states)
        config = self._settings.config
        soft = config.soft_drain and not config.drain_compute_nodes
        marked = self.system_status.disabled_by_others.union(lost if soft else ())
        # A job keeps its constraint: Rabbits that are held down are not in it.
        self._avoided = marked.union(self._hosts_of(broken))
        self._tell_fluxion(down, marked)
        if states is not None:
            self._drain(lost if config.drain_compute_nodes else {}, states)
        hold_downs = self._rabbit_hold_down, self._link_hold_down
        ends = [hold_down.next_end(now) for hold_down in hold_downs]
        return min((end - now for end in ends if end is not None), default=None)

    def _lost_links(
        self, unwell: Mapping[str, RabbitState], down: AbstractSet[str], now: float
    ) -> dict[str, str]:
        """The nodes that cannot reach their Rabbit, with why they are drained. The
        connections of a Rabbit that is down are of no interest: its nodes can do
        all but what they cannot do anyway."""
        lost = {
            host: drain_reason(name, status)
            for name, state in unwell.items()
            if name not in down
            for host, status in state.lost.items()
        }
        for host in self._link_hold_down.update(lost.keys(), now):
            rabbit = self._settings.mapping.rabbit_of(host)
            lost[host] = drain_reason(str(rabbit), "back only just now")
        return lost

    def _within_queues(
        self, lost: Mapping[str, str], states: NodeStates
    ) -> dict[str, str]:
        """Those of the nodes that are in the queues that the module is to see to."""
        queues = self._settings.queues or ()
        hosts = frozenset[str]().union(*map(states.with_all, queues))
        return {host: reason for host, reason in lost.items() if host in hosts}

    def _tell_fluxion(self, down: AbstractSet[str], marked: AbstractSet[str]) -> None:
        self._fluxion.want_out(down)
        self._fluxion.want(BAD_RABBIT, marked)
        if self.rabbits.counted:
            scheduler = self._settings.scheduler
            used = () if scheduler else self._hosts_of(self.rabbits.in_use)
            self._fluxion.want(ALLOC_RABBIT, frozenset(used))
            self._fluxion.want_reserved(self.rabbits.unscheduled if scheduler else {})
        if not self._fluxion_started:
            self._fluxion_started = True
            self._fluxion.start()

    def _drain(self, lost: Mapping[str, str], states: NodeStates) -> None:
        """Drain nodes that lost their connection, undrain those that have it back."""
        by_reason: dict[str, list[str]] = {}
        for host in states.hosts:
            if host in lost and host not in states.drained:
                by_reason.setdefault(lost[host], []).append(host)
        for reason, hosts in by_reason.items():
            self.nodes.drain(hosts, reason)
        back = [
            host
            for host, reason in states.drained.items()
            if reason.startswith(OURS) and host not in lost
        ]
        if back:
            names = hostlist.encode(sorted(back, key=hostlist.natural_key))
            text = f"undraining {names}: the PCIe connection is no reason any more"
            self._flux.log(syslog.LOG_NOTICE, text)
            self.nodes.undrain(back)

    def _hosts_of(self, rabbits: Iterable[str]) -> Iterator[str]:
        for rabbit in rabbits:
            yield from self._settings.mapping.hosts_of(rabbit)

    def _log_changes(
        self, down: frozenset[str], unwell: Mapping[str, RabbitState]
    ) -> None:
        for rabbit in sorted(down - self._down, key=hostlist.natural_key):
            hosts = hostlist.encode(self._settings.mapping.hosts_of(rabbit))
            status = unwell[rabbit].status if rabbit in unwell else "down"
            self._flux.log(
                syslog.LOG_WARNING,
                f"Rabbit {rabbit} is {status}: jobs with Rabbit storage avoid {hosts}",
            )
        for rabbit in sorted(self._down - down, key=hostlist.natural_key):
            self._flux.log(syslog.LOG_NOTICE, f"Rabbit {rabbit} is used again")
        self._down = down
        unmapped = frozenset(self.rabbits.unmapped)
        if unmapped - self._unmapped:
            names = hostlist.encode(sorted(unmapped, key=hostlist.natural_key))
            self._flux.log(
                syslog.LOG_WARNING,
                f"rabbit.mapping lacks {names}: no job gets storage there; "
                "flux rabbitmapping writes a new one",
            )
        self._unmapped = unmapped
