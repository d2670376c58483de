# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The size of a job: in the elements of the job object, and in those of a jobspec.

:func:`shape_of` and :func:`layout_of` are each other's inverse for all that
``flux submit -n -c -g -N`` and ``--tasks-per-node`` can say: both directions
between Flux and the job object use them, so they cannot disagree.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Iterator, Optional, Sequence

from flux_k8s.formats.count import parse as parse_count
from flux_k8s.json_reader import Reader
from flux_k8s.ports import Json

SLOT = "task"
"""The label of a job's slot in Flux's own commands."""

MAX_DEPTH = 64


@dataclass(frozen=True)
class Amount:
    """A number of something: from ``low`` to ``high``, both included; without an
    end where that is None."""

    low: int
    high: Optional[int]

    @property
    def exact(self) -> Optional[int]:
        """The number, where no other will do."""
        return self.low if self.low == self.high else None

    def times(self, other: Amount) -> Amount:
        return Amount(
            self.low * other.low,
            None if self.high is None or other.high is None else self.high * other.high,
        )

    def plus(self, other: Amount) -> Amount:
        return Amount(
            self.low + other.low,
            None if self.high is None or other.high is None else self.high + other.high,
        )


ONE = Amount(1, 1)
NONE = Amount(0, 0)


@dataclass(frozen=True)
class Totals:
    """What a jobspec asks for in all.

    Attributes:
        nodes: None where it leaves the number of nodes to the scheduler.
        processors: cores.
        tasks: None where they depend on the nodes that the job gets.
        tasks_per_node: None where the jobspec does not give it.
    """

    nodes: Optional[Amount]
    processors: Amount
    gpus: Amount
    tasks: Optional[Amount]
    tasks_per_node: Optional[int]


@dataclass(frozen=True)
class Shape:
    """What a job object says of NodeCount, Processors, Resource ``GPU``, TaskCount,
    and TaskDistribution. None is what it does not say."""

    nodes: Optional[int] = None
    processors: Optional[int] = None
    gpus: Optional[int] = None
    tasks: Optional[int] = None
    tasks_per_node: Optional[int] = None
    processors_per_task: Optional[int] = None


@dataclass(frozen=True)
class Layout:
    """The size of a job as a jobspec has it.

    Attributes:
        resources: of the jobspec (RFC 25).
        count: ``tasks[0].count``.
        per_resource: the job shell's option ``per-resource``; None for none.
    """

    resources: list[Json]
    count: Json
    per_resource: Optional[Json] = None


class Contradiction(ValueError):
    """The numbers of a job do not go together. The message says which."""


def known_option(option: Any) -> Optional[Json]:
    """The job shell's option ``per-resource``, if it is one that the shell knows."""
    known = isinstance(option, dict) and option.get("type") in ("node", "core")
    return option if known else None


def totals_of(
    resources: Sequence[Any], task: Json, per_resource: Optional[Json] = None
) -> Totals:
    """What a jobspec asks for in all.

    Args:
        resources: ``resources`` of the jobspec (RFC 14).
        task: ``tasks[0]`` of it.
        per_resource: the job shell's option ``per-resource``; None for none.

    Raises:
        BadObject: one of them is not what RFC 14 says.
    """
    top = Reader("jobspec", {"resources": resources})
    vertices = [
        found for vertex in top.objects("resources") for found in _walk(vertex, ONE, 0)
    ]
    nodes = [total for reader, total in vertices if reader.value["type"] == "node"]
    slots = [
        total
        for reader, total in vertices
        if reader.value["type"] == "slot"
        and reader.value.get("label") == task.get("slot")
    ]
    processors = _sum(t for reader, t in vertices if reader.value["type"] == "core")
    counts = Totals(
        nodes=_sum(nodes) if nodes else None,
        processors=processors,
        gpus=_sum(t for reader, t in vertices if reader.value["type"] == "gpu"),
        tasks=_tasks(Reader("jobspec", task, "tasks[0]"), _sum(slots)),
        tasks_per_node=None,
    )
    if per_resource is None:
        return counts
    option = Reader("jobspec", per_resource, "attributes.system.shell.options")
    return _with_option(counts, option)


