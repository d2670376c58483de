# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What jobs ask about the machine.

:class:`RabbitManager` knows two levels of state. Of the cluster: how each Rabbit is
(:mod:`~flux_k8s.machine.storages`), and each node (:mod:`~flux_k8s.machine.nodes`). Of
jobs: which bytes of which Rabbit each has (:mod:`~flux_k8s.machine.ledger`).

A pure function says what the world should look like, given what is known
(:mod:`~flux_k8s.machine.wanted`): a Rabbit that does not serve is out of service in
Fluxion, so jobs with Rabbit storage avoid its nodes then, others do not; a node that
lost its PCIe connection to a Rabbit that serves is drained
(``rabbit.drain_compute_nodes``), or only marked ``badrabbit`` (``rabbit.soft_drain``),
or left alone. Three reconcilers compare that with what is there, and act where they
differ, also after changes while the module was away: :class:`Fluxion`, :class:`Nodes`,
:class:`SystemStatus`.
"""

from __future__ import annotations

import syslog
from math import inf
from typing import (
    AbstractSet,
    Callable,
    Iterable,
    Iterator,
    Optional,
    Sequence,
)

from flux_k8s.config.arguments import NOT_WITH_FLUXION
from flux_k8s.config.context import Context
from flux_k8s.control.controller import Controller, Options
from flux_k8s.errors import StorageUnavailable
from flux_k8s.formats import hostlist
from flux_k8s.formats.constraints import conjunction, exclude_hosts, exclude_properties
from flux_k8s.formats.directives import GIB
from flux_k8s.limits import NODES
from flux_k8s.machine.disagreements import Disagreements
from flux_k8s.machine.fences import Fences
from flux_k8s.machine.fluxion import Fluxion
from flux_k8s.machine.ledger import Ledger
from flux_k8s.machine.nodes import Nodes, NodeUse
from flux_k8s.machine.ssdcounts import SsdCounts
from flux_k8s.machine.storages import UNKNOWN, Storages
from flux_k8s.machine.systemstatus import SystemStatus
from flux_k8s.machine.undrain import Undrain
from flux_k8s.machine.wanted import (
    ALLOC_RABBIT,
    BAD_RABBIT,
    OFFLINE,
    HoldDown,
    Machine,
    Wanted,
    disabled_nodes,
    lost_connection_reason,
    lost_links,
    wanted,
)
from flux_k8s.ports import Json
from flux_k8s.reasons import Reason
from flux_k8s.rules.room import EmptyRabbit

DEBOUNCE = 0.05
"""Seconds from a first change until anything is done: events come many at once."""

KEY = "rabbits"

HELD_DOWN = "back only just now"


class RabbitManager:
    """Answers what jobs ask about the machine, takes Rabbits and nodes that are broken
    out of service, and puts them back.

    Args:
        awaited: returns the nodes of jobs that wait for their storage to be mounted;
            None as long as they are not known.
        has_mounts: as for :class:`~flux_k8s.machine.undrain.Undrain`.
        may_hold: as for :class:`~flux_k8s.machine.ledger.Ledger`.
        rabbits_changed: is called when a Rabbit is used again, or has lost the storage
            on it.

    Attributes:
        rabbits: the Rabbits of the cluster.
        disagreements: what the mapping, the graph and the cluster do not agree about.
        ledger: the storage on them that is free, and that is in use.
        ssds: the same in units of the scheduler.
        fluxion: what it has been told, and shows.
        nodes: the nodes of the instance.
        node_use: until when jobs have them.
        system_status: the nodes that DWS does not wait for.
    """

    def __init__(
        self,
        context: Context,
        awaited: Callable[[], Optional[AbstractSet[str]]],
        has_mounts: Callable[[int], Optional[bool]],
        may_hold: Callable[[int], bool],
        rabbits_changed: Callable[[], None],
    ) -> None:
        flux, settings = context.flux, context.settings
        self._flux = flux
        self._settings = settings
        self._rabbits_changed = rabbits_changed
        self._waiting: dict[int, Callable[[], None]] = {}
        self._workflows_listed = False
        self._controller = Controller[str](
            flux, self._reconcile, options=Options(debounce=DEBOUNCE)
        )
        self.rabbits = Storages(context, self._storages_changed)
        self.ledger = Ledger(context, self._changed, may_hold)
        self.fluxion = Fluxion(
            flux,
            settings.mapping,
            settings.ssds_by_status,
            settings.scheduler,
            self._fluxion_changed,
        )
        self.ssds = SsdCounts(settings, self.ledger, self.fluxion)
        self.disagreements = Disagreements(context, self.rabbits, self.fluxion)
        self.nodes = Nodes(flux, self._nodes_changed)
        self.node_use = NodeUse(flux, self.nodes)
        self.system_status = SystemStatus(
            context, self.nodes, self._disabled, self._changed
        )
        self._awaited = awaited
        self._awaited_disabled = False
        self._fences = Fences(context, self.system_status.check)
        self._undrain = Undrain(context, self.nodes, has_mounts)
        self._rabbit_hold_down = HoldDown()
        self._link_hold_down = HoldDown()
        self._machine = Machine()
        self._wanted = Wanted()
        self._rabbit_nodes: frozenset[str] = frozenset()

    def start(self) -> None:
        self.rabbits.open(self._settings.namespace)
        self.nodes.start()
        self.system_status.open(self._settings.namespace)

    def stop(self) -> None:
        self._controller.stop()
        self.rabbits.close()
        self.ledger.close()
        self.nodes.stop()
        self.system_status.close()
        self._undrain.stop()
        self.fluxion.stop()

    def config_changed(self) -> None:
        """Reconcile with the present configuration of the settings."""
        self._controller.add(KEY, 0.0)
        self._fences.config_changed()
        self.system_status.check()

    def jobs_changed(self) -> None:
        """Note that a job may no longer wait for its mounts."""
        if self._awaited_disabled:
            self.system_status.check()

    def workflows_listed(self) -> None:
        """Note that all Workflows have been seen, and with them all jobs that have
        given back their share of storage that is still there."""
        if not self._workflows_listed:
            self._workflows_listed = True
            self._changed()

    def when_withheld(self, jobid: int, done: Callable[[], None]) -> None:
        """Call ``done`` when Fluxion keeps from others the storage of a job that has no
        share of it, or not any more, or is not the scheduler. What it is to keep
        follows from :attr:`Ledger.withheld`. A service that cannot see the storage
        never calls it, nor the one that was to be called for the job before."""
        self._waiting[jobid] = done
        self._changed()

    def _check_withheld(self) -> None:
        """Call those who wait for what Fluxion keeps now."""
        if not (self.ledger.listed and self._workflows_listed):
            return
        for jobid in tuple(filter(self.ssds.are_kept, self._waiting)):
            self._waiting.pop(jobid)()

    # What jobs ask

    def why_not(self, rabbit: str) -> str:
        """Why a Rabbit takes no new job; "" if it does."""
        state = self.rabbits.state(rabbit)
        if not state.serving:
            return state.status
        if rabbit in self._machine.down:
            return HELD_DOWN
        if rabbit in self._machine.disagreeing:
            return self.disagreements.sentence(rabbit)
        return ""

    def node_why_not(self, host: str) -> str:
        """Why a node is to get no new job with Rabbit storage; "" if it may."""
        why, states = self._wanted.avoided.get(host, ""), self.nodes.states
        if why or states is None:
            return why
        if host in states.offline:
            return "offline"
        return f"drained: {states.drained[host]}" if host in states.drained else ""

    def serving(self, rabbit: str) -> bool:
        """Whether a Rabbit does its work, as far as is known, for jobs that have nodes
        already."""
        state = self.rabbits.state(rabbit)
        return state is UNKNOWN or state.serving

    def keeps_data(self, rabbit: str) -> bool:
        """Whether a Rabbit keeps the storage of the jobs on it, as far as is known."""
        return self.rabbits.state(rabbit).keeps_data

    def below_serving(self, hosts: frozenset[str]) -> frozenset[str]:
        """Those of the nodes whose Rabbits do their work."""
        return hosts - self._settings.mapping.hosts_below(self.rabbits.broken)

    def check_serving(self, rabbits: Iterable[Optional[str]]) -> None:
        """Have a job wait that needs these Rabbits.

        Raises:
            StorageUnavailable: some of them do not do their work. It names these.
        """
        broken = self.rabbits.broken
        away = sorted(broken.keys() & {*rabbits}, key=hostlist.natural_key)
        if away:
            states = ", ".join(f"{name} is {broken[name]}" for name in away)
            text = f"the Rabbits that it needs: {states}"
            raise StorageUnavailable(text, Reason.RABBIT_BROKEN)

    def room(self, rabbit: str, jobid: int) -> Optional[int]:
        """The bytes in the ``ssd`` of a Rabbit that are of no other job. None if it is
        out of service, or its ``ssd`` are not known."""
        if rabbit in self._machine.out_of_service:
            return None
        return self.ssds.room(rabbit, jobid)

    def constraint(self, with_rabbits: bool = False) -> Json:
        """The constraint that keeps a job with Rabbit storage off nodes that must
        not get it.

        For a scheduler without changing properties, the constraint names the nodes,
        as they are when the job is planned.

        Args:
            with_rabbits: the job asks for nodes of Rabbits. No other job gets these:
                they mount no storage.

        Raises:
            StorageUnavailable: the module was loaded for another scheduler.
        """
        if self.fluxion.is_misused:
            raise StorageUnavailable(NOT_WITH_FLUXION, Reason.CONFIG_WRONG)
        hosts = frozenset() if with_rabbits else self._rabbit_nodes
        names = [BAD_RABBIT]
        if not self._settings.scheduler:
            names.append(ALLOC_RABBIT)
            if not self.fluxion.present:
                hosts |= self._wanted.avoided.keys()
        properties = exclude_properties(names)
        return conjunction(properties, exclude_hosts(hosts)) if hosts else properties

    @property
    def disagreement(self) -> str:
        """On which Rabbits mapping, graph and cluster do not agree, so that no job is
        to have storage there, or that this is not known yet; empty if there are
        none."""
        if not self.disagreements.known:
            return "the rabbit mapping is yet to be compared with the resource graph"
        names = hostlist.encode_sorted(self.disagreements.avoided)
        return names and f"the rabbit mapping is wrong about {names}"

    def check_agreement(self) -> None:
        """Have a job wait that does not fit now, but may fit by another mapping.

        Raises:
            StorageUnavailable: there is a :attr:`disagreement`.
        """
        if self.disagreement:
            raise StorageUnavailable(self.disagreement, Reason.MAPPING_DISAGREES)

    def empty_rabbits(
        self, allowed: Optional[AbstractSet[str]] = None
    ) -> Iterator[EmptyRabbit]:
        """What each Rabbit could give to a job; nothing if the mapping lacks the size
        of one.

        Args:
            allowed: the nodes that the job may have; None for all.
        """
        mapping, states = self._settings.mapping, self.nodes.states
        if len(self.ledger.sizes) < len(mapping.rabbits):
            return
        for rabbit in mapping.rabbits:
            nodes = sum(
                (states is None or states.has(host))
                and (allowed is None or host in allowed)
                for host in mapping.hosts_of(rabbit)
            )
            if self._settings.scheduler:
                ssds = self.ssds.on(rabbit)
                yield EmptyRabbit(nodes, ssds.count + ssds.withheld, ssds.size * GIB)
            else:
                yield EmptyRabbit(nodes, mapping.capacity(rabbit))

    @property
    def most_nodes(self) -> int:
        """The nodes that are no Rabbits; as many as a job may ask for as long as they
        are not known."""
        states = self.nodes.states
        return NODES if states is None else len(states.hosts) - len(self._rabbit_nodes)

    def may_write(self, host: str) -> bool:
        """Whether a node could write to Rabbit storage that it has mounted: unless its
        broker is gone, and its Rabbit shows its link as Offline, or it is fenced."""
        if host in self._fences.nodes:
            return False
        states, rabbit = self.nodes.states, self._settings.mapping.rabbit_of(host)
        state = None if rabbit is None else self.rabbits.state(rabbit)
        cut_off = state is not None and state.lost.get(host) == OFFLINE
        return not (cut_off and states is not None and host in states.offline)

    async def find_writers(self, hosts: Sequence[str]) -> tuple[str, ...]:
        """The nodes of these that could write to storage that they have mounted."""
        await self._fences.ask(hosts)
        return tuple(filter(self.may_write, hosts))

    def _disabled(self, known: frozenset[str]) -> Optional[frozenset[str]]:
        """The nodes that are to be Disabled in SystemStatus, given those that Flux has
        disabled there already. A node on which a job waits for its storage to be
        mounted is never Disabled: DWS would report all mounts as complete, and the job
        would start without that one."""
        states, awaited = self.nodes.states, self._awaited()
        if states is None:
            return None
        if awaited is None:
            awaited = frozenset(states.hosts)
        keeps = self._settings.config.keeps_mounted
        may_write = self.may_write if keeps else None
        fenced = self._fences.nodes
        found = disabled_nodes(states, known, fenced, may_write)
        self._awaited_disabled = not awaited.isdisjoint(found)
        return found - awaited

    # For queries and commands

    def stats(self) -> Json:
        """The part of ``dws.stats-get`` about the Rabbits."""
        mapping, free = self._settings.mapping, self.ledger
        unwell = self.rabbits.unwell
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
            "capacity": sum(map(free.capacity, mapping.rabbits)),
            "reserved": dict(free.reserved),
            "unscheduled": dict(free.withheld),
            "in_use": len(list(free.in_use)),
            "fluxion": self.fluxion.stats(),
        }

    def _nodes_changed(self) -> None:
        states = self.nodes.states
        if states is not None:
            self._rabbit_nodes = self._settings.mapping.rabbits_among(states.hosts)
            self._fences.nodes_changed(states)
            self.system_status.check()
            self._undrain.nodes_changed(states)
        self._changed()

    def _changed(self) -> None:
        self._controller.add(KEY)

    def _fluxion_changed(self) -> None:
        """Fluxion's graph is known, or as is wanted, or there is none."""
        self._check_withheld()
        self._changed()

    def _storages_changed(self) -> None:
        # Kubernetes answers: a watch that fails from now on does so by itself.
        self.ledger.open()
        self.system_status.check()  # a node may be cut off, and cannot write
        self._changed()

    # Reconciling

    async def _reconcile(self, key: str) -> Optional[float]:
        """Have the world be as it should. Returns the seconds until the next hold-down
        ends, or None."""
        if not (self.rabbits.listed and self.ledger.settled):
            return None
        now = self._flux.now()
        before, self._machine = self._machine, self._look(now)
        self._wanted = wanted(self._machine, self._settings)
        self._note_changes(before)
        self.fluxion.want(self._wanted)
        self._check_withheld()
        self.nodes.want(self._wanted.drains)
        hold_downs = self._rabbit_hold_down, self._link_hold_down
        end = min(hold_down.next_end(now) for hold_down in hold_downs)
        return None if end == inf else end - now

    def _look(self, now: float) -> Machine:
        """What is known now. Hardware that has recovered is held down for a while."""
        unwell, broken = self.rabbits.unwell, self.rabbits.broken
        ledger = self.ledger
        down = broken.keys() | self._rabbit_hold_down.update(broken.keys(), now)
        lost = lost_links(unwell, down)
        # A connection is no better since its Rabbit went down.
        cut = frozenset(host for state in unwell.values() for host in state.lost)
        for host in self._link_hold_down.update(cut, now):
            rabbit = self._settings.mapping.rabbit_of(host)
            if rabbit not in down:
                lost[host] = lost_connection_reason(str(rabbit), HELD_DOWN)
        self.disagreements.update()
        # Before the Workflows are listed, Fluxion keeps what an earlier module had it
        # keep.
        counted = ledger.counted and self._workflows_listed
        return Machine(
            broken=broken,
            down=frozenset(down),
            disagreeing=self.disagreements.avoided,
            emptied=frozenset(r for r in broken if not self.keeps_data(r)),
            lost=lost,
            disabled=self.system_status.disabled_by_others,
            states=self.nodes.states,
            used=frozenset(ledger.in_use) if ledger.counted else None,
            withheld=dict(ledger.withheld) if counted else None,
        )

    def _note_changes(self, before: Machine) -> None:
        """Log which Rabbits and nodes go out of service, and which return."""
        machine = self._machine
        self._log_nodes(
            syslog.LOG_WARNING,
            machine.disabled - before.disabled,
            "disabled by somebody else: jobs with Rabbit storage avoid it until it is"
            " Enabled again",
            Reason.NODE_DISABLED,
        )
        self._log_nodes(
            syslog.LOG_NOTICE,
            before.disabled - machine.disabled,
            "not disabled any more by somebody else",
            Reason.NODE_BACK,
        )
        for rabbit in sorted(machine.down - before.down, key=hostlist.natural_key):
            hosts = hostlist.encode(self._settings.mapping.hosts_of(rabbit))
            status = machine.broken.get(rabbit, "down")
            self._flux.log(
                syslog.LOG_WARNING,
                f"Rabbit {rabbit} is {status}: jobs with Rabbit storage avoid {hosts}",
                Reason.RABBIT_BROKEN,
            )
        recovered = sorted(before.down - machine.down, key=hostlist.natural_key)
        for rabbit in recovered:
            text = f"Rabbit {rabbit} is used again"
            self._flux.log(syslog.LOG_NOTICE, text, Reason.RABBIT_BACK)
        if recovered or not machine.emptied <= before.emptied:
            self._rabbits_changed()

    def _log_nodes(
        self, level: int, nodes: AbstractSet[str], text: str, why: Reason
    ) -> None:
        if nodes:
            names = hostlist.encode_sorted(nodes)
            self._flux.log(level, f"SystemStatus: {names} is {text}", why)
