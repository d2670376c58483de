# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Simulated file systems. Of each file only its contents are kept, as words."""

from __future__ import annotations

import posixpath
from typing import Mapping, Optional

from rabbitsim.dws.files import CopyError, NoCopy, NoFiles

INPUT = "what was there before"
"""The word in the global file system for copy_in."""


class FileContents(NoFiles):
    """The data in each place. A job writes one word; a copy copies all words.

    That a Workflow came through DataOut says that DWS did its part. That the
    data is where the user wanted it says that all did theirs.

    Args:
        size: the bytes of each copy.
    """

    def __init__(self, size: int = 0) -> None:
        super().__init__(size=size)
        self._places: dict[str, set[str]] = {"/lustre/in": {INPUT}}
        self._persistent: dict[str, set[str]] = {}

    def create(self, path: str, size: Optional[int] = None) -> None:
        self._places.setdefault(path, set())

    def create_persistent(self, name: str, size: Optional[int] = None) -> None:
        self._persistent.setdefault(name, set())

    def attach(self, path: str, name: str) -> None:
        # (It may be in the making.)
        self._places[path] = self._persistent.setdefault(name, set())

    def remove(self, path: str) -> None:
        self._places.pop(path, None)

    def remove_persistent(self, name: str) -> None:
        self._persistent.pop(name, None)

    def copy(
        self, source: str, destination: str, variables: Mapping[str, str]
    ) -> _Copy:
        found = self._places.get(_resolve(source, variables))
        if found is None:
            raise CopyError(f"source '{source}' does not exist")
        place = _resolve(destination, variables)
        return _Copy(found, self._places.setdefault(place, set()), self._size)

    def write(self, path: str, word: str) -> bool:
        """Write a job's word. Returns whether there is storage at ``path``."""
        place = self._places.get(path)
        if place is None:
            return False
        place.add(word)
        return True

    def has(self, path: str, word: str) -> bool:
        """Whether something is at ``path``."""
        return word in self._places.get(posixpath.normpath(path), ())


class _Copy(NoCopy):
    """Data movement; what is copied is there at its end."""

    def __init__(self, source: set[str], destination: set[str], size: int) -> None:
        super().__init__(size)
        self._source = source
        self._destination = destination

    def step(self, limit: int) -> bool:
        done = super().step(limit)
        if done:
            self._destination |= self._source
        return done


def _resolve(text: str, variables: Mapping[str, str]) -> str:
    first, slash, rest = text.partition("/")
    if not first.startswith("$"):
        return posixpath.normpath(text)
    if first[1:] not in variables:
        raise CopyError(f"'{text}': there is no storage {first}")
    return posixpath.normpath(variables[first[1:]] + slash + rest)
