# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The cache of a watch: from lists and watch events to the changes of objects.

The module is pure, without I/O and threads. The service (:mod:`.watch`) and the
simulator's virtual time run the same code.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Optional

from msgspec import Struct

from flux_k8s.errors import BadObject
from flux_k8s.kube.status import status_error
from flux_k8s.objects.decoding import Filled, decode, plain
from flux_k8s.objects.metadata import is_newer
from flux_k8s.ports import BAD_RESPONSE, Encoded, KubeError, Seen

ObjectKey = tuple[str, str]
"""Namespace (empty for an object without one) and name."""

Version = tuple[str, str]
"""The uid and the resourceVersion of an object."""

Event = tuple[str, Seen]
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
        self._known: dict[ObjectKey, Version] = {}
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

    def add_page(self, items: Iterable[Encoded]) -> list[Event]:
        """The events for a page of a list.

        Raises:
            KubeError: an item is no Kubernetes object; the whole page is ignored.
        """
        events: list[Event] = []
        for object in [identify(item) for item in items]:
            key = object.namespace, object.name
            self._listed.add(key)
            if self._known.get(key) != (object.uid, object.resource_version):
                events += self._put(key, object)
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

    def add_event(self, type: str, encoded: Encoded) -> list[Event]:
        """The events for an event of the watch, as the API server sent it.

        Raises:
            KubeError: it reports an error, or is malformed.
        """
        if type == "ERROR":
            status = plain(encoded)
            raise status_error(status if isinstance(status, dict) else {})
        if type == "BOOKMARK":
            self.resource_version = resource_version_of(encoded)
            return []
        if type not in ("ADDED", "MODIFIED", "DELETED"):
            raise KubeError(0, BAD_RESPONSE, "the watch sent what is no event")
        object = identify(encoded)
        self.resource_version = object.resource_version
        key = object.namespace, object.name
        known = self._known.get(key)
        if known is not None and is_newer(known[1], object.resource_version):
            return []
        if type == "DELETED":
            if known is None:
                return []
            self._known.pop(key)
            return [("DELETED", object)]
        same = known == (object.uid, object.resource_version)
        return [] if same else self._put(key, object)

    def _put(self, key: ObjectKey, object: Seen) -> list[Event]:
        known = self._known.get(key)
        back = known is not None and is_newer(known[1], object.resource_version)
        if known is not None and known[0] == object.uid and not back:
            events = [("MODIFIED", object)]
        else:
            events = [] if known is None else [self._remove(key)]
            events.append(("ADDED", object))
        self._known[key] = object.uid, object.resource_version
        return events

    def _remove(self, key: ObjectKey) -> Event:
        namespace, name = key
        uid, _ = self._known.pop(key)
        metadata = {"name": name, "uid": uid}
        if namespace:
            metadata["namespace"] = namespace
        return "DELETED", Seen(namespace, name, uid, "", {"metadata": metadata})


class _Metadata(Struct, rename="camel"):
    name: str
    resource_version: Filled
    namespace: Optional[str] = None
    uid: str = ""


class _Object(Struct):
    metadata: _Metadata


class _ListMetadata(Struct, rename="camel"):
    resource_version: Filled


class _Bookmark(Struct):
    metadata: _ListMetadata


def identify(encoded: Encoded) -> Seen:
    """An object, which is not read any further.

    Raises:
        KubeError: it is no Kubernetes object.
    """
    try:
        metadata = decode(_Object, encoded, "an object").metadata
    except BadObject as error:
        raise KubeError(0, BAD_RESPONSE, f"the watch sent {error}") from None
    return Seen(
        metadata.namespace or "",
        metadata.name,
        metadata.uid,
        metadata.resource_version,
        encoded,
    )


def resource_version_of(encoded: Encoded) -> str:
    """The resourceVersion of a bookmark.

    Raises:
        KubeError: it has none.
    """
    try:
        return decode(_Bookmark, encoded, "a bookmark").metadata.resource_version
    except BadObject:
        raise KubeError(0, BAD_RESPONSE, "the watch sent no resourceVersion") from None
