# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The bytes that a Servers object holds on each Rabbit. Only this module counts them.

A Servers object has two numbers. ``spec`` is the workload manager's request: the size
of an allocation, and the count of allocations on each Rabbit. ``status`` is the storage
that NNF has made, in bytes on each Rabbit (size x count). It is 0 until Setup has made
the storage of that Rabbit, and 0 again when Teardown has deleted it, one Rabbit after
the other.

The storage that NNF has made reduces ``Storage.status.capacity``. Storage that is only
requested reduces nothing, and yet nobody else may have it: NNF makes it in Setup, and
reserves no room before. So Servers that were never complete hold, on each Rabbit, the
larger of the two numbers. Servers that were complete once (``ready``, which stays true
after Teardown) or are being deleted hold what NNF has made: nothing is added to them.

A scheduler that gives out storage counts what it gave to each job. An annotation of the
job's Servers has the bytes that the job takes beyond that.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Iterable, Mapping, Optional

from flux_k8s.json_reader import Reader, is_integer
from flux_k8s.ports import DWS_GROUP
from flux_k8s.rfc.jobid import jobid_of_workflow

BEYOND_ANNOTATION = "flux-framework.readthedocs.io/beyond-share"
"""A JSON object: bytes by Rabbit."""

WORKFLOW_LABEL = f"{DWS_GROUP}/workflow.name"

OWNER_KIND_LABEL = f"{DWS_GROUP}/owner.kind"
SYSTEM_STORAGE = "NnfSystemStorage"
"""The owner of storage that the administrator has NNF make on all Rabbits."""


@dataclass(frozen=True)
class StorageUsage:
    """The bytes that Servers hold, by Rabbit. Rabbits without any are left out.

    Attributes:
        workflow: the Workflow whose Teardown deletes the storage; None for storage
            that outlives the Workflow that made it.
        made: bytes that NNF has made.
        held: bytes that nobody else can have: ``made``, and those still to be made.
        beyond: the part of ``held`` that a job took beyond its scheduler's share.
        system: the storage belongs to an NnfSystemStorage.
    """

    workflow: Optional[str]
    made: Mapping[str, int]
    held: Mapping[str, int]
    beyond: Mapping[str, int] = field(default_factory=dict)
    system: bool = False

    @property
    def jobid(self) -> Optional[int]:
        """The job of ``workflow``; None where that is not the Workflow of a job."""
        return None if self.workflow is None else jobid_of_workflow(self.workflow)


NOTHING = StorageUsage(None, {}, {})


def parse(servers: Any) -> StorageUsage:
    """Read a Servers object.

    Raises:
        BadObject: the object is not what DWS's schema says.
    """
    reader = Reader("Servers", servers)
    place = (reader.optional_string(f"metadata.{key}") for key in ("namespace", "name"))
    reader = Reader(f"Servers {'/'.join(part for part in place if part)}", servers)
    made = _made(reader)
    held = made
    if not (
        reader.optional_boolean("status.ready")
        or reader.has("metadata.deletionTimestamp")
    ):
        asked = _asked(reader)
        held = {r: max(asked.get(r, 0), made.get(r, 0)) for r in {**asked, **made}}
    beyond = _beyond(reader)
    beyond = {r: min(size, beyond[r]) for r, size in held.items() if r in beyond}
    system = _label(servers, OWNER_KIND_LABEL) == SYSTEM_STORAGE
    return StorageUsage(workflow_of(servers), made, held, beyond, system)


def beyond_annotation(beyond: Mapping[str, int]) -> dict[str, Optional[str]]:
    """The annotation that goes with the ``spec`` of a job's Servers; None removes
    it."""
    return {BEYOND_ANNOTATION: json.dumps(beyond) if beyond else None}


def workflow_of(servers: Any) -> Optional[str]:
    """The Workflow of a Servers object, as in :class:`StorageUsage`.

    Raises:
        BadObject: the metadata are malformed.
    """
    return _label(servers, WORKFLOW_LABEL)


def _label(servers: Any, key: str) -> Optional[str]:
    labels = Reader("Servers", servers).optional_object("metadata.labels")
    value = None if labels is None else labels.value.get(key)
    return value if isinstance(value, str) else None


def asked(sets: Iterable[Any]) -> dict[str, int]:
    """The bytes that ``spec.allocationSets`` of Servers request, by Rabbit."""
    return _asked(Reader("Servers", {"spec": {"allocationSets": sets}}))


def _beyond(servers: Reader) -> dict[str, int]:
    """The bytes in the annotation; none when another program has overwritten it."""
    annotations = servers.optional_object("metadata.annotations")
    text = annotations and annotations.value.get(BEYOND_ANNOTATION)
    try:
        found = json.loads(text) if isinstance(text, str) else {}
    except (ValueError, RecursionError):
        found = {}
    if not isinstance(found, dict):
        return {}
    return {r: size for r, size in found.items() if is_integer(size) and size > 0}


def _asked(servers: Reader) -> dict[str, int]:
    """The bytes that ``spec`` requests, by Rabbit."""
    sizes: dict[str, int] = {}
    for entry in servers.optional_objects("spec.allocationSets"):
        for storage in entry.optional_objects("storage"):
            rabbit = storage.string("name")
            size = entry.integer("allocationSize", minimum=0)
            count = storage.integer("allocationCount", minimum=0)
            sizes[rabbit] = sizes.get(rabbit, 0) + size * count
    return {rabbit: size for rabbit, size in sizes.items() if size}


def _made(servers: Reader) -> dict[str, int]:
    """The bytes that exist according to ``status``, by Rabbit."""
    sizes: dict[str, int] = {}
    for entry in servers.optional_objects("status.allocationSets"):
        storage = entry.optional_object("storage")
        for rabbit, found in {} if storage is None else storage.value.items():
            # The name of a Rabbit may have dots in it.
            place = Reader(servers.name, found, f"{entry.path}.storage.{rabbit}")
            size = place.optional_integer("allocationSize", minimum=0) or 0
            sizes[rabbit] = sizes.get(rabbit, 0) + size
    return {rabbit: size for rabbit, size in sizes.items() if size}
