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
        return self._convert("capacity", Optional[Natural]) or 0

    @property
    def drives(self) -> Sequence[int]:
        """The bytes of each drive; NNF writes 0 for one that is away.

        Raises:
            BadObject: they are malformed.
        """
        found = self._convert("devices", Optional[Sequence[_Drive]])
        return [drive.capacity or 0 for drive in found or ()]

    def _convert(self, field: str, kind: Any) -> Any:
        value = getattr(self._status, field)
        try:
            return convert(value, kind)
        except ValidationError:
            name = f"Storage {self.metadata.name}"
            expected = "bytes, of at least 0"
            raise BadObject(name, f"status.{field}", value, expected) from None
