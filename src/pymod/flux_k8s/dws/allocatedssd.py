# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The ``ssd`` in a job's R: the storage that the scheduler gave the job on each
Rabbit."""

from __future__ import annotations

from typing import Mapping, Optional

from flux_k8s.dws.mapping import RabbitMapping
from flux_k8s.errors import BadObject
from flux_k8s.rfc import jgf
from flux_k8s.rfc.rset import Allocated


def ssd_per_rabbit(
    rset: Allocated, mapping: RabbitMapping, name: str = "R"
) -> dict[str, Optional[int]]:
    """The Rabbits of R, in the mapping's order, and the ``ssd`` (GiB) on each.

    The graph in ``scheduling`` has both. Without a graph, or with one that has no
    Rabbits, the result is the Rabbits of R's hosts, with None for the unknown amount.

    Raises:
        BadObject: the graph and the mapping, or the graph and ``nodelist``,
            do not agree: a Rabbit that the mapping lacks, a node below another
            Rabbit than the mapping says, a node that R does not have. The error calls
            R ``name``.
        UnreadableR: the process that read R found the graph malformed.
    """
    graph = rset.graph(name)
    hosts = dict.fromkeys(rset.hosts)
    connected = {mapping.rabbit_of(host) for host in hosts}
    if not graph.ssd:
        return {rabbit: None for rabbit in mapping.rabbits if rabbit in connected}
    _check_graph(graph, hosts, mapping, name)
    return {
        rabbit: graph.ssd.get(rabbit, 0)
        for rabbit in mapping.rabbits
        if rabbit in connected or graph.ssd.get(rabbit, 0) > 0
    }


def _check_graph(
    graph: jgf.Graph, hosts: Mapping[str, None], mapping: RabbitMapping, name: str
) -> None:
    """Refuse a graph that contradicts the mapping, or R's own nodelist."""
    place = "scheduling.graph.nodes"
    for rabbit in graph.ssd:
        if not mapping.has(rabbit):
            raise BadObject(name, place, rabbit, "a Rabbit of the rabbit mapping")
    for host in (*graph.rabbit_of, *hosts):
        if host not in hosts:
            raise BadObject(name, place, host, "a node of execution.nodelist")
        if host not in graph.rabbit_of:
            raise BadObject(name, "execution.nodelist", host, f"a node of {place}")
        found, expected = graph.rabbit_of[host], mapping.rabbit_of(host)
        if found != expected:
            raise BadObject(
                name,
                place,
                f"{host} below {found or 'no Rabbit'}",
                f"{host} below {expected or 'no Rabbit'}, as in the rabbit mapping",
            )
