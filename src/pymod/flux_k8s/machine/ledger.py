# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The ledger of claims: who has which bytes of which Rabbit.

A claim is a share that the scheduler has given a job, an entry of Servers, or storage
that is no job's. The Servers objects of the cluster tell which storage is on which
Rabbit. Nothing else keeps it, so nothing is lost when the module is loaded again. Sums
by Rabbit are kept, and changed with each claim.
"""

from __future__ import annotations

import syslog
from collections import Counter
from dataclasses import dataclass, field
from typing import Callable, Collection, Iterator, Mapping, NamedTuple, Optional

from flux_k8s.errors import BadObject
from flux_k8s.formats.directives import GIB
from flux_k8s.objects import storageusage
from flux_k8s.objects.mapping import RabbitMapping
from flux_k8s.objects.servers import Servers
from flux_k8s.objects.storageusage import NOTHING, StorageUsage
from flux_k8s.ports import SERVERS, Encoded, Json, Kube, KubeError, Log, Seen, Watch
from flux_k8s.reasons import Reason
from flux_k8s.rules.directivebreakdown import Reference


class Share(NamedTuple):
    """The storage that the scheduler has given a job on one Rabbit.

    Attributes:
        size: the bytes of all parts together.
        parts: the number of equal parts of which each has ``ssd`` of its own: a job of
            which only its Servers are known has one part for each allocation.
    """

    size: int
    parts: int = 1

    def ssds(self, size: int) -> int:
        """How many ``ssd`` of so many GiB that is."""
        return self.parts * -(-self.size // (self.parts * size * GIB))


@dataclass
class _Job:
    """What a job has.

    Attributes:
        servers: its Servers.
        shares: what the scheduler has given it, by Rabbit; None if that was not said.
        given_back: it has given its share back. Its storage is still there.
        torn_down: its storage is gone, whether the watch has shown that or not.
        forgotten: it is over, and this goes with the last of its Servers.
    """

    servers: set[Reference] = field(default_factory=set)
    shares: Optional[Mapping[str, Share]] = None
    given_back: bool = False
    torn_down: bool = False
    forgotten: bool = False


NO_JOB = _Job()


class Ledger:
    """Follows the Servers objects of the cluster, and those that are about to be
    written.

    Args:
        log: logs a line.
        watched: is called when all Servers have been seen, or when no job is to wait
            for that any longer.
        changed: is called when the storage on a Rabbit has changed.

    Attributes:
        listed: all Servers have been seen once.
        counted: as ``listed``, or Kubernetes forbids the watch.
        uncountable: the watch has failed before it showed all Servers.
        changes: how often what is counted has changed.
    """

    def __init__(
        self,
        mapping: RabbitMapping,
        log: Log,
        watched: Callable[[], None],
        changed: Callable[[], None],
    ) -> None:
        self._mapping = mapping
        self._log = log
        self._watched = watched
        self._changed = changed
        self._seen: dict[Reference, StorageUsage] = {}
        self._assumed: dict[Reference, StorageUsage] = {}
        self._reserved: dict[str, int] = {}
        self._in_use: dict[str, int] = {}
        self._withheld: dict[str, int] = {}
        self._colocated: dict[str, Counter[str]] = {}
        self._jobs: dict[int, _Job] = {}
        self._job_changed: Callable[[int], None] = lambda jobid: None
        self._kube: Optional[Kube] = None
        self._watch: Optional[Watch] = None
        self._answered = False
        self._trouble: Optional[KubeError] = None
        self.listed = False
        self.counted = False
        self.uncountable = False
        self.changes = 0

    def start(self, kube: Kube) -> None:
        self._kube = kube
        self._watch = kube.watch(SERVERS, None, self)

    def stop(self) -> None:
        if self._watch is not None:
            self._watch.stop()

    def capacity(self, rabbit: str) -> int:
        """The bytes of a Rabbit that all jobs together can have: its size without
        persistent storage and without the storage of others' Workflows."""
        return max(0, self._mapping.size(rabbit) - self._reserved.get(rabbit, 0))

    @property
    def reserved(self) -> Mapping[str, int]:
        """Bytes that persistent storage and others' Workflows hold, by Rabbit."""
        return self._reserved

    @property
    def withheld(self) -> Mapping[str, int]:
        """Bytes on each Rabbit that are claimed without the scheduler's knowledge:
        persistent storage, others' Workflows, the storage of jobs beyond their shares,
        and the storage that is left of jobs that gave their shares back. Storage of the
        system, which the mapping leaves out of a Rabbit's capacity, is not counted: no
        job gets it."""
        taken = {
            rabbit: size - self._system_bytes(rabbit)
            for rabbit, size in self._withheld.items()
        }
        return {rabbit: size for rabbit, size in taken.items() if size > 0}

    @property
    def in_use(self) -> Iterator[str]:
        """The Rabbits of the mapping with storage of jobs."""
        return (name for name in self._in_use if self._mapping.has(name))

    @property
    def bytes_in_use(self) -> int:
        """The bytes that jobs have on all Rabbits of the mapping together. Others are
        for other instances of Flux."""
        return sum(self._in_use[name] for name in self.in_use)

    def usage_of(self, jobid: int) -> dict[str, StorageUsage]:
        """The Servers of a job, by name."""
        servers = self._job(jobid).servers
        return {each.name: self._usage(each) for each in servers}

    def bytes_of(self, jobid: int) -> Counter[str]:
        """The bytes that a job has on each Rabbit, or is about to have."""
        found: Counter[str] = Counter()
        for usage in self.usage_of(jobid).values():
            found.update(usage.unavailable)
        return found

    def rabbits_of(self, jobid: int) -> frozenset[str]:
        """The Rabbits with storage of a job."""
        return frozenset(self.bytes_of(jobid))

    def labels_of(self, servers: Reference) -> frozenset[str]:
        """The labels of the allocation sets of Servers; none if they are not known."""
        return frozenset(each.label for each in self._usage(servers).allocations)

    def allocations_of(self, jobid: int) -> Counter[str]:
        """The allocations that a job has on each Rabbit, of the storage with most of
        them there. Of storage that each node has its own of, as many as nodes."""
        found: Counter[str] = Counter()
        for servers in self.usage_of(jobid).values():
            for each in servers.allocations:
                found |= Counter(each.counts)
        return found

    def has(self, jobid: int) -> bool:
        """Whether a job has storage, or a share of a Rabbit."""
        return jobid in self._jobs

    @property
    def jobs(self) -> frozenset[int]:
        """The jobs with storage, or with a share of a Rabbit."""
        return frozenset(self._jobs)

    def follow(self, job_changed: Callable[[int], None]) -> None:
        """Call ``job_changed`` with each job whose storage or share has changed."""
        self._job_changed = job_changed

    def note_share(self, jobid: int, sizes: Mapping[str, int]) -> None:
        """The scheduler has given a job so many bytes, by Rabbit."""
        shares = {name: Share(size) for name, size in sizes.items()}
        self._jobs.setdefault(jobid, _Job()).shares = shares
        self._job_changed(jobid)

    def shares_of(self, jobid: int) -> Mapping[str, Share]:
        """The storage that the scheduler has given a job, and that the job has not
        given back, by Rabbit. Where :meth:`note_share` did not say so, since the module
        was loaded after the job was set up, it follows from the job's Servers."""
        job = self._job(jobid)
        if job.given_back or job.torn_down:
            return {}
        if job.shares is not None:
            return job.shares
        sizes: Counter[str] = Counter()
        for servers in self.usage_of(jobid).values():
            sizes.update(servers.unavailable)
            sizes.subtract(servers.beyond)
        parts = self.allocations_of(jobid)
        return {name: Share(size, parts[name] or 1) for name, size in sizes.items()}

    @property
    def sizes(self) -> dict[str, int]:
        """The bytes of each Rabbit that are for jobs. A Rabbit without a size in the
        mapping is missing."""
        sizes = ((name, self._mapping.capacity(name)) for name in self._mapping.rabbits)
        return {name: size for name, size in sizes if size}

    def left(self, own: Collection[Reference], lasting: bool = False) -> dict[str, int]:
        """Bytes that are left on each Rabbit for a job: its size without the storage
        in use there.

        Args:
            own: the job's own Servers, which are not counted.
            lasting: count only storage that is to outlive all Workflows.
        """
        if lasting:
            held: Counter[str] = Counter()
            for servers in {**self._seen, **self._assumed}:
                found = self._usage(servers)
                if found.workflow is None and servers not in own:
                    held.update(found.unavailable)
        else:
            held = Counter(self._reserved)
            held.update(self._in_use)
            for servers in own:
                held.subtract(self._usage(servers).unavailable)
        return {
            name: max(0, size + self._system_bytes(name) - held[name])
            for name, size in self.sizes.items()
        }

    def colocated(
        self, own: Collection[Reference], lasting: bool = False
    ) -> dict[str, frozenset[str]]:
        """The Rabbits with storage that has a colocation key, by key. Arguments as of
        :meth:`left`.

        Raises:
            KubeError: it is not known, since Servers could not be listed.
        """
        if not self.listed and self._trouble is not None:
            raise self._trouble.with_traceback(None)
        if lasting:
            usages = map(self._usage, {**self._seen, **self._assumed}.keys() - set(own))
            counts: dict[str, Counter[str]] = {}
            for found in usages:
                if found.workflow is None:
                    _count_keys(counts, found, 1)
        else:
            counts = {key: Counter(on) for key, on in self._colocated.items()}
            for servers in own:
                _count_keys(counts, self._usage(servers), -1)
        return {key: frozenset(+on) for key, on in counts.items()}

    def _system_bytes(self, rabbit: str) -> int:
        return self._mapping.size(rabbit) - self._mapping.capacity(rabbit)

    def assume(self, servers: Reference, object: Json) -> None:
        """Count Servers that are about to be written: until the watch shows them,
        another job would be given the same storage.

        Args:
            object: the Servers object that is about to be written.
        """
        before = self._found(servers)
        self._assumed[servers] = self._read(object)
        self._recount(servers, before)

    def withdraw(self, servers: Reference) -> None:
        """Count assumed Servers no longer: they were not written, or their job is
        over."""
        before = self._found(servers)
        self._assumed.pop(servers, None)
        self._recount(servers, before)

    def release_share(self, jobid: int, torn_down: bool) -> None:
        """The job gives its share of the Rabbits back to the scheduler. The storage of
        a job that is torn down is gone, whether the watch has shown that or not. That
        of another job is still there."""
        job = self._jobs.setdefault(jobid, _Job())
        if job.torn_down if torn_down else job.given_back:
            return
        usages = tuple(map(self._found, job.servers))
        for found in usages:
            self._count(found, -1)
        if torn_down:
            job.torn_down = True
        else:
            job.given_back = True
        for found in usages:
            self._count(found, 1)
        self._job_changed(jobid)
        self._note_change()

    def forget(self, jobid: int) -> None:
        """The job is over, and its Workflow is gone, or is not the job's any more.
        Storage that was not torn down, since an administrator has deleted the Workflow,
        or others have taken it over, is there until the watch shows that it is
        gone."""
        job = self._jobs.setdefault(jobid, _Job())
        for servers in tuple(job.servers):
            before = self._found(servers)
            self._assumed.pop(servers, None)
            if job.torn_down:
                self._seen.pop(servers, None)
            self._recount(servers, before)
        job.shares, job.torn_down, job.forgotten = None, False, True
        if job.servers:
            self.release_share(jobid, torn_down=False)
        self._drop(jobid)
        self._job_changed(jobid)

    def _job(self, jobid: Optional[int]) -> _Job:
        return NO_JOB if jobid is None else self._jobs.get(jobid, NO_JOB)

    def _drop(self, jobid: int) -> None:
        """Drop a job with the last of its Servers if it is forgotten, or nothing else
        is known of it: nobody else would."""
        job = self._job(jobid)
        if not job.servers and (job.forgotten or job == NO_JOB):
            self._jobs.pop(jobid, None)

    # What Kubernetes shows: the WatchHandler

    def event(self, type: str, object: Seen) -> None:
        """A Servers changed."""
        key = Reference(object.namespace, object.name)
        found = NOTHING
        if type != "DELETED":
            try:
                found = self._read(object.encoded)
            except BadObject as error:
                self._log(syslog.LOG_ERR, str(error), error.reason)
        before = self._found(key)
        assumed = self._assumed.get(key, NOTHING)
        # Others are shown as they were before, or as an older write has left them.
        if type == "DELETED" or found.allocations == assumed.allocations:
            self._assumed.pop(key, None)
        self._seen.pop(key, None)
        if found.unavailable:
            self._seen[key] = found
        self._recount(key, before)

    def synced(self) -> None:
        self._trouble = None
        self._end_count(None)

    def trouble(self, error: KubeError) -> None:
        """The watch has failed, which may be an outage until Kubernetes answers."""
        self._trouble = error
        if self._answered or error.status == 403:
            self._end_count(error)

    def note_answer(self) -> None:
        """Kubernetes answers. A watch that has failed before is begun anew: whether
        Servers can be seen was not to be known in an outage, and storage that is
        placed before they are seen may be where other storage is."""
        failed = self._trouble is not None and not (self._answered or self.counted)
        if failed and self._kube is not None:
            self.stop()
            self.start(self._kube)
        self._answered = True

    def _end_count(self, error: Optional[KubeError]) -> None:
        """All Servers were seen, or cannot be seen."""
        self.listed = self.listed or error is None
        if self.counted:
            return
        first = not self.uncountable
        if first and error is not None:
            text = f"Servers: {error}; what persistent storage holds is not known"
            self._log(syslog.LOG_WARNING, text, Reason.OBJECTS_UNSEEN)
        self.counted = error is None or error.status == 403
        self.uncountable = error is not None
        if first:
            self._watched()
        self._note_change()

    def _read(self, object: Encoded) -> StorageUsage:
        servers = Servers.read(object)
        usage = storageusage.parse(servers)
        try:
            return storageusage.with_colocation(usage, servers)
        except BadObject as error:  # its storage is there nevertheless
            self._log(syslog.LOG_ERR, str(error), error.reason)
            return usage

    def _found(self, servers: Reference) -> StorageUsage:
        """The usage of Servers as they are, and as they are about to be written."""
        seen = self._seen.get(servers, NOTHING)
        assumed = self._assumed.get(servers)
        return seen if assumed is None else storageusage.either(assumed, seen)

    def _usage(self, servers: Reference) -> StorageUsage:
        found = self._found(servers)
        return NOTHING if self._job(found.jobid).torn_down else found

    def _recount(self, servers: Reference, before: StorageUsage) -> None:
        """Count Servers anew, which were ``before``."""
        after = self._found(servers)
        if after != before:
            self._count(before, -1)
            if before.jobid is not None:
                self._jobs[before.jobid].servers.discard(servers)
            if after.jobid is not None:
                self._jobs.setdefault(after.jobid, _Job()).servers.add(servers)
            self._count(after, 1)
            for usage in (before, after):
                if usage.jobid is not None:
                    self._drop(usage.jobid)
                    self._job_changed(usage.jobid)
            self._note_change()

    def _note_change(self) -> None:
        self.changes += 1
        self._changed()

    def _count(self, found: StorageUsage, sign: int) -> None:
        job = self._job(found.jobid)
        if job.torn_down:
            return
        known = found.jobid is not None and not job.given_back
        _add(
            self._reserved if found.jobid is None else self._in_use,
            found.unavailable,
            sign,
        )
        _add(self._withheld, found.beyond if known else found.unavailable, sign)
        _count_keys(self._colocated, found, sign)


def _count_keys(
    counts: dict[str, Counter[str]], found: StorageUsage, sign: int
) -> None:
    """Add the Rabbits of each colocation key to counts, or subtract them."""
    for key, rabbits in found.colocated.items():
        on = counts.setdefault(key, Counter())
        on.update(dict.fromkeys(rabbits, sign))
        if not any(on.values()):
            del counts[key]


def _add(counts: dict[str, int], sizes: Mapping[str, int], sign: int) -> None:
    """Add to counts, or subtract. Counts that become 0 are removed."""
    for rabbit, size in sizes.items():
        counts[rabbit] = counts.get(rabbit, 0) + sign * size
        if counts[rabbit] == 0:
            del counts[rabbit]
