# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""SystemStatus: the nodes that DWS does not wait for.
:mod:`flux_k8s.objects.systemstatusview` says what is to stand there."""

from __future__ import annotations

from typing import Any, Mapping, Optional

from msgspec import Struct, field

from flux_k8s.objects.decoding import decode
from flux_k8s.objects.metadata import Metadata
from flux_k8s.ports import Encoded


class _Data(Struct):
    nodes: Optional[Mapping[str, Any]] = None


class SystemStatus(Struct):
    metadata: Metadata = field(default_factory=Metadata)
    data: Optional[_Data] = None

    @classmethod
    def read(cls, object: Encoded) -> SystemStatus:
        """Raises BadObject where the object is not as DWS's schema says."""
        return decode(cls, object, "SystemStatus {name}")

    @property
    def nodes(self) -> Mapping[str, Any]:
        """The status of each node; whatever is not Enabled is Disabled."""
        return (self.data and self.data.nodes) or {}
