# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""R (RFC 20) and the pool: the resources of an instance are read, those of a job
written, and read again when the scheduler is loaded again.

The storage of a job is in the key ``scheduling``, as a graph in the short format of
Fluxion (:data:`~flux_k8s.formats.jgf.SHORTHAND`). The module ``dws`` reads it as that
of Fluxion, and a Fluxion within the job takes the cores of its nodes from ``R_lite``.
"""

from __future__ import annotations

from typing import Any, Mapping, Optional

from flux_k8s.formats import bits, idset, jgf
from flux_k8s.formats.jgf import CHASSIS, NODE, RABBIT_PROPERTY, SHORTHAND, SSD
from flux_k8s.formats.rset import ResourceSet, Target
from flux_k8s.json_reader import decimal
from flux_k8s.ports import Json
from flux_k8s.scheduler.free import Grant, Taken
from flux_k8s.scheduler.pool import Node, Pool
from flux_k8s.scheduler.request import CORE, GPU

CLUSTER = "/cluster0"


def nodes_of(resources: ResourceSet) -> list[Node]:
    """The nodes of an instance."""
    return [
        Node(
            target.rank,
            target.host,
            _ids(target.children.get(CORE, "")),
            _ids(target.children.get(GPU, "")),
        )
        for target in resources.targets
    ]


def _ids(text: str) -> int:
    return bits.mask(idset.decode(text))


def resources(
    pool: Pool,
    nodes: Mapping[int, Taken],
    starttime: float = 0.0,
    expiration: float = 0.0,
    nslots: Optional[int] = None,
) -> ResourceSet:
    """R with these cores and GPUs of nodes; times are 0 where they are unset."""
    targets = []
    for number in sorted(nodes):
        node, (cores, gpus) = pool.nodes[number], nodes[number]
        children = {CORE: bits.encode(cores)}
        if gpus:
            children[GPU] = bits.encode(gpus)
        targets.append(Target(node.rank, node.host, children))
    members = bits.mask(nodes)
    return ResourceSet(
        tuple(targets),
        nslots,
        {
            name: tuple(pool.nodes[n].rank for n in bits.numbers(having & members))
            for name, having in pool.properties.items()
            if having & members
        },
        starttime,
        expiration,
    )


def whole(pool: Pool, nodes: int) -> ResourceSet:
    """R with all of a set of nodes."""
    found = {
        number: Taken(pool.nodes[number].cores, pool.nodes[number].gpus)
        for number in bits.numbers(nodes)
    }
    return resources(pool, found)


def write(
    pool: Pool,
    grant: Grant,
    starttime: float,
    expiration: float,
) -> Json:
    """R of a job.

    Args:
        starttime: UNIX time.
        expiration: UNIX time; 0 without a limit.
    """
    # Of slots for tasks: of them flux-shell makes the tasks, and it counts them itself
    # only where the first slot of the jobspec is one, and its count a number.
    nslots = grant.slots or None
    R = resources(pool, grant.nodes, starttime, expiration, nslots).to_json()
    if pool.chassis:
        R["scheduling"] = {"writer": SHORTHAND, "graph": _Graph(pool, grant).to_json()}
    return R


class _Graph:
    """The graph of a grant, vertices before those that they are below."""

    def __init__(self, pool: Pool, grant: Grant) -> None:
        self._vertices: list[Json] = []
        self._edges: list[Json] = []
        self._pool = pool
        members = bits.mask(grant.nodes)
        apart = members
        for number, chassis in enumerate(pool.chassis):
            below, ssds = members & chassis.nodes, grant.ssds.get(number, 0)
            if below or ssds:
                apart &= ~below
                self._chassis(number, grant, below, ssds)
        self._nodes(apart, grant, CLUSTER)
        name = CLUSTER[1:]
        self._add(CLUSTER, None, type="cluster", basename="cluster", name=name, id=0)

    def to_json(self) -> Json:
        return {"nodes": self._vertices, "edges": self._edges}

    def _chassis(self, number: int, grant: Grant, nodes: int, ssds: int) -> None:
        chassis = self._pool.chassis[number]
        path = path_of_chassis(number)
        self._nodes(nodes, grant, path)
        for id in bits.numbers(ssds):
            self._add(
                f"{path}/{SSD}{id}",
                path,
                type=SSD,
                id=id,
                size=chassis.ssd_size,
                exclusive=True,
            )
        own = {RABBIT_PROPERTY: chassis.rabbit}
        self._add(path, CLUSTER, type=CHASSIS, id=number, properties=own)

    def _nodes(self, nodes: int, grant: Grant, above: str) -> None:
        for number in bits.numbers(nodes):
            node, taken = self._pool.nodes[number], grant.nodes[number]
            path = f"{above}/{node.host}"
            is_whole = taken == (node.cores, node.gpus)
            if not is_whole:
                self._parts(path, node.rank, CORE, taken.cores)
                self._parts(path, node.rank, GPU, taken.gpus)
            more: Json = {"exclusive": True} if is_whole else {}
            self._add(
                path, above, type=NODE, name=node.host, id=-1, rank=node.rank, **more
            )

    def _parts(self, above: str, rank: int, type: str, ids: int) -> None:
        for id in bits.numbers(ids):
            path = f"{above}/{type}{id}"
            self._add(path, above, type=type, id=id, rank=rank, exclusive=True)

    def _add(self, path: str, above: Optional[str], **metadata: Any) -> None:
        metadata["paths"] = {"containment": path}
        self._vertices.append({"id": path, "metadata": metadata})
        if above is not None:
            self._edges.append({"source": above, "target": path})


def path_of_chassis(number: int) -> str:
    return f"{CLUSTER}/chassis{number}"


def hold(pool: Pool, jobid: int, R: ResourceSet) -> tuple[int, ...]:
    """Note what a job has that an earlier scheduler has given it.

    Returns:
        The ranks of R that the pool lacks.

    Raises:
        BadObject: the graph in R is malformed. The nodes are noted all the same.
    """
    grant = Grant()
    missing = []
    for node in nodes_of(R):
        members = pool.set_of((node.rank,)) & pool.present
        if not members:
            missing.append(node.rank)
        for number in bits.numbers(members):
            grant.nodes[number] = Taken(node.cores, node.gpus)
    gib: dict[int, int] = {}
    try:
        gib = _read_ssds(pool, grant, R)
    finally:
        pool.hold(jobid, grant, gib)
    return tuple(missing)


def _read_ssds(pool: Pool, grant: Grant, R: ResourceSet) -> dict[int, int]:
    """Put the ``ssd`` of R's graph into a grant, by the names of their Rabbits: the
    numbers of chassis may have changed. The result is GiB by chassis."""
    numbers = {chassis.rabbit: n for n, chassis in enumerate(pool.chassis)}
    found = tuple(jgf.vertices(R.scheduling or {}, "R"))
    number_at = {v.path: numbers.get(v.rabbit) for v in found if v.rabbit is not None}
    gib: dict[int, int] = {}
    for vertex in found:
        above, _, name = vertex.path.rpartition("/")
        number = number_at.get(above)
        if vertex.type != SSD or number is None:
            continue
        chassis = pool.chassis[number]
        gib[number] = gib.get(number, 0) + vertex.size
        id = decimal(name[len(SSD) :])
        if id is not None and id < chassis.ssds and vertex.size == chassis.ssd_size:
            grant.ssds[number] = grant.ssds.get(number, 0) | 1 << id
    for vertex in found:
        number = number_at.get(vertex.path)
        if R.writer == SHORTHAND and vertex.exclusive and number is not None:
            chassis = pool.chassis[number]
            gib[number] = chassis.ssds * chassis.ssd_size
    return gib


def ranks(pool: Pool, grant: Grant) -> str:
    """The ranks of a job, as an idset."""
    return idset.encode(pool.nodes[number].rank for number in grant.nodes)
