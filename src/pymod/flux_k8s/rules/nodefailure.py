# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Nodes that fail file system creation or mounting.

A Workflow that fails does not name the nodes that fail. The objects that DWS made for
it show them: in Setup the Servers, which name the Rabbits that have their storage; in
PreRun the ClientMounts. Nodes that are in the job's R and not in the Workflow's
Computes have failed before: the difference is the only record of them.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Iterable, Optional, Sequence

from flux_k8s.errors import BadObject
from flux_k8s.formats import hostlist
from flux_k8s.formats.timestamps import format_timestamp, parse_timestamp
from flux_k8s.objects.clientmount import ClientMount
from flux_k8s.objects.computes import Computes
from flux_k8s.objects.mapping import RabbitMapping
from flux_k8s.objects.servers import Servers
from flux_k8s.objects.storage import SERVING, Storage
from flux_k8s.objects.workflowdirectives import MOUNTING
from flux_k8s.objects.workflowstate import State
from flux_k8s.ports import Json
from flux_k8s.rules.directivebreakdown.breakdown import JOB, Breakdown, Reference

EXCLUSION_STATE = "flux-framework.readthedocs.io/exclusion-state"
EXCLUSION_DATE = "flux-framework.readthedocs.io/exclusion-date"
"""Annotations of Computes: the state in which nodes were last removed, and the time."""


@dataclass(frozen=True)
class Survey:
    """The nodes of a job that have their storage, and those that have not.

    Attributes:
        state: Setup, or PreRun.
        requested_at: the UNIX time at which the objects were requested from Kubernetes.
        computes: the nodes in the Workflow's Computes.
        lost: the nodes in Computes that failed.
        served: whether DWS has done all of its work on the other nodes.
        excluded: the UNIX time at which nodes were last removed from Computes in this
            state; None without any.
        patches: in Setup, the merge patches that take the Rabbits that failed out of
            Servers, each with the object.
    """

    state: State
    requested_at: float
    computes: tuple[str, ...]
    lost: tuple[str, ...]
    served: bool
    excluded: Optional[float] = None
    patches: tuple[tuple[Reference, Json], ...] = ()

    @property
    def remaining(self) -> tuple[str, ...]:
        """The nodes that the job can have storage on."""
        lost = frozenset(self.lost)
        return tuple(host for host in self.computes if host not in lost)

    def without_lost(self, now: float) -> Survey:
        """The survey after the failed nodes were removed from Computes at ``now``."""
        return Survey(self.state, now, self.remaining, (), self.served, now)

    def may_be_forced(self, outstanding: Sequence[str]) -> bool:
        """Whether the state may be forced (``forceReady``): failed nodes were left out,
        and the remaining ones are served.

        DWS works through the directives one by one, and a forced state leaves out the
        rest of them. In Setup that is storage, which exists according to the survey. In
        PreRun it may be the variables of the next file system, in both states
        containers: then the state must not be forced.

        Args:
            outstanding: the commands of the directives that DWS has not completed.
        """
        if self.excluded is None or self.lost or not self.served:
            return False
        known = all(command in MOUNTING for command in outstanding)
        return known and (self.state is State.Setup or len(outstanding) <= 1)


def failed_nodes(allocated: Iterable[str], survey: Survey) -> tuple[str, ...]:
    """The nodes of R (``allocated``) that have failed until now, in R's order."""
    remaining = set(survey.remaining)
    return tuple(host for host in dict.fromkeys(allocated) if host not in remaining)


def verdict(
    allocated: Sequence[str], survey: Survey, tolerance: int, problem: str
) -> tuple[bool, str]:
    """Whether a job goes on without the nodes that failed, and the note of the
    exception about that. At most ``tolerance`` may fail, and one must be left."""
    failed, number = failed_nodes(allocated, survey), len(set(allocated))
    if len(failed) <= tolerance and len(failed) < number:
        return True, (
            f"{hostlist.encode(survey.lost)}: {problem}; the job goes on without its"
            f" storage there (failed nodes: {len(failed)},"
            f" dw_failure_tolerance={tolerance})"
        )
    return False, (
        f"{problem}; failed nodes: {len(failed)} of {number}"
        f" ({hostlist.encode(failed)}), dw_failure_tolerance={tolerance}"
    )


def computes_patch(survey: Survey, now: float) -> Json:
    """A merge patch that removes the failed nodes from Computes."""
    annotations = {
        EXCLUSION_STATE: survey.state.name,
        EXCLUSION_DATE: format_timestamp(now),
    }
    return {
        "metadata": {"annotations": annotations},
        "data": [{"name": host} for host in survey.remaining],
    }


