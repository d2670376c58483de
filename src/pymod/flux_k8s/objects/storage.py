# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Storage: a Rabbit, as DWS has it."""

from __future__ import annotations

from typing import Any, Optional, Sequence

from msgspec import Struct, ValidationError, convert, field

from flux_k8s.errors import BadObject
from flux_k8s.objects.decoding import Filled, Natural, decode
from flux_k8s.objects.metadata import Metadata
from flux_k8s.ports import Encoded

SERVING = frozenset(("Ready", "Degraded"))
"""The states of a Rabbit, and of its connection to a node, in which it serves."""

DISABLED = "Disabled"


class Link(Struct):
    """The connection of a compute node to the Rabbit."""

    host: Filled = field(name="name")
    status: Optional[str] = None


class _Access(Struct):
    computes: Optional[Sequence[Link]] = None


class _Drive(Struct):
    capacity: Optional[Natural] = None


class _Spec(Struct):
    state: Optional[str] = None


class _Status(Struct):
    """The Rabbit serves whatever is said of its sizes."""

    status: Optional[str] = None
    access: Optional[_Access] = None
    capacity: Any = None
    devices: Any = None


class Storage(Struct):
    metadata: Metadata = field(default_factory=Metadata)
    spec: Optional[_Spec] = None
    status: Optional[_Status] = None

    @classmethod
    def read(cls, object: Encoded) -> Storage:
        """Raises BadObject where the object is not as DWS's schema says."""
        return decode(cls, object, "Storage {name}")

    @property
    def _status(self) -> _Status:
        return self.status or _Status()

    @property
    def state(self) -> str:
        """How DWS has the Rabbit; "" where it does not say."""
        return self._status.status or ""

    @property
    def disabled(self) -> bool:
        """Whether it is out of service for DWS."""
        return self.spec is not None and self.spec.state == DISABLED

    @property
    def links(self) -> Sequence[Link]:
        access = self._status.access
        return (access and access.computes) or ()

    @property
    def free(self) -> int:
        """The bytes that are free.

        Raises:
            BadObject: the number is malformed.
        """
        try:
            return convert(self._status.capacity, Optional[Natural]) or 0
        except ValidationError:
            raise self._bad("capacity", self._status.capacity) from None

    @property
    def drives(self) -> Sequence[int]:
        """The bytes of each drive; NNF writes 0 for one that is away.

        Raises:
            BadObject: they are malformed.
        """
        devices = self._status.devices
        try:
            found = convert(devices, Optional[Sequence[_Drive]]) or ()
        except ValidationError:
            raise self._bad("devices", devices) from None
        return [drive.capacity or 0 for drive in found]

    def _bad(self, field: str, value: Any) -> BadObject:
        name = f"Storage {self.metadata.name}"
        return BadObject(name, f"status.{field}", value, "bytes, of at least 0")
