# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The objects that the stand-in controllers make, as NNF makes them.

Names, labels, finalizers and owners are those of the recorded objects.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Optional

from flux_k8s.objects.datamovement import DIRECTIVE_LABEL, STATE_LABEL
from flux_k8s.ports import DWS_GROUP, NNF_GROUP, Json

WORKFLOW_FINALIZERS = (f"{DWS_GROUP}/workflow", f"{NNF_GROUP}/nnf_workflow")
BREAKDOWN_FINALIZER = f"{NNF_GROUP}/directiveBreakdown"
SERVERS_FINALIZER = f"{NNF_GROUP}/nnf-servers"
PERSISTENT_FINALIZER = f"{NNF_GROUP}/persistentStorage"
CLIENTMOUNT_FINALIZER = f"{DWS_GROUP}/client_mount"
SERVERMOUNT_FINALIZER = f"{NNF_GROUP}/nnf_clientmount"

WORKFLOW_NAME = f"{DWS_GROUP}/workflow.name"
WORKFLOW_NAMESPACE = f"{DWS_GROUP}/workflow.namespace"
PERSISTENT_NAME = f"{DWS_GROUP}/persistentstorage.name"
PERSISTENT_NAMESPACE = f"{DWS_GROUP}/persistentstorage.namespace"
OWNER_LABELS = tuple(
    f"{DWS_GROUP}/owner.{part}" for part in ("kind", "name", "namespace", "uid")
)


def duration(seconds: float) -> str:
    """A Go duration, rounded to microseconds: ``119.81ms``, ``2m3.5s``."""
    micros = max(0, round(seconds * 1e6))
    if micros == 0:
        return "0s"
    if micros < 1000:
        return f"{micros}µs"
    if micros < 1_000_000:
        return f"{_fraction(micros, 1000)}ms"
    minutes, rest = divmod(micros, 60_000_000)
    hours, minutes = divmod(minutes, 60)
    text = f"{_fraction(rest, 1_000_000)}s"
    if hours:
        return f"{hours}h{minutes}m{text}"
    return f"{minutes}m{text}" if minutes else text


def _fraction(value: int, unit: int) -> str:
    whole, rest = divmod(value, unit)
    digits = f"{rest:0{len(str(unit)) - 1}d}".rstrip("0")
    return f"{whole}.{digits}" if digits else str(whole)


def reference(kind: str, name: str, namespace: str) -> Json:
    """An ObjectReference."""
    return {"kind": kind, "name": name, "namespace": namespace}


@dataclass(frozen=True)
class Owner:
    """The owner of an object, for its labels and ownerReferences."""

    kind: str
    name: str
    namespace: str
    uid: str
    api_version: str = ""

    @classmethod
    def of(cls, obj: Json) -> Owner:
        meta = obj["metadata"]
        return cls(
            obj["kind"],
            meta["name"],
            meta["namespace"],
            meta["uid"],
            obj["apiVersion"],
        )

    @classmethod
    def pretended(cls, kind: str, name: str, namespace: str, root: str) -> Owner:
        """An owner of a kind that the stand-in does without (NnfAccess,
        NnfStorage): its uid follows from its name and the uid ``root``."""
        uid = uuid.uuid5(uuid.UUID(root), f"{kind}/{namespace}/{name}")
        return cls(kind, name, namespace, str(uid))

    def labels(self) -> dict[str, str]:
        values = (self.kind, self.name, self.namespace, self.uid)
        return dict(zip(OWNER_LABELS, values))

    def references(self) -> list[Json]:
        return [
            {
                "apiVersion": self.api_version,
                "blockOwnerDeletion": True,
                "controller": True,
                "kind": self.kind,
                "name": self.name,
                "uid": self.uid,
            }
        ]


def workflow_labels(workflow: Json, index: Optional[int] = None) -> dict[str, str]:
    """The labels that say which Workflow, and which of its directives, an
    object belongs to."""
    meta = workflow["metadata"]
    labels = {
        WORKFLOW_NAME: meta["name"],
        WORKFLOW_NAMESPACE: meta["namespace"],
        f"{DWS_GROUP}/workflow.uid": meta["uid"],
    }
    if index is not None:
        labels[DIRECTIVE_LABEL] = str(index)
        labels[f"{NNF_GROUP}/job_id"] = str(workflow["spec"]["jobID"])
    return labels


def owned(
    name: str,
    namespace: str,
    owner: Owner,
    labels: Mapping[str, str],
    finalizer: str = "",
) -> Json:
    """The metadata of an object with an owner that exists."""
    meta: Json = {
        "name": name,
        "namespace": namespace,
        "labels": {**owner.labels(), **labels},
        "ownerReferences": owner.references(),
    }
    if finalizer:
        meta["finalizers"] = [finalizer]
    return meta


def client_mount(
    workflow: Json,
    index: int,
    node: str,
    mounts: Sequence[Json],
    *,
    storage: str,
    rabbit: bool,
) -> Json:
    """A ClientMount for one node.

    Args:
        mounts: ``spec.mounts``.
        storage: the name of the storage that is mounted (that of its Servers).
        rabbit: the node is a Rabbit, not a compute node.
    """
    meta = workflow["metadata"]
    base, suffix = f"{meta['name']}-{index}", "servers" if rabbit else "computes"
    access = Owner.pretended(
        "NnfAccess", f"{base}-{suffix}", meta["namespace"], meta["uid"]
    )
    target = Owner.pretended("NnfStorage", storage, meta["namespace"], meta["uid"])
    labels = {
        **access.labels(),
        **workflow_labels(workflow, index),
        f"{NNF_GROUP}/pinned_storage_profile_name": storage,
        f"{NNF_GROUP}/pinned_storage_profile_namespace": meta["namespace"],
        f"{NNF_GROUP}/target_directive_index": "0" if storage != base else str(index),
        f"{NNF_GROUP}/target_owner_uid": target.uid,
    }
    if rabbit:
        labels[STATE_LABEL] = "PostRun"
    return {
        "metadata": {
            "name": f"{meta['namespace']}-{base}-{suffix}",
            "namespace": node,
            "labels": labels,
            "finalizers": [SERVERMOUNT_FINALIZER if rabbit else CLIENTMOUNT_FINALIZER],
        },
        "spec": {"desiredState": "mounted", "mounts": list(mounts), "node": node},
    }


def resource_error(message: str, debug: str, severity: str = "Major") -> Json:
    """The ``error`` of a status. ``message`` is for the user."""
    return {
        "debugMessage": debug,
        "severity": severity,
        "type": "Internal",
        "userMessage": message,
    }
