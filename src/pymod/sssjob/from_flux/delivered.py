# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The elements of Delivered: nodes, storage, data that was moved, and time."""

from __future__ import annotations

import re
from typing import Any, Iterator, Mapping, Optional

from flux_k8s.errors import DWSError, show
from flux_k8s.formats import hostlist, idset, jgf
from flux_k8s.formats.rset import ResourceSet
from flux_k8s.json_reader import is_number
from flux_k8s.objects.workflowstate import STATES
from flux_k8s.rules import getrabbit
from sssjob.expression import nodes_element
from sssjob.from_flux.history import History
from sssjob.from_flux.remainder import flux_extension
from sssjob.schema.model import Element, element
from sssjob.schema.values import UNITS, Datatype
from sssjob.terms import GPU, RABBITS, STORAGE, STORAGE_UNIT

SSD = "ssd"
WORKFLOW_STATE = "WorkflowState"
DATA_MOVEMENT = "DataMovement"

INITIATOR = "dm.cray.hpe.com/initiator"
"""The label of an NnfDataMovement that says which command it is for."""

_DATA = re.compile(r"\s*([0-9]{1,30}(?:\.[0-9]+)?)\s*([KMGTPE]?)i?B", re.ASCII)


def timing_key(state: str) -> str:
    """The key in a job's KVS with the seconds that a state took."""
    return f"rabbit_{state.lower()}_timing"


def delivered(
    history: History,
    rset: Optional[ResourceSet],
    timings: Mapping[str, Any],
    movements: Any,
    job: str,
) -> Iterator[Element]:
    """The contents of Delivered.

    Args:
        rset: the resources of the job; None where it got none.
        timings: seconds by the state of the Workflow.
        movements: its NnfDataMovements; None for none.
        job: how errors call the job.

    Raises:
        DWSError: one of these is not what it should be.
    """
    if rset is not None:
        yield from _resources(rset, job)
    for state in STATES:
        seconds = timings.get(state)
        if seconds is None:
            continue
        if not is_number(seconds) or seconds < 0:
            raise DWSError(
                f"{timing_key(state)} of job {job} is {show(seconds)}, expected seconds"
            )
        yield element(
            "Resource", float(seconds), name=WORKFLOW_STATE, type=state, units="s"
        )
    for command, amount in moved(movements, job).items():
        yield element(
            "Resource", float(amount), name=DATA_MOVEMENT, type=command, units="B"
        )
    if history.started is not None and history.finished is not None:
        seconds = max(0, round(history.finished - history.started))
        if Datatype.DURATION.holds(seconds):
            yield element("Duration", seconds)


def rabbits_extension(
    recorded: str, rset: Optional[ResourceSet], job: str
) -> Optional[Element]:
    """The Extension that names the Rabbits with storage of the job: those that the
    module has recorded, or else, where Fluxion has placed it, those of R. The job's
    memo has them as well, but its user may change that."""
    try:
        found = hostlist.decode(recorded.strip())
    except ValueError as error:
        raise DWSError(f"{getrabbit.RECORD} of job {job}: {error}") from None
    if not found and rset is not None:
        graph = jgf.parse(rset.scheduling or {}, f"R of job {job}")
        names = (name for name, size in graph.ssd.items() if size != 0)
        found = tuple(sorted(names, key=hostlist.natural_key))
    if not found:
        return None
    try:
        text = hostlist.encode(found)
    except ValueError as error:
        raise DWSError(f"R of job {job}: {error}") from None
    return flux_extension(RABBITS, text)


def moved(movements: Any, job: str) -> dict[str, int]:
    """Bytes that were moved, by the command that asked for it (``copy_in``...), as
    far as the NnfDataMovements tell.

    Raises:
        DWSError: they are no list of objects.
    """
    amounts: dict[str, int] = {}
    if movements is None:
        return amounts
    if not isinstance(movements, list):
        raise DWSError(f"rabbit_datamovements of job {job}: expected a list")
    for movement in movements:
        command = _get(movement, "metadata", "labels", INITIATOR)
        amount = _bytes(_get(movement, "status", "commandStatus", "data"))
        if isinstance(command, str) and amount is not None:
            amounts[command] = amounts.get(command, 0) + amount
    return amounts


def _resources(rset: ResourceSet, job: str) -> Iterator[Element]:
    """Nodes, and what they have."""
    yield element("NodeCount", len(rset.targets))
    yield nodes_element(dict.fromkeys(rset.hosts))
    yield element("Processors", _count(rset, "core"))
    gpus = _count(rset, "gpu")
    if gpus:
        yield element("Resource", float(gpus), name=GPU)
    graph = jgf.parse(rset.scheduling or {}, f"R of job {job}")
    sizes = [size for size in graph.ssd.values() if size is not None]
    size = sum(sizes)
    # Of Rabbits that the job had as a whole, R does not tell the size.
    if size and len(sizes) == len(graph.ssd):
        yield element(
            "Resource", float(size), name=STORAGE, type=SSD, units=STORAGE_UNIT
        )


def _count(rset: ResourceSet, type: str) -> int:
    """The number of cores or GPUs on all nodes."""
    sizes: dict[str, int] = {"": 0}
    total = 0
    for target in rset.targets:
        ids = target.children.get(type, "")
        if ids not in sizes:
            sizes[ids] = len(idset.decode(ids))
        total += sizes[ids]
    return total


def _get(value: Any, *path: str) -> Any:
    """The value at a path, or None."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _bytes(text: Any) -> Optional[int]:
    """An amount as dcp writes it, like ``1.500 GiB``; None when it is none."""
    match = _DATA.match(text) if isinstance(text, str) else None
    if match is None:
        return None
    return round(float(match[1]) * UNITS[f"{match[2]}B"])
