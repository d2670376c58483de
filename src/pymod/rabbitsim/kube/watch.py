# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The history of the objects of one kind, and its watches."""

from __future__ import annotations

import json
from collections import deque
from typing import Any, Callable, NamedTuple, Optional

from flux_k8s.ports import Json
from rabbitsim.kube.errors import expired
from rabbitsim.kube.selectors import Selector


def encode(obj: Any) -> bytes:
    return json.dumps(obj, separators=(",", ":"), ensure_ascii=False).encode()


class Stored(dict[str, Any]):
    """An object as it is stored. Nobody changes it: a write replaces it by
    another one that shares the unchanged parts. So its JSON is made once."""

    __slots__ = ("_json", "version")

    def __init__(self, obj: Json) -> None:
        super().__init__(obj)
        self.version = int(obj["metadata"]["resourceVersion"])
        self._json: Optional[bytes] = None

    def encoded(self) -> bytes:
        if self._json is None:
            self._json = encode(self)
        return self._json


class Change(NamedTuple):
    """One write; ``old`` is None for a creation."""

    type: str
    object: Stored
    old: Optional[Stored]


class Event(NamedTuple):
    """An event of a watch: ADDED, MODIFIED or DELETED."""

    type: str
    object: Stored


class StoreWatch:
    """One watch on a store. No event is delivered after :meth:`stop`."""

    def __init__(
        self,
        history: History,
        namespace: Optional[str],
        selector: Optional[Selector],
        callback: Callable[[Event], None],
    ) -> None:
        self._history = history
        self._namespace = namespace
        self._selector = selector
        self._callback = callback

    def stop(self) -> None:
        self._history.watches.pop(id(self), None)

    def offer(self, change: Change) -> None:
        event = self._seen(change)
        if event is not None:
            self._callback(event)

    def _seen(self, change: Change) -> Optional[Event]:
        """The change as this watch sees it: an object whose labels begin or
        cease to match is added or deleted."""
        obj = change.object
        if self._namespace not in (None, obj["metadata"].get("namespace")):
            return None
        if self._selector is None:
            return Event(change.type, obj)
        was = change.old is not None and self._selector(change.old)
        now = change.type != "DELETED" and self._selector(obj)
        if not was and not now:
            return None
        if was and now:
            return Event("MODIFIED", obj)
        return Event("ADDED" if now else "DELETED", obj)


class History:
    """The latest changes of one kind, and its watches.

    ``forgotten`` is the resourceVersion of the latest change that is no longer
    kept: a watch can begin there or later.
    """

    def __init__(self, limit: int) -> None:
        self._changes: deque[Change] = deque()
        self._limit = limit
        self.forgotten = 0
        self.watches: dict[int, StoreWatch] = {}

    def append(self, change: Change) -> None:
        if len(self._changes) >= self._limit:
            self.forgotten = self._changes.popleft().object.version
        self._changes.append(change)
        for watch in tuple(self.watches.values()):
            # One callback may have stopped another watch.
            if id(watch) in self.watches:
                watch.offer(change)

    def forget(self, version: int) -> None:
        """Forget all changes up to ``version``."""
        self.forgotten = max(self.forgotten, version)
        while self._changes and self._changes[0].object.version <= version:
            self._changes.popleft()

    def check(self, version: int) -> None:
        """Raises ApiError 410 when the changes after ``version`` are not known."""
        if version < self.forgotten:
            raise expired(f"too old resource version: {version} ({self.forgotten})")

    def add(self, watch: StoreWatch, since: int) -> None:
        """Replay what came after ``since``, then keep the watch informed."""
        self.check(since)
        self.watches[id(watch)] = watch
        for change in tuple(self._changes):
            if change.object.version > since and id(watch) in self.watches:
                watch.offer(change)