def layout_of(shape: Shape) -> Layout:
    """The layout that Flux's own commands make of a job of this shape.

    What the shape leaves open: a task for each processor (section 3 of the
    specification) and for each node, and a processor for each task; whole nodes where
    nothing but their number is given, as ``flux submit -N`` gives.

    Raises:
        Contradiction: the numbers do not go together.
    """
    _check_positive(shape)
    if shape.tasks_per_node is not None:
        return _by_node(shape, shape.tasks_per_node)
    processors, tasks = _processors_and_tasks(shape)
    exclusive = shape.nodes is not None and processors is None and tasks is None
    if tasks is None:
        tasks = processors or shape.nodes or 1
    nodes = shape.nodes
    if nodes is not None and tasks < nodes:
        raise Contradiction(f"{_says(shape)}: Flux runs at least one task on each node")
    slots = tasks if nodes is None else math.ceil(tasks / nodes) * nodes
    cores = 1
    if processors is not None:
        cores = _share("Processors", processors, slots, tasks, shape)
    gpus = _share("GPU", shape.gpus or 0, slots, tasks, shape)
    even = {"per_slot": 1} if slots == tasks else {"total": tasks}
    return Layout(
        _resources(nodes, slots // (nodes or 1), cores, gpus, exclusive), even
    )


def _walk(vertex: Reader, above: Amount, depth: int) -> Iterator[tuple[Reader, Amount]]:
    """All vertices, each with how many there are of it in all."""
    if depth > MAX_DEPTH:
        raise vertex.bad("type", f"at most {MAX_DEPTH} levels of resources")
    total = above.times(_count(vertex))
    vertex.string("type")
    yield vertex, total
    for child in vertex.optional_objects("with"):
        yield from _walk(child, total, depth + 1)


def _count(vertex: Reader) -> Amount:
    """The amount that a vertex's ``count`` accepts."""
    count = vertex.value.get("count")
    if count == 0 and not isinstance(count, bool):
        return NONE  # what Flux allows for GPUs
    found = parse_count(vertex)
    return Amount(found.least, found.most)


def _sum(amounts: Any) -> Amount:
    total = NONE
    for amount in amounts:
        total = total.plus(amount)
    return total


def _tasks(task: Reader, slots: Amount) -> Optional[Amount]:
    """How many tasks ``tasks[0].count`` asks for; None where that is not a matter
    of slots."""
    total = task.optional_integer("count.total", minimum=1)
    if total is not None:
        return Amount(total, total)
    each = task.optional_integer("count.per_slot", minimum=1)
    return None if each is None else slots.times(Amount(each, each))


def _with_option(counts: Totals, option: Reader) -> Totals:
    """``counts``, with the tasks that the shell's option ``per-resource`` makes."""
    each = option.optional_integer("count", minimum=1) or 1
    per_node = option.string("type") == "node"
    of = counts.nodes if per_node else counts.processors
    return Totals(
        counts.nodes,
        counts.processors,
        counts.gpus,
        None if of is None else of.times(Amount(each, each)),
        each if per_node else None,
    )


def _by_node(shape: Shape, each: int) -> Layout:
    """The layout with ``each`` tasks on every node."""
    nodes, processors, tasks = shape.nodes, shape.processors, shape.tasks
    exclusive = nodes is not None and processors is None and tasks is None
    if tasks is not None and (tasks % each if nodes is None else tasks != nodes * each):
        raise Contradiction(f"{_says(shape)}: these cannot all be true")
    if nodes is None and tasks is not None:
        nodes = tasks // each
    if nodes is None and processors is None:
        nodes, processors = 1, each
    if processors is None:
        processors = nodes if exclusive else tasks
    assert processors is not None
    slots = processors if nodes is None else nodes
    cores = _share("Processors", processors, slots, slots, shape)
    gpus = _share("GPU", shape.gpus or 0, slots, slots, shape)
    return Layout(
        _resources(nodes, slots // (nodes or 1), cores, gpus, exclusive),
        {"per_slot": 1},
        {"type": "node", "count": each},
    )


def _processors_and_tasks(shape: Shape) -> tuple[Optional[int], Optional[int]]:
    """Processors and tasks, each also as it follows from how many processors a task
    gets; None where nothing says it."""
    processors, tasks = shape.processors, shape.tasks
    each = shape.processors_per_task
    if each is None:
        return processors, tasks
    if tasks is None and processors is not None and processors % each == 0:
        tasks = processors // each
    if tasks is None and processors is None:
        tasks = shape.nodes or 1
    if processors is None and tasks is not None:
        processors = tasks * each
    if tasks is None or processors != tasks * each:
        raise Contradiction(f"{_says(shape)}: these cannot all be true")
    return processors, tasks


def _share(name: str, amount: int, slots: int, tasks: int, shape: Shape) -> int:
    """What each slot gets of an amount. Where there are more slots than tasks, the
    amount may also be that of the tasks alone."""
    for sharers in (slots, tasks):
        if amount % sharers == 0 and (amount >= sharers or not amount):
            return amount // sharers
    raise Contradiction(
        f"{_says(shape)}: {name} {amount} cannot be shared evenly by {slots}"
    )


def _resources(
    nodes: Optional[int], slots: int, cores: int, gpus: int, exclusive: bool
) -> list[Json]:
    inner: list[Json] = [{"type": "core", "count": cores}]
    if gpus:
        inner.append({"type": "gpu", "count": gpus})
    slot: Json = {"type": "slot", "count": slots, "with": inner, "label": SLOT}
    if nodes is None:
        return [slot]
    node: Json = {"type": "node", "count": nodes, "with": [slot]}
    return [{**node, "exclusive": True} if exclusive else node]


def _check_positive(shape: Shape) -> None:
    for name, value in _named(shape):
        least = 0 if name == "GPU" else 1
        if value < least:
            raise Contradiction(f"{name} is {value}, expected {least} or more")


def _named(shape: Shape) -> list[tuple[str, int]]:
    """What the shape says, by the names that the job object has for it."""
    named = [
        ("NodeCount", shape.nodes),
        ("Processors", shape.processors),
        ("GPU", shape.gpus),
        ("TaskCount", shape.tasks),
        ("TasksPerNode", shape.tasks_per_node),
        ("ProcessorsPerTask", shape.processors_per_task),
    ]
    return [(name, value) for name, value in named if value is not None]


def _says(shape: Shape) -> str:
    return ", ".join(f"{name} {value}" for name, value in _named(shape))
