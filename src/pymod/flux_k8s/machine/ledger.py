# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The ledger of claims: who has which bytes of which Rabbit.

A claim is a share that the scheduler has given a job, an entry of Servers, or storage
that is no job's. The Servers objects of the cluster tell which storage is on which
Rabbit. Nothing else keeps it, so nothing is lost when the module is loaded again. Sums
by Rabbit are kept, and changed with each claim.

A share is what a known job holds that has not given it back. The storage of any other
job is kept from jobs, as that of no job is.
"""

from __future__ import annotations

import syslog
from collections import Counter
from dataclasses import dataclass, field
from typing import (
    AbstractSet,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    NamedTuple,
    Optional,
    TypeVar,
)

from flux_k8s.config.context import Context
from flux_k8s.control.kubecalls import Watched
from flux_k8s.errors import BadObject
from flux_k8s.formats.directives import GIB
from flux_k8s.objects import storageusage
from flux_k8s.objects.servers import Servers
from flux_k8s.objects.storageusage import NOTHING, StorageUsage
from flux_k8s.ports import SERVERS, Encoded, Json, KubeError, Seen
from flux_k8s.reasons import Reason
from flux_k8s.rules.directivebreakdown.breakdown import Reference


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
    """A job with claims.

    Attributes:
        servers: its Servers.
        shares: the bytes of each Rabbit that the scheduler has given it; None if the
            module was loaded after it was set up: then they follow from its Servers.
        placed: the shares have become storage, which may be of no job.
        gave_back: the scheduler has the shares again.
    """

    servers: set[Reference] = field(default_factory=set)
    shares: Optional[Mapping[str, int]] = None
    placed: bool = False
    gave_back: bool = False


class _Claim(NamedTuple):
    """An entry of Servers as it counts.

    Attributes:
        jobid: the job that it is of; None for storage of no job.
        withheld: the bytes that are no part of the job's share.
    """

    jobid: Optional[int] = None
    usage: StorageUsage = NOTHING
    withheld: Mapping[str, int] = {}


NO_CLAIM = _Claim()


class Ledger(Watched):
    """Follows the Servers objects of the cluster, and those that are about to be
    written.

    Args:
        changed: is called when the storage on a Rabbit has changed.
        may_hold: returns whether a job may hold a share: it is known, or not all jobs
            are.

    Attributes:
        reserved: bytes that persistent storage and others' Workflows hold, by Rabbit.
        changes: how often what is counted has changed, by which storage is chosen.
    """

    kind = SERVERS

    def __init__(
        self,
        context: Context,
        changed: Callable[[], None],
        may_hold: Callable[[int], bool],
    ) -> None:
        super().__init__(context.kube)
        self._mapping = context.settings.mapping
        self._log = context.log
        self._changed = changed
        self._may_hold = may_hold
        self._seen: dict[Reference, StorageUsage] = {}
        self._assumed: dict[Reference, StorageUsage] = {}
        self._claims: dict[Reference, _Claim] = {}
        self._jobs: dict[int, _Job] = {}
        self.reserved: dict[str, int] = {}
        self._in_use: dict[str, int] = {}
        self._withheld: dict[str, int] = {}
        self._jobs_on: dict[str, dict[int, int]] = {}
        self.changes = 0

    # Sums

    @property
    def sizes(self) -> dict[str, int]:
        """The bytes of each Rabbit that are for jobs. A Rabbit without a size in the
        mapping is missing."""
        sizes = ((name, self._mapping.capacity(name)) for name in self._mapping.rabbits)
        return {name: size for name, size in sizes if size}

    def capacity(self, rabbit: str) -> int:
        """The bytes of a Rabbit that all jobs together can have: its size without
        persistent storage and without the storage of others' Workflows."""
        return max(0, self._mapping.size(rabbit) - self.reserved.get(rabbit, 0))

    def withheld_on(self, rabbit: str) -> int:
        """The bytes of a Rabbit that are claimed without the scheduler's knowledge:
        persistent storage, others' Workflows, the storage of jobs beyond their shares,
        and the storage of jobs that hold none. Storage of the system, which the mapping
        leaves out of a Rabbit's capacity, is not counted: no job gets it."""
        return max(0, self._withheld.get(rabbit, 0) - self._system_bytes(rabbit))

    @property
    def withheld(self) -> Mapping[str, int]:
        """These bytes of each Rabbit that has some."""
        sizes = ((rabbit, self.withheld_on(rabbit)) for rabbit in self._withheld)
        return {rabbit: size for rabbit, size in sizes if size}

    @property
    def in_use(self) -> Iterator[str]:
        """The Rabbits of the mapping with storage of jobs."""
        return (name for name in self._in_use if self._mapping.has(name))

    @property
    def bytes_in_use(self) -> int:
        """The bytes that jobs have on all Rabbits of the mapping together. Others are
        for other instances of Flux."""
        return sum(self._in_use[name] for name in self.in_use)

    def left(self, own: Collection[Reference], lasting: bool = False) -> dict[str, int]:
        """Bytes that are left on each Rabbit for a job: its size without the storage
        in use there.

        Args:
            own: the job's own Servers, which are not counted.
            lasting: count only storage that is to outlive all Workflows.
        """
        if lasting:
            held: Counter[str] = Counter()
            for usage in self._others(own, lasting):
                held.update(usage.unavailable)
        else:
            held = Counter(self.reserved)
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
        if not self.listed and self.error is not None:
            raise self.error.with_traceback(None)
        found: dict[str, frozenset[str]] = {}
        for usage in self._others(own, lasting):
            for key, rabbits in usage.colocated.items():
                found[key] = found.get(key, frozenset()) | rabbits
        return found

    def _others(
        self, own: Collection[Reference], lasting: bool
    ) -> Iterator[StorageUsage]:
        for servers, claim in self._claims.items():
            if servers not in own and not (lasting and claim.usage.workflow):
                yield claim.usage

    def _system_bytes(self, rabbit: str) -> int:
        return self._mapping.size(rabbit) - self._mapping.capacity(rabbit)

    # Jobs

    @property
    def jobs(self) -> frozenset[int]:
        """The jobs with storage, or with a share."""
        return frozenset(self._jobs)

    def jobs_on(self, rabbit: str) -> AbstractSet[int]:
        """The jobs with storage on a Rabbit, or with a share of it."""
        return self._jobs_on.get(rabbit, {}).keys()

    def usage_of(self, jobid: int) -> dict[str, StorageUsage]:
        """The Servers of a job, by name."""
        job = self._jobs.get(jobid)
        servers = () if job is None else job.servers
        return {each.name: self._usage(each) for each in servers}

    def bytes_of(self, jobid: int) -> Counter[str]:
        """The bytes that a job has on each Rabbit, or is about to have."""
        found: Counter[str] = Counter()
        for usage in self.usage_of(jobid).values():
            found.update(usage.unavailable)
        return found

    def bytes_on(self, rabbit: str, jobid: int) -> int:
        """The bytes that a job has on a Rabbit, or is about to have."""
        usages = self.usage_of(jobid).values()
        return sum(usage.unavailable.get(rabbit, 0) for usage in usages)

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

    def share_of(self, jobid: int, rabbit: str) -> Optional[Share]:
        """What the scheduler has given a job on a Rabbit, and the job still holds."""
        job = self._jobs.get(jobid)
        if job is None or not self._holds(jobid):
            return None
        if job.shares is not None:
            return Share(job.shares[rabbit]) if rabbit in job.shares else None
        usages = self.usage_of(jobid).values()
        beyond = sum(usage.beyond.get(rabbit, 0) for usage in usages)
        size = self.bytes_on(rabbit, jobid) - beyond
        sets = (each for usage in usages for each in usage.allocations)
        parts = max((each.counts.get(rabbit, 0) for each in sets), default=0)
        return Share(size, parts or 1) if size else None

    def unplaced_beside(self, jobid: int) -> Counter[str]:
        """The bytes of other jobs' shares on each Rabbit that no Servers have yet."""
        found: Counter[str] = Counter()
        for other, job in self._jobs.items():
            placed = job.placed or job.servers
            if job.shares and not placed and other != jobid and self._holds(other):
                found.update(job.shares)
        return found

    def _holds(self, jobid: int) -> bool:
        job = self._jobs.get(jobid)
        return not (job and job.gave_back) and self._may_hold(jobid)

    # What jobs do

    def note_share(self, jobid: int, sizes: Mapping[str, int]) -> None:
        """The scheduler has given a job so many bytes, by Rabbit."""
        job = self._jobs.setdefault(jobid, _Job())
        self._set_shares(jobid, job, sizes)
        job.gave_back = False
        self.changes += 1
        self._recount_job(jobid, job)

    def note_placed(self, jobid: int) -> None:
        """A job's share has become storage: Servers have it, those of persistent
        storage too, which is of no job."""
        self._jobs.setdefault(jobid, _Job()).placed = True

    def assume(self, servers: Reference, object: Json) -> None:
        """Count Servers that are about to be written: until the watch shows them,
        another job would be given the same storage.

        Args:
            object: the Servers object that is about to be written.
        """
        self._assumed[servers] = self._read(object)
        self._recount(servers)

    def withdraw(self, servers: Reference) -> None:
        """Count assumed Servers no longer: they were not written, or their job is
        over."""
        self._assumed.pop(servers, None)
        self._recount(servers)

    def return_share(self, jobid: int, torn_down: bool) -> None:
        """The job gives its share of the Rabbits back to the scheduler. The storage of
        a job that is torn down is gone, whether the watch has shown that or not. That
        of another job is still there."""
        job = self._jobs.setdefault(jobid, _Job())
        if torn_down:
            self._drop(job, self._seen, self._assumed)
        if torn_down or not job.gave_back:
            job.gave_back = True
            self._recount_job(jobid, job)
            self._note_change()

    def forget(self, jobid: int) -> None:
        """The job is over, and its Workflow is gone, or is not the job's any more.
        Storage that was not torn down, since an administrator has deleted the Workflow,
        or others have taken it over, is there until the watch shows that it is
        gone."""
        job = self._jobs.setdefault(jobid, _Job())
        self._drop(job, self._assumed)
        self._set_shares(jobid, job, None)
        job.gave_back = True
        self._recount_job(jobid, job)
        if not job.servers:
            self._jobs.pop(jobid, None)

    def _drop(self, job: _Job, *known: dict[Reference, StorageUsage]) -> None:
        for usages in known:
            for servers in job.servers:
                usages.pop(servers, None)

    def _recount_job(self, jobid: int, job: _Job) -> None:
        for servers in tuple(job.servers):
            self._recount(servers)
        self._drop_unless_needed(jobid)

    def _set_shares(
        self, jobid: int, job: _Job, shares: Optional[Mapping[str, int]]
    ) -> None:
        self._count_job(jobid, job.shares or (), -1)
        self._count_job(jobid, shares or (), 1)
        job.shares = shares

    # What Kubernetes shows

    def event(self, type: str, object: Seen) -> None:
        """A Servers changed. What is malformed counts as it did before: its storage is
        there nevertheless."""
        key = Reference(object.namespace, object.name)
        found = NOTHING
        if type != "DELETED":
            try:
                found = self._read(object.encoded)
            except BadObject as error:
                self._log(syslog.LOG_ERR, str(error), error.reason)
                return
        assumed = self._assumed.get(key, NOTHING)
        # Others are shown as they were before, or as an older write has left them.
        if type == "DELETED" or found.allocations == assumed.allocations:
            self._assumed.pop(key, None)
        self._seen.pop(key, None)
        if found.unavailable:
            self._seen[key] = found
        self._recount(key)

    def synced(self) -> None:
        super().synced()
        self._note_change()

    def trouble(self, error: KubeError) -> None:
        if not self.settled:
            text = f"Servers: {error}; what persistent storage holds is not known"
            self._log(syslog.LOG_WARNING, text, Reason.OBJECTS_UNSEEN)
        super().trouble(error)
        if not self.listed:
            self._note_change()

    @property
    def settled(self) -> bool:
        """All Servers have been seen once, or they cannot be seen for now."""
        return self.listed or self.error is not None

    @property
    def counted(self) -> bool:
        """All Servers have been seen once, or Kubernetes forbids the watch."""
        forbidden = self.error is not None and self.error.status == 403
        return self.listed or forbidden

    def _read(self, object: Encoded) -> StorageUsage:
        servers = Servers.read(object)
        usage = storageusage.parse(servers)
        try:
            return storageusage.with_colocation(usage, servers)
        except BadObject as error:  # its storage is there nevertheless
            self._log(syslog.LOG_ERR, str(error), error.reason)
            return usage

    # Counting

    def _usage(self, servers: Reference) -> StorageUsage:
        return self._claims.get(servers, NO_CLAIM).usage

    def _claim(self, servers: Reference) -> _Claim:
        """Servers as they are, and as they are about to be written."""
        usage = self._seen.get(servers, NOTHING)
        assumed = self._assumed.get(servers)
        if assumed is not None:
            usage = storageusage.either(assumed, usage)
        jobid = usage.jobid
        if jobid is None:
            return _Claim(None, usage, usage.unavailable)
        holds = self._holds(jobid)
        return _Claim(jobid, usage, usage.beyond if holds else usage.unavailable)

    def _recount(self, servers: Reference) -> None:
        """Have the sums as Servers are now."""
        before, after = self._claims.pop(servers, NO_CLAIM), self._claim(servers)
        if after.jobid is not None or after.usage is not NOTHING:
            self._claims[servers] = after
        if after == before:
            return
        self._count(before, -1)
        self._count(after, 1)
        if before.jobid is not None:
            self._jobs[before.jobid].servers.discard(servers)
        if after.jobid is not None:
            self._jobs.setdefault(after.jobid, _Job()).servers.add(servers)
        elif before.jobid is not None:
            self._drop_unless_needed(before.jobid)
        self._note_change()

    def _drop_unless_needed(self, jobid: int) -> None:
        """Forget a job without Servers of which nothing else is known, or that nobody
        knows."""
        job = self._jobs.get(jobid)
        if job is None or job.servers:
            return
        says_nothing = job.shares is None and not job.gave_back
        if says_nothing or not self._may_hold(jobid):
            self._set_shares(jobid, job, None)
            del self._jobs[jobid]

    def _note_change(self) -> None:
        self.changes += 1
        self._changed()

    def _count(self, claim: _Claim, sign: int) -> None:
        sizes = claim.usage.unavailable
        if claim.jobid is not None:
            self._count_job(claim.jobid, sizes, sign)
        _add(self.reserved if claim.jobid is None else self._in_use, sizes, sign)
        _add(self._withheld, claim.withheld, sign)

    def _count_job(self, jobid: int, rabbits: Iterable[str], sign: int) -> None:
        """Note that a job has one claim more, or less, on each of these Rabbits."""
        for rabbit in rabbits:
            _add(self._jobs_on.setdefault(rabbit, {}), {jobid: 1}, sign)


Name = TypeVar("Name")


def _add(counts: dict[Name, int], sizes: Mapping[Name, int], sign: int) -> None:
    """Add to counts, or subtract. Counts that become 0 are removed."""
    for name, size in sizes.items():
        counts[name] = counts.get(name, 0) + sign * size
        if counts[name] == 0:
            del counts[name]
