# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""ClientMounts: the file systems that a node mounts for a job.

NNF writes the state of a mount before it mounts or unmounts, and ``ready`` when it has
succeeded, or the error. In Teardown DWS deletes the ClientMount, which the node keeps
until it has unmounted.
"""

from __future__ import annotations

from typing import Any, Iterable, Optional, Sequence

from msgspec import Struct, field

from flux_k8s.errors import BadObject
from flux_k8s.objects.decoding import decode
from flux_k8s.objects.metadata import Metadata, names_of
from flux_k8s.ports import Encoded

MOUNTED, UNMOUNTED = "mounted", "unmounted"


class _Mount(Struct):
    state: Optional[str] = None
    ready: Optional[bool] = None


class _Spec(Struct):
    desired: Optional[str] = field(name="desiredState", default=None)
    mounts: Optional[Sequence[Any]] = None


class _Status(Struct):
    error: Any = None
    mounts: Optional[Sequence[_Mount]] = None


class ClientMount(Struct):
    """A ClientMount. One that is damaged counts as neither mounted nor unmounted."""

    metadata: Metadata = field(default_factory=Metadata)
    spec: Optional[_Spec] = None
    status: Optional[_Status] = None
    damaged: bool = False

    @classmethod
    def read(cls, object: Encoded) -> ClientMount:
        try:
            return decode(cls, object, "ClientMount {reference}")
        except BadObject:
            return cls(names_of(object), damaged=True)

    @classmethod
    def unknown(cls, node: str) -> ClientMount:
        """That of a node of which Kubernetes does not say whether it has any: DWS may
        have told it to unmount, and it may not have."""
        return cls(Metadata(node, deletion=True))

    @property
    def node(self) -> str:
        return self.metadata.namespace or ""

    @property
    def desired(self) -> Optional[str]:
        return None if self.spec is None else self.spec.desired

    @property
    def failed(self) -> bool:
        """Whether there is an error."""
        return self.status is not None and bool(self.status.error)

    @property
    def mounts(self) -> Sequence[_Mount]:
        return (self.status and self.status.mounts) or ()

    @property
    def is_mounted(self) -> bool:
        """Whether the node has mounted all file systems."""
        wanted = None if self.spec is None else self.spec.mounts
        return (
            wanted is not None
            and len(self.mounts) == len(wanted)
            and not self.failed
            and self.desired == MOUNTED
            and all(each.state == MOUNTED and each.ready for each in self.mounts)
        )

    @property
    def is_unmounted(self) -> bool:
        """Whether the node has unmounted all file systems. Without a status the desired
        state counts."""
        if not self.mounts:
            return self.desired == UNMOUNTED
        return all(each.state == UNMOUNTED and each.ready for each in self.mounts)

    @property
    def may_be_mounted(self) -> bool:
        """Whether some of it is mounted, or may be."""
        return self.damaged or any(
            each.state == MOUNTED and (each.ready or not self.failed)
            for each in self.mounts
        )

    @property
    def is_to_be_unmounted(self) -> bool:
        """Whether DWS has told the node to unmount."""
        return self.metadata.deleting or self.desired == UNMOUNTED

    @property
    def has_failed_to_mount(self) -> bool:
        """Whether the node could not mount, and DWS does without it: DWS never tells it
        to unmount."""
        return self.failed and not (self.is_to_be_unmounted or self.may_be_mounted)


def not_unmounted(clientmounts: Iterable[ClientMount]) -> tuple[str, ...]:
    """The nodes that have not unmounted, each once."""
    nodes = (mount.node for mount in clientmounts if not mount.is_unmounted)
    return tuple(dict.fromkeys(filter(None, nodes)))
