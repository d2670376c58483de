# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The objects in Kubernetes that grow with the machine, or with a job."""

from __future__ import annotations

from functools import partial

from flux_k8s.ports import (
    COMPUTES,
    SERVERS,
    SYSTEMCONFIGURATION,
    SYSTEMSTATUS,
    Kind,
)
from rabbitsim.kube.store import Store
from rabbitsim.kube.watch import Event

GROWING = (SYSTEMSTATUS, SYSTEMCONFIGURATION, COMPUTES, SERVERS)


class Largest:
    """Follows all objects of the kinds that grow.

    Attributes:
        bytes: the JSON of the largest object of each kind, by its plural.
    """

    def __init__(self, store: Store) -> None:
        self._entries: dict[str, int] = {}
        self.bytes: dict[str, int] = {}
        for kind in GROWING:
            store.watch(kind, None, partial(self._written, kind))

    def _written(self, kind: Kind, event: Event) -> None:
        found = event.object
        sets = (found.get("spec") or {}).get("allocationSets") or ()
        data = found.get("data") or (found.get("spec") or {}).get("storageNodes") or ()
        entries = len(data) + sum(len(each["storage"]) for each in sets)
        if entries >= self._entries.get(kind.plural, 0):
            self._entries[kind.plural] = entries
            size = self.bytes.get(kind.plural, 0)
            self.bytes[kind.plural] = max(size, len(found.encoded()))