def survey_storage(
    requested_at: float,
    computes: Json,
    holdings: Iterable[tuple[Breakdown, Json]],
    mapping: RabbitMapping,
) -> Survey:
    """The survey of a job's nodes in Setup, by its Servers.

    Storage that all nodes share, and storage that outlives the job, must be complete:
    without it all nodes count as failed.

    Args:
        requested_at: the UNIX time at which the objects were requested.
        computes: the Workflow's Computes.
        holdings: the breakdowns that ask for storage, each with its Servers.

    Raises:
        BadObject: an object is not as DWS's schema says.
    """
    hosts, excluded = _read_computes(computes, State.Setup, requested_at)
    lost: set[str] = set()
    patches: list[tuple[Reference, Json]] = []
    for breakdown, servers in holdings:
        missing = _missing(Servers.read(servers))
        apart = {s.label for s in breakdown.allocation_sets if s.strategy.each}
        for label, rabbits in missing.items():
            if breakdown.lifetime == JOB and label in apart:
                lost.update(h for h in hosts if mapping.rabbit_of(h) in rabbits)
            elif rabbits:
                lost.update(hosts)
        if breakdown.servers is not None and any(missing.values()):
            spec = {"allocationSets": _without(servers, missing)}
            patches.append((breakdown.servers, {"spec": spec}))
    return Survey(
        State.Setup,
        requested_at,
        hosts,
        tuple(host for host in hosts if host in lost),
        served=True,
        excluded=excluded,
        patches=tuple(patches),
    )


def survey_mounts(
    requested_at: float,
    computes: Json,
    clientmounts: Iterable[Json],
    storages: Iterable[Json],
    expected: int,
    mapping: RabbitMapping,
) -> Survey:
    """The survey of a job's nodes in PreRun, by its ClientMounts.

    NNF makes the ClientMounts of a file system all at once, with the same name in the
    namespace of each node, and only when every node can reach its Rabbit. As long as
    ClientMounts are missing, the Storages show which nodes cannot reach their Rabbits.

    Args:
        requested_at: the UNIX time at which the objects were requested.
        computes: the Workflow's Computes.
        expected: the number of file systems that each node mounts.

    Raises:
        BadObject: Computes is not as DWS's schema says.
    """
    hosts, excluded = _read_computes(computes, State.PreRun, requested_at)
    mounted: dict[str, dict[str, bool]] = {}
    computed = frozenset(hosts)
    for mount in map(ClientMount.read, clientmounts):
        if mount.node in computed:
            name = mount.metadata.name or ""
            mounted.setdefault(name, {})[mount.node] = mount.is_mounted
    lost = tuple(
        host
        for host in hosts
        if not all(nodes.get(host, False) for nodes in mounted.values())
    )
    complete = len(mounted) >= expected
    if not lost and not complete:
        reachable = _reachable(storages)
        rabbits = {host: mapping.rabbit_of(host) for host in hosts}
        lost = tuple(h for h in hosts if rabbits[h] and h not in reachable)
    return Survey(State.PreRun, requested_at, hosts, lost, complete, excluded)


def _read_computes(
    computes: Json, state: State, now: float
) -> tuple[tuple[str, ...], Optional[float]]:
    """The nodes of a Computes object, and the UNIX time, up to ``now``, at which nodes
    were last removed from it in ``state``."""
    found = Computes.read(computes)
    date = found.metadata.annotation(EXCLUSION_DATE)
    if found.metadata.annotation(EXCLUSION_STATE) != state.name:
        return found.hosts, None
    excluded = parse_timestamp(date)
    return found.hosts, None if excluded is None else min(excluded, now)


def _missing(servers: Servers) -> dict[str, set[str]]:
    """For each allocation set, by its label, the Rabbits on which its storage is not
    ready."""
    ready = {
        (entry.label, rabbit)
        for entry in servers.made
        for rabbit, made in entry.made.items()
        if made.ready
    }
    return {
        entry.label or "": {
            place.rabbit
            for place in entry.places or ()
            if (entry.label, place.rabbit) not in ready
        }
        for entry in servers.sets
    }


def _without(servers: Json, rabbits: dict[str, set[str]]) -> list[Json]:
    """``spec.allocationSets`` of Servers that were read, without some Rabbits, by
    label."""
    return [
        {
            **entry,
            "storage": [
                place
                for place in entry.get("storage") or ()
                if place["name"] not in rabbits[entry.get("label") or ""]
            ],
        }
        for entry in servers["spec"]["allocationSets"]
    ]


def _reachable(storages: Iterable[Json]) -> set[str]:
    """The compute nodes that can reach their Rabbit, by the Storages."""
    nodes: set[str] = set()
    for storage in storages:
        with contextlib.suppress(BadObject):
            found = Storage.read(storage)
            if found.state in SERVING:
                links = (link for link in found.links if link.status in SERVING)
                nodes.update(link.host for link in links)
    return nodes
