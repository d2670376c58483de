# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The elements of the requested size of a job."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Iterator, Optional

from sssjob.from_flux.remainder import Remainder
from sssjob.schema.model import Element, element
from sssjob.shape import (
    NONE,
    Amount,
    Contradiction,
    Layout,
    Shape,
    Totals,
    known_option,
    layout_of,
    totals_of,
)
from sssjob.terms import GPU, OPTIONS, RULES

_PER_RESOURCE = (*OPTIONS, "per-resource")
_TASKMAP = (*OPTIONS, "taskmap")


@dataclass(frozen=True)
class RequestedSize:
    """The elements that express the size of a job.

    Attributes:
        requested: the contents of Requested.
        task_group: the contents of TaskGroup. Without any there is no TaskGroup.
        count: ``tasks[0].count`` as it follows from these elements; None where they do
            not express all of ``resources``.
    """

    requested: tuple[Element, ...]
    task_group: tuple[Element, ...]
    count: Optional[dict[str, Any]]


def size_of(remainder: Remainder) -> RequestedSize:
    """The size of the job. It is taken out of ``remainder`` as far as elements express
    it.

    Raises:
        BadObject: the jobspec is not what RFC 14 says.
    """
    reader = remainder.reader
    resources = reader.list("resources")
    tasks = reader.objects("tasks")
    if not resources or not tasks:
        raise reader.bad("tasks" if resources else "resources", "one entry at least")
    per_resource = known_option(remainder.get(*_PER_RESOURCE))
    totals = totals_of(resources, tasks[0].value, per_resource)
    # Flux gives whole nodes to a job that only says how many: so do we.
    for said in (totals, replace(totals, processors=NONE, tasks=None)):
        layout = _layout(said)
        if layout is not None and layout.resources == list(resources):
            break
    else:
        said, layout = totals, None
    if layout is not None:
        remainder.take("resources")
        if per_resource is not None and layout.per_resource == per_resource:
            remainder.take(*_PER_RESOURCE)
    return RequestedSize(
        tuple(_requested(said)),
        tuple(_task_group(remainder, said)),
        None if layout is None else layout.count,
    )


def _layout(said: Totals) -> Optional[Layout]:
    """The layout that Flux's own commands make of these totals; None where they
    cannot."""
    amounts = [said.nodes, said.processors, said.gpus, said.tasks]
    numbers = [None if amount is None else amount.exact for amount in amounts]
    if any(a is not None and n is None for a, n in zip(amounts, numbers)):
        return None
    nodes, processors, gpus, tasks = numbers
    try:
        return layout_of(
            Shape(nodes, processors or None, gpus or None, tasks, said.tasks_per_node)
        )
    except Contradiction:
        return None


def _requested(said: Totals) -> Iterator[Element]:
    yield from _amount("NodeCount", said.nodes or NONE, int)
    yield from _amount("Processors", said.processors, int)
    yield from _amount("Resource", said.gpus, float, name=GPU)


def _amount(
    tag: str, amount: Amount, type: Any, **attributes: str
) -> Iterator[Element]:
    """The elements for an amount; none for nothing at all."""
    if amount == NONE:
        return
    if amount.exact is not None:
        yield element(tag, type(amount.exact), **attributes)
        return
    yield element(tag, type(amount.low), op="GE", **attributes)
    if amount.high is not None:
        yield element(tag, type(amount.high), op="LE", **attributes)


def _task_group(remainder: Remainder, said: Totals) -> Iterator[Element]:
    tasks = None if said.tasks is None else said.tasks.exact
    if tasks:
        yield element("TaskCount", tasks)
    if said.tasks_per_node is not None:
        each = str(said.tasks_per_node)
        yield element("TaskDistribution", each, type="TasksPerNode")
        return
    taskmap = remainder.table(*_TASKMAP)
    rule = RULES.get(str(taskmap.pop("scheme", "")))
    if rule is not None and taskmap == {"value": ""}:
        remainder.take(*_TASKMAP)
        yield element("TaskDistribution", rule, type="Rule")
