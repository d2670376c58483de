# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The removal of Workflows: patches, and the storage that an abort leaves in use."""

from __future__ import annotations

import contextlib
from typing import Iterable

from flux_k8s.dws.workflowview import FINALIZER, WorkflowView
from flux_k8s.errors import BadObject
from flux_k8s.json_reader import Reader
from flux_k8s.objects.servers import Servers
from flux_k8s.ports import DWS_GROUP, Json
from flux_k8s.rfc.timestamps import format_timestamp

DISABLE_REASON = "flux-framework.readthedocs.io/disable-reason"
DISABLE_DATE = "flux-framework.readthedocs.io/disable-date"
"""Annotations of a Storage: the reason for which it was disabled, and the time."""


def finalizer_patch(view: WorkflowView) -> list[Json]:
    """A JSON patch that removes the service's finalizer and nothing else.

    Controllers add and remove their finalizers at the same time. A merge patch
    would write the whole list and undo their changes. Kubernetes refuses this JSON
    patch when the list has changed, and the step is tried again with the new list.
    """
    path = f"/metadata/finalizers/{view.finalizers.index(FINALIZER)}"
    return [
        {"op": "test", "path": path, "value": FINALIZER},
        {"op": "remove", "path": path},
    ]


def teardown_patch(view: WorkflowView, body: Json) -> list[Json]:
    """A JSON patch that removes the service's finalizer, as :func:`finalizer_patch`
    does, and requests Teardown in the same write. Kubernetes refuses it also when the
    Workflow has no annotations.

    Args:
        body: the merge patch that requests Teardown.
    """
    changes = [
        *((f"/spec/{name}", value) for name, value in body["spec"].items()),
        *(
            (f"/metadata/annotations/{_escape(name)}", value)
            for name, value in body["metadata"]["annotations"].items()
        ),
    ]
    return [
        *finalizer_patch(view),
        *({"op": "add", "path": path, "value": value} for path, value in changes),
    ]


def _escape(name: str) -> str:
    """A name in a JSON pointer (RFC 6901)."""
    return name.replace("~", "~0").replace("/", "~1")


def disable_patch(reason: str, now: float) -> Json:
    """A merge patch that disables a Storage until an administrator enables it.

    Args:
        now: the UNIX time.
    """
    return {
        "metadata": {
            "annotations": {
                DISABLE_REASON: reason,
                DISABLE_DATE: format_timestamp(now),
            }
        },
        "spec": {"state": "Disabled"},
    }


def workflow_selector(name: str) -> str:
    """A label selector for all objects that DWS made for a Workflow."""
    return f"{DWS_GROUP}/workflow.name={name}"


def mounted_nodes(clientmounts: Iterable[Json]) -> tuple[str, ...]:
    """The nodes with a ClientMount whose status does not show that it is unmounted."""
    nodes: dict[str, None] = {}
    for clientmount in clientmounts:
        node = clientmount.get("metadata", {}).get("namespace")
        if isinstance(node, str) and not _is_unmounted(clientmount):
            nodes[node] = None
    return tuple(nodes)


def is_to_be_unmounted(clientmount: Json) -> bool:
    """Whether DWS has told the node of a ClientMount to unmount. In Teardown it deletes
    the ClientMount, which the node keeps until it has unmounted."""
    if "deletionTimestamp" in clientmount.get("metadata", {}):
        return True
    spec = clientmount.get("spec")
    return isinstance(spec, dict) and spec.get("desiredState") == "unmounted"


def is_mounted(clientmount: Json) -> bool:
    """Whether the status of a ClientMount shows that some of it is mounted, or may be:
    NNF writes the state ``mounted`` before it mounts, and ``ready`` when it has
    succeeded, or the error."""
    status = clientmount.get("status")
    if not isinstance(status, dict):
        return False
    mounts, failed = status.get("mounts"), bool(status.get("error"))
    return any(
        isinstance(mount, dict)
        and mount.get("state") == "mounted"
        and (mount.get("ready") is True or not failed)
        for mount in (mounts if isinstance(mounts, list) else ())
    )


def has_failed_to_mount(clientmount: Json) -> bool:
    """Whether a node could not mount, and DWS does without it: DWS never tells it to
    unmount."""
    status = clientmount.get("status")
    failed = isinstance(status, dict) and bool(status.get("error"))
    return failed and not (is_to_be_unmounted(clientmount) or is_mounted(clientmount))


def _is_unmounted(clientmount: Json) -> bool:
    """Whether the node has unmounted all file systems of a ClientMount. NNF writes the
    state ``unmounted`` before it unmounts, and ``ready`` when it has succeeded. A
    ClientMount without a status counts by its desired state."""
    try:
        reader = Reader("ClientMount", clientmount)
        mounts = reader.optional_objects("status.mounts")
        if not mounts:
            return reader.optional_string("spec.desiredState") == "unmounted"
        return all(
            mount.optional_string("state") == "unmounted"
            and mount.optional_boolean("ready") is True
            for mount in mounts
        )
    except BadObject:
        return False


def allocated_rabbits(servers: Iterable[Json]) -> tuple[str, ...]:
    """The Rabbits on which storage of Servers still exists."""
    rabbits: dict[str, None] = {}
    for server in servers:
        with contextlib.suppress(BadObject):
            for entry in Servers.read(server).made:
                sizes = entry.made.items()
                rabbits.update((name, None) for name, made in sizes if made.size)
    return tuple(rabbits)
