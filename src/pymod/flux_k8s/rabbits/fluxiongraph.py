# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Where nodes and Rabbits are in Fluxion's graph, and what it was told of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import AbstractSet, Any, Generic, Iterable, Mapping, Optional, TypeVar

from flux_k8s.errors import BadObject
from flux_k8s.json_reader import Reader, decimal
from flux_k8s.rfc import idset
from flux_k8s.rfc.jgf import NODE, RABBIT_PROPERTY, SSD

SSD_COUNT = "ssdcount"
SSD_DOWN = "ssddown"
"""The property in which a Rabbit's chassis keeps which ``ssd`` we took out of
service, as an idset (RFC 22): the next module learns it from there."""

T = TypeVar("T")


@dataclass
class Told(Generic[T]):
    """What is known of a set that was told to someone: it has all of ``certain``,
    and nothing but what is in ``possible``."""

    certain: set[T] = field(default_factory=set)
    possible: set[T] = field(default_factory=set)

    def missing(self, wanted: AbstractSet[T]) -> set[T]:
        return set(wanted) - self.certain

    def surplus(self, wanted: AbstractSet[T]) -> set[T]:
        return self.possible - wanted

    def begin(self, items: Iterable[T], present: bool) -> None:
        """They are being added, or removed: who knows when."""
        if present:
            self.possible.update(items)
        else:
            self.certain.difference_update(items)

    def end(self, items: Iterable[T], present: bool) -> None:
        """They were added, or removed."""
        if present:
            self.certain.update(items)
        else:
            self.possible.difference_update(items)


@dataclass(frozen=True)
class Chassis:
    """Where a Rabbit is in Fluxion's graph.

    Attributes:
        path: of its chassis.
        ssds: how many ``ssd`` it has; 0 when the graph does not say.
        down: the numbers of those that an earlier module may have taken out of
            service.
    """

    path: str
    ssds: int = 0
    down: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Places:
    """Where things are in Fluxion's graph.

    Attributes:
        chassis: by the name of the Rabbit.
        nodes: the path above the nodes, in a graph without Rabbits.
    """

    chassis: Mapping[str, Chassis]
    nodes: Optional[str] = None

    def of(self, host: str, rabbit: str) -> Optional[str]:
        """The path of a node, as far as the graph's form tells."""
        chassis = self.chassis.get(rabbit)
        above = self.nodes if chassis is None else chassis.path
        return None if above is None else f"{above}/{host}"


def find_places(result: Any) -> Places:
    """The Rabbits in Fluxion's answer to ``find property=rabbit``.

    Raises:
        BadObject: it is something else.
    """
    chassis: dict[str, Chassis] = {}
    for metadata in _vertices(result):
        if metadata.optional_string("type") == NODE or not metadata.has("properties"):
            continue
        properties = metadata.object("properties").value
        rabbit = properties.get(RABBIT_PROPERTY)
        if isinstance(rabbit, str) and rabbit:
            chassis[rabbit] = Chassis(
                metadata.string("paths.containment"),
                _count(properties.get(SSD_COUNT)),
                _numbers(properties.get(SSD_DOWN)),
            )
    return Places(chassis)


def find_ssds(result: Any) -> dict[str, set[int]]:
    """The numbers of the ``ssd`` in Fluxion's answer, by the path above them.

    Raises:
        BadObject: it is something else.
    """
    numbers: dict[str, set[int]] = {}
    for metadata in _vertices(result):
        if metadata.optional_string("type") == SSD:
            above, _, name = metadata.string("paths.containment").rpartition("/")
            number = _count(name[len(SSD) :])
            numbers.setdefault(above, set()).add(number)
    return numbers


def find_above(result: Any, host: str) -> str:
    """The path of what is above a node, from Fluxion's answer to ``find
    names=HOST``.

    Raises:
        BadObject: the answer is something else, or lacks the node.
    """
    for metadata in _vertices(result):
        above, _, name = metadata.string("paths.containment").rpartition("/")
        if name == host:
            return above
    raise BadObject("the answer", "R.graph", None, f"a vertex named {host}")


def _vertices(result: Any) -> Iterable[Reader]:
    reader = Reader("the answer", result)
    if reader.has("R"):  # null when nothing was found
        for vertex in reader.objects("R.graph.nodes"):
            yield vertex.object("metadata")


def _count(value: Any) -> int:
    return (decimal(value) if isinstance(value, str) else None) or 0


def _numbers(value: Any) -> frozenset[int]:
    try:
        return frozenset(idset.decode(value) if isinstance(value, str) else ())
    except ValueError:
        return frozenset()
