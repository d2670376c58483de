# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""From lists and watch events to what is new. Pure: no I/O, no threads.

Production (:mod:`.watch`) and the simulator's virtual time share it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Optional

from flux_k8s.json_reader import decimal
from flux_k8s.kube.status import status_error
from flux_k8s.ports import Json, KubeError

ObjectKey = tuple[str, str]
Event = tuple[str, Json]


class Cache:
    """What a handler was told, and what to tell it next.

    A list replaces the view: ``begin_list``, ``add_page`` for each page, then
    ``end_list``. After that ``add_event`` takes what the watch says. ``note_error``
    takes any error of either; another list follows.

    Attributes:
        resource_version: where to watch from; empty when a list is needed.
    """

    def __init__(self) -> None:
        self.resource_version = ""
        self._known: dict[ObjectKey, _Version] = {}
        self._listed: set[ObjectKey] = set()
        self._trouble: Optional[tuple[int, str]] = None
        self._expired = False

    def note_error(self, error: KubeError) -> bool:
        """Forget where to watch from: a watch that was lost may have lost events.

        Returns whether the handler is to hear of the error. Until a list succeeds
        it hears of the same trouble once. That the server no longer remembers a
        resourceVersion (410) is trouble only when it says so again.
        """
        self.resource_version = ""
        if error.status == 410 and not self._expired:
            self._expired = True
            return False
        trouble = error.status, error.reason
        if trouble == self._trouble:
            return False
        self._trouble = trouble
        return True

    def begin_list(self) -> None:
        self.resource_version = ""
        self._listed = set()

    def add_page(self, items: Iterable[Any]) -> list[Event]:
        """Events for objects of a list.

        Raises:
            KubeError: one of them is no object; the whole page was ignored.
        """
        identified = [(*_identify(item), item) for item in items]
        events: list[Event] = []
        for key, version, item in identified:
            self._listed.add(key)
            if self._known.get(key) != version:
                events += self._put(key, version, item)
        return events

    def end_list(self, resource_version: str) -> list[Event]:
        """Events for objects that are gone."""
        self.resource_version = resource_version
        self._trouble, self._expired = None, False
        gone = [key for key in self._known if key not in self._listed]
        self._listed = set()
        return [self._remove(key) for key in gone]

    def add_event(self, event: Any) -> list[Event]:
        """Events for one of the API server's.

        Raises:
            KubeError: it reports an error, or is none.
        """
        type = event.get("type") if isinstance(event, dict) else None
        if type == "ERROR":
            status = event.get("object")
            raise status_error(status if isinstance(status, dict) else {})
        if type == "BOOKMARK":
            self.resource_version = resource_version_of(event.get("object"))
            return []
        if type not in ("ADDED", "MODIFIED", "DELETED"):
            raise KubeError(0, "BadResponse", "the watch sent what is no event")
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
    uid: str
    resource_version: str

    def is_newer_than(self, other: _Version) -> bool:
        """Resource versions of one kind are ordered, as decimal numbers."""
        mine, its = decimal(self.resource_version), decimal(other.resource_version)
        return mine is not None and its is not None and mine > its


def resource_version_of(object: Any) -> str:
    metadata = object.get("metadata") if isinstance(object, dict) else None
    version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
    if not isinstance(version, str) or not version:
        raise KubeError(0, "BadResponse", "the watch sent no resourceVersion")
    return version


def _identify(object: Any) -> tuple[ObjectKey, _Version]:
    """An object's name and version. Its managedFields, which nobody reads and
    which may be half of it, are dropped."""
    resource_version = resource_version_of(object)
    metadata = object["metadata"]
    metadata.pop("managedFields", None)
    namespace, name = metadata.get("namespace") or "", metadata.get("name")
    uid = metadata.get("uid", "")
    if not (
        isinstance(namespace, str) and isinstance(name, str) and isinstance(uid, str)
    ):
        raise KubeError(0, "BadResponse", "the watch sent an object without a name")
    return (namespace, name), _Version(uid, resource_version)
