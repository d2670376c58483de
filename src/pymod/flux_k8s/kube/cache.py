# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The cache of a watch: from lists and watch events to the changes of objects.

The module is pure, without I/O and threads. The service (:mod:`.watch`) and the
simulator's virtual time run the same code.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Optional

from flux_k8s.kube.status import status_error
from flux_k8s.ports import BAD_RESPONSE, Json, KubeError
from flux_k8s.resourceversion import is_newer

ObjectKey = tuple[str, str]
"""Namespace (empty for an object without one) and name."""

Event = tuple[str, Json]
"""ADDED, MODIFIED or DELETED, and the object."""

EMPTY = 0, "Empty"
"""Status and reason of the error for a list that lacks all objects that are known."""


class Cache:
    """The versions of the objects that the handler of a watch knows.

    A list is read by ``begin_list``, ``add_page`` for each page, and ``end_list``; then
    ``add_event`` reads each event of the watch. All three return the events for the
    handler. ``note_error`` is called with any error, after which another list follows.

    Attributes:
        resource_version: the resourceVersion to watch from; empty when a list is
            needed.
        watch_failures: how often in a row the watch has failed, by whatever errors.
    """

    def __init__(self) -> None:
        self.resource_version = ""
        self._known: dict[ObjectKey, _Version] = {}
        self._listed: set[ObjectKey] = set()
        self.watch_failures = 0
        self._watch_troubles: set[tuple[int, str]] = set()
        self._trouble: Optional[tuple[int, str]] = None
        self._expired = False

    def note_error(self, error: KubeError) -> bool:
        """Require a list: a watch that was lost may have lost events.

        Returns:
            Whether to pass the error to the handler. Until a list succeeds, the
            handler receives an error once in a row; that of a watch, which lists may
            succeed without, once until :meth:`watch_worked`. The first 410 (the server
            has forgotten the resourceVersion) and :data:`EMPTY` are not passed on.
        """
        trouble = error.status, error.reason
        watched, self.resource_version = bool(self.resource_version), ""
        if watched:
            self.watch_failures += 1
        if error.status == 410 and not self._expired:
            self._expired = True
            return False
        if watched:
            known = trouble in self._watch_troubles
            self._watch_troubles.add(trouble)
        else:
            known = trouble == self._trouble
        if known:
            return False
        self._trouble = trouble
        return trouble != EMPTY

    def watch_worked(self) -> None:
        """The watch has worked for a while, whatever becomes of it."""
        self.watch_failures = 0
        self._watch_troubles.clear()

    def begin_list(self) -> None:
        """Begin with a new list of all objects."""
        self.resource_version = ""
        self._listed = set()

    def add_page(self, items: Iterable[Any]) -> list[Event]:
        """The events for a page of a list.

        Raises:
            KubeError: an item is no Kubernetes object; the whole page is ignored.
        """
        identified = [(*_identify(item), item) for item in items]
        events: list[Event] = []
        for key, version, item in identified:
            self._listed.add(key)
            if self._known.get(key) != version:
                events += self._put(key, version, item)
        return events

    def end_list(self, resource_version: str) -> list[Event]:
        """The events for known objects that the list lacks: they are deleted.

        Args:
            resource_version: the resourceVersion of the list.

        Raises:
            KubeError: it lacks all of them, which may be a mistake: the next list
                counts.
        """
        if self._known and not self._listed and self._trouble != EMPTY:
            raise KubeError(*EMPTY, "the list has nothing of what there was")
        self.resource_version = resource_version
        self._trouble, self._expired = None, False
        gone = [key for key in self._known if key not in self._listed]
        self._listed = set()
        return [self._remove(key) for key in gone]

    def add_event(self, event: Any) -> list[Event]:
        """The events for an event of the watch, as the API server sent it.

        Raises:
            KubeError: it reports an error, or is malformed.
        """
        type = event.get("type") if isinstance(event, dict) else None
        if type == "ERROR":
            status = event.get("object")
            raise status_error(status if isinstance(status, dict) else {})
        if type == "BOOKMARK":
            self.resource_version = resource_version_of(event.get("object"))
            return []
        if type not in ("ADDED", "MODIFIED", "DELETED"):
            raise KubeError(0, BAD_RESPONSE, "the watch sent what is no event")
        object = event.get("object")
        key, version = _identify(object)
        self.resource_version = version.resource_version
        known = self._known.get(key)
        if known is not None and known.is_newer_than(version):
            return []
        if type == "DELETED":
            if known is None:
                return []
            self._known.pop(key)
            return [("DELETED", object)]
        return [] if known == version else self._put(key, version, object)

    def _put(self, key: ObjectKey, version: _Version, object: Json) -> list[Event]:
        known = self._known.get(key)
        if known is not None and known.uid == version.uid:
            events = [("MODIFIED", object)]
        else:
            events = [] if known is None else [self._remove(key)]
            events.append(("ADDED", object))
        self._known[key] = version
        return events

    def _remove(self, key: ObjectKey) -> Event:
        namespace, name = key
        metadata = {"name": name, "uid": self._known.pop(key).uid}
        if namespace:
            metadata["namespace"] = namespace
        return ("DELETED", {"metadata": metadata})


@dataclass(frozen=True)
class _Version:
    """The identity and the version of an object."""

    uid: str
    resource_version: str

    def is_newer_than(self, other: _Version) -> bool:
        """Whether this version is the newer one, as far as that can be told."""
        return bool(is_newer(self.resource_version, other.resource_version))


def resource_version_of(object: Any) -> str:
    """The resourceVersion of an object, or of a list.

    Raises:
        KubeError: it has none.
    """
    metadata = object.get("metadata") if isinstance(object, dict) else None
    version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
    if not isinstance(version, str) or not version:
        raise KubeError(0, BAD_RESPONSE, "the watch sent no resourceVersion")
    return version


def _identify(object: Any) -> tuple[ObjectKey, _Version]:
    """The key and the version of an object. Its ``managedFields`` are removed: they may
    be half of the object, and no part of the service reads them."""
    resource_version = resource_version_of(object)
    metadata = object["metadata"]
    metadata.pop("managedFields", None)
    namespace, name = metadata.get("namespace") or "", metadata.get("name")
    uid = metadata.get("uid", "")
    if not (
        isinstance(namespace, str) and isinstance(name, str) and isinstance(uid, str)
    ):
        raise KubeError(0, BAD_RESPONSE, "the watch sent an object without a name")
    return (namespace, name), _Version(uid, resource_version)
