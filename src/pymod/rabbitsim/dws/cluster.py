# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The cluster as the stand-in controllers see it: caches, and writes.

Caches follow watches and the answers to our own writes, whichever is newer.
One write per object is under way at a time; :meth:`Cluster.busy` tells. A
write that fails for a passing reason is not repeated as it was: the object is
left alone for a moment, then the function that wanted the write is called again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Callable, NamedTuple, Optional, Union

from flux_k8s.objects.decoding import plain
from flux_k8s.ports import (
    Clock,
    Json,
    Kind,
    Kube,
    KubeDone,
    KubeError,
    Patch,
    Request,
    Seen,
    Watch,
)

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0


class Key(NamedTuple):
    """The identity of an object."""

    kind: Kind
    namespace: str
    name: str


Changed = Callable[[Key, Optional[Json], Optional[Json]], None]
"""Gets the key, the object as it was (or was to be), and the object as it is; None
for one that is not there."""


def key_of(kind: Kind, obj: Json) -> Key:
    metadata = obj["metadata"]
    return Key(kind, metadata.get("namespace", ""), metadata["name"])


def version(obj: Json) -> int:
    """The resourceVersion as a number. Clients should not look into it, but
    every API server counts, and a stand-in for controllers may know that."""
    return int(obj["metadata"].get("resourceVersion") or 0)


