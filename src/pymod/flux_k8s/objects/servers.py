# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Servers: the storage of a directive on each Rabbit, as it is asked for and as it was
made. :mod:`flux_k8s.objects.storageusage` says what that means for others."""

from __future__ import annotations

from typing import Mapping, Optional, Sequence

from msgspec import Struct, field

from flux_k8s.objects.decoding import Filled, Natural, decode
from flux_k8s.objects.metadata import Metadata
from flux_k8s.ports import Encoded


class Place(Struct):
    """What is asked for on a Rabbit: a number of allocations."""

    rabbit: Filled = field(name="name")
    count: Natural = field(name="allocationCount")


class AllocationSet(Struct):
    """An entry of ``spec.allocationSets``: allocations of one size."""

    label: Optional[str] = None
    size: Optional[Natural] = field(name="allocationSize", default=None)
    places: Optional[Sequence[Place]] = field(name="storage", default=None)


class Made(Struct):
    """What NNF has made on a Rabbit: bytes of all allocations."""

    size: Optional[Natural] = field(name="allocationSize", default=None)
    ready: Optional[bool] = None


class MadeSet(Struct):
    """An entry of ``status.allocationSets``, by Rabbit."""

    label: Optional[str] = None
    storage: Optional[Mapping[str, Optional[Made]]] = None

    @property
    def made(self) -> Mapping[str, Made]:
        return {name: made or Made() for name, made in (self.storage or {}).items()}


class _Spec(Struct):
    sets: Optional[Sequence[AllocationSet]] = field(name="allocationSets", default=None)


class _Status(Struct):
    ready: Optional[bool] = None
    sets: Optional[Sequence[MadeSet]] = field(name="allocationSets", default=None)


class Servers(Struct):
    metadata: Metadata = field(default_factory=Metadata)
    spec: Optional[_Spec] = None
    status: Optional[_Status] = None

    @classmethod
    def read(cls, object: Encoded) -> Servers:
        """Raises BadObject where the object is not as DWS's schema says."""
        return decode(cls, object, "Servers {reference}")

    @property
    def name(self) -> str:
        """The object in messages."""
        return f"Servers {self.metadata.reference}"

    @property
    def ready(self) -> bool:
        """Whether all storage was made once: that stays true after Teardown."""
        return self.status is not None and self.status.ready is True

    @property
    def sets(self) -> Sequence[AllocationSet]:
        """What is asked for."""
        return (self.spec and self.spec.sets) or ()

    @property
    def made(self) -> Sequence[MadeSet]:
        """What NNF has made."""
        return (self.status and self.status.sets) or ()
