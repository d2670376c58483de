# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Chooses the storage of a job that has nodes, or is given some to choose by. The rules
of where it may be are in :mod:`flux_k8s.dws.directivebreakdown`; whether a job can do
without nodes is in :mod:`flux_k8s.dws.nodefailure`.

Nothing is written here. Other jobs must not choose before the choice is counted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import AbstractSet, Mapping, Optional

from flux_k8s.config.context import Context
from flux_k8s.config.table import Daemon
from flux_k8s.dws import nodefailure
from flux_k8s.dws.directivebreakdown import (
    Allocation,
    Breakdown,
    Reference,
    beyond_shares,
    build_servers,
    check_locations,
    colocation_annotations,
    required_daemons,
)
from flux_k8s.dws.directivebreakdown.breakdown import JOB
from flux_k8s.dws.nodefailure import Survey
from flux_k8s.dws.storageusage import WORKFLOW_LABEL, beyond_annotation
from flux_k8s.dws.workflowstate import State
from flux_k8s.errors import AllocationError
from flux_k8s.jobs.breakdownreader import Breakdowns
from flux_k8s.jobs.workflowinfo import WorkflowInfo
from flux_k8s.ports import Json
from flux_k8s.rabbits.storage import RabbitManager
from flux_k8s.reasons import Reason


@dataclass(frozen=True)
class JobPlacement:
    """The placement of a job's storage, written to Servers and Computes.

    Attributes:
        units: the systemd units that the job needs on its nodes.
        unmet_wishes: a sentence for each wish about the location of nodes that is not
            fulfilled.
        excluded: the nodes without storage, and the note of the exception about them;
            None when all nodes have storage.
    """

    units: tuple[str, ...]
    unmet_wishes: tuple[str, ...]
    excluded: Optional[tuple[Survey, str]] = None


@dataclass(frozen=True)
class Choice:
    """The storage that was chosen for a job.

    Attributes:
        servers: the fields that the service reads of the job's Servers, as they are
            after the patches.
        bodies: the patches of these Servers.
        hosts: the nodes of the job that get its storage.
        placement: the placement after the patches.
    """

    servers: Mapping[Reference, Json]
    bodies: Mapping[Reference, Json]
    hosts: tuple[str, ...]
    placement: JobPlacement


class StorageChooser:
    """Chooses the storage of jobs."""

    def __init__(self, context: Context, rabbits: RabbitManager) -> None:
        self._settings = context.settings
        self._rabbits = rabbits
        self._clock = context.clock

    def choose(
        self,
        info: WorkflowInfo,
        breakdowns: Breakdowns,
        existing: Mapping[Reference, Json],
        allocation: Allocation,
        colocated: Mapping[str, frozenset[str]],
        room: Mapping[str, int],
        other_shares: Mapping[str, int],
        awaited: AbstractSet[str],
    ) -> Choice:
        """Choose the job's storage. A job that tolerates failed nodes does without the
        nodes whose Rabbits are broken, but for the ``awaited`` ones.

        Args:
            existing: the Servers of persistent storage that the job uses.
            allocation: of the job's R alone.
            colocated, room, other_shares: as in :class:`Allocation`.

        Raises:
            AllocationError: the storage does not fit.
        """
        allocation = replace(
            allocation,
            room=room,
            other_shares=other_shares,
            storages=self._rabbits.labels,
            broken_rabbits=self._rabbits.broken,
            colocated=colocated,
        )
        try:
            return self.choose_on(info, breakdowns, existing, allocation)
        except AllocationError as error:
            excluded = self._exclude_broken(info, allocation, error, awaited)
        survey, _ = excluded
        places = map(self._settings.mapping.rabbit_of, survey.lost)
        rest = allocation.without(survey.lost, {r for r in places if r is not None})
        choice = self.choose_on(info, breakdowns, existing, rest)
        return replace(choice, placement=replace(choice.placement, excluded=excluded))

    def _exclude_broken(
        self,
        info: WorkflowInfo,
        allocation: Allocation,
        error: AllocationError,
        awaited: AbstractSet[str],
    ) -> tuple[Survey, str]:
        """The nodes whose Rabbits are broken, and the note of the exception about them.

        Raises:
            AllocationError: the job cannot do without these nodes.
        """
        hosts, tolerance = allocation.hosts, info.failure_tolerance
        down = allocation.broken_rabbits.items()
        broken = {rabbit: status for rabbit, status in down if rabbit not in awaited}
        rabbits = {host: self._settings.mapping.rabbit_of(host) for host in hosts}
        lost = tuple(host for host in hosts if rabbits[host] in broken)
        if not lost or tolerance == 0:
            raise error
        survey = Survey(State.Setup, self._clock.now(), hosts, lost, served=True)
        named = dict.fromkeys(str(rabbits[host]) for host in lost)
        problem = ", ".join(f"Rabbit {r} is {broken[r]}" for r in named)
        if not nodefailure.tolerated(hosts, survey, tolerance):
            note = nodefailure.refusal_note(hosts, survey, tolerance, problem)
            raise AllocationError(note, Reason.NODES_FAILED)
        return survey, nodefailure.exclusion_note(hosts, survey, tolerance, problem)

    def choose_on(
        self,
        info: WorkflowInfo,
        breakdowns: Breakdowns,
        existing: Mapping[Reference, Json],
        allocation: Allocation,
    ) -> Choice:
        """Choose the storage of a job on the Rabbits of an allocation.

        Raises:
            AllocationError: it does not fit.
        """
        hosts = allocation.hosts
        with_storage = [b for b in breakdowns if b.servers is not None]
        specs = build_servers(with_storage, allocation) if with_storage else []
        bodies = [
            _servers_body(*each, self._settings.scheduler)
            for each in zip(with_storage, specs, beyond_shares(specs, allocation))
        ]
        servers = {
            breakdown.servers: _servers(info, breakdown, body)
            for breakdown, body in zip(with_storage, bodies)
            if breakdown.servers is not None
        }
        unmet_wishes = check_locations(
            breakdowns, {**existing, **servers}, hosts, self._settings.mapping
        )
        daemons = self.daemons(breakdowns)
        units = dict.fromkeys(daemon.unit for daemon in daemons if daemon.unit)
        placement = JobPlacement(tuple(units), unmet_wishes)
        return Choice(servers, dict(zip(servers, bodies)), hosts, placement)

    def daemons(self, breakdowns: Breakdowns) -> tuple[Daemon, ...]:
        """The daemons that a job requires, in the order of its directives.

        Raises:
            DirectiveError: a daemon is not known.
        """
        known = self._settings.config.daemons
        return tuple(known[name] for name in required_daemons(breakdowns, known))


def _servers_body(
    breakdown: Breakdown, sets: list[Json], beyond: Mapping[str, int], shared: bool
) -> Json:
    """The patch of a Servers object.

    Args:
        beyond: the bytes beyond the job's share, by Rabbit.
        shared: whether a scheduler gives out shares. If not, ``beyond`` is not written.
    """
    annotations: Json = dict(colocation_annotations(breakdown))
    if shared:
        annotations.update(beyond_annotation(beyond))
    body: Json = {"spec": {"allocationSets": sets}}
    return {**body, "metadata": {"annotations": annotations}} if annotations else body


def _servers(info: WorkflowInfo, breakdown: Breakdown, body: Json) -> Json:
    """The fields that the service reads of a Servers object after its patch."""
    labels = {WORKFLOW_LABEL: info.name} if breakdown.lifetime == JOB else {}
    return {**body, "metadata": {**body.get("metadata", {}), "labels": labels}}
