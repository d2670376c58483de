# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What all objects of Kubernetes have."""

from __future__ import annotations

from typing import Any, Mapping, Optional

from msgspec import Struct, field

from flux_k8s.errors import BadObject
from flux_k8s.json_reader import decimal
from flux_k8s.objects.decoding import decode
from flux_k8s.ports import Encoded


class Metadata(Struct):
    """``metadata`` of an object. Of one that is about to be written parts are missing,
    and null removes an annotation."""

    namespace: Optional[str] = None
    name: Optional[str] = None
    uid: Optional[str] = None
    version: Optional[str] = field(name="resourceVersion", default=None)
    deletion: Any = field(name="deletionTimestamp", default=None)
    labels: Optional[Mapping[str, Optional[str]]] = None
    annotations: Optional[Mapping[str, Optional[str]]] = None

    @property
    def deleting(self) -> bool:
        """Whether the object is being deleted."""
        return self.deletion is not None

    @property
    def reference(self) -> str:
        """Namespace and name, as far as they are known, for people."""
        return "/".join(part for part in (self.namespace, self.name) if part)

    def label(self, key: str) -> Optional[str]:
        """A label; None where there is none."""
        return (self.labels or {}).get(key)

    def annotation(self, key: str) -> str:
        """An annotation; "" where there is none."""
        return (self.annotations or {}).get(key) or ""


class _Anything(Struct):
    metadata: Metadata = field(default_factory=Metadata)


def names_of(object: Encoded) -> Metadata:
    """``metadata`` of an object that may be damaged, as far as they can be read."""
    try:
        return decode(_Anything, object, "an object").metadata
    except BadObject:
        return Metadata()


def is_newer(version: str, other: str) -> bool:
    """Whether a resourceVersion of an object is newer than another one. Those of a kind
    are ordered decimal numbers; versions of another form are not compared."""
    mine, its = decimal(version), decimal(other)
    return mine is not None and its is not None and mine > its
