# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Sends the state of nodes and Rabbits to the scheduler, Fluxion or ``sched-rabbit``.

:class:`Fluxion` reads from Fluxion's graph what is there, compares it with what is
wanted, and sends the difference, one request at a time: first what takes something out
of service. What Fluxion has carried out is noted in the graph; after an error, and
after a reload of Fluxion, it is read again.

A Rabbit is out of service when its ``ssd`` are down, or when its nodes have the
property ``badrabbit``: jobs take both from the same chassis. With its ``ssd`` down, a
job that fits nowhere else waits; with the property Fluxion denies it as one that can
never run. But each ``ssd`` is a request of its own, and the property is one for all
nodes: so a Rabbit with many ``ssd`` is taken out of service by the property. Which of
them are down :mod:`flux_k8s.machine.fluxiongraph` chooses.

``sched-rabbit`` takes the same requests (:mod:`flux_k8s.scheduler.graph`), under its
own name. The one that answers is the scheduler of the instance.
"""

from __future__ import annotations

import errno
import syslog
from contextlib import contextmanager
from functools import partial
from typing import AbstractSet, Callable, Collection, Iterator, Mapping, Optional

from flux_k8s.config.arguments import FLUXION, NOT_WITH_FLUXION
from flux_k8s.control.backoff import Backoff
from flux_k8s.control.controller import Controller, Options
from flux_k8s.control.coroutines import call
from flux_k8s.errors import BadObject
from flux_k8s.formats import hostlist, resourcestatus
from flux_k8s.formats.jgf import SSD
from flux_k8s.machine.fluxiongraph import (
    ALLOCATED,
    Change,
    Chassis,
    Graph,
    Ssds,
    read_graph,
    read_ssds,
)
from flux_k8s.machine.wanted import ALLOC_RABBIT, BAD_RABBIT, PROPERTIES, Wanted
from flux_k8s.objects.mapping import RabbitMapping
from flux_k8s.ports import Flux, Json, RpcError, Watch
from flux_k8s.reasons import Reason
from flux_k8s.rules.agreement import GraphRabbit

RABBIT_MODULE = "sched-rabbit"
NAMES = {FLUXION: "Fluxion", RABBIT_MODULE: RABBIT_MODULE}
"""The modules that take these requests, as the log calls them. At most one is there."""

NO_MODULE = (
    "neither Fluxion nor sched-rabbit is loaded (yet): none is told about Rabbits"
)

KEY = "fluxion"
CHECK = "check"
"""The keys of the controller: what is wanted is to be there, and jobs may have given
back ``ssd`` that are still to be kept from others."""

DEBOUNCE = 0.02
"""Seconds from the first change to the first request: more changes may follow."""

FIRST_PAUSE = 2.0
LONGEST_PAUSE = 60.0
"""Seconds until a request that failed is sent again."""

CHECK_PAUSE = 10.0
"""Seconds until Fluxion is asked again which ``ssd`` jobs have given back."""


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
        changed: is called when its graph has been read, or has changed, and when it is
            not the scheduler.

    Attributes:
        present: Fluxion, or ``sched-rabbit``, is the scheduler, as far as is known.
    """

    def __init__(
        self,
        flux: Flux,
        mapping: RabbitMapping,
        ssds_by_status: int = 64,
        schedules: bool = True,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._flux = flux
        self._mapping = mapping
        self._ssds_by_status = ssds_by_status
        self._schedules = schedules
        self._changed = changed
        self._wanted = Wanted()
        self._graph: Optional[Graph] = None
        self._is_read = False  # and nothing has failed since
        self._look_again = False  # Fluxion is to have another look at its jobs.
        self._reported: AbstractSet[str] = frozenset()
        self._controller = Controller[str](
            flux,
            self._reconcile,
            self._failed,
            Options(
                debounce=DEBOUNCE,
                backoff=lambda key: Backoff(FIRST_PAUSE, LONGEST_PAUSE),
                expected=(RpcError, FluxionError),
            ),
        )
        self._watches: list[Watch] = []
        self._module = FLUXION
        self._untried = [RABBIT_MODULE]
        self.present = True

    def stop(self) -> None:
        self._controller.stop()
        for watch in self._watches:
            watch.stop()

    def want(self, wanted: Wanted) -> None:
        """Have Fluxion be so, from now on."""
        if not self._watches:
            for module in NAMES:
                loaded = partial(self._loaded, module)
                self._watches.append(self._flux.watch_module(module, loaded))
            self._controller.add(KEY)
        if wanted != self._wanted:
            self._wanted = wanted
            self._controller.add(KEY)

    # What is known of its graph

    def stats(self) -> Json:
        """The part of ``dws.stats-get`` about the state that Fluxion has."""
        graph = self._graph or Graph({}, {}, {key: set() for key in PROPERTIES})
        return {
            "loaded": self.present,
            "module": self._module,
            **{key: len(hosts) for key, hosts in graph.marked.items()},
            "ssd_down": sum(len(each.down) for each in graph.chassis.values()),
            "unknown_nodes": len(self._unknown(self._graph)),
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
        if not chassis.size:
            return None
        wanted = (self._wanted.withheld or {}).get(rabbit, 0)
        withheld = min(chassis.ssds, chassis.needed(wanted))
        return Ssds(chassis.size, chassis.ssds - withheld, withheld)

    @property
    def graph(self) -> Optional[dict[str, GraphRabbit]]:
        """The Rabbits of Fluxion's graph; none if it is not to schedule storage. None
        as long as they are not known."""
        if not (self.present and self._schedules):
            return {}
        return None if self._graph is None else self._graph.rabbits

    def graph_name(self, file: str) -> str:
        """What messages call the graph.

        Args:
            file: the one from which Fluxion has it, if that is known.
        """
        name = f"the graph of {NAMES[self._module]}"
        return f"{name} ({file})" if file and self._module == FLUXION else name

    @property
    def is_misused(self) -> bool:
        """Whether Fluxion is the scheduler, and is to schedule no storage
        (``scheduler=none``): it would deny jobs that have to wait for a Rabbit."""
        is_fluxion = self.present and self._module == FLUXION
        return is_fluxion and not self._schedules and self._graph is not None

    @property
    def why_none(self) -> str:
        """Why it gives no storage to any job; empty if it does, as far as is known."""
        graph = self._graph
        known = self.present and self._schedules and self._mapping.hosts
        if not known or graph is None or graph.chassis:
            return ""
        return (
            f"{NAMES[self._module]}: no Rabbit of the rabbit mapping found in its graph"
            " (flux dws2jgf): jobs with storage wait"
        )

    @property
    def has_chassis(self) -> bool:
        """Whether each Rabbit is a chassis in Fluxion's graph, as far as is known."""
        return self._graph is not None and self._graph.has_chassis

    def keeps(self, claims: Mapping[str, int], hosts: AbstractSet[str]) -> bool:
        """Whether Fluxion keeps from jobs so many bytes of each Rabbit, and has these
        nodes marked as those of Rabbits in use, or is not the scheduler, or there is
        nothing to keep. A Rabbit that its graph lacks is given to no job. What is not
        wanted yet may be taken back at any time."""
        graph, wanted = self._graph, self._wanted
        if not (self.present and (claims or hosts)):
            return True
        if graph is None or not self._is_read:
            return False
        marked = graph.marked[ALLOC_RABBIT] & wanted.marked.get(ALLOC_RABBIT, hosts)
        withheld = wanted.withheld or {}
        return hosts & graph.nodes.keys() <= marked and all(
            size <= withheld.get(rabbit, 0)
            and graph.chassis[rabbit].withholds(graph.chassis[rabbit].needed(size))
            for rabbit, size in claims.items()
            if rabbit in graph.chassis
        )

    async def is_given_out(self, claims: Mapping[str, int]) -> bool:
        """Whether jobs may have ``ssd`` for so many bytes of Rabbits that no job is to
        have.

        Raises:
            RpcError: Fluxion does not answer.
            BadObject: its answer is malformed.
        """
        allocated, graph = read_ssds(await self._find(ALLOCATED)), self._graph
        for rabbit, size in claims.items():
            chassis = None if graph is None else graph.chassis.get(rabbit)
            if chassis is None or chassis.refused or not chassis.ssds:
                return True
            free = chassis.down - allocated.get(chassis.path, set())
            if len(free) < chassis.needed(size):
                return True
        return False

    # One run of the controller

    def _loaded(self, module: str) -> None:
        """Fluxion, or sched-rabbit, has been loaded, and knows nothing."""
        self._module = module
        self._graph, self._is_read, self._reported = None, False, frozenset()
        self.present = True
        self._controller.restart(KEY)

    def _failed(self, key: str, error: Exception) -> None:
        self._is_read = False
        self._log_failure(error)

    def _log_failure(self, error: Exception) -> None:
        if not self._controller.failures(KEY):
            text = f"{NAMES[self._module]}: {error}; trying again"
            self._flux.log(syslog.LOG_WARNING, text, Reason.FLUXION_ERROR)

    async def _reconcile(self, key: str) -> Optional[float]:
        """Have Fluxion as is wanted, unless it is not loaded."""
        if not self.present:
            return None
        if key == CHECK:
            for chassis in self._graph.chassis.values() if self._graph else ():
                chassis.asked = False
            self._controller.add(KEY, 0.0)
            return None
        try:
            await self._work()
        except RpcError as error:
            if error.errnum != errno.ENOSYS:
                raise
            self._is_read = False
            if self._untried:
                self._module = self._untried.pop()
                return 0.0
            self.present = False
            self._flux.log(syslog.LOG_INFO, NO_MODULE, Reason.FLUXION_MISSING)
        self._changed()
        return None

    async def _work(self) -> None:
        """Send each difference, of what is wanted by then. Something else may be wanted
        again and again meanwhile: so who waits for what is there is told each time."""
        graph = self._graph
        if graph is None or not self._is_read:
            graph = await self._read()
        self._untried = []
        while (
            await self._change_property(graph)
            or await self._change_ssds(graph)
            or await self._find_allocated(graph)
        ):
            self._changed()
        if self._look_again and graph.root:
            await self._set_status(graph.root, "up")  # the root is never down
            self._look_again = False
        await self._report_unknown(graph)

    async def _read(self) -> Graph:
        """Read what is there. An earlier module may have left anything, and have gone
        before it had Fluxion look at its jobs."""
        with _to("cannot find the Rabbits in its graph"):
            graph = await read_graph(self._find, self._mapping, PROPERTIES)
        first = self._graph is None
        self._graph, self._is_read, self._look_again = graph, True, True
        self._changed()
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
        if not present:
            graph.marked[key].difference_update(hosts)  # from now on, maybe
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
            return
        if present:
            graph.marked[key].update(hosts)
        else:
            self._look_again = True  # it does not by itself when one is removed

    async def _change_ssds(self, graph: Graph) -> bool:
        """Set ``ssd`` of a Rabbit down, or up. Returns whether there were any."""
        for rabbit, chassis, needed in self._concerned(graph):
            change = chassis.change(needed)
            if change is not None:
                await self._set_ssds(rabbit, chassis, change)
                return True
        return False

    async def _set_ssds(self, rabbit: str, chassis: Chassis, change: Change) -> None:
        """There may be ten thousands of them: something else may be wanted before. A
        Rabbit of which Fluxion refuses one holds up no other, and goes by its nodes
        from now on."""
        wanted, status = self._wanted, "down" if change.down else "up"
        for number in change.numbers:
            if self._wanted is not wanted:
                return
            if not change.down:
                chassis.set(number, down=False)  # from now on, maybe
            try:
                with _to(rabbit):
                    await self._set_status(f"{chassis.path}/{SSD}{number}", status)
            except FluxionError as error:
                cause = error.__cause__
                if not (isinstance(cause, RpcError) and cause.errnum in REFUSED):
                    raise
                self._log_failure(error)
                chassis.refused = True
                return
            if change.down:
                chassis.set(number, down=True)

    async def _find_allocated(self, graph: Graph) -> bool:
        """Find out which ``ssd`` that are down jobs have, for all Rabbits at once:
        Fluxion goes through its whole graph. Jobs that have too many have it done again
        later. Returns whether that was done."""
        concerned = list(self._concerned(graph))
        unsure = [each for _, each, needed in concerned if each.is_unsure(needed)]
        if unsure:
            with _to("cannot find the storage of jobs in its graph"):
                allocated = read_ssds(await self._find(ALLOCATED))
            for chassis in unsure:
                chassis.see_allocated(allocated.get(chassis.path, set()))
        if any(each.is_short(needed) for _, each, needed in concerned):
            self._controller.add(CHECK, CHECK_PAUSE)
        return bool(unsure)

    def _hosts_out_of_service(self, graph: Graph) -> set[str]:
        """The nodes of Rabbits that are taken out of service by a property."""
        hosts: set[str] = set()
        for rabbit in self._wanted.out_of_service:
            chassis = graph.chassis.get(rabbit)
            if chassis is None or not self._by_status(chassis):
                hosts.update(self._mapping.hosts_of(rabbit))
                hosts.update((chassis and chassis.nodes) or ())
        return hosts

    def _by_status(self, chassis: Chassis) -> bool:
        """Whether a Rabbit is taken out of service by the status of its ``ssd``."""
        return not chassis.refused and 0 < chassis.ssds <= self._ssds_by_status

    def _concerned(self, graph: Graph) -> Iterator[tuple[str, Chassis, int]]:
        """The Rabbits of which ``ssd`` are down, or are to be, and how many that no job
        has. As long as it is not known how many, none is set up."""
        withheld = self._wanted.withheld
        for rabbit, chassis in graph.chassis.items():
            out = rabbit in self._wanted.out_of_service and self._by_status(chassis)
            if chassis.refused or (withheld is None and not out):
                continue
            needed = chassis.needed((withheld or {}).get(rabbit, 0))
            needed = chassis.ssds if out else needed
            if chassis.down or needed:
                yield rabbit, chassis, needed

    # Nodes that the graph lacks

    def _unknown(self, graph: Optional[Graph]) -> AbstractSet[str]:
        """The nodes of the mapping that the graph lacks, if it is known."""
        return self._mapping.hosts - graph.nodes.keys() if graph else frozenset()

    async def _report_unknown(self, graph: Graph) -> None:
        """Log nodes that the graph lacks. One that Flux excludes from scheduling is
        rightly missing, and those of a Rabbit that it lacks are missing with it."""
        unknown = self._unknown(graph)
        hosts = sorted(unknown - self._reported, key=hostlist.natural_key)
        self._reported = unknown
        if not hosts:
            return
        try:
            answer = await call(self._flux.rpc, "resource.status", {})
            excluded: Collection[str] = resourcestatus.parse(answer).excluded
        except (RpcError, BadObject):
            excluded = ()
        rabbits, rabbit_of = self.graph or {}, self._mapping.rabbit_of
        missing = [
            host
            for host in hosts
            if host not in excluded and (not rabbits or rabbit_of(host) in rabbits)
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
