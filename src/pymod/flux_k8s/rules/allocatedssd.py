# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The ``ssd`` in a job's R: the storage that the scheduler gave the job on each
Rabbit."""

from __future__ import annotations

from typing import Mapping, Optional

from flux_k8s.errors import BadObject
from flux_k8s.formats import jgf
from flux_k8s.formats.rset import Allocated
from flux_k8s.objects.mapping import RabbitMapping


class OtherMapping(BadObject):
    """The graph of R is not that of the rabbit mapping: either may be too old."""


def ssd_per_rabbit(
    rset: Allocated, mapping: RabbitMapping, name: str = "R"
) -> dict[str, Optional[int]]:
    """The Rabbits of R, in the mapping's order, and the ``ssd`` (GiB) on each.

    The graph in ``scheduling`` has both. Without a graph, or with one that has no
    Rabbits, the result is the Rabbits of R's hosts, with None for the unknown amount.
    The amount is also unknown on a Rabbit that the job has as a whole, when the graph
    leaves out what is in it.

    Raises:
        OtherMapping: the graph and the mapping do not agree about a Rabbit on which
            there is ``ssd``: the mapping lacks it, or a node is below another one.
            The error calls R ``name``.
        BadObject: the graph and ``nodelist`` do not agree: a node that R does not have.
        UnreadableR: the process that read R found the graph malformed.
    """
    graph = rset.graph(name)
    rabbit_of = mapping.rabbits_of(rset.hosts)
    connected = set(rabbit_of.values())
    if not graph.ssd:
        return {rabbit: None for rabbit in mapping.rabbits if rabbit in connected}
    _check_graph(graph, rabbit_of, mapping, name)
    ssd = dict(graph.ssd)
    if not graph.complete:
        left_out = rabbit_of.keys() - graph.rabbit_of.keys()
        ssd.update(dict.fromkeys(filter(None, map(rabbit_of.get, left_out))))
    return {
        rabbit: ssd.get(rabbit, 0)
        for rabbit in mapping.rabbits
        if rabbit in connected or ssd.get(rabbit, 0) != 0
    }


def _check_graph(
    graph: jgf.Graph,
    rabbit_of: Mapping[str, Optional[str]],
    mapping: RabbitMapping,
    name: str,
) -> None:
    """Refuse a graph that contradicts the mapping, or R's own nodelist. Below a Rabbit
    on which the job has no ``ssd`` it may: Lustre is reached from any node."""
    place = "scheduling.graph.nodes"
    used = {rabbit for rabbit, ssd in graph.ssd.items() if ssd != 0}
    for rabbit in used:
        if not mapping.has(rabbit):
            raise OtherMapping(name, place, rabbit, "a Rabbit of the rabbit mapping")
    if graph.rabbit_of == rabbit_of:
        return  # without a loop over ten thousand hosts
    for host in (*graph.rabbit_of, *rabbit_of):
        if host not in rabbit_of:
            raise BadObject(name, place, host, "a node of execution.nodelist")
        if host not in graph.rabbit_of:
            if not graph.complete:
                continue
            raise BadObject(name, "execution.nodelist", host, f"a node of {place}")
        found, expected = graph.rabbit_of[host], rabbit_of[host]
        if found != expected and not used.isdisjoint((found, expected)):
            raise OtherMapping(
                name,
                place,
                f"{host} below {found or 'no Rabbit'}",
                f"{host} below {expected or 'no Rabbit'}, as in the rabbit mapping",
            )
