# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The requests of Fluxion's resource module by which the module ``dws`` learns where
Rabbits are, and has nodes and storage kept from jobs (:mod:`flux_k8s.machine.fluxion`).

The names of the requests, their fields, the paths and the errors are those of Fluxion.
What is set is forgotten when the scheduler is loaded again, as with Fluxion.
"""

from __future__ import annotations

import errno
from typing import Any, Callable, Iterator, Mapping, Optional, Union

from flux_k8s.errors import BadObject
from flux_k8s.formats import bits
from flux_k8s.formats.jgf import CHASSIS, NODE, RABBIT_PROPERTY, SSD
from flux_k8s.json_reader import Reader, decimal
from flux_k8s.ports import Json
from flux_k8s.scheduler.pool import Pool
from flux_k8s.scheduler.rwriter import CLUSTER, path_of_chassis

RABBITS = "property=rabbit or names=ssd0"
NODES = "agfilter=true"
DOWN = "status=down"
ALLOCATED = "status=down and sched-now=allocated"


class RequestError(Exception):
    """A request is refused.

    Attributes:
        errnum: an error number of :mod:`errno`.
    """

    def __init__(self, errnum: int, text: str) -> None:
        super().__init__(text)
        self.errnum = errnum


class ResourceGraph:
    """The service.

    Args:
        changed: is called when jobs may get what they did not get before.
    """

    def __init__(self, pool: Pool, changed: Callable[[], None]) -> None:
        self._pool = pool
        self._changed = changed
        self._chassis = {path_of_chassis(n): n for n in range(len(pool.chassis))}
        self._parents = {
            node: path
            for path, number in self._chassis.items()
            for node in bits.numbers(pool.chassis[number].nodes)
        }
        self._properties: dict[str, dict[str, str]] = {}
        self._methods = {
            "find": self._find,
            "set_property": self._set_property,
            "remove_property": self._remove_property,
            "set_status": self._set_status,
        }

    def handle(self, method: str, payload: Any) -> Optional[Json]:
        """Answer a request.

        Raises:
            RequestError: it is malformed, or names what is not there.
        """
        try:
            return self._methods[method](Reader("the request", payload))
        except BadObject as error:
            raise RequestError(errno.EPROTO, str(error)) from None

    def _find(self, request: Reader) -> Json:
        criteria = request.string("criteria")
        key, _, value = criteria.partition("=")
        if criteria in (DOWN, ALLOCATED):
            found = list(self._down_ssds(criteria == ALLOCATED))
        elif criteria == RABBITS:
            found = list(self._rabbits())
        elif criteria == NODES:
            found = list(self._vertices())
        elif key == "property" and value:
            found = [v for v in self._vertices() if value in v["properties"]]
        elif key == "names" and value:
            found = [v for v in self._vertices() if v.get("name") == value]
        else:
            text = (
                f"expected property=NAME, names=HOST, {RABBITS}, {NODES}, {DOWN} or"
                f" {ALLOCATED}"
            )
            raise RequestError(errno.EINVAL, text)
        nodes = [{"metadata": metadata} for metadata in found]
        return {"R": {"graph": {"nodes": nodes, "edges": []}} if nodes else None}

    def _vertices(self) -> Iterator[Json]:
        pool = self._pool
        for path in self._chassis:
            yield self._chassis_vertex(path)
        having: dict[int, dict[str, str]] = {}
        for name, nodes in pool.properties.items():
            for number in bits.numbers(nodes):
                having.setdefault(number, {})[name] = ""
        for number in bits.numbers(pool.present):
            host = pool.nodes[number].host
            path = f"{self._above(number)}/{host}"
            yield {**self._vertex(NODE, path, having.get(number, {})), "name": host}

    def _rabbits(self) -> Iterator[Json]:
        """The chassis, and the first ``ssd`` of each."""
        for path, number in self._chassis.items():
            yield self._chassis_vertex(path)
            size = self._pool.chassis[number].ssd_size
            yield {**self._vertex(SSD, f"{path}/{SSD}0", {}), "size": size}

    def _chassis_vertex(self, path: str) -> Json:
        chassis = self._pool.chassis[self._chassis[path]]
        own = {RABBIT_PROPERTY: chassis.rabbit, "ssdcount": str(chassis.ssds)}
        return self._vertex(CHASSIS, path, own)

    def _above(self, number: int) -> str:
        """The path above a node."""
        return self._parents.get(number, CLUSTER)

    def _down_ssds(self, allocated: bool) -> Iterator[Json]:
        for path, number in self._chassis.items():
            found = self._pool.down_ssds[number]
            if allocated:
                found &= self._pool.taken_ssds(number)
            for id in bits.numbers(found):
                yield self._vertex(SSD, f"{path}/{SSD}{id}", {})

    def _vertex(self, type: str, path: str, own: Mapping[str, str]) -> Json:
        properties = {**own, **self._properties.get(path, {})}
        return {"type": type, "properties": properties, "paths": {"containment": path}}

    def _set_property(self, request: Reader) -> Json:
        key, _, value = request.string("sp_keyval").partition("=")
        if not key or not value:
            text = "Incorrect format, use PROPERTY=VALUE"
            raise RequestError(errno.EINVAL, text)
        return self._change(_paths(request, "sp_resource_path"), key, value)

    def _remove_property(self, request: Reader) -> Json:
        paths = _paths(request, "resource_path")
        return self._change(paths, request.string("key"), None)

    def _change(self, paths: tuple[str, ...], key: str, value: Optional[str]) -> Json:
        """As with Fluxion, one path that is not known spoils a request for many, though
        the change is made to those before it."""
        for path in paths:
            if path not in self._chassis:
                self._pool.mark(key, self._node_at(path), value is not None)
            properties = self._properties.setdefault(path, {})
            properties.pop(key, None)
            if value is not None:
                properties[key] = value
        self._changed()
        return {}

    def _node_at(self, path: str) -> int:
        above, _, host = path.rpartition("/")
        number = self._pool.number_of(host)
        if number is not None and self._pool.present >> number & 1:
            if above == self._above(number):
                return number
        text = f"Couldn't find '{path}' in resource graph"
        raise RequestError(errno.ENOENT, text)

    def _set_status(self, request: Reader) -> Optional[Json]:
        path = request.string("resource_path")
        up = request.string("status", ("up", "down")) == "up"
        above, _, name = path.rpartition("/")
        chassis = self._chassis.get(above)
        id = decimal(name[len(SSD) :]) if name.startswith(SSD) else None
        if chassis is not None and id is not None:
            if id < self._pool.chassis[chassis].ssds:
                self._pool.set_ssd(chassis, id, up)
                self._changed()
                return None
        elif path == CLUSTER and up:
            self._changed()
            return None
        text = f"could not find path '{path}' in resource graph"
        raise RequestError(errno.EINVAL, text)


def _paths(request: Reader, key: str) -> tuple[str, ...]:
    value: Union[str, Any] = request.value.get(key)
    return (value,) if isinstance(value, str) else request.strings(key)