class Cluster:
    """Caches of some kinds, and writes to them.

    Args:
        kinds: the kinds to watch, in all namespaces.
        changed: called after a cached object changed, also when a write to it
            ended without a change.
        log: gets a line about each trouble.
    """

    def __init__(
        self,
        kube: Kube,
        clock: Clock,
        kinds: Sequence[Kind],
        changed: Changed,
        log: Callable[[str], None],
    ) -> None:
        self._kube = kube
        self._clock = clock
        self._kinds = tuple(kinds)
        self._changed = changed
        self._log = log
        self._objects: dict[Key, Json] = {}
        self._gone: dict[Key, int] = {}
        self._busy: dict[Key, Optional[Json]] = {}
        self._pauses: dict[Key, float] = {}
        self._watches: list[Watch] = []
        self._unsynced: set[Kind] = set(kinds)
        self._stopped = False
        self.requests = 0
        """The number of requests that were sent."""

    def start(self) -> None:
        for kind in self._kinds:
            handler = _Handler(self, kind)
            self._watches.append(self._kube.watch(kind, None, handler))

    def stop(self) -> None:
        self._stopped = True
        for watch in self._watches:
            watch.stop()

    @property
    def synced(self) -> bool:
        """Whether every kind was listed once."""
        return not self._unsynced

    def get(self, kind: Kind, namespace: str, name: str) -> Optional[Json]:
        return self._objects.get(Key(kind, namespace, name))

    def busy(self, key: Key) -> bool:
        return key in self._busy

    def keys(self) -> Iterable[Key]:
        return tuple(self._objects)

    def create(self, kind: Kind, body: Json) -> None:
        key = key_of(kind, body)
        if self._begin(key, body):
            request = Request("create", kind, key.namespace, body=body)
            self._kube.send(request, self._done(key), key=_queue(key))

    def patch(self, key: Key, body: Patch) -> None:
        if self._begin(key):
            request = Request("patch", *key, body)
            self._kube.send(request, self._done(key), key=_queue(key))

    def patch_status(self, key: Key, status: Json) -> None:
        if self._begin(key):
            request = Request("patch_status", *key, {"status": status})
            self._kube.send(request, self._done(key), key=_queue(key))

    def delete(self, key: Key) -> None:
        if self._begin(key):
            done = self._done(key, deleted=True)
            self._kube.send(Request("delete", *key), done, key=_queue(key))

    def refresh(self, key: Key, refreshed: Callable[[], object]) -> None:
        """Get an object anew: two watches do not keep step with each other.

        ``refreshed`` is called once the object, or that there is none, is known.
        """
        done = self._done(key)

        def answered(answer: Union[Json, KubeError]) -> None:
            if not isinstance(answer, KubeError) or answer.status == 404:
                refreshed()
            done(answer)

        if self._begin(key):
            self._kube.send(Request("get", *key), answered, key=_queue(key))

    def _begin(self, key: Key, body: Optional[Json] = None) -> bool:
        if key in self._busy or self._stopped:
            return False
        self._busy[key] = self._objects.get(key, body)
        self.requests += 1
        return True

    def _done(self, key: Key, deleted: bool = False) -> KubeDone:
        def done(answer: Union[Json, KubeError]) -> None:
            if self._stopped:
                return
            if isinstance(answer, KubeError):
                self._failed(key, answer, deleted)
                return
            self._pauses.pop(key, None)
            before = self._busy.pop(key)
            if "uid" not in answer.get("metadata", {}):  # a Status: it is gone
                self._drop(key, before)
            elif not deleted and _is_gone(answer):
                self._drop(key, before)
            else:
                self._learn(key, answer)

        return done

    def _failed(self, key: Key, error: KubeError, deleted: bool) -> None:
        if error.status == 404 and (deleted or key in self._objects):
            self._drop(key, self._busy.pop(key))
            return
        pause = self._pauses.get(key, _FIRST_PAUSE)
        self._pauses[key] = min(pause * 2, _LONGEST_PAUSE)
        if error.status != 409:
            name = f"{key.kind.name} {key.namespace}/{key.name}"
            self._log(f"{name}: {error}")

        def again() -> None:
            self._notify(key, self._busy.pop(key))

        if error.reason == "AlreadyExists":
            adopt = self._adopt(key, again)
            self._kube.send(Request("get", *key), adopt, key=_queue(key))
        else:
            self._clock.call_later(max(pause, error.retry_after or 0.0), again)

    def _adopt(self, key: Key, again: Callable[[], None]) -> KubeDone:
        def done(answer: Union[Json, KubeError]) -> None:
            if not isinstance(answer, KubeError):
                self._learn(key, answer)
            self._clock.call_later(0.0, again)

        return done

    def _notify(self, key: Key, before: Optional[Json]) -> None:
        """Notify the controllers of an object as if it had changed. The object may not
        exist."""
        if not self._stopped:
            obj = self._objects.get(key)
            self._changed(key, obj or before, obj)

    def _learn(self, key: Key, obj: Json) -> None:
        """Take in the answer to a request, unless a watch has shown a newer object."""
        known = self._objects.get(key)
        newest = version(known) if known else self._gone.get(key, 0)
        if version(obj) > newest:
            self._objects[key] = obj
            self._gone.pop(key, None)
            self._changed(key, known, obj)
        else:
            self._notify(key, obj)

    def _drop(self, key: Key, before: Optional[Json]) -> None:
        known = self._objects.pop(key, None)
        if known is not None:
            self._gone[key] = version(known)
        self._changed(key, known or before, None)

    def event(self, kind: Kind, type: str, obj: Json) -> None:
        key = key_of(kind, obj)
        known = self._objects.get(key)
        if type != "DELETED":
            if known is None or version(obj) > version(known):
                if version(obj) > self._gone.get(key, 0):
                    self._gone.pop(key, None)
                    self._objects[key] = obj
                    self._changed(key, known, obj)
            return
        self._gone.pop(key, None)
        if known is not None and known["metadata"]["uid"] == obj["metadata"]["uid"]:
            del self._objects[key]
            self._changed(key, known, None)

    def listed(self, kind: Kind) -> None:
        if kind in self._unsynced:
            self._unsynced.discard(kind)
            if not self._unsynced:
                for key in tuple(self._objects):
                    self._notify(key, None)

    def lost(self, kind: Kind, error: KubeError) -> None:
        self._log(f"watch of {kind.plural}: {error}")


class _Handler:
    """Passes the events of the watch of one kind on to a :class:`Cluster`."""

    def __init__(self, cluster: Cluster, kind: Kind) -> None:
        self._cluster = cluster
        self._kind = kind

    def event(self, type: str, object: Seen) -> None:
        self._cluster.event(self._kind, type, plain(object.encoded))

    def synced(self) -> None:
        self._cluster.listed(self._kind)

    def trouble(self, error: KubeError) -> None:
        self._cluster.lost(self._kind, error)


def _is_gone(obj: Json) -> bool:
    """Whether the write that gave ``obj`` removed the last finalizer of an
    object that was being deleted."""
    metadata = obj["metadata"]
    return bool(metadata.get("deletionTimestamp")) and not metadata.get("finalizers")


def _queue(key: Key) -> str:
    return f"{key.kind.plural}/{key.namespace}/{key.name}"
