# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The room that is left on the Rabbits for the storage of jobs.

The Servers objects of the cluster tell which storage is on which Rabbit. Nothing else
keeps it, so nothing is lost when the module is loaded again.
"""

from __future__ import annotations

import syslog
from collections import Counter
from typing import Callable, Collection, Iterator, Mapping, Optional

from flux_k8s.dws import storageusage
from flux_k8s.dws.directivebreakdown import Reference
from flux_k8s.dws.mapping import RabbitMapping
from flux_k8s.dws.storageusage import NOTHING, StorageUsage
from flux_k8s.errors import BadObject
from flux_k8s.ports import SERVERS, Json, Kube, KubeError, Watch


class Room:
    """Follows the Servers objects of the cluster, and those that are about to be
    written.

    Args:
        log: takes a syslog level and a line.
        answers: whether Kubernetes has answered at all.
        changed: is called when what is on a Rabbit has changed.

    Attributes:
        counted: all Servers have been seen once, or we may not see them.
        uncountable: they could not be seen, whatever the reason.
    """

    def __init__(
        self,
        mapping: RabbitMapping,
        log: Callable[[int, str], None],
        answers: Callable[[], bool],
        changed: Callable[[], None],
    ) -> None:
        self._mapping = mapping
        self._log = log
        self._answers = answers
        self._changed = changed
        self._seen: dict[Reference, StorageUsage] = {}
        self._promised: dict[Reference, StorageUsage] = {}
        self._reserved: dict[str, int] = {}
        self._in_use: dict[str, int] = {}
        self._unscheduled: dict[str, int] = {}
        self._of_job: dict[int, set[Reference]] = {}
        self._let_go: set[int] = set()
        self._over: set[int] = set()
        self._watch: Optional[Watch] = None
        self.counted = False
        self.uncountable = False

    def start(self, kube: Kube) -> None:
        self._watch = kube.watch(SERVERS, None, self)

    def stop(self) -> None:
        if self._watch is not None:
            self._watch.stop()

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

    @property
    def in_use(self) -> Iterator[str]:
        """The Rabbits with storage of jobs."""
        return iter(self._in_use)

    @property
    def bytes_in_use(self) -> int:
        """The bytes that jobs have on all Rabbits together."""
        return sum(self._in_use.values())

    def usage_of(self, jobid: int) -> dict[str, StorageUsage]:
        """The Servers of a job, by name."""
        servers = self._of_job.get(jobid, ())
        return {each.name: self._holding(each) for each in servers}

    @property
    def sizes(self) -> dict[str, int]:
        """The bytes of each Rabbit that are for jobs. One whose size the mapping does
        not tell is missing."""
        sizes = ((name, self._mapping.capacity(name)) for name in self._mapping.rabbits)
        return {name: size for name, size in sizes if size}

    def left(self, own: Collection[Reference], lasting: bool = False) -> dict[str, int]:
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

    def synced(self) -> None:
        self._count_servers(None)

    def trouble(self, error: KubeError) -> None:
        self._count_servers(error)

    def _count_servers(self, error: Optional[KubeError]) -> None:
        """All Servers were seen, or cannot be. That keeps no job waiting."""
        forbidden = error is not None and error.status == 403
        # Before Kubernetes answers, it may be that nothing can be seen.
        lasting = error is not None and (forbidden or self._answers())
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
