# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The builder of a jobspec, from values of elements and of Extensions."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, Optional

from flux_k8s.errors import BadObject, show
from flux_k8s.formats import constraints
from flux_k8s.json_reader import MISSING, is_number
from flux_k8s.ports import Json
from sssjob.terms import (
    EXTENSION_TYPE,
    RABBITS,
    SYSTEM,
    path_keys,
    path_name,
)
from sssjob.to_jobspec.requests import Problems, Requests

Keys = tuple[str, ...]

DURATION = (*SYSTEM, "duration")
CONSTRAINTS = (*SYSTEM, "constraints")

MAX_DEPTH = 100
"""JSON that is nested deeper is taken for a mistake."""

_TOP = ("resources", "tasks", "attributes", "version")


@dataclass(frozen=True)
class Assignment:
    """The value that an element or an Extension gives to a key of the jobspec.

    Attributes:
        path: that of the element.
    """

    keys: Keys
    value: Any
    path: str


class Builder:
    """Collects what is said of a jobspec, and puts it together."""

    def __init__(self, extensions: dict[Keys, Assignment]) -> None:
        self._extensions = dict(extensions)
        self._assignments: list[Assignment] = []
        self._bases: list[tuple[Keys, Any]] = []

    def put(self, keys: Keys, value: Any) -> None:
        """Set the value of a key for which there is no element and no Extension."""
        self._bases.append((keys, value))

    def assign(self, keys: Keys, value: Any, path: str) -> None:
        """Set the value at a place, from an element. An Extension has to agree."""
        self._assignments.append(Assignment(keys, value, path))

    def extension(self, keys: Keys) -> Optional[Assignment]:
        """The Extension for exactly this place."""
        return self._extensions.get(keys)

    def take_extension(self, keys: Keys) -> Optional[Assignment]:
        """Take the Extension for exactly this place. It is not compared any more."""
        return self._extensions.pop(keys, None)

    def build(self, problems: Problems) -> Json:
        """The jobspec."""
        jobspec: Json = dict.fromkeys(_TOP)
        for keys, value in self._bases:
            _put(jobspec, keys, value)
        for assignment in self._assignments:
            _put(jobspec, assignment.keys, assignment.value)
        within = self._within()
        # What is within another comes after it.
        for keys in sorted(self._extensions, key=len):
            extension = self._extensions[keys]
            self._compare(extension, within[keys], problems)
            if not _put(jobspec, keys, extension.value):
                problem = f"{path_name(keys)} leads through what is no object"
                problems.wrong(extension.path, problem)
        for keys, value in self._bases:
            if find(jobspec, keys) is MISSING:
                _put(jobspec, keys, value)
        return jobspec

    def _within(self) -> dict[Keys, list[Assignment]]:
        """The assignments to the place of each Extension, and to places within it."""
        found: dict[Keys, list[Assignment]] = {keys: [] for keys in self._extensions}
        for assignment in (*self._assignments, *self._extensions.values()):
            for length in range(len(assignment.keys) + 1):
                if assignment.keys[:length] in found:
                    found[assignment.keys[:length]].append(assignment)
        return found

    def _compare(
        self, extension: Assignment, within: list[Assignment], problems: Problems
    ) -> None:
        """Whether an Extension agrees with what else is said ``within`` it."""
        keys = extension.keys
        for assignment in within:
            if assignment is extension:
                continue
            theirs = find(extension.value, assignment.keys[len(keys) :])
            if theirs is MISSING and assignment.keys in self._extensions:
                continue  # it adds to this one
            if not _agree(assignment.keys, assignment.value, theirs):
                problems.wrong(
                    extension.path,
                    f"has {show(theirs)} for {path_name(assignment.keys)},"
                    f" but {assignment.path} says {show(assignment.value)}",
                )


def extensions_of(requests: Requests, problems: Problems) -> dict[Keys, Assignment]:
    """The assignments of Extensions, by place."""
    found: dict[Keys, Assignment] = {}
    for request in requests.all("Extension"):
        name = request.attribute("name") or ""
        if request.attribute("type") != EXTENSION_TYPE:
            problems.unsupported(
                request, f"Extension name={show(name)} is not of type Flux"
            )
            continue
        if name == RABBITS:
            continue
        keys = _place(name)
        if keys is None:
            problem = f"name={show(name)} is no place in a jobspec"
            problems.unsupported(request, f"{problem}, as attributes.system.queue is")
            continue
        try:
            value = json.loads(request.text)
            json.dumps(value, allow_nan=False)
            deep = len(keys) > MAX_DEPTH or _is_deep(value, MAX_DEPTH - len(keys))
        except (ValueError, RecursionError):
            problems.wrong(request.path, f"is {show(request.text)}, expected JSON")
            continue
        if deep:
            problem = f"has more than {MAX_DEPTH} levels, expected less"
            problems.wrong(request.path, problem)
            continue
        assignment = Assignment(keys, value, request.path)
        other = found.setdefault(keys, assignment)
        if other.value != value:
            problem = f"is {show(value)}, but {other.path} is {show(other.value)}"
            problems.wrong(request.path, problem)
    return found


def _is_deep(value: Any, levels: int) -> bool:
    """Whether JSON is nested deeper than this."""
    inner = value.values() if isinstance(value, dict) else value
    if not isinstance(value, (dict, list)):
        return False
    return levels == 0 or any(_is_deep(item, levels - 1) for item in inner)


def _place(name: str) -> Optional[Keys]:
    """The place that an Extension's name is; None where there is no such."""
    try:
        keys = path_keys(name)
    except ValueError:
        return None
    within = keys[0] == "attributes" or len(keys) == 1
    return keys if keys[0] in _TOP and within else None


def _put(tree: Json, keys: Keys, value: Any) -> bool:
    """Set what stands at a place. False where that is within no object."""
    for key in keys[:-1]:
        inner = tree.get(key)
        if inner is None:
            inner = tree[key] = {}
        if not isinstance(inner, dict):
            return False
        tree = inner
    tree[keys[-1]] = value
    return True


def find(value: Any, keys: Keys) -> Any:
    """The value at a path; MISSING when there is none."""
    for key in keys:
        value = value.get(key, MISSING) if isinstance(value, dict) else MISSING
    return value


def _agree(keys: Keys, ours: Any, theirs: Any) -> bool:
    """Whether an Extension says what an element does, or more exactly so."""
    if keys == DURATION and is_number(theirs):
        return bool(math.ceil(theirs) == ours)
    if keys == CONSTRAINTS:
        try:
            return constraints.normalise(ours) == constraints.normalise(theirs)
        except BadObject:
            return False
    if keys[-2:] == ("per-resource", "count") and theirs is MISSING:
        return bool(ours == 1)  # what the job shell takes it for
    return bool(ours == theirs) and isinstance(ours, bool) == isinstance(theirs, bool)
