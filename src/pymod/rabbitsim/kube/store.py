# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The objects of a cluster, and the verbs on them.

A :class:`Store` does no I/O and knows no threads: who shares it between
threads takes care. Time and randomness come in, so that a run with a seed is
the same each time.

What the verbs return is what is stored, shared with everybody: do not change
it. What is given to them belongs to the store from then on.

Objects are made in namespaces that exist. ``default`` and ``kube-system`` are
there from the beginning; :meth:`Store.ensure_namespace` makes others.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from typing import Optional

from flux_k8s.ports import Json, Kind
from rabbitsim.kube import objects
from rabbitsim.kube.collector import FOREGROUND, Collector
from rabbitsim.kube.crds import served
from rabbitsim.kube.errors import (
    ApiError,
    Forbidden,
    already_exists,
    bad_request,
    denied,
    method_not_allowed,
    no_such_resource,
    not_found,
    terminating,
)
from rabbitsim.kube.kinds import CRD, NAMESPACE, Kinds, Resource, load_kinds
from rabbitsim.kube.patch import json_patch, merge_patch, same_json
from rabbitsim.kube.tables import Page, Table, read_version
from rabbitsim.kube.watch import Change, Event, Stored, StoreWatch

__all__ = ["Admission", "ApiError", "Event", "Forbidden", "Store", "denied"]

Admission = Callable[[str, Kind, Optional[Json], Optional[Json]], None]
"""``(operation, kind, new, old)`` with operation CREATE, UPDATE or DELETE.

Raises :class:`Forbidden` to refuse. May assign to ``new`` (as a mutating
webhook does), but not change in place what it finds deeper in it when ``old``
is given: the two share their unchanged parts. Not asked about ``/status``.
"""

Names = list[tuple[Kind, str]]
"""Objects of one namespace."""

_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"
_PERMANENT = ("default", "kube-system")


