# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What Fluxion, the scheduler, is told about nodes and Rabbits while it runs.

Others say which nodes should have a property, and how much of a Rabbit's storage
should be out of service (:mod:`flux_k8s.rabbits.fluxionstate` says which ``ssd`` that
is). :class:`Fluxion` finds out what Fluxion must be told for that, in as few requests
as there can be: one for all nodes that get a property, one for all that lose it. What
was told is kept, and told again when Fluxion has been reloaded.

A Rabbit is down when its ``ssd`` are, or when its nodes carry ``badrabbit``: jobs
take both from the same chassis (seed 001, "Resource Scheduling Integration"). With
its ``ssd`` down, a job that fits nowhere else waits; with the property Fluxion
denies it, since its check for jobs that can never run looks at properties. But each
``ssd`` is a request of its own, and the property is one for all: so it is for a
Rabbit with more of them than ``by_status``.

The nodes of a Rabbit are expected directly below the vertex that has its name in
the property ``rabbit``, under their host names, as in the graphs of ``flux
dws2jgf``; its ``ssd`` beside them as ``ssd0``, ``ssd1``..., with their number in the
property ``ssdcount``.
"""

from __future__ import annotations

import errno
import syslog
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import AbstractSet, Mapping, Optional, Union

from flux_k8s.dws.directives import GIB
from flux_k8s.dws.mapping import RabbitMapping
from flux_k8s.errors import BadObject
from flux_k8s.ports import Flux, Json, RpcDone, RpcError, Timer, Watch
from flux_k8s.rabbits.fluxiongraph import (
    SSD_DOWN,
    Chassis,
    Places,
    Told,
    find_above,
    find_places,
    find_ssds,
)
from flux_k8s.rabbits.fluxionstate import Looking, Noting, Switching, Withheld
from flux_k8s.rfc import hostlist, idset, resourcestatus
from flux_k8s.rfc.jgf import RABBIT_PROPERTY, SSD

BAD_RABBIT = "badrabbit"
"""The property of nodes that must not get jobs with Rabbit storage."""

ALLOC_RABBIT = "alloc_rabbit"
"""The property of nodes whose Rabbit has a job's storage, where the scheduler
does not know the storage itself."""

PROPERTIES = (BAD_RABBIT, ALLOC_RABBIT)

MODULE = "sched-fluxion-resource"
GATHER = 0.02
"""Seconds to wait for more to tell."""

RETRY = 2.0
LAST_RETRY = 60.0


@dataclass(frozen=True)
class Marking:
    """A property that nodes get, or lose."""

    key: str
    present: bool
    hosts: tuple[str, ...]


@dataclass(frozen=True)
class Withholding:
    """What is done about the ``ssd`` of a Rabbit that jobs must not get."""

    rabbit: str
    step: Union[Noting, Switching]


@dataclass(frozen=True)
class Reconsidering:
    """Fluxion looks again at jobs that did not fit before. It does that when a
    vertex comes up; this one was."""

    path: str


Telling = Union[Marking, Withholding, Mapping[str, Looking], Reconsidering]


class Fluxion:
    """Keeps Fluxion told.

    Args:
        by_status: a Rabbit with more ``ssd`` than this is taken out of service by its
            nodes.
    """

    def __init__(self, flux: Flux, mapping: RabbitMapping, by_status: int = 64) -> None:
        self._flux = flux
        self._mapping = mapping
        self._most = by_status
        self._rabbit_of = {
            host: rabbit
            for rabbit in mapping.rabbits
            for host in mapping.hosts_of(rabbit)
        }
        # What nobody has wanted yet is left as an earlier module has left it.
        self._wanted: dict[str, frozenset[str]] = {}
        self._reserved: Optional[dict[str, int]] = None
        self._out: frozenset[str] = frozenset()
        everywhere = set(self._rabbit_of)
        # An earlier module may have left anything behind.
        self._told = {key: Told(possible=set(everywhere)) for key in PROPERTIES}
        self._withheld: dict[str, Withheld] = {}
        self._places: Optional[Places] = None
        self._unknown: set[str] = set()
        self._untold: list[str] = []
        self._parts: deque[Marking] = deque()
        self._reconsider = False
        self._busy = False
        self._absent = False
        self._load = 0
        self._failures = 0
        self._timer: Optional[Timer] = None
        self._look_timer: Optional[Timer] = None
        self._looks = 0
        self._watch: Optional[Watch] = None
        self._stopped = False

    def start(self) -> None:
        self._watch = self._flux.watch_module(MODULE, self._loaded)
        self._soon()

    def stop(self) -> None:
        self._stopped = True
        if self._watch is not None:
            self._watch.stop()
        for timer in (self._timer, self._look_timer):
            if timer is not None:
                timer.cancel()

    @property
    def present(self) -> bool:
        """Fluxion is the scheduler, as far as is known."""
        return not self._absent

    def stats(self) -> Json:
        """What ``dws.stats-get`` tells: what Fluxion is, or will be, told."""
        return {
            "loaded": not self._absent,
            **{key: len(told.certain) for key, told in self._told.items()},
            "ssd_down": sum(len(w.told.certain) for w in self._withheld.values()),
            "unknown_nodes": len(self._unknown),
        }

    def want(self, key: str, hosts: AbstractSet[str]) -> None:
        """Have these nodes, and no others, carry a property."""
        wanted = frozenset(hosts).intersection(self._rabbit_of)
        if wanted != self._wanted.get(key):
            self._wanted[key] = wanted
            self._soon()

    def want_out(self, rabbits: AbstractSet[str]) -> None:
        """Have these Rabbits, and no others, out of service."""
        if rabbits != self._out:
            self._out = frozenset(rabbits)
            self._soon()

    def _bad_hosts(self) -> frozenset[str]:
        """The nodes to carry ``badrabbit``."""
        assert self._places is not None
        hosts = set(self._wanted.get(BAD_RABBIT, ()))
        for rabbit in self._out:
            if not self._by_status(self._places.chassis.get(rabbit)):
                hosts.update(self._mapping.hosts_of(rabbit))
        return frozenset(hosts)

    def _by_status(self, chassis: Optional[Chassis]) -> bool:
        return chassis is not None and 0 < chassis.ssds <= self._most

    def want_reserved(self, reserved: Mapping[str, int]) -> None:
        """Have ``ssd`` of so many bytes out of service on each Rabbit: storage
        that jobs do not hold, and the graph thus does not know to be taken."""
        wanted = {rabbit: size for rabbit, size in reserved.items() if size > 0}
        if wanted != self._reserved:
            self._reserved = wanted
            self._soon()

    def _ssds_needed(self, rabbit: str, chassis: Chassis) -> int:
        """How many ``ssd`` of a Rabbit hold what is reserved there."""
        if self._reserved is None:
            return len(chassis.down)
        size = self._mapping.capacity(rabbit) // GIB // chassis.ssds * GIB
        return -(-self._reserved.get(rabbit, 0) // size) if size else 0

    def _loaded(self) -> None:
        """Fluxion has been loaded, and knows nothing."""
        self._load += 1
        self._told = {key: Told() for key in PROPERTIES}
        self._withheld = {}
        self._places = None
        self._unknown = set()
        self._untold = []
        self._parts.clear()
        self._busy = self._absent = self._reconsider = False
        self._failures = 0
        self._soon()

    def _soon(self, delay: float = GATHER) -> None:
        if self._timer is None and not (self._busy or self._absent or self._stopped):
            self._timer = self._flux.call_later(delay, self._step)

    def _step(self) -> None:
        """Tell the next thing. The answer to it leads back here."""
        self._timer = None
        if self._busy or self._absent or self._stopped:
            return
        if self._places is None:
            payload = {"criteria": f"property={RABBIT_PROPERTY}", "format": "jgf"}
            self._ask("find", payload, self._found)
            return
        telling = self._next()
        if isinstance(telling, Marking):
            self._mark(telling, self._places)
        elif isinstance(telling, Withholding):
            self._withhold(telling, self._places)
        elif isinstance(telling, Reconsidering):
            payload = {"resource_path": telling.path, "status": "up"}
            self._ask("set_status", payload, self._reconsidered)
        elif telling is not None:
            self._look(telling)
        elif self._untold:
            hosts, self._untold = self._untold, []
            self._flux.rpc("resource.status", {}, partial(self._lacks, hosts))

    def _next(self) -> Optional[Telling]:
        """What to tell next: bad news first."""
        assert self._places is not None
        if self._parts:
            return self._parts[0]
        for present in (True, False):
            for key in self._wanted:
                told = self._told[key]
                wanted = self._bad_hosts() if key == BAD_RABBIT else self._wanted[key]
                change = told.missing(wanted) if present else told.surplus(wanted)
                hosts = sorted(change - self._unknown, key=hostlist.natural_key)
                if hosts:
                    return Marking(key, present, tuple(hosts))
        storage = self._next_of_storage()
        if storage is None and self._reconsider:
            paths = [chassis.path for chassis in self._places.chassis.values()]
            # The root is never down.
            root = "/" + (paths or [self._places.nodes or "/"])[0].split("/")[1]
            return Reconsidering(root)
        return storage

    def _next_of_storage(self) -> Union[Withholding, Mapping[str, Looking], None]:
        assert self._places is not None
        looks: dict[str, Looking] = {}
        for rabbit in {
            **self._withheld,
            **(self._reserved or {}),
            **dict.fromkeys(self._out),
        }:
            chassis = self._places.chassis.get(rabbit)
            if chassis is None or not chassis.ssds:
                continue
            withheld = self._withheld.get(rabbit)
            if withheld is None:
                withheld = self._withheld[rabbit] = Withheld(chassis.ssds)
            out = rabbit in self._out and self._by_status(chassis)
            withheld.want(self._ssds_needed(rabbit, chassis), out)
            step = withheld.next()
            if isinstance(step, Looking):
                looks[rabbit] = step
            elif step is not None:
                return Withholding(rabbit, step)
        return looks or None

    # What Fluxion is told, and answers

    def _ask(self, method: str, payload: Json, done: RpcDone) -> None:
        self._busy = True
        load = self._load

        def answered(result: Union[Json, RpcError]) -> None:
            if load != self._load or self._stopped:
                return
            self._busy = False
            if isinstance(result, RpcError) and result.errnum == errno.ENOSYS:
                self._absent = True
                text = "Fluxion is not loaded (yet): it is not told about Rabbits"
                self._flux.log(syslog.LOG_INFO, text)
                return
            done(result)

        self._flux.rpc(f"{MODULE}.{method}", payload, answered)

    def _failed(self, what: str) -> None:
        """Try again later."""
        self._failures += 1
        if self._failures == 1:
            self._flux.log(syslog.LOG_WARNING, f"Fluxion: {what}; trying again")
        self._soon(min(LAST_RETRY, RETRY * 2.0 ** min(self._failures - 1, 10)))

    def _succeeded(self) -> None:
        self._failures = 0
        self._soon(0.0)

    def _found(self, result: Union[Json, RpcError]) -> None:
        try:
            if isinstance(result, RpcError):
                raise result
            places = find_places(result)
        except (RpcError, BadObject) as error:
            self._failed(f"cannot find the Rabbits in its graph: {error}")
            return
        sample = next(iter(self._rabbit_of), None)
        if places.chassis or sample is None:
            self._place(places)
            return
        payload = {"criteria": f"names={sample}", "format": "jgf"}
        self._ask("find", payload, partial(self._found_node, sample))

    def _found_node(self, sample: str, result: Union[Json, RpcError]) -> None:
        """Where the nodes are in a graph that has no Rabbits."""
        try:
            if isinstance(result, RpcError):
                raise result
            self._place(Places({}, find_above(result, sample)))
        except (RpcError, BadObject) as error:
            self._failed(f"cannot find {sample} in its graph: {error}")

    def _place(self, places: Places) -> None:
        self._places = places
        self._unknown = {
            host
            for host, rabbit in self._rabbit_of.items()
            if places.of(host, rabbit) is None
        }
        self._untold = sorted(self._unknown, key=hostlist.natural_key)
        for rabbit, chassis in places.chassis.items():
            if chassis.down:
                self._withheld[rabbit] = Withheld(chassis.ssds, chassis.down)
        self._succeeded()

    def _mark(self, marking: Marking, places: Places) -> None:
        told = self._told[marking.key]
        told.begin(marking.hosts, marking.present)
        paths = [str(places.of(h, self._rabbit_of[h])) for h in marking.hosts]
        done = partial(self._marked, marking)
        if marking.present:
            self._set(paths, marking.key, "dws", done)
        else:
            payload = {"resource_path": paths, "key": marking.key}
            self._ask("remove_property", payload, done)

    def _set(self, paths: list[str], key: str, value: str, done: RpcDone) -> None:
        payload = {"sp_resource_path": paths, "sp_keyval": f"{key}={value}"}
        self._ask("set_property", payload, done)

    def _marked(self, marking: Marking, result: Union[Json, RpcError]) -> None:
        if isinstance(result, RpcError) and result.errnum != errno.ENOENT:
            self._failed(str(result))
            return
        if self._parts and self._parts[0] is marking:
            self._parts.popleft()
        if isinstance(result, RpcError):
            self._divide(marking)
        else:
            self._told[marking.key].end(marking.hosts, marking.present)
            self._reconsider = self._reconsider or not marking.present
        self._succeeded()

    def _divide(self, marking: Marking) -> None:
        """One path that Fluxion does not know spoils a request for many: the
        request is made again in halves, until the path stands alone."""
        hosts, middle = marking.hosts, len(marking.hosts) // 2
        if not middle:
            self._unknown.update(hosts)
            self._untold.extend(hosts)
            return
        for part in (hosts[middle:], hosts[:middle]):
            self._parts.appendleft(Marking(marking.key, marking.present, part))

    def _lacks(self, hosts: list[str], result: Union[Json, RpcError]) -> None:
        """Tell of nodes that are not where they should be in Fluxion's graph. One
        that Flux excludes from scheduling is rightly missing."""
        try:
            if isinstance(result, RpcError):
                raise result
            excluded = resourcestatus.parse(result).excluded
        except (RpcError, BadObject):
            excluded = frozenset()
        lacking = [host for host in hosts if host not in excluded]
        if lacking and not self._stopped:
            text = (
                f"Fluxion: {hostlist.encode(lacking)} of the rabbit mapping not found"
                " below the chassis of their Rabbits in its graph (flux dws2jgf):"
                " jobs are not kept off them"
            )
            self._flux.log(syslog.LOG_WARNING, text)

    def _withhold(self, telling: Withholding, places: Places) -> None:
        path, step = places.chassis[telling.rabbit].path, telling.step
        done = partial(self._withheld_is, telling)
        self._withheld[telling.rabbit].begin(step)
        if isinstance(step, Noting):
            value = idset.encode(step.down)
            if value:
                self._set([path], SSD_DOWN, value, done)
            else:
                payload = {"resource_path": path, "key": SSD_DOWN}
                self._ask("remove_property", payload, done)
            return
        status = "down" if step.down else "up"
        payload = {"resource_path": f"{path}/{SSD}{step.number}", "status": status}
        self._ask("set_status", payload, done)

    def _withheld_is(self, telling: Withholding, result: Union[Json, RpcError]) -> None:
        if isinstance(result, RpcError):
            self._failed(f"{telling.rabbit}: {result}")
            return
        self._withheld[telling.rabbit].end(telling.step)
        self._succeeded()

    def _look(self, looks: Mapping[str, Looking]) -> None:
        """Ask for all Rabbits at once: Fluxion goes through its whole graph."""
        criteria = "status=down and sched-now=allocated"
        payload = {"criteria": criteria, "format": "jgf"}
        self._ask("find", payload, partial(self._looked, looks))

    def _looked(
        self, looks: Mapping[str, Looking], result: Union[Json, RpcError]
    ) -> None:
        assert self._places is not None
        try:
            if isinstance(result, RpcError):
                raise result
            taken = find_ssds(result)
        except (RpcError, BadObject) as error:
            self._failed(f"cannot find the storage of jobs in its graph: {error}")
            return
        for rabbit, look in looks.items():
            path = self._places.chassis[rabbit].path
            self._withheld[rabbit].looked(look, taken.get(path, frozenset()))
        self._look_later()
        self._succeeded()

    def _look_later(self) -> None:
        """Look again when jobs may have given back what there is too little of."""
        if not any(withheld.short for withheld in self._withheld.values()):
            self._looks = 0
        elif self._look_timer is None:
            pause = min(LAST_RETRY, RETRY * 2.0 ** min(self._looks, 10))
            self._looks += 1
            self._look_timer = self._flux.call_later(pause, self._look_again)

    def _look_again(self) -> None:
        self._look_timer = None
        for withheld in self._withheld.values():
            withheld.look_again()
        self._soon()

    def _reconsidered(self, result: Union[Json, RpcError]) -> None:
        if isinstance(result, RpcError):
            self._failed(str(result))
            return
        self._reconsider = False
        self._succeeded()
