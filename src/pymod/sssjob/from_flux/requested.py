# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The elements of a job's request: time, storage, kinds of nodes, and a queue. The size
of the job is in :mod:`~sssjob.from_flux.size`."""

from __future__ import annotations

import copy
import math
from typing import Any, Iterable, Iterator, Mapping, Optional, Sequence

from flux_k8s.errors import BadObject, DirectiveError
from flux_k8s.formats.directives import Directive, parse_attribute
from flux_k8s.json_reader import is_number
from flux_k8s.ports import Json
from flux_k8s.rules.directivebreakdown.resources import apply_breakdowns
from sssjob.expression import to_elements
from sssjob.from_flux.history import CONSTRAINTS, QUEUE, RESOURCES
from sssjob.from_flux.remainder import Remainder
from sssjob.schema.model import Element, element
from sssjob.schema.values import Datatype
from sssjob.terms import (
    STORAGE,
    STORAGE_UNIT,
    SYSTEM,
    path_name,
    storage_of,
)

_DW = (*SYSTEM, "dw")
_DURATION = (*SYSTEM, "duration")
_CONSTRAINTS = (*SYSTEM, "constraints")


def updated(jobspec: Json, updates: Iterable[Mapping[str, Any]], job: str) -> Json:
    """The jobspec with changes that somebody asked for after submission (RFC 21).

    The storage that the module adds to ``resources`` was not asked for in this way,
    and constraints that come with another queue are those of the queue.

    Raises:
        BadObject: a change leads through something that is no object.
    """
    result = copy.deepcopy(jobspec)
    for changes in updates:
        for path, value in changes.items():
            if path == RESOURCES and isinstance(value, list):
                value = apply_breakdowns((), value, f"jobspec of job {job}")
            if path == CONSTRAINTS and QUEUE in changes and not _has(result, path):
                continue
            _set(result, path, value, job)
    return result


def requested(
    remainder: Remainder, directives: Sequence[Directive]
) -> Iterator[Element]:
    """The contents of Requested besides the size. They are taken out of ``remainder``.

    Args:
        directives: those of the job.
    """
    queue = remainder.take_text(*SYSTEM, "queue")
    if queue is not None:
        yield element("Queue", queue)
    for type, amount in storage_of(directives):
        yield element("Resource", amount, name=STORAGE, type=type, units=STORAGE_UNIT)
    yield from _duration(remainder)
    yield from _constraints(remainder)


def directives_of(
    remainder: Remainder, presets: Mapping[str, Sequence[str]], recorded: Optional[Any]
) -> tuple[Directive, ...]:
    """The directives of a job; none, and a warning, where they cannot be told.

    What the jobspec says is replaced by what presets stand for.

    Args:
        presets: those of the configuration.
        recorded: the job's last Workflow, which has the directives of presets that
            are not known (any more); None without one.
    """
    value = remainder.get(*_DW)
    if not value:
        return ()
    try:
        directives = _directives(value, presets, recorded)
    except DirectiveError as error:
        remainder.warn(f"its storage is told as an Extension only: {error}")
        return ()
    remainder.put([directive.text for directive in directives], *_DW)
    return directives


def _directives(
    value: Any, presets: Mapping[str, Sequence[str]], recorded: Optional[Any]
) -> tuple[Directive, ...]:
    try:
        return parse_attribute(value, presets)
    except DirectiveError:
        spec = recorded.get("spec") if isinstance(recorded, dict) else None
        texts = spec.get("dwDirectives") if isinstance(spec, dict) else None
        if not texts:
            raise
        return parse_attribute(texts)


def _duration(remainder: Remainder) -> Iterator[Element]:
    """The time limit, rounded up to seconds; exactly, it then is an Extension."""
    value = remainder.get(*_DURATION)
    if not is_number(value) or value < 0:
        return
    seconds = math.ceil(value)
    if seconds and not Datatype.DURATION.holds(seconds):
        remainder.warn(
            f"{path_name(_DURATION)} is {value:.15g} s, which is told as an Extension"
            f" only: expected {Datatype.DURATION.meaning}"
        )
        return
    if seconds:
        yield element("Duration", seconds)
    if seconds == value:
        remainder.take(*_DURATION)


def _constraints(remainder: Remainder) -> Iterator[Element]:
    value = remainder.get(*_CONSTRAINTS)
    if value is None:
        return
    try:
        elements = to_elements(value)
    except BadObject as error:
        remainder.warn(f"its constraints are told as an Extension only: {error}")
        return
    if elements is not None:
        remainder.take(*_CONSTRAINTS)
        yield from elements


def _has(jobspec: Any, path: str) -> bool:
    for key in path.split("."):
        jobspec = jobspec.get(key) if isinstance(jobspec, dict) else None
    return jobspec is not None


def _set(jobspec: Json, path: str, value: Any, job: str) -> None:
    *parents, last = path.split(".")
    tree: Any = jobspec
    for key in parents:
        tree = tree.setdefault(key, {}) if isinstance(tree, dict) else None
    if not isinstance(tree, dict):
        name, expected = f"a jobspec-update of job {job}", "a path through objects"
        raise BadObject(name, "a key", path, expected)
    tree[last] = copy.deepcopy(value)