class Store:
    """A Kubernetes cluster's objects.

    Args:
        clock: UNIX time in seconds.
        rng: for uids and generated names.
        kinds: what to serve; all of :file:`kinds.yaml` by default.
        history: how many changes of each kind are kept for watches. A watch
            from an older resourceVersion gets 410 Expired.
        managed_fields: whether objects have ``metadata.managedFields``, as those of a
            real API server do. They are a third of a Workflow.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        rng: random.Random,
        kinds: Optional[Kinds] = None,
        history: int = 4096,
        managed_fields: bool = False,
    ) -> None:
        self.kinds = kinds or load_kinds()
        self.admission: list[Admission] = []
        self.pod_logs: dict[tuple[str, str, str], str] = {}
        """The logs of containers, by (namespace, pod, container)."""
        self._clock = clock
        self._rng = rng
        self._version = 0
        self._managed_fields = managed_fields
        self._collector = Collector(self)
        self._tables = {
            key: Table(resource, history)
            for key, resource in self.kinds.resources.items()
        }
        for name in _PERMANENT:
            self.ensure_namespace(name)
        for resource in self.kinds.resources.values():
            if resource.custom:
                self._create(self._table(CRD), "", served(resource), False)

    @property
    def version(self) -> int:
        """The resourceVersion of the latest write."""
        return self._version

    def resource(self, kind: Kind) -> Resource:
        """The resource of ``kind``. Raises ApiError 404 when it is not served."""
        return self._table(kind).resource

    def _table(self, kind: Kind) -> Table:
        table = self._tables.get((kind.group, kind.plural))
        if table is None:
            raise no_such_resource()
        return table

    # Reading

    def find(self, kind: Kind, namespace: str, name: str) -> Optional[Stored]:
        """The object, or None."""
        return self._table(kind).find(namespace, name)

    def get(self, kind: Kind, namespace: str, name: str) -> Stored:
        """The object. Raises ApiError 404."""
        found = self._table(kind).find(namespace, name)
        if found is None:
            raise not_found(kind, name)
        return found

    def names_in(self, namespace: str) -> Names:
        """All that there is in a namespace."""
        return [
            (table.resource.kind, name)
            for table in self._tables.values()
            if table.resource.namespaced
            for name in table.objects.get(namespace, ())
        ]

    def select(
        self,
        kind: Kind,
        namespace: Optional[str] = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 0,
        token: str = "",
    ) -> Page:
        """The objects of one namespace or of all (None), by namespace and name.

        Raises:
            ApiError: 400 for a bad selector or token, 410 for an old token.
        """
        table = self._table(kind)
        selector = table.selector(label_selector, field_selector)
        return table.page(namespace, selector, self._version, limit, token)

    def list(
        self,
        kind: Kind,
        namespace: Optional[str] = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 0,
        token: str = "",
    ) -> Json:
        """:meth:`select` as a List object."""
        page = self.select(
            kind,
            namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            limit=limit,
            token=token,
        )
        return {
            "apiVersion": self.resource(kind).api_version,
            "kind": f"{kind.name}List",
            "metadata": page.metadata,
            "items": page.items,
        }

    def watch(
        self,
        kind: Kind,
        namespace: Optional[str],
        callback: Callable[[Event], None],
        *,
        resource_version: str = "",
        label_selector: str = "",
        field_selector: str = "",
    ) -> StoreWatch:
        """Tell ``callback`` of every change after ``resource_version``; without
        one (or "0") first of what there is, as ADDED.

        The callback is called from within the verb that writes, and before this
        call returns for what is already known. It must not write.

        Raises:
            ApiError: 400, or 410 when the changes since then are forgotten.
        """
        table = self._table(kind)
        selector = table.selector(label_selector, field_selector)
        watch = StoreWatch(table.history, namespace, selector, callback)
        if resource_version in ("", "0"):
            since = self._version
            table.history.add(watch, since)
            for obj in table.in_order(namespace):
                watch.offer(Change("ADDED", obj, None))
        else:
            table.history.add(watch, read_version(resource_version))
        return watch

    def forget_history(self) -> None:
        """Make every watch from an older resourceVersion get 410 Expired."""
        for table in self._tables.values():
            table.history.forget(self._version)

    # Writing

    def ensure_namespace(self, name: str) -> None:
        """Create a namespace unless it exists."""
        if self.find(NAMESPACE, "", name) is None:
            self.create(NAMESPACE, "", {"metadata": {"name": name}})

    def create(
        self, kind: Kind, namespace: str, body: object, *, dry_run: bool = False
    ) -> Stored:
        """Create an object.

        Raises:
            ApiError: 400, 403, 404 (no such namespace), 409, 422.
        """
        return self._create(self._writable(kind), namespace, body, dry_run)

    def _create(
        self, table: Table, namespace: str, body: object, dry_run: bool
    ) -> Stored:
        resource, kind = table.resource, table.resource.kind
        new = objects.shape(self.kinds, resource, body, None)
        metadata = new["metadata"]
        if metadata.get("resourceVersion"):
            raise bad_request(
                "resourceVersion should not be set on objects to be created"
            )
        objects.place(resource, namespace, metadata)
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = metadata["generateName"] + "".join(
                self._rng.choice(_SUFFIX) for _ in range(5)
            )
        objects.check_name(resource, metadata.get("name", ""))
        if resource.namespaced:
            self._check_namespace(kind, metadata)
        if resource.has_status:
            new.pop("status", None)
        if kind == NAMESPACE:
            new["spec"] = {"finalizers": ["kubernetes"]}
            new["status"] = {"phase": "Active"}
        self._admit("CREATE", kind, new, None)
        if table.find(namespace, metadata["name"]) is not None:
            raise already_exists(kind, metadata["name"])
        new["metadata"] = self._first_metadata(new["metadata"])
        self._note_fields(new)
        if dry_run:
            return self._version_of(new, self._version)
        created = self._version_of(new, self._next_version())
        table.put(created)
        self._changed(table, Change("ADDED", created, None))
        return created

    def update(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        body: object,
        *,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Stored:
        """Replace an object. A custom resource's must name the resourceVersion
        that it replaces.

        Raises:
            ApiError: 400, 403, 404, 409, 422.
        """
        table = self._writable(kind)
        old = self.get(kind, namespace, name)
        metadata = body.get("metadata") if isinstance(body, dict) else None
        if table.resource.custom and isinstance(metadata, dict):
            objects.check_versioned(table.resource, name, metadata)
        return self._replace(table, old, body, subresource, dry_run, True)

    def merge_patch(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        patch: object,
        *,
        subresource: str = "",
        dry_run: bool = False,
        admit: bool = True,
    ) -> Stored:
        """Apply a JSON merge patch (RFC 7386). With ``admit`` false the
        admission hooks are not asked.

        Raises:
            ApiError: 400, 403, 404, 409, 422.
        """
        table = self._writable(kind)
        old = self.get(kind, namespace, name)
        if not isinstance(patch, dict):
            raise bad_request("a merge patch must be a JSON object")
        # Only a resourceVersion that the patch itself names is a precondition.
        body = merge_patch(old, patch)
        objects.check_uid(table.resource, old, body["metadata"])
        return self._replace(table, old, body, subresource, dry_run, admit)

    def json_patch(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        operations: object,
        *,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Stored:
        """Apply a JSON patch (RFC 6902).

        Raises:
            ApiError: 400, 403, 404, 409, 422.
        """
        table = self._writable(kind)
        old = self.get(kind, namespace, name)
        body = json_patch(dict(old), operations)
        return self._replace(table, old, body, subresource, dry_run, True)

    def delete(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        *,
        propagation: str = "Background",
        uid: str = "",
        resource_version: str = "",
        dry_run: bool = False,
        admit: bool = True,
    ) -> Json:
        """Delete an object: now, or once its last finalizer is removed.

        ``propagation`` says what becomes of the objects that it owns:
        Background, Foreground or Orphan. ``uid`` and ``resource_version`` are
        preconditions. Returns the object when it has finalizers, else a
        ``Status``.

        Raises:
            ApiError: 400, 403, 404, 409.
        """
        table = self._writable(kind)
        old = self.get(kind, namespace, name)
        precondition = {"uid": uid, "resourceVersion": resource_version}
        objects.check_preconditions(table.resource, old, precondition)
        if kind == NAMESPACE and name in _PERMANENT:
            raise Forbidden(
                f'namespaces "{name}" is forbidden: this namespace may not be deleted'
            )
        if admit:
            self._admit("DELETE", kind, None, old)
        if not dry_run:
            old = self._propagate(table, old, propagation)
        if objects.finalizers(table.resource, old):
            return old if dry_run else self._begin_deletion(table, old)
        if not dry_run:
            self._remove(table, old)
        return objects.deleted(kind, old)

    def _writable(self, kind: Kind) -> Table:
        table = self._table(kind)
        if table.resource.read_only:
            raise method_not_allowed()
        return table

    def _check_namespace(self, kind: Kind, metadata: Json) -> None:
        name = metadata["namespace"]
        space = self.find(NAMESPACE, "", name)
        if space is None:
            raise not_found(NAMESPACE, name)
        if "deletionTimestamp" in space["metadata"]:
            raise terminating(kind, metadata["name"], name)

    def _admit(
        self, operation: str, kind: Kind, new: Optional[Json], old: Optional[Json]
    ) -> None:
        for hook in self.admission:
            hook(operation, kind, new, old)

    def _first_metadata(self, metadata: Json) -> Json:
        given = {key: value for key, value in metadata.items() if value}
        for key in ("deletionTimestamp", "deletionGracePeriodSeconds"):
            given.pop(key, None)
        return {
            **given,
            "uid": str(uuid.UUID(int=self._rng.getrandbits(128), version=4)),
            "generation": 1,
            "creationTimestamp": objects.timestamp(self._clock()),
        }

    def _replace(
        self,
        table: Table,
        old: Stored,
        body: object,
        subresource: str,
        dry_run: bool,
        admit: bool,
    ) -> Stored:
        """Put ``body`` in the place of ``old``."""
        resource = table.resource
        if subresource and not (subresource == "status" and resource.has_status):
            raise no_such_resource()
        new = objects.shape(self.kinds, resource, body, old)
        objects.check_preconditions(resource, old, new["metadata"])
        objects.keep_owned(resource, old, new, subresource)
        objects.check_finalizers(resource, old, new)
        if admit and not subresource:
            self._admit("UPDATE", resource.kind, new, old)
        if same_json(new, old):
            return old
        if objects.generation_changes(resource, old, new):
            new["metadata"]["generation"] = old["metadata"]["generation"] + 1
        if dry_run:
            return self._version_of(new, old.version)
        metadata = new["metadata"]
        if "deletionTimestamp" in metadata and not objects.finalizers(resource, new):
            removed = self._remove(table, old)
            return self._version_of(new, removed.version)
        return self._store(table, old, new)

    def _note_fields(self, new: Json) -> None:
        if self._managed_fields:
            fields = objects.managed_fields(new, self._clock())
            new["metadata"] = {**new["metadata"], "managedFields": fields}

    def _store(self, table: Table, old: Stored, new: Json) -> Stored:
        self._note_fields(new)
        stored = self._version_of(new, self._next_version())
        table.put(stored)
        self._changed(table, Change("MODIFIED", stored, old))
        return stored

    def _propagate(self, table: Table, old: Stored, propagation: str) -> Stored:
        uid = old["metadata"]["uid"]
        if propagation == "Orphan":
            self._collector.orphan_dependents(uid)
        elif propagation == "Foreground":
            if self._collector.has_dependents(uid):
                return self._hold_for_dependents(table, old)
        elif propagation != "Background":
            raise bad_request(
                f"propagationPolicy is {propagation}: must be Background, Foreground "
                "or Orphan"
            )
        return old

    def _hold_for_dependents(self, table: Table, old: Stored) -> Stored:
        metadata = old["metadata"]
        names = metadata.get("finalizers", [])
        if FOREGROUND not in names:
            held = {**metadata, "finalizers": [*names, FOREGROUND]}
            old = self._store(table, old, {**old, "metadata": held})
        old = self._begin_deletion(table, old)
        self._collector.delete_dependents(metadata["uid"])
        return table.find(metadata.get("namespace", ""), metadata["name"]) or old

    def _begin_deletion(self, table: Table, old: Stored) -> Stored:
        """Mark an object that has finalizers; deleting it twice changes nothing."""
        metadata = old["metadata"]
        if "deletionTimestamp" in metadata:
            return old
        new = {
            **old,
            "metadata": {
                **metadata,
                "generation": metadata["generation"] + 1,
                "deletionTimestamp": objects.timestamp(self._clock()),
                "deletionGracePeriodSeconds": 0,
            },
        }
        if table.resource.kind == NAMESPACE:
            new["status"] = {"phase": "Terminating"}
        return self._store(table, old, new)

    def _remove(self, table: Table, old: Stored) -> Stored:
        gone = self._version_of(old, self._next_version())
        table.drop(old)
        self._changed(table, Change("DELETED", gone, old))
        return gone

    def _changed(self, table: Table, change: Change) -> None:
        table.history.append(change)
        self._collector.changed(table.resource, change)

    def _next_version(self) -> int:
        self._version += 1
        return self._version

    @staticmethod
    def _version_of(obj: Json, version: int) -> Stored:
        metadata = {**obj["metadata"], "resourceVersion": str(version)}
        return Stored({**obj, "metadata": metadata})
