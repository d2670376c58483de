# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""SystemStatus: the object in which DWS reads which compute nodes are Disabled.

DWS does not wait for nodes that are Disabled there. Flux disables the nodes whose
broker is not online, those that were drained because storage could not be
mounted or unmounted on them, and those that are fenced, until they return or are
undrained. With
``rabbit.unmount_failure = "keep"``, a node that may have storage mounted is not
Disabled before it cannot write to it any more.

Others write to the object as well. An annotation has the nodes that Flux has disabled.
Others have disabled the rest, and only they enable those nodes again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import AbstractSet, Any, Iterable, Mapping, Optional

import msgspec

from flux_k8s.errors import BadObject
from flux_k8s.formats import hostlist
from flux_k8s.objects.decoding import decode
from flux_k8s.objects.metadata import Metadata, is_newer
from flux_k8s.ports import Encoded, Json

NAME = "default"
"""The name of the one SystemStatus."""

ENABLED = "Enabled"
DISABLED = "Disabled"

ANNOTATION = "flux-framework.readthedocs.io/disabled-nodes"
"""The nodes that Flux has disabled (RFC 29)."""


class _Data(msgspec.Struct):
    nodes: Optional[Mapping[str, Any]] = None


class _SystemStatus(msgspec.Struct):
    metadata: Metadata = msgspec.field(default_factory=Metadata)
    data: Optional[_Data] = None


@dataclass(frozen=True)
class SystemStatusView:
    """The fields of a SystemStatus that the service reads.

    Attributes:
        version: its resourceVersion.
        nodes: the status of each node; one that is missing is Enabled.
        annotated_nodes: the nodes that Flux has disabled, by the annotation.
    """

    version: str = ""
    nodes: Mapping[str, Any] = field(default_factory=dict)
    annotated_nodes: frozenset[str] = frozenset()

    @classmethod
    def parse(cls, object: Encoded) -> SystemStatusView:
        """Read a SystemStatus.

        Raises:
            BadObject: a field has another type or format than it should.
        """
        found = decode(_SystemStatus, object, "SystemStatus {name}")
        text = found.metadata.annotation(ANNOTATION)
        try:
            disabled = frozenset(hostlist.decode(text))
        except ValueError:
            name, place = f"SystemStatus {NAME}", f"metadata.annotations[{ANNOTATION}]"
            raise BadObject(name, place, text, "a hostlist (RFC 29)") from None
        nodes = (found.data and found.data.nodes) or {}
        return cls(found.metadata.version or "", nodes, disabled)

    @property
    def disabled(self) -> frozenset[str]:
        """The nodes that are not Enabled."""
        return frozenset(h for h, status in self.nodes.items() if status != ENABLED)

    @property
    def disabled_by_flux(self) -> frozenset[str]:
        """The nodes that Flux has disabled, and that are still so."""
        return self.disabled & self.annotated_nodes

    @property
    def disabled_by_others(self) -> frozenset[str]:
        """The nodes that another program has disabled."""
        return self.disabled - self.annotated_nodes

    def is_newer_than(self, other: SystemStatusView) -> bool:
        """Whether the view is newer than another one. False if the resource versions
        cannot be compared."""
        return is_newer(self.version, other.version)


def changes(
    hosts: Iterable[str], view: SystemStatusView, disabled: AbstractSet[str]
) -> dict[str, str]:
    """The nodes whose status is to be written, with that status.

    Nodes that Flux does not have (Rabbits are among them) and nodes that somebody
    else has disabled are left as they are.

    Args:
        hosts: the nodes that Flux has.
        disabled: those that are to be Disabled.
    """
    desired = {host: DISABLED if host in disabled else ENABLED for host in hosts}
    left_alone = view.disabled_by_others
    return {
        host: status
        for host, status in desired.items()
        if view.nodes.get(host, ENABLED) != status and host not in left_alone
    }


def patch(view: SystemStatusView, nodes: Mapping[str, str]) -> Json:
    """A merge patch that writes the status of ``nodes``. It fails if somebody else has
    written meanwhile: they may have disabled one of these nodes."""
    newly_disabled = {host for host, status in nodes.items() if status == DISABLED}
    disabled = view.disabled_by_flux - nodes.keys() | newly_disabled
    names = hostlist.encode_sorted(disabled)
    metadata: Json = {"annotations": {ANNOTATION: names}}
    if view.version:
        metadata["resourceVersion"] = view.version
    return {"metadata": metadata, "data": {"nodes": dict(nodes)}}
