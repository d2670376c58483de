# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The pool of :mod:`flux_k8s.scheduler` as flux-core's scheduler class handles one.

The class makes a pool of all resources, and one of R of each job that it finds. It asks
the former for its contents, and changes the state of its nodes. All else is done by
:class:`~flux_k8s.broker.rabbitscheduler.RabbitScheduler`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Iterable, Optional

from flux.resource.ResourcePool import ResourcePool

from flux_k8s.formats import bits, idset, rset
from flux_k8s.objects import mapping as mappings
from flux_k8s.objects.mapping import RabbitMapping
from flux_k8s.ports import Json
from flux_k8s.rules.jgfwriter import DEFAULT_CHUNKS
from flux_k8s.scheduler import rwriter
from flux_k8s.scheduler.pool import Pool, make_chassis, storage_nodes

NO_RABBITS = mappings.assemble({}, {})


class RabbitPool(ResourcePool):
    """All resources of the instance, or those of a job.

    Args:
        R: as JSON.
        mapping: the Rabbits; none in the pool of a job's resources.
        chunks: the number of ``ssd`` of each Rabbit.

    Attributes:
        resources: R, in the pool of a job's resources.
        expiration: when the resources cease to be valid, UNIX time; 0 for never.

    Raises:
        BadObject: R is malformed.
    """

    name = "RabbitPool"
    version = 1
    known_options = frozenset(("mapping", "chunks"))
    expiration = 0.0  # no property

    def __init__(
        self,
        R: Json,
        log: Any = None,
        mapping: RabbitMapping = NO_RABBITS,
        chunks: int = DEFAULT_CHUNKS,
    ) -> None:
        self.impl = self
        self.resources = rset.parse(R)
        self._mapping, self._chunks = mapping, chunks
        self._pool: Optional[Pool] = None
        self.expiration = self.resources.expiration or 0.0
        self._json: Optional[tuple[int, Json]] = None

    @property
    def pool(self) -> Pool:
        """The pool. That of a job's resources is never used."""
        if self._pool is None:
            nodes = rwriter.nodes_of(self.resources)
            chassis = make_chassis(self._mapping, self._chunks, nodes)
            apart = storage_nodes(self._mapping, nodes)
            self._pool = Pool(nodes, self.resources.properties, chassis, apart)
        return self._pool

    def mark_up(self, ids: str) -> None:
        self.pool.set_up(self._nodes(ids), True)

    def mark_down(self, ids: str) -> None:
        self.pool.set_up(self._nodes(ids), False)

    def _nodes(self, ids: str) -> int:
        if ids == "all":
            return self.pool.present
        return self.pool.set_of(idset.decode(ids))

    def remove_ranks(self, ranks: Iterable[int]) -> None:
        """Take nodes away: of the instance, or of those of a job."""
        gone = frozenset(ranks)
        if self._pool is not None:
            self._pool.remove(gone)
            return
        left = tuple(t for t in self.resources.targets if t.rank not in gone)
        properties = {
            name: tuple(rank for rank in having if rank not in gone)
            for name, having in self.resources.properties.items()
        }
        self.resources = replace(self.resources, targets=left, properties=properties)

    def to_dict(self) -> Json:
        if self._pool is None:
            return self.resources.to_json()
        present = self._pool.present
        if self._json is None or self._json[0] != present:
            self._json = present, rwriter.whole(self._pool, present).to_json()
        return self._json[1]

    def dumps(self) -> str:
        pool = self.pool
        nodes, ssds = bits.size(pool.present), sum(each.ssds for each in pool.chassis)
        return f"{nodes} nodes, {len(pool.chassis)} Rabbits with {ssds} ssd"
