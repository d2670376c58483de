# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Garbage collection: what is deleted because something else was.

Dependents follow their last owner, a namespace takes its content along. The
real garbage collector comes a moment later; here it is done when the write
that calls for it returns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from flux_k8s.ports import Json, Kind
from rabbitsim.kube.kinds import NAMESPACE, Resource
from rabbitsim.kube.watch import Change

if TYPE_CHECKING:
    from rabbitsim.kube.store import Store

FOREGROUND = "foregroundDeletion"


class Key(NamedTuple):
    """The identity of an object in the store."""

    kind: Kind
    namespace: str
    name: str


def _owners(obj: Any) -> list[str]:
    """The uids of an object's owners."""
    if obj is None:
        return []
    return [ref["uid"] for ref in obj["metadata"].get("ownerReferences") or ()]


class Collector:
    """Follows every change of a store, and deletes what must go with it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._alive: dict[str, Key] = {}
        self._dependents: dict[str, dict[Key, None]] = {}

    def changed(self, resource: Resource, change: Change) -> None:
        metadata = change.object["metadata"]
        key = Key(resource.kind, metadata.get("namespace", ""), metadata["name"])
        self._index(key, change)
        if change.type == "ADDED":
            owners = _owners(change.object)
            if owners and not any(uid in self._alive for uid in owners):
                self._delete(key)
        elif change.type == "DELETED":
            self._release_owners(change.object)
            self._collect(metadata["uid"])
            if key.namespace:
                self._finish_namespace(key.namespace)
        elif resource.kind == NAMESPACE and "deletionTimestamp" in metadata:
            self._empty_namespace(key.name)

    def _index(self, key: Key, change: Change) -> None:
        uid = change.object["metadata"]["uid"]
        if change.type == "ADDED":
            self._alive[uid] = key
        elif change.type == "DELETED":
            del self._alive[uid]
        before = _owners(change.old)
        after = _owners(change.object) if change.type != "DELETED" else []
        if before == after:
            return
        for owner in before:
            dependents = self._dependents.get(owner, {})
            dependents.pop(key, None)
            if not dependents:
                self._dependents.pop(owner, None)
        for owner in after:
            self._dependents.setdefault(owner, {})[key] = None

    def has_dependents(self, uid: str) -> bool:
        return uid in self._dependents

    def delete_dependents(self, uid: str) -> None:
        """Delete what the object owns while it is still there (propagation
        policy Foreground)."""
        for key in tuple(self._dependents.get(uid, ())):
            self._delete(key)

    def orphan_dependents(self, uid: str) -> None:
        """Make the dependents forget their owner (propagation policy Orphan)."""
        for key in tuple(self._dependents.get(uid, ())):
            self._drop_owners(key, {uid})

    def _collect(self, uid: str) -> None:
        for key in tuple(self._dependents.get(uid, ())):
            obj = self._store.find(*key)
            if obj is None:
                continue
            gone = {owner for owner in _owners(obj) if owner not in self._alive}
            if len(gone) == len(set(_owners(obj))):
                self._delete(key)
            else:
                self._drop_owners(key, gone)

    def _release_owners(self, obj: Json) -> None:
        """Let owners go that waited for this object to be gone."""
        for uid in _owners(obj):
            owner = self._alive.get(uid)
            if owner is None or uid in self._dependents:
                continue
            found = self._store.find(*owner)
            names = found["metadata"].get("finalizers", []) if found else []
            if FOREGROUND in names:
                rest = [name for name in names if name != FOREGROUND]
                self._patch(owner, {"metadata": {"finalizers": rest}})

    def _empty_namespace(self, namespace: str) -> None:
        for kind, name in self._store.names_in(namespace):
            self._delete(Key(kind, namespace, name))
        self._finish_namespace(namespace)

    def _finish_namespace(self, namespace: str) -> None:
        found = self._store.find(NAMESPACE, "", namespace)
        if found is None or "deletionTimestamp" not in found["metadata"]:
            return
        if not self._store.names_in(namespace) and found["spec"].get("finalizers"):
            self._patch(Key(NAMESPACE, "", namespace), {"spec": {"finalizers": []}})

    def _drop_owners(self, key: Key, uids: set[str]) -> None:
        found = self._store.find(*key)
        if found is not None:
            references = found["metadata"].get("ownerReferences", [])
            rest = [ref for ref in references if ref["uid"] not in uids]
            self._patch(key, {"metadata": {"ownerReferences": rest}})

    def _delete(self, key: Key) -> None:
        if self._store.find(*key) is not None:
            self._store.delete(*key, admit=False)

    def _patch(self, key: Key, patch: Json) -> None:
        self._store.merge_patch(*key, patch, admit=False)
