# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The Rabbits: their health, their labels, and what storage is on them.

Of the cluster, the Storage objects tell how each Rabbit is and which of its
compute nodes are connected to it; of the jobs, the Servers objects tell which
Rabbits have their storage. Nothing else keeps it, so nothing is lost when the
module is loaded again.
"""

from __future__ import annotations

import syslog
from dataclasses import dataclass, field
from typing import Any, Callable, Iterator, Mapping, Optional

from flux_k8s.directivebreakdown.allocation import given_back
from flux_k8s.errors import BadObject
from flux_k8s.fields import Reader
from flux_k8s.jobid import jobid_of_workflow
from flux_k8s.mapping import RabbitMapping
from flux_k8s.ports import (
    DWS_GROUP,
    SERVERS,
    STORAGE,
    Json,
    Kind,
    Kube,
    KubeError,
    Watch,
)

SERVING = frozenset({"Ready", "Degraded"})
"""The states of a Storage in which it can take allocations, and of a compute node
in which it can mount them."""

ABSENT = "not there"
"""The state of a Rabbit that the mapping has and Kubernetes does not."""

WORKFLOW_LABEL = f"{DWS_GROUP}/workflow.name"


@dataclass(frozen=True)
class RabbitState:
    """How a Rabbit is.

    Attributes:
        status: in a word, as DWS has it.
        serving: it takes allocations.
        lost: the compute nodes that cannot reach it, with the state of their
            connection.
        labels: of its Storage.
        free: bytes that are not allocated; None when it does not say.
    """

    status: str
    serving: bool
    lost: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    free: Optional[int] = None

    @property
    def well(self) -> bool:
        return self.serving and not self.lost


def parse_storage(storage: Any, name: str) -> RabbitState:
    """Read a Storage.

    Raises:
        BadObject: it is not what its kind prescribes.
    """
    reader = Reader(f"Storage {name}", storage)
    status = reader.optional_string("status.status") or "without a status"
    if reader.optional_string("spec.state") == "Disabled":
        status = "Disabled"
    lost = {}
    for compute in reader.optional_objects("status.access.computes"):
        state = compute.optional_string("status")
        if state is not None and state not in SERVING:
            lost[compute.string("name")] = state
    labels = reader.optional_object("metadata.labels")
    return RabbitState(
        status,
        status in SERVING,
        lost,
        {} if labels is None else {k: str(v) for k, v in labels.value.items()},
        reader.optional_integer("status.capacity"),
    )


@dataclass(frozen=True)
class Holding:
    """Storage of one Servers object.

    Attributes:
        jobid: the job whose Workflow it belongs to; None for persistent storage
            that its job has let go of, and for what others than we have made.
        sizes: bytes by Rabbit.
    """

    jobid: Optional[int]
    sizes: Mapping[str, int]


def parse_servers(servers: Any, name: str) -> Holding:
    """Read a Servers object.

    Raises:
        BadObject: it is not what its kind prescribes.
    """
    reader = Reader(f"Servers {name}", servers)
    labels = reader.optional_object("metadata.labels")
    workflow = None if labels is None else labels.value.get(WORKFLOW_LABEL)
    sizes: dict[str, int] = {}
    if not given_back(reader):
        for entry in reader.optional_objects("spec.allocationSets"):
            size = entry.integer("allocationSize", minimum=0)
            for storage in entry.optional_objects("storage"):
                rabbit = storage.string("name")
                count = storage.integer("allocationCount", minimum=0)
                sizes[rabbit] = sizes.get(rabbit, 0) + size * count
    jobid = jobid_of_workflow(workflow) if isinstance(workflow, str) else None
    return Holding(jobid, sizes)


class RabbitManager:
    """Follows the Storage and Servers objects of the cluster.

    Args:
        log: takes a syslog level and a line.
        watched: is called with an error when a watch was lost, with None when
            all of its objects have been seen.
        changed: is called when a Rabbit's state, or what is on it, changed.

    Attributes:
        complete: all Storages have been seen once.
        counted: so have all Servers, or we may not see them.
    """

    def __init__(
        self,
        kube: Kube,
        mapping: RabbitMapping,
        namespace: str,
        log: Callable[[int, str], None],
        watched: Callable[[Kind, Optional[KubeError]], None],
        changed: Callable[[], None],
    ) -> None:
        self._kube = kube
        self._mapping = mapping
        self._namespace = namespace
        self._log = log
        self._watched = watched
        self._changed = changed
        self._states: dict[str, RabbitState] = {}
        self._labels: dict[str, Mapping[str, str]] = {}
        self._unwell: dict[str, RabbitState] = {}
        self._unseen = dict.fromkeys(mapping.rabbits, RabbitState(ABSENT, False))
        self._holdings: dict[tuple[str, str], Holding] = {}
        self._reserved: dict[str, int] = {}
        self._in_use: dict[str, int] = {}
        self._watches: list[Watch] = []
        self.complete = False
        self.counted = False

    def start(self) -> None:
        servers = _ServersHandler(self)
        self._watches = [
            self._kube.watch(STORAGE, self._namespace, self),
            self._kube.watch(SERVERS, None, servers),
        ]

    def stop(self) -> None:
        for watch in self._watches:
            watch.stop()

    # Of the cluster

    @property
    def labels(self) -> Mapping[str, Mapping[str, str]]:
        """The labels of each Rabbit that is fit for use."""
        return self._labels

    @property
    def unwell(self) -> Iterator[tuple[str, RabbitState]]:
        """The Rabbits that are not fit for use, or not for all of their nodes.
        Nothing is known of a Rabbit until all have been seen."""
        yield from self._unwell.items()
        if self.complete:
            yield from self._unseen.items()

    def capacity(self, rabbit: str) -> int:
        """Bytes that jobs can have of a Rabbit, all of them together: its size
        less what persistent storage and others' Workflows hold."""
        return max(0, self._mapping.capacity(rabbit) - self._reserved.get(rabbit, 0))

    @property
    def reserved(self) -> Mapping[str, int]:
        """Bytes that persistent storage and others' Workflows hold, by Rabbit."""
        return self._reserved

    # Of the jobs

    @property
    def in_use(self) -> Iterator[str]:
        """The Rabbits with storage of jobs."""
        return iter(self._in_use)

    # What Kubernetes shows: the WatchHandler

    def event(self, type: str, object: Json) -> None:
        """A Storage changed."""
        name = str(object.get("metadata", {}).get("name"))
        state = None if type == "DELETED" else self._read(name, object)
        before = self._states.get(name)
        if state == before:
            return
        self._labels.pop(name, None)
        self._unwell.pop(name, None)
        self._unseen.pop(name, None)
        if state is None:
            del self._states[name]
            if self._mapping.has(name):
                self._unseen[name] = RabbitState(ABSENT, False)
        else:
            self._states[name] = state
            if state.serving:
                self._labels[name] = state.labels
            if not state.well:
                self._unwell[name] = state
        if before is None or not before.well or state is None or not state.well:
            self._changed()

    def synced(self) -> None:
        self.complete = True
        self._watched(STORAGE, None)
        self._changed()

    def trouble(self, error: KubeError) -> None:
        self._watched(STORAGE, error)

    def _read(self, name: str, storage: Json) -> RabbitState:
        try:
            return parse_storage(storage, name)
        except BadObject as error:
            self._log(syslog.LOG_ERR, str(error))
            return RabbitState("unreadable", False)

    def see_servers(self, type: str, object: Json) -> None:
        """A Servers changed."""
        metadata = object.get("metadata", {})
        key = str(metadata.get("namespace")), str(metadata.get("name"))
        holding = Holding(None, {})
        if type != "DELETED":
            try:
                holding = parse_servers(object, "/".join(key))
            except BadObject as error:
                self._log(syslog.LOG_ERR, str(error))
        before = self._holdings.pop(key, Holding(None, {}))
        if holding.sizes:
            self._holdings[key] = holding
        if holding != before:
            self._count(before, -1)
            self._count(holding, 1)
            self._changed()

    def count_servers(self, error: Optional[KubeError]) -> None:
        """All Servers were seen, or cannot be. That keeps no job waiting."""
        forbidden = error is not None and error.status == 403
        if forbidden and not self.counted:
            text = f"Servers: {error}; what persistent storage holds is not known"
            self._log(syslog.LOG_WARNING, text)
        if not self.counted and (forbidden or error is None):
            self.counted = True
            self._changed()

    def _count(self, holding: Holding, sign: int) -> None:
        counts = self._in_use if holding.jobid is not None else self._reserved
        for rabbit, size in holding.sizes.items():
            amount = 1 if holding.jobid is not None else size
            counts[rabbit] = counts.get(rabbit, 0) + sign * amount
            if counts[rabbit] == 0:
                del counts[rabbit]


class _ServersHandler:
    """The WatchHandler of Servers."""

    def __init__(self, rabbits: RabbitManager) -> None:
        self._rabbits = rabbits

    def event(self, type: str, object: Json) -> None:
        self._rabbits.see_servers(type, object)

    def synced(self) -> None:
        self._rabbits.count_servers(None)

    def trouble(self, error: KubeError) -> None:
        self._rabbits.count_servers(error)
