# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The removal of Workflows: patches, and the storage that an abort leaves in use."""

from __future__ import annotations

from typing import Iterable

from flux_k8s.formats.timestamps import format_timestamp
from flux_k8s.objects.servers import Servers
from flux_k8s.objects.workflowview import FINALIZER, WorkflowView
from flux_k8s.ports import DWS_GROUP, Json

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


def allocated_rabbits(servers: Iterable[Json]) -> tuple[str, ...]:
    """The Rabbits on which storage of Servers still exists.

    Raises:
        BadObject: one of them cannot be read.
    """
    rabbits: dict[str, None] = {}
    for server in servers:
        for entry in Servers.read(server).made:
            sizes = entry.made.items()
            rabbits.update((name, None) for name, made in sizes if made.size)
    return tuple(rabbits)
