# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Computes: the nodes of a job."""

from __future__ import annotations

from typing import Optional, Sequence

from msgspec import Struct, field

from flux_k8s.objects.decoding import Filled, decode
from flux_k8s.objects.metadata import Metadata
from flux_k8s.ports import Encoded


class _Node(Struct):
    name: Filled


class Computes(Struct):
    metadata: Metadata = field(default_factory=Metadata)
    data: Optional[Sequence[_Node]] = None

    @classmethod
    def read(cls, object: Encoded) -> Computes:
        """Raises BadObject where the object is not as DWS's schema says."""
        return decode(cls, object, "Computes {name}")

    @property
    def hosts(self) -> tuple[str, ...]:
        """The nodes, each once."""
        return tuple(dict.fromkeys(node.name for node in self.data or ()))
