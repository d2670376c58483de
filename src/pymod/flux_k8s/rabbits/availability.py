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
from functools import partial
from typing import AbstractSet, Callable, Iterable, Iterator, Mapping, Optional

from flux_k8s.config.settings import Settings
from flux_k8s.control.holddown import Damper
from flux_k8s.ports import Flux, Json, Kind, Kube, KubeError, Timer
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

GATHER = 0.05
"""Seconds to wait for more events before anything is done about the first."""


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
        self.rabbits = RabbitManager(
            kube,
            settings.mapping,
            settings.namespace,
            flux.log,
            watched,
            partial(self.look, GATHER),
        )
        self._fluxion = Fluxion(flux, settings.mapping, settings.ssds_by_status)
        self.nodes = Nodes(flux, self._nodes_changed)
        self.system_status = SystemStatus(
            flux, kube, settings.namespace, awaited, partial(self.look, GATHER)
        )
        self.mount_watch = MountWatch(flux, kube, self.nodes, may_mount)
        self._rabbits_damped = Damper()
        self._links_damped = Damper()
        self._down: frozenset[str] = frozenset()
        self._unmapped: frozenset[str] = frozenset()
        self._bad: frozenset[str] = frozenset()
        self._telling = False
        self._timer: Optional[Timer] = None
        self._timer_due = 0.0
        self._stopped = False

    def start(self) -> None:
        self.rabbits.start()
        self.nodes.start()
        self.system_status.start()

    def stop(self) -> None:
        self._stopped = True
        self.rabbits.stop()
        self.nodes.stop()
        self.system_status.stop()
        self.mount_watch.stop()
        self._fluxion.stop()
        if self._timer is not None:
            self._timer.cancel()

    def look(self, delay: float = 0.0) -> None:
        """Do what is to be done, within ``delay`` seconds."""
        due = self._flux.now() + delay
        if self._stopped or (self._timer is not None and self._timer_due <= due):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due = due
        self._timer = self._flux.call_later(delay, self._work)

    def jobs_changed(self) -> None:
        """What a job waits for, or how far its storage is, may be another."""
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
        if self._fluxion.present or not self._bad:
            return properties
        hosts = hostlist.encode(sorted(self._bad, key=hostlist.natural_key))
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
            self.mount_watch.see(states)
        self.look(GATHER)

    def _work(self) -> None:
        self._timer = None
        rabbits = self.rabbits
        if not (rabbits.complete and (rabbits.counted or rabbits.uncountable)):
            return
        now = self._flux.now()
        unwell = dict(rabbits.unwell)
        has = self._settings.mapping.has
        broken = {n for n, state in unwell.items() if not state.serving and has(n)}
        down = self._rabbits_damped.see(broken, now)
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
        # A job keeps its constraint: what is only held back is not in it.
        self._bad = marked.union(self._hosts_of(broken))
        self._tell_fluxion(down, marked)
        if states is not None:
            self._drain(lost if config.drain_compute_nodes else {}, states)
        dues = self._rabbits_damped.due(now), self._links_damped.due(now)
        due = min((time for time in dues if time is not None), default=None)
        if due is not None:
            self.look(due - now)

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
        for host in self._links_damped.see(lost.keys(), now):
            if host not in lost:
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
        if not self._telling:
            self._telling = True
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
