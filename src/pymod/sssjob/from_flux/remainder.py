# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The part of a jobspec for which there is no element yet, so that nothing is lost."""

from __future__ import annotations

import copy
import json
from typing import Any, Callable, Iterator

from flux_k8s.json_reader import Reader
from flux_k8s.ports import Json
from sssjob.schema.model import Element, element
from sssjob.schema.properties import AWARENESS_POLICY, IGNORE
from sssjob.schema.values import unwritable
from sssjob.terms import EXTENSION_TYPE, SYSTEM, path_name

Path = tuple[str, ...]
Warn = Callable[[str], None]


_OF_COURSE = (("attributes",), SYSTEM)
"""The keys that each jobspec has, even if they are empty."""


class Remainder:
    """A jobspec without the parts that were taken out to be written as elements.

    Attributes:
        job: how messages call the job.
        reader: the whole jobspec, as it was.
    """

    def __init__(self, jobspec: Any, job: str, warn: Warn) -> None:
        """``warn`` gets a line for what elements cannot say, though there is one
        for such things.

        Raises:
            BadObject: the jobspec is no JSON object.
        """
        self.job = job
        self.reader = Reader(f"jobspec of job {job}", jobspec)
        self._warn = warn
        self._tree = copy.deepcopy(self.reader.value)
        self._entered: set[Path] = set()

    def warn(self, message: str) -> None:
        """Warn of a value that the job object expresses in another way, or not at
        all."""
        self._warn(f"job {self.job}: {message}")

    def get(self, *path: str) -> Any:
        """The value at a path; None when it is missing, or was taken."""
        value: Any = self._tree
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        return value

    def table(self, *path: str) -> Json:
        """A copy of the object at a path; empty when there is none. The caller may
        take values while it iterates over the copy."""
        value = self.get(*path)
        return dict(value) if isinstance(value, dict) else {}

    def take(self, *path: str) -> Any:
        """Take the value at a path; None when it is missing."""
        value = self.get(*path)
        if value is not None:
            self._remove(path)
        return value

    def put(self, value: Any, *path: str) -> None:
        """Set the remaining value at a path."""
        tree = self._tree
        for key in path[:-1]:
            tree = tree.setdefault(key, {})
        tree[path[-1]] = value
        self._enter(path)

    def take_text(self, *path: str) -> Any:
        """Take the string at a path; None, and nothing is taken, when there is no
        string, or XML cannot hold it."""
        value = self.get(*path)
        if not isinstance(value, str):
            return None
        if unwritable(value):
            self.warn(
                f"{path_name(path)} has characters that XML cannot hold: it is told"
                f" as an Extension"
            )
            return None
        return self.take(*path)

    def extensions(self) -> Iterator[Element]:
        """The remaining values as Extensions, each for as large a part as possible."""
        for path, value in self._rest((), self._tree):
            if not (path in _OF_COURSE and value == {}):
                yield extension(path_name(path), value)

    def _remove(self, path: Path) -> None:
        """Remove the value at a path, and objects that are empty without it."""
        for end in range(len(path), 0, -1):
            parent, key = path[: end - 1], path[end - 1]
            holder = self.get(*parent)
            if end < len(path) and self.get(*path[:end]) != {}:
                break
            if isinstance(holder, dict):
                holder.pop(key, None)
        self._enter(path)

    def _enter(self, path: Path) -> None:
        self._entered.update(path[:length] for length in range(len(path)))

    def _rest(self, path: Path, value: Any) -> Iterator[tuple[Path, Any]]:
        """The topmost paths without an element, and their values."""
        if path and not (path in self._entered and isinstance(value, dict)):
            yield path, value
            return
        for key, inner in value.items():
            yield from self._rest((*path, key), inner)


def extension(name: str, value: Any) -> Element:
    """The Extension that says a JSON value. Its text is ASCII: JSON has a way to
    write what XML cannot hold."""
    return flux_extension(name, json.dumps(value))


def flux_extension(name: str, text: str) -> Element:
    """An Extension of flux-dws. Programs that do not know it may leave it out."""
    said = {"name": name, "type": EXTENSION_TYPE, AWARENESS_POLICY.name: IGNORE}
    return element("Extension", text, **said)
