# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Sends the state of nodes and Rabbits to the scheduler Fluxion.

:class:`Fluxion` reads from Fluxion's graph what is there, compares it with what is
wanted, and sends the difference, one request at a time: first what takes something out
of service. What Fluxion has carried out is noted; after an error, and after a reload of
Fluxion, the graph is read again.

A Rabbit is out of service when its ``ssd`` are down, or when its nodes have the
property ``badrabbit``: jobs take both from the same chassis. With its ``ssd`` down, a
job that fits nowhere else waits. With the property Fluxion denies such a job, since its
check for jobs that can never run looks at properties. But each ``ssd`` is a request of
its own, and the property is one request for all nodes: so a Rabbit with many ``ssd`` is
taken out of service by the property. :mod:`flux_k8s.machine.ssds` chooses which ``ssd``
are down, and :mod:`flux_k8s.machine.fluxiongraph` says how the graph is to look.

``sched-rabbit`` takes the same requests (:mod:`flux_k8s.scheduler.graph`), under its
own name. The one that answers is the scheduler of the instance.
"""

from __future__ import annotations

import errno
import syslog
from contextlib import contextmanager
from functools import partial
from typing import AbstractSet, Callable, Collection, Iterator, Optional

from flux_k8s.config.arguments import FLUXION, NOT_WITH_FLUXION
from flux_k8s.control.backoff import Backoff
from flux_k8s.control.controller import Controller, Options
from flux_k8s.control.coroutines import call
from flux_k8s.errors import BadObject
from flux_k8s.formats import hostlist, resourcestatus
from flux_k8s.formats.directives import GIB
from flux_k8s.formats.jgf import SSD
from flux_k8s.machine.fluxiongraph import (
    ALLOCATED,
    Chassis,
    Graph,
    read_graph,
    read_ssds,
)
from flux_k8s.machine.ssds import Change, Ssds, SsdStates
from flux_k8s.machine.wanted import ALLOC_RABBIT, BAD_RABBIT, PROPERTIES, Wanted
from flux_k8s.objects.mapping import RabbitMapping
from flux_k8s.ports import Flux, Json, RpcError, Watch
from flux_k8s.reasons import Reason
from flux_k8s.rules.agreement import GraphRabbit

RABBIT_MODULE = "sched-rabbit"
MODULES = (FLUXION, RABBIT_MODULE)
"""The modules that take these requests: at most one of them is loaded."""

NAMES = {FLUXION: "Fluxion", RABBIT_MODULE: RABBIT_MODULE}
"""What the log calls the schedulers."""

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


REFUSED = (errno.EINVAL, errno.ENOENT)
"""The errors of a request about what is not in the graph."""


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
        self._wanted = Wanted()
        self._graph: Optional[Graph] = None
        self._is_read = False  # and nothing has failed since
        self._look_again = False  # Fluxion is to have another look at its jobs
        self._reported: AbstractSet[str] = frozenset()
        self._nodes_read = False  # and those that are missing are not reported yet
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
        graph = self._graph or Graph({}, {}, None, {key: set() for key in PROPERTIES})
        return {
            "loaded": self.present,
            "module": self._module,
            **{key: len(hosts) for key, hosts in graph.marked.items()},
            "ssd_down": sum(len(each.down) for each in graph.ssds.values()),
            "unknown_nodes": len(self._unknown),
        }

    def ssds_of(self, rabbit: str) -> Optional[Ssds]:
        """The ``ssd`` that jobs may have on a Rabbit in service; None if Fluxion is
        not the scheduler, has not answered yet, or does not say. A graph of other
        Rabbits has none for this one."""
        graph = self._graph
        if not self.present or graph is None:
            return None
        chassis = graph.chassis.get(rabbit)
        if chassis is None:
            return Ssds(1, 0) if graph.chassis else None
        size = self._ssd_size(rabbit, chassis)
        if not size:
            return None
        withheld = min(chassis.ssds, self._needed(rabbit, graph))
        return Ssds(size, chassis.ssds - withheld, withheld)

    @property
    def graph(self) -> Optional[dict[str, GraphRabbit]]:
        """The Rabbits of Fluxion's graph; none if it is not to schedule storage. None
        as long as they are not known."""
        if not (self.present and self._schedules):
            return {}
        return None if self._graph is None else self._graph.rabbits

    @property
    def is_misused(self) -> bool:
        """Whether Fluxion is the scheduler, and is to schedule no storage
        (``scheduler=none``): it would deny jobs that have to wait for a Rabbit."""
        is_fluxion = self.present and self._module == FLUXION
        return is_fluxion and not self._schedules and self._graph is not None

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
        graph = self._graph
        known = self.present and self._schedules and self._mapping.hosts
        lacks = known and graph is not None and not graph.chassis
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
        graph = self._graph
        return graph is not None and all(c.is_chassis for c in graph.chassis.values())

    def want(self, wanted: Wanted) -> None:
        """Have Fluxion be so, from now on."""
        if wanted != self._wanted:
            self._wanted = wanted
            self._controller.add(KEY)

    def when_withheld(self, rabbits: frozenset[str], done: Callable[[], None]) -> None:
        """Call ``done`` once Fluxion keeps from jobs what is withheld on these Rabbits
        now, or is not the scheduler."""
        self._awaiting.append((rabbits, done))
        self._controller.add(KEY)

    async def is_given_out(self, rabbits: frozenset[str]) -> bool:
        """Whether jobs may have ``ssd`` of these Rabbits that are withheld.

        Raises:
            RpcError: Fluxion does not answer.
            BadObject: its answer is malformed.
        """
        allocated = read_ssds(await self._find(ALLOCATED))
        graph = self._graph
        if graph is None:
            return True
        for rabbit in rabbits:
            if rabbit not in graph.ssds:
                return True
            taken = allocated.get(graph.chassis[rabbit].path, set())
            if len(graph.ssds[rabbit].down - taken) < self._needed(rabbit, graph):
                return True
        return False

    def _check_withheld(self) -> None:
        waiting, self._awaiting = self._awaiting, []
        for rabbits, done in waiting:
            if not self.present or all(map(self._withholds, rabbits)):
                done()
            else:
                self._awaiting.append((rabbits, done))

    def _withholds(self, rabbit: str) -> bool:
        """Whether no job gets what is withheld on a Rabbit. One that the graph lacks
        is given to no job."""
        graph = self._graph
        if graph is None or not self._is_read:
            return False
        hosts = self._mapping.hosts_of(rabbit)
        marked = self._wanted.marked.get(ALLOC_RABBIT, frozenset()).intersection(hosts)
        if not marked & graph.nodes.keys() <= graph.marked[ALLOC_RABBIT]:
            return False
        needed, ssds = self._needed(rabbit, graph), graph.ssds.get(rabbit)
        return ssds is None or ssds.withholds(needed)

    def _loaded(self, module: str) -> None:
        """Fluxion, or sched-rabbit, has been loaded, and knows nothing."""
        self._module = module
        self._graph, self._is_read, self._reported = None, False, frozenset()
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
            self._is_read = False
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
        except FluxionError:
            self._is_read = False
            raise
        self._untried = []
        self._backoff.reset()  # a failure of the next request is news
        return pause

    async def _work(self) -> Optional[float]:
        """Send the next difference. Returns 0 if there may be more, or the seconds
        until Fluxion is to be asked again."""
        graph = self._graph
        if graph is None or not self._is_read:
            graph = await self._read()
        now, due = self._flux.now(), self._check_due
        # A due time far ahead is from before the clock was set back.
        if due is not None and not now < due <= now + LONGEST_PAUSE:
            self._check_due = None
            for ssds in graph.ssds.values():
                ssds.taken.clear()
        self._check_withheld()
        if (
            await self._change_property(graph)
            or await self._change_ssds(graph)
            or await self._find_allocated(graph)
        ):
            return 0.0
        if self._look_again and graph.root:
            await self._set_status(graph.root, "up")  # the root is never down
            self._look_again = False
        await self._report_unknown()
        return None if self._check_due is None else self._check_due - now

    # Reading

    async def _read(self) -> Graph:
        """Read what is there. An earlier module may have left anything, and have gone
        before it had Fluxion look at its jobs."""
        with _to("cannot find the Rabbits in its graph"):
            graph = await read_graph(self._find, self._mapping, PROPERTIES)
        first = self._graph is None
        self._graph = graph
        self._is_read = self._look_again = self._nodes_read = True
        self._graph_read()
        if first and self.why_none:
            reason = Reason.MAPPING_DISAGREES
            self._flux.log(syslog.LOG_WARNING, self.why_none, reason)
        if first and self.is_misused:
            self._flux.log(syslog.LOG_ERR, NOT_WITH_FLUXION, Reason.CONFIG_WRONG)
        return graph

    # What is wanted, and is not there

    async def _change_property(self, graph: Graph) -> bool:
        """Give the property to nodes that lack it, or remove it from others. Returns
        whether there was anything to change."""
        wanted = dict(self._wanted.marked)
        if BAD_RABBIT in wanted:
            wanted[BAD_RABBIT] = wanted[BAD_RABBIT] | self._hosts_out_of_service(graph)
        for present in (True, False):
            for key, desired in wanted.items():
                there = graph.marked[key]
                lacking = desired - there if present else there - desired
                hosts = sorted(lacking & graph.nodes.keys(), key=hostlist.natural_key)
                if hosts:
                    await self._mark(graph, key, hosts, present)
                    return True
        return False

    async def _mark(
        self, graph: Graph, key: str, hosts: list[str], present: bool
    ) -> None:
        """Change a property of nodes. One that Fluxion does not know spoils a request
        for many: each gets one of its own then."""
        paths = [graph.nodes[host] for host in hosts]
        try:
            if present:
                payload: Json = {"sp_resource_path": paths, "sp_keyval": f"{key}=dws"}
                await self._ask("set_property", payload)
            else:
                payload = {"resource_path": paths, "key": key}
                await self._ask("remove_property", payload)
        except RpcError as error:
            if error.errnum != errno.ENOENT:
                raise
            for host in hosts if len(hosts) > 1 else ():
                await self._mark(graph, key, [host], present)
            if len(hosts) == 1:
                del graph.nodes[hosts[0]]
                self._nodes_read = True
            return
        if present:
            graph.marked[key].update(hosts)
        else:
            graph.marked[key].difference_update(hosts)
            # A property that is removed does not have it do so.
            self._look_again = True

    async def _change_ssds(self, graph: Graph) -> bool:
        """Set ``ssd`` of a Rabbit down, or up. Returns whether there were any."""
        for rabbit, ssds, needed in self._concerned(graph):
            change = ssds.change(*needed)
            if change is not None:
                try:
                    with _to(rabbit):
                        await self._set_ssds(graph.chassis[rabbit], ssds, change)
                except FluxionError as error:
                    cause = error.__cause__
                    if not (isinstance(cause, RpcError) and cause.errnum in REFUSED):
                        raise
                    # It holds up no other Rabbit, and goes by its nodes from now on.
                    self._failed(rabbit, error)
                    del graph.ssds[rabbit]
                return True
        return False

    async def _set_ssds(
        self, chassis: Chassis, ssds: SsdStates, change: Change
    ) -> None:
        """There may be ten thousands of them: something else may be wanted before."""
        wanted = self._wanted
        for number in change.numbers:
            if self._wanted is not wanted:
                return
            status = "down" if change.down else "up"
            await self._set_status(f"{chassis.path}/{SSD}{number}", status)
            ssds.set(number, change.down)

    async def _find_allocated(self, graph: Graph) -> bool:
        """Find out which ``ssd`` that are down jobs have, for all Rabbits at once:
        Fluxion goes through its whole graph. Jobs that have too many have it done again
        later. Returns whether that was done."""
        concerned = list(self._concerned(graph))
        unsure = [r for r, ssds, needed in concerned if ssds.is_unsure(*needed)]
        if unsure:
            with _to("cannot find the storage of jobs in its graph"):
                allocated = read_ssds(await self._find(ALLOCATED))
            for rabbit in unsure:
                path = graph.chassis[rabbit].path
                graph.ssds[rabbit].see_allocated(allocated.get(path, set()))
        if not any(ssds.is_short(*needed) for _, ssds, needed in concerned):
            self._check_due = None
            self._check_backoff.reset()
        elif self._check_due is None:
            self._check_due = self._flux.now() + self._check_backoff.fail()
        return bool(unsure)

    def _hosts_out_of_service(self, graph: Graph) -> set[str]:
        """The nodes of Rabbits that are taken out of service by a property."""
        hosts: set[str] = set()
        for rabbit in self._wanted.out_of_service:
            if not self._by_status(rabbit, graph):
                hosts.update(self._mapping.hosts_of(rabbit))
                hosts.update((graph.below or {}).get(rabbit, ()))
        return hosts

    def _by_status(self, rabbit: str, graph: Graph) -> bool:
        """Whether a Rabbit is taken out of service by the status of its ``ssd``."""
        chassis = graph.chassis.get(rabbit)
        known = chassis is not None and rabbit in graph.ssds
        return known and 0 < graph.chassis[rabbit].ssds <= self._ssds_by_status

    def _concerned(
        self, graph: Graph
    ) -> Iterator[tuple[str, SsdStates, tuple[int, bool]]]:
        """The Rabbits of which ``ssd`` are down, or are to be: how many that no job
        has, and whether all are."""
        wanted = self._wanted
        for rabbit, ssds in graph.ssds.items():
            withheld = wanted.withheld is not None and rabbit in wanted.withheld
            out = rabbit in wanted.out_of_service and self._by_status(rabbit, graph)
            if ssds.down or withheld or out:
                yield rabbit, ssds, (self._needed(rabbit, graph), out)

    def _needed(self, rabbit: str, graph: Graph) -> int:
        """The number of ``ssd`` of a Rabbit for the bytes that are withheld there."""
        if rabbit not in graph.ssds:
            return 0
        if self._wanted.withheld is None:
            return graph.ssds[rabbit].found
        size = self._ssd_size(rabbit, graph.chassis[rabbit]) * GIB
        return -(-self._wanted.withheld.get(rabbit, 0) // size) if size else 0

    def _ssd_size(self, rabbit: str, chassis: Chassis) -> int:
        """GiB of each ``ssd``, as ``flux dws2jgf`` cuts a Rabbit."""
        ssds = chassis.ssds
        return self._mapping.capacity(rabbit) // GIB // ssds if ssds else 0

    # Nodes that the graph lacks

    @property
    def _unknown(self) -> AbstractSet[str]:
        """The nodes of the mapping that the graph lacks."""
        graph = self._graph
        return (
            frozenset() if graph is None else self._mapping.hosts - graph.nodes.keys()
        )

    async def _report_unknown(self) -> None:
        """Log nodes that are not where they should be in Fluxion's graph. One that
        Flux excludes from scheduling is rightly missing, and those of a Rabbit that the
        graph lacks are missing with it."""
        if not self._nodes_read:
            return
        self._nodes_read, unknown = False, self._unknown
        hosts = sorted(unknown - self._reported, key=hostlist.natural_key)
        self._reported = unknown
        if not hosts:
            return
        try:
            answer = await call(self._flux.rpc, "resource.status", {})
            excluded: Collection[str] = resourcestatus.parse(answer).excluded
        except (RpcError, BadObject):
            excluded = ()
        graph, rabbit_of = self.graph or {}, self._mapping.rabbit_of
        missing = [
            host
            for host in hosts
            if host not in excluded and (not graph or rabbit_of(host) in graph)
        ]
        if missing:
            text = (
                f"{NAMES[self._module]}: {hostlist.encode(missing)} of the rabbit"
                " mapping not found below the chassis of their Rabbits in its graph"
                " (flux dws2jgf): jobs are not kept off them"
            )
            self._flux.log(syslog.LOG_WARNING, text, Reason.MAPPING_DISAGREES)

    # Fluxion's requests

    async def _find(self, criteria: str) -> Json:
        return await self._ask("find", {"criteria": criteria, "format": "jgf"})

    async def _set_status(self, path: str, status: str) -> None:
        await self._ask("set_status", {"resource_path": path, "status": status})

    async def _ask(self, method: str, payload: Json) -> Json:
        answer: Json = await call(self._flux.rpc, f"{self._module}.{method}", payload)
        return answer
