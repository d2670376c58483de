# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""SystemConfiguration: the Rabbits of a system, and the nodes that each serves."""

from __future__ import annotations

from typing import Optional, Sequence

from msgspec import Struct, field

from flux_k8s.objects.decoding import Filled, decode
from flux_k8s.objects.metadata import Metadata
from flux_k8s.ports import Encoded


class _Access(Struct):
    host: Filled = field(name="name")


class StorageNode(Struct):
    type: Filled
    name: Filled
    access: Optional[Sequence[_Access]] = field(name="computesAccess", default=None)

    @property
    def hosts(self) -> Sequence[str]:
        return [each.host for each in self.access or ()]


class _Spec(Struct):
    nodes: Optional[Sequence[StorageNode]] = field(name="storageNodes", default=None)


class SystemConfiguration(Struct):
    metadata: Metadata = field(default_factory=Metadata)
    spec: Optional[_Spec] = None

    @classmethod
    def read(cls, object: Encoded) -> SystemConfiguration:
        """Raises BadObject where the object is not as DWS's schema says."""
        return decode(cls, object, "SystemConfiguration {reference}")

    @property
    def name(self) -> str:
        """The object in messages."""
        return f"SystemConfiguration {self.metadata.reference}"

    @property
    def storage_nodes(self) -> Sequence[StorageNode]:
        return (self.spec and self.spec.nodes) or ()
