# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What a Servers object holds on Rabbits: the one place that counts it.

DWS says it twice. ``spec`` is what a workload manager asks for: the size of an
allocation, and how many of them each Rabbit is to have. ``status`` is what NNF has
made of it, in bytes for each Rabbit (size x count). They are 0 until Setup has come
so far there, and 0 again when Teardown has, one Rabbit after the other.

What was made is what NNF holds: ``Storage.status.capacity`` is less by it. But what
was asked for is as good as taken, since NNF makes it in Setup and keeps no place
for it until then. So Servers that were never complete hold, on each Rabbit, what was
made there or what is asked for, whichever is more. Nothing more is made of those
that were complete once (``ready``, which stays true after Teardown) or that are being
deleted: they hold what is made.

A scheduler that gives out storage knows what jobs have by what it gave them. What a
job takes beyond that stands in an annotation of its Servers.
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
class Holding:
    """What Servers hold, in bytes by Rabbit. Rabbits with nothing are left out.

    Attributes:
        workflow: the Workflow that the storage goes with; None for storage that
            is to outlive the Workflow that made it.
        made: what NNF has made.
        held: what nobody else can have: that, and what is still to be made.
        beyond: what of it a job took beyond what the scheduler gave it.
        system: it is an NnfSystemStorage's.
    """

    workflow: Optional[str]
    made: Mapping[str, int]
    held: Mapping[str, int]
    beyond: Mapping[str, int] = field(default_factory=dict)
    system: bool = False

    @property
    def jobid(self) -> Optional[int]:
        """The job whose Workflow it is; None for what is no job's of ours."""
        return None if self.workflow is None else jobid_of_workflow(self.workflow)


NOTHING = Holding(None, {}, {})


def parse(servers: Any) -> Holding:
    """Read a Servers object.

    Raises:
        BadObject: it is not what its kind prescribes.
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
    return Holding(workflow_of(servers), made, held, beyond, system)


def beyond_annotation(beyond: Mapping[str, int]) -> dict[str, Optional[str]]:
    """The annotation to set on a job's Servers, or to remove, beside their spec."""
    return {BEYOND_ANNOTATION: json.dumps(beyond) if beyond else None}


def workflow_of(servers: Any) -> Optional[str]:
    """The Workflow that a Servers object goes with, as in :class:`Holding`.

    Raises:
        BadObject: its metadata are not what Kubernetes prescribes.
    """
    return _label(servers, WORKFLOW_LABEL)


def _label(servers: Any, key: str) -> Optional[str]:
    labels = Reader("Servers", servers).optional_object("metadata.labels")
    value = None if labels is None else labels.value.get(key)
    return value if isinstance(value, str) else None


def asked(sets: Iterable[Any]) -> dict[str, int]:
    """What ``spec.allocationSets`` of Servers ask for, in bytes by Rabbit."""
    return _asked(Reader("Servers", {"spec": {"allocationSets": sets}}))


def _beyond(servers: Reader) -> dict[str, int]:
    """What the annotation says; nothing when it is not ours any more."""
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
    """What ``spec`` asks for."""
    sizes: dict[str, int] = {}
    for entry in servers.optional_objects("spec.allocationSets"):
        for storage in entry.optional_objects("storage"):
            rabbit = storage.string("name")
            size = entry.integer("allocationSize", minimum=0)
            count = storage.integer("allocationCount", minimum=0)
            sizes[rabbit] = sizes.get(rabbit, 0) + size * count
    return {rabbit: size for rabbit, size in sizes.items() if size}


def _made(servers: Reader) -> dict[str, int]:
    """What there is, as ``status`` says."""
    sizes: dict[str, int] = {}
    for entry in servers.optional_objects("status.allocationSets"):
        storage = entry.optional_object("storage")
        for rabbit, found in {} if storage is None else storage.value.items():
            # The name of a Rabbit may have dots in it.
            place = Reader(servers.name, found, f"{entry.path}.storage.{rabbit}")
            size = place.optional_integer("allocationSize", minimum=0) or 0
            sizes[rabbit] = sizes.get(rabbit, 0) + size
    return {rabbit: size for rabbit, size in sizes.items() if size}
