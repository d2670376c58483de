# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Decides on the next request to the scheduler Fluxion about nodes and Rabbits.

:class:`Desired` has the state that Fluxion is to have, :class:`FluxionState` the state
that was sent since Fluxion was loaded. :meth:`FluxionState.next_request` compares the
two, and names the request; :mod:`flux_k8s.rabbits.fluxion` sends it. There are as few
requests as possible: one for all nodes that get a property, one for all that lose it.

A Rabbit is out of service when its ``ssd`` are down, or when its nodes have the
property ``badrabbit``: jobs take both from the same chassis (seed 001, "Resource
Scheduling Integration"). With its ``ssd`` down, a job that fits nowhere else waits.
With the property Fluxion denies such a job, since its check for jobs that can never
run looks at properties. But each ``ssd`` is a request of its own, and the property is
one request for all nodes: so a Rabbit with many ``ssd`` is taken out of service by the
property.

:class:`DownSsds` chooses which ``ssd`` of one Rabbit are down. Storage that no job
holds, as that of a persistent file system, is in the graph only by ``ssd`` that are
down. Each of these must be one that no job has: as long as a job has it, it takes
nothing away, and the job's end brings nothing back.

Fluxion gives a vertex that is down to no job, and can be asked which of them jobs have.
So the first ``ssd`` are set down, then Fluxion is asked about them, and for each that
a job has another is set down, until there are enough. Only then the superfluous ones
are set up again. When there are not enough, all of them are down, and no job gets any
until jobs have given back enough. The match policies ``first`` and ``firstnodex`` give
the last ``ssd`` first: the first ones are usually free.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import AbstractSet, Generic, Iterable, Mapping, Optional, TypeVar, Union

from flux_k8s.dws.directives import GIB
from flux_k8s.dws.mapping import RabbitMapping
from flux_k8s.rabbits.fluxiongraph import Chassis, Paths, Ssds
from flux_k8s.rfc import hostlist

BAD_RABBIT = "badrabbit"
"""The property of nodes that must not get jobs with Rabbit storage."""

ALLOC_RABBIT = "alloc_rabbit"
"""The property of nodes whose Rabbit has a job's storage, where the scheduler
does not know the storage itself."""

PROPERTIES = (BAD_RABBIT, ALLOC_RABBIT)

T = TypeVar("T")


@dataclass(frozen=True)
class RecordDown:
    """Write to the graph which ``ssd`` are down, for the next module."""

    numbers: frozenset[int]


@dataclass(frozen=True)
class SetStatus:
    """Set an ``ssd`` down, or up."""

    number: int
    down: bool


@dataclass(frozen=True)
class CheckAllocated:
    """Find out which of these ``ssd`` jobs have."""

    numbers: frozenset[int]


SsdChange = Union[RecordDown, SetStatus]


@dataclass(frozen=True)
class ChangeProperty:
    """Give nodes a property, or remove it from them."""

    key: str
    present: bool
    hosts: tuple[str, ...]


@dataclass(frozen=True)
class ChangeSsd:
    """Do something about the ``ssd`` of a Rabbit."""

    rabbit: str
    change: SsdChange


@dataclass(frozen=True)
class FindAllocated:
    """Find out which ``ssd`` that are down jobs have, for all Rabbits at once: Fluxion
    goes through its whole graph."""

    checks: Mapping[str, CheckAllocated]


@dataclass(frozen=True)
class Reschedule:
    """Have Fluxion look again at jobs that did not fit before, by setting a vertex up
    that is up. (A property that is removed does not have it do so.)"""

    path: str


@dataclass(frozen=True)
class ReportUnknown:
    """Log nodes that are not where they should be in the graph."""

    hosts: tuple[str, ...]


Request = Union[ChangeProperty, ChangeSsd, FindAllocated, Reschedule, ReportUnknown]


@dataclass
class AppliedSet(Generic[T]):
    """A set that Fluxion keeps, known from Fluxion's answers to requests.

    A request without an answer may have been carried out, or may be carried out later:
    its items are ``possible``, and not ``certain``.

    Attributes:
        certain: the items that are in the set.
        possible: the items that may be in the set, the certain ones among them.
    """

    certain: set[T] = field(default_factory=set)
    possible: set[T] = field(default_factory=set)

    def missing(self, desired: AbstractSet[T]) -> set[T]:
        return set(desired) - self.certain

    def surplus(self, desired: AbstractSet[T]) -> set[T]:
        return self.possible - desired

    def begin(self, items: Iterable[T], present: bool) -> None:
        """A request to add, or to remove, these is being sent."""
        if present:
            self.possible.update(items)
        else:
            self.certain.difference_update(items)

    def end(self, items: Iterable[T], present: bool) -> None:
        """Note that the items were added, or removed."""
        if present:
            self.certain.update(items)
        else:
            self.possible.difference_update(items)


class DownSsds:
    """The ``ssd`` of one Rabbit that are down, or are to be, by their numbers.

    Args:
        total: how many ``ssd`` the Rabbit has.
        recorded: the ``ssd`` whose status an earlier module may have set to down.

    Attributes:
        applied: the ``ssd`` that are down in Fluxion.
        short: too few ``ssd`` are left that no job has.
    """

    def __init__(self, total: int, recorded: AbstractSet[int] = frozenset()) -> None:
        self._all = frozenset(range(total))
        self._recorded = self._all.intersection(recorded)
        self._needed = -1
        self._out_of_service = False
        self._chosen = self._recorded
        self._checked = False  # whether no job has any of the chosen ``ssd``
        self.applied: AppliedSet[int] = AppliedSet(possible=set(self._recorded))
        self.short = False

    def want(self, needed: int, out_of_service: bool = False) -> None:
        """Have so many ``ssd`` down that no job has.

        Args:
            out_of_service: have all of them down, however few are needed.
        """
        self._out_of_service = out_of_service
        needed = min(needed, len(self._all))
        if needed == self._needed:
            return
        self._needed = needed
        self.short = False
        if needed in (0, len(self._all)):
            self._chosen = self._all if needed else frozenset()
            self._checked = True
        elif needed > len(self._chosen):
            self._add(needed - len(self._chosen))
        elif self._checked:
            # While all were needed, Fluxion got no request about the ssd of jobs.
            self._checked = self._chosen != self._all
            self._chosen = _first(self._chosen, needed)

    def next(self) -> Union[SsdChange, CheckAllocated, None]:
        """The next change; None when no change is needed, or possible."""
        desired = self._all if self._out_of_service else self._chosen
        if not desired <= self._recorded:  # never record fewer than are down
            return RecordDown(self._recorded | desired)
        for number in sorted(self.applied.missing(desired)):
            return SetStatus(number, True)
        if not (self._checked or self._out_of_service or self.short):
            return CheckAllocated(self._chosen)
        for number in sorted(self.applied.surplus(desired)):
            return SetStatus(number, False)
        return None if desired == self._recorded else RecordDown(desired)

    def begin(self, change: SsdChange) -> None:
        """A request is being sent. It may be carried out at any time."""
        if isinstance(change, SetStatus):
            self.applied.begin([change.number], change.down)
        else:
            self._recorded &= change.numbers

    def end(self, change: SsdChange) -> None:
        """Fluxion has carried out a request."""
        if isinstance(change, SetStatus):
            self.applied.end([change.number], change.down)
        else:
            self._recorded = change.numbers

    @property
    def withholds(self) -> bool:
        """Whether Fluxion gives no job the ``ssd`` that are needed, or any at all."""
        desired = self._all if self._out_of_service else self._chosen
        decided = self._checked or self.short or self._out_of_service
        return decided and desired <= self.applied.certain

    def is_given_out(self, allocated: AbstractSet[int]) -> bool:
        """Whether fewer ``ssd`` than are needed are down, and not ``allocated``."""
        return len(self.applied.certain - allocated) < self._needed

    def see_allocated(self, check: CheckAllocated, allocated: AbstractSet[int]) -> None:
        """Of the ``ssd`` that were to be checked, jobs have those in ``allocated``."""
        if check.numbers != self._chosen:
            return  # others are needed now
        free = self._chosen - allocated
        if len(free) < self._needed:
            self._add(self._needed - len(free))
        else:
            self._chosen = _first(free, self._needed)
            self._checked = True

    def check_again(self) -> None:
        """Note that jobs may have given back ``ssd`` of which there were too few."""
        self.short = False

    def _add(self, count: int) -> None:
        more = _first(self._all - self._chosen, count)
        self._chosen |= more
        self._checked = False
        self.short = not more


def _first(numbers: AbstractSet[int], count: int) -> frozenset[int]:
    return frozenset(sorted(numbers)[:count])


@dataclass
class Desired:
    """The state that Fluxion is to have.

    Attributes:
        properties: the nodes to carry a property. A property that is missing
            here stays as an earlier module has left it.
        out_of_service: the Rabbits that are out of service.
        reserved: the bytes of each Rabbit that no job holds and that jobs must not
            get. None: as an earlier module has left it.
    """

    properties: dict[str, frozenset[str]] = field(default_factory=dict)
    out_of_service: frozenset[str] = frozenset()
    reserved: Optional[dict[str, int]] = None


class FluxionState:
    """The state that was sent to Fluxion since it was loaded, and the next request.

    Args:
        ssds_by_status: a Rabbit with more ``ssd`` than this is taken out of service
            by its nodes.
        possible: the nodes that may carry properties already.

    Attributes:
        paths: where the Rabbits are in the graph; None before they were found.
        unknown: the nodes of the mapping that the graph lacks.
        properties: the nodes that carry each property.
        ssds: which ``ssd`` are down, by Rabbit.
    """

    def __init__(
        self,
        mapping: RabbitMapping,
        ssds_by_status: int,
        desired: Desired,
        possible: Iterable[str] = (),
    ) -> None:
        self._mapping = mapping
        self._ssds_by_status = ssds_by_status
        self._desired = desired
        self.paths: Optional[Paths] = None
        self.unknown: set[str] = set()
        everywhere = frozenset(possible)
        self.properties: dict[str, AppliedSet[str]] = {
            key: AppliedSet(possible=set(everywhere)) for key in PROPERTIES
        }
        self.ssds: dict[str, DownSsds] = {}
        self._unreported: list[str] = []
        self._halves: deque[ChangeProperty] = deque()
        self._reschedule = False

    @property
    def short(self) -> bool:
        """Whether jobs have ``ssd`` that storage without a job needs."""
        return any(ssds.short for ssds in self.ssds.values())

    def see_paths(self, paths: Paths) -> None:
        """The graph was read."""
        self.paths = paths
        self.unknown = {
            host
            for rabbit in self._mapping.rabbits
            for host in self._mapping.hosts_of(rabbit)
            if paths.of_node(host, rabbit) is None
        }
        self._unreported = sorted(self.unknown, key=hostlist.natural_key)
        for rabbit, chassis in paths.chassis.items():
            if chassis.ssds and chassis.down:
                self.ssds[rabbit] = DownSsds(chassis.ssds, chassis.down)

    def choose_ssds(self) -> None:
        """Choose the ``ssd`` that are to be down in the desired state."""
        assert self.paths is not None
        reserved, out = self._desired.reserved or {}, self._desired.out_of_service
        for rabbit in {**self.ssds, **reserved, **dict.fromkeys(out)}:
            chassis = self.paths.chassis.get(rabbit)
            if chassis is None or not chassis.ssds:
                continue
            if rabbit not in self.ssds:
                self.ssds[rabbit] = DownSsds(chassis.ssds)
            needed = self._ssds_needed(rabbit, chassis)
            self.ssds[rabbit].want(needed, rabbit in out and self._by_status(chassis))

    def withholds(self, rabbits: Iterable[str]) -> bool:
        """Whether no job gets what is reserved on these Rabbits, as chosen by
        :meth:`choose_ssds`. A Rabbit that the graph lacks is given to no job."""
        return all(map(self._withholds, rabbits))

    def _withholds(self, rabbit: str) -> bool:
        ssds = self.ssds.get(rabbit)
        marked = self._desired.properties.get(ALLOC_RABBIT, frozenset())
        nodes = marked.intersection(self._mapping.hosts_of(rabbit)) - self.unknown
        are_marked = nodes <= self.properties[ALLOC_RABBIT].certain
        return are_marked and (ssds is None or ssds.withholds)

    def is_given_out(
        self, rabbits: Iterable[str], allocated: Mapping[str, AbstractSet[int]]
    ) -> bool:
        """Whether jobs may have what is reserved on one of these Rabbits, if they have
        the ``ssd`` in ``allocated``, by the path of their chassis."""
        chassis = {} if self.paths is None else self.paths.chassis
        return not all(
            rabbit in self.ssds
            and rabbit in chassis
            and not self.ssds[rabbit].is_given_out(
                allocated.get(chassis[rabbit].path, frozenset())
            )
            for rabbit in rabbits
        )

    def next_request(self) -> Optional[Request]:
        """The next request: first those that take something out of service. None when
        Fluxion has the desired state."""
        return (
            self._next_of_properties() or self._next_of_ssds() or self._next_of_rest()
        )

    def begin(self, request: Request) -> None:
        """A request is being sent. It may be carried out at any time."""
        if isinstance(request, ChangeProperty):
            self.properties[request.key].begin(request.hosts, request.present)
        elif isinstance(request, ChangeSsd):
            self.ssds[request.rabbit].begin(request.change)

    def end(self, request: Request) -> None:
        """A request was carried out."""
        if isinstance(request, ChangeProperty):
            self._drop_half(request)
            self.properties[request.key].end(request.hosts, request.present)
            self._reschedule = self._reschedule or not request.present
        elif isinstance(request, ChangeSsd):
            self.ssds[request.rabbit].end(request.change)
        elif isinstance(request, Reschedule):
            self._reschedule = False
        elif isinstance(request, ReportUnknown):
            self._unreported = []

    def divide(self, request: ChangeProperty) -> None:
        """Fluxion has refused a request since it does not know one of the nodes. Make
        the request again in halves, until the node is the only one of a request."""
        self._drop_half(request)
        hosts, middle = request.hosts, len(request.hosts) // 2
        if not middle:
            self.unknown.update(hosts)
            self._unreported.extend(hosts)
            return
        for half in (hosts[middle:], hosts[:middle]):
            self._halves.appendleft(ChangeProperty(request.key, request.present, half))

    def see_allocated(
        self, request: FindAllocated, allocated: Mapping[str, AbstractSet[int]]
    ) -> None:
        """Of the ``ssd`` that are down, jobs have those in ``allocated``, by the path
        of their chassis."""
        assert self.paths is not None
        for rabbit, check in request.checks.items():
            numbers = allocated.get(self.paths.chassis[rabbit].path, frozenset())
            self.ssds[rabbit].see_allocated(check, numbers)

    def check_again(self) -> None:
        """Jobs may have given back ``ssd``."""
        for ssds in self.ssds.values():
            ssds.check_again()

    def _next_of_properties(self) -> Optional[Request]:
        if self._halves:
            return self._halves[0]
        for present in (True, False):
            for key, desired in self._desired.properties.items():
                applied = self.properties[key]
                hosts = self._bad_hosts() if key == BAD_RABBIT else desired
                change = applied.missing(hosts) if present else applied.surplus(hosts)
                known = sorted(change - self.unknown, key=hostlist.natural_key)
                if known:
                    return ChangeProperty(key, present, tuple(known))
        return None

    def _next_of_ssds(self) -> Optional[Request]:
        checks: dict[str, CheckAllocated] = {}
        for rabbit, ssds in self.ssds.items():
            change = ssds.next()
            if isinstance(change, CheckAllocated):
                checks[rabbit] = change
            elif change is not None:
                return ChangeSsd(rabbit, change)
        return FindAllocated(checks) if checks else None

    def _next_of_rest(self) -> Optional[Request]:
        assert self.paths is not None
        if self._reschedule:
            return Reschedule(self.paths.root)  # the root is never down
        if self._unreported:
            return ReportUnknown(tuple(self._unreported))
        return None

    def _drop_half(self, request: ChangeProperty) -> None:
        if self._halves and self._halves[0] is request:
            self._halves.popleft()

    def _bad_hosts(self) -> frozenset[str]:
        """The nodes to carry ``badrabbit``."""
        assert self.paths is not None
        hosts = set(self._desired.properties.get(BAD_RABBIT, ()))
        for rabbit in self._desired.out_of_service:
            chassis = self.paths.chassis.get(rabbit)
            if not self._by_status(chassis):
                hosts.update(self._mapping.hosts_of(rabbit))
                hosts.update(chassis.nodes or () if chassis else ())
        return frozenset(hosts)

    def _by_status(self, chassis: Optional[Chassis]) -> bool:
        """A Rabbit is taken out of service by the status of its ``ssd``."""
        return chassis is not None and 0 < chassis.ssds <= self._ssds_by_status

    def ssds_of(self, rabbit: str) -> Optional[Ssds]:
        """The ``ssd`` that jobs may have on a Rabbit in service; None if the graph is
        not known, or does not say. A graph of other Rabbits has none for this one."""
        chassis = None if self.paths is None else self.paths.chassis.get(rabbit)
        if chassis is None and self.paths is not None and self.paths.chassis:
            return Ssds(1, 0)
        size = self._ssd_size(rabbit, chassis) if chassis and chassis.ssds else 0
        if chassis is None or not size:
            return None
        withheld = min(chassis.ssds, self._ssds_needed(rabbit, chassis))
        return Ssds(size, chassis.ssds - withheld, withheld)

    def _ssd_size(self, rabbit: str, chassis: Chassis) -> int:
        """GiB of each ``ssd``, as ``flux dws2jgf`` cuts a Rabbit."""
        return self._mapping.capacity(rabbit) // GIB // chassis.ssds

    def _ssds_needed(self, rabbit: str, chassis: Chassis) -> int:
        """The number of ``ssd`` of a Rabbit for the bytes that are reserved there."""
        if self._desired.reserved is None:
            return len(chassis.down)
        size = self._ssd_size(rabbit, chassis) * GIB
        return -(-self._desired.reserved.get(rabbit, 0) // size) if size else 0
