# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The requests that Fluxion's resource module takes while it runs.

As in Fluxion, a property that is set or removed has no pending job looked at again,
a vertex that comes up has; and one path that is not known spoils a request for
many, though those before it are done.
"""

from __future__ import annotations

import errno
from collections import Counter
from typing import Callable, Iterator, Optional, Union

from flux_k8s.ports import Json
from rabbitsim.flux.pool import Chassis, Node
from rabbitsim.flux.rwriter import CLUSTER
from rabbitsim.flux.scheduler import Scheduler

MODULE = "sched-fluxion-resource"


class Fluxion:
    """The service ``sched-fluxion-resource``.

    Attributes:
        requests: how often each method was called.
        methods: the requests. A test may have one answered otherwise.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._properties: dict[str, dict[str, str]] = {}
        self._chassis = {
            f"{CLUSTER}/chassis{chassis.index}": chassis
            for chassis in scheduler.pool.chassis
        }
        self.requests: Counter[str] = Counter()
        self.methods: dict[str, Callable[[Json, int], Optional[Json]]] = {
            "find": self._find,
            "set_property": self._set_property,
            "remove_property": self._remove_property,
            "set_status": self._set_status,
        }

    def reload(self) -> None:
        """Forget all properties and states that were set, as a module does that is
        loaded again."""
        pool = self._scheduler.pool
        self._properties = {}
        for node in pool.nodes:
            node.dynamic = []
        for chassis in pool.chassis:
            for number in range(chassis.ssds):
                pool.set_ssd(chassis.index, number, True)
        self._scheduler.wake()

    def _find(self, payload: Json, userid: int) -> Json:
        self.requests["find"] += 1
        if payload["criteria"] == "status=down and sched-now=allocated":
            nodes = [{"metadata": metadata} for metadata in self._ssds_down(True)]
        elif payload["criteria"] == "status=down":
            nodes = [{"metadata": metadata} for metadata in self._ssds_down(False)]
        elif payload["criteria"] == "property=rabbit or names=ssd0":
            nodes = [{"metadata": metadata} for metadata in self._rabbits()]
        elif payload["criteria"] == "agfilter=true":
            nodes = [{"metadata": metadata} for metadata in self._vertices()]
        else:
            key, _, value = str(payload["criteria"]).partition("=")
            nodes = [
                {"metadata": metadata}
                for metadata in self._vertices()
                if (key == "property" and value in metadata["properties"])
                or (key == "names" and value == metadata.get("name"))
            ]
        return {"R": {"graph": {"nodes": nodes, "edges": []}} if nodes else None}

    def _vertices(self) -> Iterator[Json]:
        pool = self._scheduler.pool
        for chassis in pool.chassis:
            path = f"{CLUSTER}/chassis{chassis.index}"
            own = {"rabbit": chassis.rabbit, "ssdcount": str(chassis.ssds)}
            yield self._vertex("chassis", path, own)
        for node in pool.nodes:
            own = dict.fromkeys((*node.properties, *node.dynamic), "")
            yield {**self._vertex(node.type, self._path(node), own), "name": node.host}

    def _rabbits(self) -> Iterator[Json]:
        """The chassis, and the first ``ssd`` of each."""
        for path, chassis in self._chassis.items():
            own = {"rabbit": chassis.rabbit, "ssdcount": str(chassis.ssds)}
            yield self._vertex("chassis", path, own)
            yield {**self._vertex("ssd", f"{path}/ssd0", {}), "size": chassis.ssd_size}

    def _ssds_down(self, allocated: bool) -> Iterator[Json]:
        pool = self._scheduler.pool
        for chassis in pool.chassis:
            found = pool.ssds_down(chassis.index)
            if allocated:
                found = found & pool.ssds_taken(chassis.index)
            for number in found:
                path = f"{CLUSTER}/chassis{chassis.index}/ssd{number}"
                yield self._vertex("ssd", path, {})

    def _vertex(self, type: str, path: str, own: dict[str, str]) -> Json:
        properties = {**own, **self._properties.get(path, {})}
        return {"type": type, "properties": properties, "paths": {"containment": path}}

    def _path(self, node: Node) -> str:
        above = "" if node.chassis is None else f"/chassis{node.chassis}"
        return f"{CLUSTER}{above}/{node.host}"

    def _set_property(self, payload: Json, userid: int) -> Json:
        self.requests["set_property"] += 1
        key, _, value = payload["sp_keyval"].partition("=")
        if not key or not value:
            raise OSError(errno.EINVAL, "Incorrect format, use PROPERTY=VALUE")
        return self._change(payload["sp_resource_path"], key, value)

    def _remove_property(self, payload: Json, userid: int) -> Json:
        self.requests["remove_property"] += 1
        return self._change(payload["resource_path"], payload["key"], None)

    def _change(
        self, paths: Union[str, list[str]], key: str, value: Optional[str]
    ) -> Json:
        for path in paths if isinstance(paths, list) else [paths]:
            vertex = self._at(path)
            if vertex is None:
                text = f"Couldn't find '{path}' in resource graph"
                raise OSError(errno.ENOENT, text)
            properties = self._properties.setdefault(path, {})
            properties.pop(key, None)
            if value is not None:
                properties[key] = value
            if isinstance(vertex, Node):
                vertex.dynamic = list(properties)
        return {}

    def _set_status(self, payload: Json, userid: int) -> Optional[Json]:
        self.requests["set_status"] += 1
        path, up = str(payload["resource_path"]), payload["status"] == "up"
        above, _, name = path.rpartition("/")
        chassis = self._at(above)
        if name.startswith("ssd") and isinstance(chassis, Chassis):
            self._scheduler.pool.set_ssd(chassis.index, int(name[3:]), up)
        elif path != CLUSTER or not up:
            text = f"could not find path '{path}' in resource graph"
            raise OSError(errno.EINVAL, text)
        if up:
            self._scheduler.wake()
        return None

    def _at(self, path: str) -> Union[Node, Chassis, None]:
        """The node or the chassis at a path of the graph; None for other vertices."""
        chassis = self._chassis.get(path)
        if chassis is not None:
            return chassis
        node = self._scheduler.node(path.rpartition("/")[2])
        return node if node is not None and path == self._path(node) else None
