# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The Rabbits: which are fit for use, and their labels."""

from __future__ import annotations

import syslog
from typing import Callable, Mapping, Optional

from flux_k8s.errors import BadObject
from flux_k8s.fields import Reader
from flux_k8s.ports import STORAGE, Json, Kube, KubeError, Watch

SERVING = frozenset({"Ready", "Degraded"})
"""The states of a Storage in which it can take allocations."""


class RabbitManager:
    """Follows the Storage objects of the cluster (a ``WatchHandler``).

    Args:
        log: takes a syslog level and a line.
        watched: is called with an error when the watch was lost, with None when
            all have been seen.

    Attributes:
        complete: all Storages have been seen once.
    """

    def __init__(
        self,
        kube: Kube,
        namespace: str,
        log: Callable[[int, str], None],
        watched: Callable[[Optional[KubeError]], None],
    ) -> None:
        self._kube = kube
        self._namespace = namespace
        self._log = log
        self._watched = watched
        self._labels: dict[str, Mapping[str, str]] = {}
        self._watch: Optional[Watch] = None
        self.complete = False

    def start(self) -> None:
        self._watch = self._kube.watch(STORAGE, self._namespace, self)

    def stop(self) -> None:
        if self._watch is not None:
            self._watch.stop()

    @property
    def labels(self) -> Mapping[str, Mapping[str, str]]:
        """The labels of each Rabbit that is fit for use."""
        return self._labels

    def event(self, type: str, object: Json) -> None:
        name = str(object.get("metadata", {}).get("name"))
        labels = None if type == "DELETED" else self._read(name, object)
        if labels == self._labels.get(name):
            return
        if labels is None:
            del self._labels[name]
        else:
            self._labels[name] = labels

    def synced(self) -> None:
        self.complete = True
        self._watched(None)

    def trouble(self, error: KubeError) -> None:
        self._watched(error)

    def _read(self, name: str, storage: Json) -> Optional[Mapping[str, str]]:
        """The labels of a Storage, or None if it is not fit for use."""
        try:
            reader = Reader(f"Storage {name}", storage)
            status = reader.optional_string("status.status")
            disabled = reader.optional_string("spec.state") == "Disabled"
            labels = reader.optional_object("metadata.labels")
        except BadObject as error:
            self._log(syslog.LOG_ERR, str(error))
            return None
        if status not in SERVING or disabled:
            return None
        return {} if labels is None else {k: str(v) for k, v in labels.value.items()}
