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
property. :class:`~flux_k8s.rabbits.downssds.DownSsds` chooses which ``ssd`` are down.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import AbstractSet, Iterable, Mapping, Optional, Union

from flux_k8s.dws.directives import GIB
from flux_k8s.dws.mapping import RabbitMapping
from flux_k8s.rabbits.downssds import (
    AppliedSet,
    CheckAllocated,
    DownSsds,
    SsdChange,
)
from flux_k8s.rabbits.fluxiongraph import Chassis, Paths, Ssds
from flux_k8s.rfc import hostlist

BAD_RABBIT = "badrabbit"
"""The property of nodes that must not get jobs with Rabbit storage."""

ALLOC_RABBIT = "alloc_rabbit"
"""The property of nodes whose Rabbit has a job's storage, where the scheduler
does not know the storage itself."""

PROPERTIES = (BAD_RABBIT, ALLOC_RABBIT)


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
