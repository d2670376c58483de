# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Sends the state of nodes and Rabbits to the scheduler Fluxion (seed 001, "Resource
Scheduling Integration").

The callers of :class:`Fluxion` set the desired state: the nodes with a property, the
Rabbits out of service, and the storage that jobs must not get. :class:`Fluxion` is a
reconciler (:mod:`flux_k8s.control.controller`) that sends one request at a time.
:mod:`flux_k8s.rabbits.fluxionstate` decides on the request. After a reload of Fluxion
the whole state is sent again.

The nodes of a Rabbit are expected directly below the vertex that has its name in
the property ``rabbit``, under their host names, as in the graphs of ``flux
dws2jgf``; its ``ssd`` beside them as ``ssd0``, ``ssd1``..., with their number in the
property ``ssdcount``.

``sched-rabbit`` takes the same requests (:mod:`flux_k8s.scheduler.graph`), under its
own name. The one that answers is the scheduler of the instance.
"""

from __future__ import annotations

import errno
import syslog
from contextlib import contextmanager
from functools import partial
from typing import AbstractSet, Callable, Iterable, Iterator, Mapping, Optional

from flux_k8s.config.arguments import FLUXION, NOT_WITH_FLUXION
from flux_k8s.control.backoff import Backoff
from flux_k8s.control.controller import Controller, Options
from flux_k8s.control.coroutines import call
from flux_k8s.dws.agreement import GraphRabbit
from flux_k8s.dws.mapping import RabbitMapping
from flux_k8s.errors import BadObject
from flux_k8s.ports import Flux, Json, RpcError, Watch
from flux_k8s.rabbits.downssds import RecordDown, SsdChange
from flux_k8s.rabbits.fluxiongraph import (
    NODES,
    RABBITS,
    SSD_DOWN,
    Chassis,
    Paths,
    Ssds,
    read_parent,
    read_rabbits,
    read_ssds,
)
from flux_k8s.rabbits.fluxionstate import (
    ChangeProperty,
    ChangeSsd,
    Desired,
    FindAllocated,
    FluxionState,
    ReportUnknown,
    Request,
    Reschedule,
)
from flux_k8s.reasons import Reason
from flux_k8s.rfc import hostlist, idset, resourcestatus
from flux_k8s.rfc.jgf import SSD

RABBIT_MODULE = "sched-rabbit"
MODULES = (FLUXION, RABBIT_MODULE)
"""The modules that take these requests: at most one of them is loaded."""

NAMES = {FLUXION: "Fluxion", RABBIT_MODULE: RABBIT_MODULE}
"""What the log calls the schedulers."""

ALLOCATED = "status=down and sched-now=allocated"
"""The vertices that are down, and that jobs have."""

KEY = "fluxion"
"""The one key of the controller."""

DEBOUNCE = 0.02
"""Seconds from the first change to the first request: more changes may follow."""

FIRST_PAUSE = 2.0
LONGEST_PAUSE = 60.0
"""Seconds until a request that failed is sent again, and until Fluxion is asked again
which ``ssd`` jobs have given back."""


class FluxionError(Exception):
    """A request to Fluxion failed, or its answer is malformed."""


@contextmanager
def _to(purpose: str) -> Iterator[None]:
    """Add the purpose of a request to its error."""
    try:
        yield
    except (RpcError, BadObject) as error:
        if isinstance(error, RpcError) and error.errnum == errno.ENOSYS:
            raise
        raise FluxionError(f"{purpose}: {error}") from error


class Fluxion:
    """Has Fluxion know which nodes carry properties, and which ``ssd`` are down.

    Args:
        ssds_by_status: a Rabbit with more ``ssd`` than this is taken out of service
            by its nodes.
        schedules: it is to schedule storage.
        graph_read: is called when the Rabbits of its graph are known, or when it is not
            the scheduler.

    Attributes:
        present: Fluxion is the scheduler, as far as is known.
    """

    def __init__(
        self,
        flux: Flux,
        mapping: RabbitMapping,
        ssds_by_status: int = 64,
        schedules: bool = True,
        graph_read: Callable[[], None] = lambda: None,
    ) -> None:
        self._flux = flux
        self._graph_read = graph_read
        self._mapping = mapping
        self._ssds_by_status = ssds_by_status
        self._schedules = schedules
        self._desired = Desired()
        # An earlier module may have left any node with a property.
        self._state = self._new_state(mapping.hosts)
        self._backoff = Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        self._check_backoff = Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        self._check_due: Optional[float] = None
        self._controller = Controller[str](
            flux,
            self._reconcile,
            self._failed,
            Options(
                debounce=DEBOUNCE,
                backoff=lambda key: self._backoff,
                expected=(RpcError, FluxionError),
            ),
        )
        self._watches: list[Watch] = []
        self._module = FLUXION
        self._untried = [RABBIT_MODULE]
        self._awaiting: list[tuple[frozenset[str], Callable[[], None]]] = []
        self.present = True

    def start(self) -> None:
        for module in MODULES:
            loaded = partial(self._loaded, module)
            self._watches.append(self._flux.watch_module(module, loaded))
        self._controller.add(KEY)

    def stop(self) -> None:
        self._controller.stop()
        for watch in self._watches:
            watch.stop()

    def stats(self) -> Json:
        """The part of ``dws.stats-get`` about the state that Fluxion has."""
        state = self._state
        return {
            "loaded": self.present,
            "module": self._module,
            **{key: len(nodes.certain) for key, nodes in state.properties.items()},
            "ssd_down": sum(len(s.applied.certain) for s in state.ssds.values()),
            "unknown_nodes": len(state.unknown),
        }

    def ssds_of(self, rabbit: str) -> Optional[Ssds]:
        """The ``ssd`` that jobs may have on a Rabbit in service; None if Fluxion is
        not the scheduler, or has not answered yet."""
        return self._state.ssds_of(rabbit) if self.present else None

    @property
    def graph(self) -> Optional[dict[str, GraphRabbit]]:
        """The Rabbits of Fluxion's graph; none if it is not to schedule storage. None
        as long as they are not known."""
        if not (self.present and self._schedules):
            return {}
        paths = self._state.paths
        return None if paths is None else paths.rabbits

    @property
    def is_misused(self) -> bool:
        """Whether Fluxion is the scheduler, and is to schedule no storage
        (``scheduler=none``): it would deny jobs that have to wait for a Rabbit."""
        is_fluxion = self.present and self._module == FLUXION
        return is_fluxion and not self._schedules and self._state.paths is not None

    def graph_name(self, file: str) -> str:
        """What messages call the graph.

        Args:
            file: the one from which Fluxion has it, if that is known.
        """
        name = f"the graph of {NAMES[self._module]}"
        return f"{name} ({file})" if file and self._module == FLUXION else name

    @property
    def why_none(self) -> str:
        """Why it gives no storage to any job; empty if it does, as far as is known."""
        paths, hosts = self._state.paths, self._mapping.hosts
        known = self.present and self._schedules and paths is not None and hosts
        lacks = known and paths is not None and not paths.chassis
        return self._without_rabbits if lacks else ""

    @property
    def _without_rabbits(self) -> str:
        return (
            f"{NAMES[self._module]}: no Rabbit of the rabbit mapping found in its graph"
            " (flux dws2jgf): jobs with storage wait"
        )

    @property
    def has_chassis(self) -> bool:
        """Whether each Rabbit is a chassis in Fluxion's graph, as far as is known."""
        paths = self._state.paths
        return paths is not None and all(c.is_chassis for c in paths.chassis.values())

    def want(self, key: str, hosts: AbstractSet[str]) -> None:
        """Have these nodes, and no others, carry a property."""
        known = self._mapping.hosts.intersection(hosts)
        if known != self._desired.properties.get(key):
            self._desired.properties[key] = known
            self._controller.add(KEY)

    def want_out_of_service(self, rabbits: AbstractSet[str]) -> None:
        """Have these Rabbits, and no others, out of service."""
        if rabbits != self._desired.out_of_service:
            self._desired.out_of_service = frozenset(rabbits)
            self._controller.add(KEY)

    def want_reserved(self, reserved: Mapping[str, int]) -> None:
        """Have ``ssd`` of so many bytes out of service on each Rabbit: storage
        that jobs do not hold, and that thus is not allocated in the graph."""
        positive = {rabbit: size for rabbit, size in reserved.items() if size > 0}
        if positive != self._desired.reserved:
            self._desired.reserved = positive
            self._controller.add(KEY)

    def when_withheld(self, rabbits: frozenset[str], done: Callable[[], None]) -> None:
        """Call ``done`` once Fluxion keeps from jobs what is reserved on these Rabbits
        now, or is not the scheduler."""
        self._awaiting.append((rabbits, done))
        self._controller.add(KEY)

    async def is_given_out(self, rabbits: frozenset[str]) -> bool:
        """Whether jobs have ``ssd`` of these Rabbits that are reserved.

        Raises:
            RpcError: Fluxion does not answer.
            BadObject: its answer is malformed.
        """
        found = await self._find(ALLOCATED)
        return self._state.is_given_out(rabbits, read_ssds(found))

    def _check_withheld(self) -> None:
        waiting, self._awaiting = self._awaiting, []
        for rabbits, done in waiting:
            if not self.present or self._state.withholds(rabbits):
                done()
            else:
                self._awaiting.append((rabbits, done))

    def _new_state(self, possible: Iterable[str] = ()) -> FluxionState:
        return FluxionState(
            self._mapping, self._ssds_by_status, self._desired, possible
        )

    def _loaded(self, module: str) -> None:
        """Fluxion, or sched-rabbit, has been loaded, and knows nothing."""
        self._module = module
        self._state = self._new_state()
        self._check_due = None
        self._check_backoff.reset()
        self._backoff.reset()
        self.present = True
        self._controller.restart(KEY)

    def _failed(self, key: str, error: Exception) -> None:
        if not self._backoff.failures:
            text = f"{NAMES[self._module]}: {error}; trying again"
            self._flux.log(syslog.LOG_WARNING, text, Reason.FLUXION_ERROR)

    async def _reconcile(self, key: str) -> Optional[float]:
        """Send Fluxion the next request, unless it is not loaded."""
        if not self.present:
            self._check_withheld()
            return None
        try:
            pause = await self._work()
        except RpcError as error:
            if error.errnum != errno.ENOSYS:
                raise
            if self._untried:
                self._module = self._untried.pop()
                return 0.0
            self.present = False
            self._check_withheld()
            self._graph_read()
            text = (
                "neither Fluxion nor sched-rabbit is loaded (yet): none is told about"
                " Rabbits"
            )
            self._flux.log(syslog.LOG_INFO, text, Reason.FLUXION_MISSING)
            return None
        self._untried = []
        self._backoff.reset()  # a failure of the next request is news
        return pause

    async def _work(self) -> Optional[float]:
        state = self._state
        if state.paths is None:
            state.see_paths(await self._find_rabbits())
            self._graph_read()
            if self.is_misused:
                self._flux.log(syslog.LOG_ERR, NOT_WITH_FLUXION, Reason.CONFIG_WRONG)
            return 0.0
        now = self._flux.now()
        due = self._check_due
        # A due time far ahead is from before the clock was set back.
        if due is not None and not now < due <= now + LONGEST_PAUSE:
            self._check_due = None
            state.check_again()
        state.choose_ssds()
        self._check_withheld()
        request = state.next_request()
        if request is None:
            return None if self._check_due is None else self._check_due - now
        state.begin(request)
        try:
            await self._send(request, state.paths)
        except RpcError as error:
            if error.errnum != errno.ENOENT or not isinstance(request, ChangeProperty):
                raise
            state.divide(request)
        else:
            state.end(request)
        return 0.0

    async def _find_rabbits(self) -> Paths:
        with _to("cannot find the Rabbits in its graph"):
            paths = read_rabbits(await self._find(RABBITS))
            if paths.chassis and self._schedules:
                paths = paths.with_nodes(await self._find(NODES))
        mapping = self._mapping
        hosts = (host for name in mapping.rabbits for host in mapping.hosts_of(name))
        sample = next(hosts, None)
        if paths.chassis or sample is None:
            return paths
        if self._schedules:
            text = self._without_rabbits
            self._flux.log(syslog.LOG_WARNING, text, Reason.MAPPING_DISAGREES)
        with _to(f"cannot find {sample} in its graph"):
            return Paths({}, read_parent(await self._find(f"names={sample}"), sample))

    async def _send(self, request: Request, paths: Paths) -> None:
        if isinstance(request, ChangeProperty):
            await self._change_property(request, paths)
        elif isinstance(request, ChangeSsd):
            with _to(request.rabbit):
                await self._change_ssd(request.change, paths.chassis[request.rabbit])
        elif isinstance(request, FindAllocated):
            await self._find_allocated(request)
        elif isinstance(request, Reschedule):
            await self._set_status(request.path, "up")
        else:
            await self._report_unknown(request)

    async def _change_property(self, request: ChangeProperty, paths: Paths) -> None:
        rabbit_of = self._mapping.rabbit_of
        nodes = [str(paths.of_node(h, str(rabbit_of(h)))) for h in request.hosts]
        value = "dws" if request.present else None
        await self._set_property(nodes, request.key, value)

    async def _change_ssd(self, change: SsdChange, chassis: Chassis) -> None:
        if isinstance(change, RecordDown):
            value = idset.encode(change.numbers) or None
            await self._set_property([chassis.path], SSD_DOWN, value)
        else:
            path = f"{chassis.path}/{SSD}{change.number}"
            await self._set_status(path, "down" if change.down else "up")

    async def _find_allocated(self, request: FindAllocated) -> None:
        """Find out which ``ssd`` jobs have, and when to do that again since jobs have
        too many."""
        state = self._state
        with _to("cannot find the storage of jobs in its graph"):
            found = await self._find(ALLOCATED)
            state.see_allocated(request, read_ssds(found))
        if not state.short:
            self._check_due = None
            self._check_backoff.reset()
        elif self._check_due is None:
            self._check_due = self._flux.now() + self._check_backoff.fail()

    async def _report_unknown(self, request: ReportUnknown) -> None:
        """Log nodes that are not where they should be in Fluxion's graph. One that
        Flux excludes from scheduling is rightly missing, and those of a Rabbit that the
        graph lacks are missing with it."""
        try:
            answer = await call(self._flux.rpc, "resource.status", {})
            excluded = resourcestatus.parse(answer).excluded
        except (RpcError, BadObject):
            excluded = frozenset()
        graph, rabbit_of = self.graph or {}, self._mapping.rabbit_of
        missing = [
            host
            for host in request.hosts
            if host not in excluded and (not graph or rabbit_of(host) in graph)
        ]
        if missing:
            name, hosts = NAMES[self._module], hostlist.encode(missing)
            text = (
                f"{name}: {hosts} of the rabbit mapping not found below the chassis of"
                " their Rabbits in its graph (flux dws2jgf): jobs are not kept off them"
            )
            self._flux.log(syslog.LOG_WARNING, text, Reason.MAPPING_DISAGREES)

    # Fluxion's requests

    async def _find(self, criteria: str) -> Json:
        return await self._ask("find", {"criteria": criteria, "format": "jgf"})

    async def _set_property(
        self, paths: list[str], key: str, value: Optional[str]
    ) -> None:
        """Set a property, or (None) remove it."""
        if value is None:
            await self._ask("remove_property", {"resource_path": paths, "key": key})
        else:
            payload = {"sp_resource_path": paths, "sp_keyval": f"{key}={value}"}
            await self._ask("set_property", payload)

    async def _set_status(self, path: str, status: str) -> None:
        await self._ask("set_status", {"resource_path": path, "status": status})

    async def _ask(self, method: str, payload: Json) -> Json:
        answer: Json = await call(self._flux.rpc, f"{self._module}.{method}", payload)
        return answer
