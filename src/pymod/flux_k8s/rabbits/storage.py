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
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Callable, Collection, Iterator, Mapping, Optional

from flux_k8s.dws import storageusage
from flux_k8s.dws.directivebreakdown import Reference
from flux_k8s.dws.mapping import RabbitMapping
from flux_k8s.dws.nodefailure import SERVING
from flux_k8s.dws.storageusage import NOTHING, StorageUsage
from flux_k8s.errors import BadObject
from flux_k8s.json_reader import Reader
from flux_k8s.ports import (
    SERVERS,
    STORAGE,
    Json,
    Kind,
    Kube,
    KubeError,
    Watch,
)

ABSENT = "not there"
"""The state of a Rabbit that the mapping has and Kubernetes does not."""


@dataclass(frozen=True)
class RabbitState:
    """How a Rabbit is.

    Attributes:
        status: in a word, as DWS has it.
        serving: it takes allocations.
        lost: the compute nodes that cannot reach it, with the state of their
            connection.
        labels: of its Storage.
    """

    status: str
    serving: bool
    lost: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)

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
    )


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
        uncountable: they could not be seen, whatever the reason.
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
        self._seen: dict[Reference, StorageUsage] = {}
        self._promised: dict[Reference, StorageUsage] = {}
        self._reserved: dict[str, int] = {}
        self._in_use: dict[str, int] = {}
        self._unscheduled: dict[str, int] = {}
        self._of_job: dict[int, set[Reference]] = {}
        self._let_go: set[int] = set()
        self._over: set[int] = set()
        self._watches: list[Watch] = []
        self.complete = False
        self.counted = False
        self.uncountable = False

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
        """The labels of each Rabbit of the mapping that is fit for use."""
        return self._labels

    @property
    def all_labels(self) -> Mapping[str, Mapping[str, str]]:
        """The labels of each Rabbit that Kubernetes has."""
        return {name: state.labels for name, state in self._states.items()}

    @property
    def broken(self) -> Mapping[str, str]:
        """The Rabbits of the mapping that take no allocations, with their status."""
        return {
            name: state.status
            for name, state in self.unwell
            if not state.serving and self._mapping.has(name)
        }

    @property
    def unwell(self) -> Iterator[tuple[str, RabbitState]]:
        """The Rabbits that are not fit for use, or not for all of their nodes.
        Nothing is known of a Rabbit until all have been seen."""
        yield from self._unwell.items()
        if self.complete:
            yield from self._unseen.items()

    @property
    def unmapped(self) -> Iterator[str]:
        """The Rabbits that Kubernetes has and the mapping does not."""
        return (name for name in self._states if not self._mapping.has(name))

    def capacity(self, rabbit: str) -> int:
        """Bytes that jobs can have of a Rabbit, all of them together: its size
        less what persistent storage and others' Workflows hold."""
        return max(0, self._mapping.size(rabbit) - self._reserved.get(rabbit, 0))

    @property
    def reserved(self) -> Mapping[str, int]:
        """Bytes that persistent storage and others' Workflows hold, by Rabbit."""
        return self._reserved

    @property
    def unscheduled(self) -> Mapping[str, int]:
        """Bytes on each Rabbit that no scheduler knows to be taken: persistent
        storage, others' Workflows, what jobs take beyond what they were given, and
        what is left of jobs that gave that back. Storage of the system that the
        mapping leaves out of a Rabbit's capacity is not given out at all."""
        taken = {
            rabbit: size - self._left_out(rabbit)
            for rabbit, size in self._unscheduled.items()
        }
        return {rabbit: size for rabbit, size in taken.items() if size > 0}

    # Of the jobs

    @property
    def in_use(self) -> Iterator[str]:
        """The Rabbits with storage of jobs."""
        return iter(self._in_use)

    @property
    def sizes(self) -> dict[str, int]:
        """The bytes of each Rabbit that are for jobs. One whose size the mapping does
        not tell is missing."""
        sizes = ((name, self._mapping.capacity(name)) for name in self._mapping.rabbits)
        return {name: size for name, size in sizes if size}

    def room(self, own: Collection[Reference], lasting: bool = False) -> dict[str, int]:
        """Bytes that are left on each Rabbit for a job: its size less what is
        held there.

        Args:
            own: the job's own Servers, which take nothing away from it.
            lasting: count only storage that is to outlive all Workflows.
        """
        if lasting:
            held: Counter[str] = Counter()
            for servers in {**self._seen, **self._promised}:
                found = self._holding(servers)
                if found.workflow is None and servers not in own:
                    held.update(found.unavailable)
        else:
            held = Counter(self._reserved)
            held.update(self._in_use)
            for servers in own:
                held.subtract(self._holding(servers).unavailable)
        return {
            name: max(0, size + self._left_out(name) - held[name])
            for name, size in self.sizes.items()
        }

    def _left_out(self, rabbit: str) -> int:
        return self._mapping.size(rabbit) - self._mapping.capacity(rabbit)

    def promise(self, servers: Reference, object: Json) -> None:
        """Take Servers that are about to be written for written: until they are
        seen, another job would be given the same room.

        Args:
            object: what they will be.
        """
        before = self._holding(servers)
        self._promised[servers] = storageusage.parse(object)
        self._recount(servers, before)

    def withdraw(self, servers: Reference) -> None:
        """They have not been written; or their job is over, whether we could see
        what became of them or not."""
        before = self._holding(servers)
        self._promised.pop(servers, None)
        self._recount(servers, before)

    def let_go(self, jobid: int, torn_down: bool) -> None:
        """The job gives back what the scheduler gave it. Its storage is gone when it
        is torn down, whether that could be seen or not; else it is still there."""
        servers = {s: self._holding(s) for s in self._of_job.get(jobid, ())}
        for found in servers.values():
            self._count(found, -1)
        (self._over if torn_down else self._let_go).add(jobid)
        for name in servers:
            self._count(self._holding(name), 1)
        self._changed()

    def forget(self, jobid: int) -> None:
        """The job is over, and its Workflow is gone."""
        for servers in tuple(self._of_job.get(jobid, ())):
            before = self._holding(servers)
            self._promised.pop(servers, None)
            self._seen.pop(servers, None)
            self._recount(servers, before)
        self._of_job.pop(jobid, None)
        self._let_go.discard(jobid)
        self._over.discard(jobid)

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
            if state.serving and self._mapping.has(name):
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
        key = Reference(str(metadata.get("namespace")), str(metadata.get("name")))
        found = NOTHING
        if type != "DELETED":
            try:
                found = storageusage.parse(object)
            except BadObject as error:
                self._log(syslog.LOG_ERR, str(error))
        before = self._holding(key)
        if found.unavailable or type == "DELETED":  # else as before the promise
            self._promised.pop(key, None)
        self._seen.pop(key, None)
        if found.unavailable:
            self._seen[key] = found
        self._recount(key, before)

    def count_servers(self, error: Optional[KubeError]) -> None:
        """All Servers were seen, or cannot be. That keeps no job waiting."""
        forbidden = error is not None and error.status == 403
        # Before the Storages are there as well, it may be that nothing is.
        lasting = error is not None and (forbidden or self.complete)
        if self.counted or not (error is None or lasting):
            return
        if error is not None and not self.uncountable:
            text = f"Servers: {error}; what persistent storage holds is not known"
            self._log(syslog.LOG_WARNING, text)
        self.counted = error is None or forbidden
        self.uncountable = error is not None
        self._changed()

    def _holding(self, servers: Reference) -> StorageUsage:
        found = self._promised.get(servers) or self._seen.get(servers, NOTHING)
        return NOTHING if found.jobid in self._over else found

    def _recount(self, servers: Reference, before: StorageUsage) -> None:
        """What Servers hold may be another than it was before."""
        after = self._holding(servers)
        if after != before:
            self._index(servers, before.jobid, after.jobid)
            self._count(before, -1)
            self._count(after, 1)
            self._changed()

    def _index(
        self, servers: Reference, before: Optional[int], after: Optional[int]
    ) -> None:
        """Keep which Servers are a job's."""
        if before is not None and before != after:
            rest = self._of_job.get(before, set())
            rest.discard(servers)
            if not rest:
                self._of_job.pop(before, None)
        if after is not None:
            self._of_job.setdefault(after, set()).add(servers)

    def _count(self, found: StorageUsage, sign: int) -> None:
        known = found.jobid is not None and found.jobid not in self._let_go
        _add(
            self._reserved if found.jobid is None else self._in_use,
            found.unavailable,
            sign,
        )
        _add(self._unscheduled, found.beyond if known else found.unavailable, sign)


def _add(counts: dict[str, int], sizes: Mapping[str, int], sign: int) -> None:
    """Add to counts, or subtract; none stays there that is 0."""
    for rabbit, size in sizes.items():
        counts[rabbit] = counts.get(rabbit, 0) + sign * size
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
