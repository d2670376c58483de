# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The bytes that a Servers object uses on each Rabbit. Only this module counts them.

A Servers object has two numbers for each Rabbit. ``spec`` has the request of the
workload manager: the size of an allocation, and the count of allocations. ``status``
has the bytes of the storage that NNF has made (size x count): 0 until Setup has made
the storage of that Rabbit, and 0 again when Teardown has deleted it, one Rabbit after
the other.

Storage that NNF has made reduces ``Storage.status.capacity``. Storage that is only
requested does not, but no other job may have it: NNF makes it in Setup, and reserves no
room before. So Servers that were never complete hold, on each Rabbit, the larger of the
two numbers. Servers that were complete once (``ready``, which stays true after
Teardown), and Servers that are being deleted, hold only the storage that NNF has made.

A scheduler knows the storage that it gave to each job. An annotation of the job's
Servers has the bytes that the job takes beyond that share. Another one has the
colocation keys: a Rabbit has at most one allocation with each key.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any, Iterable, Mapping, NamedTuple, Optional

from flux_k8s.errors import BadObject
from flux_k8s.formats.jobid import jobid_of_workflow
from flux_k8s.json_reader import MISSING, is_integer
from flux_k8s.objects.servers import Servers
from flux_k8s.ports import DWS_GROUP

BEYOND_ANNOTATION = "flux-framework.readthedocs.io/beyond-share"
"""A JSON object: bytes by Rabbit."""

COLOCATION_ANNOTATION = "flux-framework.readthedocs.io/colocation"
"""A JSON array that has, for each allocation set, the array of its colocation keys.
Servers of a persistent file system need it, since its breakdown is deleted with the
job."""

WORKFLOW_LABEL = f"{DWS_GROUP}/workflow.name"

OWNER_KIND_LABEL = f"{DWS_GROUP}/owner.kind"
SYSTEM_STORAGE = "NnfSystemStorage"
"""The owner of storage that the administrator has NNF make on all Rabbits."""


class Allocations(NamedTuple):
    """The allocations of one allocation set of a Servers object.

    Attributes:
        label: of the set.
        size: the bytes of each allocation.
        counts: the number of allocations on each Rabbit.
    """

    label: str
    size: int
    counts: Mapping[str, int]


@dataclass(frozen=True)
class StorageUsage:
    """The bytes that a Servers object uses, by Rabbit. Rabbits without any are left
    out.

    Attributes:
        workflow: the Workflow whose Teardown deletes the storage; None for storage
            that outlives the Workflow that made it.
        allocated: the bytes of the storage that NNF has made.
        unavailable: the bytes that no other job can have: ``allocated``, and the bytes
            that NNF will still make.
        beyond: the part of ``unavailable`` that is beyond the job's share from the
            scheduler.
        system: whether the storage belongs to an NnfSystemStorage.
        allocations: the allocations that ``spec`` requests.
        colocated: the Rabbits with storage that has a colocation key, by key.
    """

    workflow: Optional[str]
    allocated: Mapping[str, int]
    unavailable: Mapping[str, int]
    beyond: Mapping[str, int] = field(default_factory=dict)
    system: bool = False
    allocations: tuple[Allocations, ...] = ()
    colocated: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @property
    def jobid(self) -> Optional[int]:
        """The job of ``workflow``; None where that is not the Workflow of a job."""
        return None if self.workflow is None else jobid_of_workflow(self.workflow)


NOTHING = StorageUsage(None, {}, {})


def parse(servers: Servers) -> StorageUsage:
    """What Servers use, but for their colocation keys (:func:`with_colocation`).

    Raises:
        BadObject: a set has no size.
    """
    allocated = unavailable = _allocated(servers)
    allocations = _allocations(servers)
    if not (servers.ready or servers.metadata.deleting):
        wanted = _sum(allocations)
        unavailable = {
            r: max(wanted.get(r, 0), allocated.get(r, 0))
            for r in {**wanted, **allocated}
        }
    beyond = _beyond(servers)
    beyond = {r: min(size, beyond[r]) for r, size in unavailable.items() if r in beyond}
    system = servers.metadata.label(OWNER_KIND_LABEL) == SYSTEM_STORAGE
    workflow = servers.metadata.label(WORKFLOW_LABEL)
    return StorageUsage(workflow, allocated, unavailable, beyond, system, allocations)


def with_colocation(usage: StorageUsage, servers: Servers) -> StorageUsage:
    """``usage`` of Servers, with their colocation keys. Servers without our annotation
    have none.

    Raises:
        BadObject: the annotation is malformed.
    """
    text = servers.metadata.annotation(COLOCATION_ANNOTATION)
    if not text:
        return usage
    colocated: dict[str, set[str]] = {}
    for keys, entry in zip(_colocation_keys(servers.name, text), servers.sets):
        for key in keys:
            names = {place.rabbit for place in entry.places or ()}
            colocated.setdefault(key, set()).update(names & usage.unavailable.keys())
    found = {key: frozenset(names) for key, names in colocated.items() if names}
    return replace(usage, colocated=found)


def either(wanted: StorageUsage, found: StorageUsage) -> StorageUsage:
    """The usage of Servers that are ``wanted`` or still ``found``: a write of them may
    fail, or may be carried out yet."""
    keys = {**wanted.colocated, **found.colocated}
    nowhere: frozenset[str] = frozenset()
    return replace(
        wanted,
        unavailable=dict(Counter(wanted.unavailable) | Counter(found.unavailable)),
        beyond=dict(Counter(wanted.beyond) | Counter(found.beyond)),
        colocated={
            key: wanted.colocated.get(key, nowhere) | found.colocated.get(key, nowhere)
            for key in keys
        },
    )


def _colocation_keys(name: str, text: Any) -> list[list[str]]:
    try:
        keys = json.loads(text)
        if all(isinstance(key, str) for entry in keys for key in entry):
            return [list(entry) for entry in keys]
    except (TypeError, ValueError, RecursionError):
        pass
    place = f"metadata.annotations[{COLOCATION_ANNOTATION}]"
    raise BadObject(name, place, text, "a JSON array of arrays of strings")


def beyond_annotation(beyond: Mapping[str, int]) -> dict[str, Optional[str]]:
    """The annotation for a job's Servers with the bytes that the job takes beyond its
    share, by Rabbit. Without any bytes the value is None, which removes it."""
    return {BEYOND_ANNOTATION: json.dumps(beyond) if beyond else None}


def requested(sets: Iterable[Any]) -> dict[str, int]:
    """The bytes that ``spec.allocationSets`` of Servers request, by Rabbit."""
    servers = Servers.read({"spec": {"allocationSets": list(sets)}})
    return _sum(_allocations(servers))


def _beyond(servers: Servers) -> dict[str, int]:
    """The bytes in the annotation; none when it is malformed."""
    try:
        found = json.loads(servers.metadata.annotation(BEYOND_ANNOTATION) or "{}")
    except (ValueError, RecursionError):
        found = {}
    if not isinstance(found, dict):
        return {}
    return {r: size for r, size in found.items() if is_integer(size) and size > 0}


def _allocations(servers: Servers) -> tuple[Allocations, ...]:
    """The allocations that ``spec`` requests, without sets that are empty."""
    found = []
    for number, entry in enumerate(servers.sets):
        counts: dict[str, int] = {}
        for place in entry.places or ():
            counts[place.rabbit] = counts.get(place.rabbit, 0) + place.count
        if counts and entry.size is None:
            path = f"spec.allocationSets[{number}].allocationSize"
            raise BadObject(servers.name, path, MISSING, "an integer of at least 0")
        if counts:
            found.append(Allocations(entry.label or "", entry.size or 0, counts))
    return tuple(found)


def _sum(sets: Iterable[Allocations]) -> dict[str, int]:
    """The bytes of allocations, by Rabbit."""
    sizes: dict[str, int] = {}
    for each in sets:
        for rabbit, count in each.counts.items():
            sizes[rabbit] = sizes.get(rabbit, 0) + each.size * count
    return {rabbit: size for rabbit, size in sizes.items() if size}


def _allocated(servers: Servers) -> dict[str, int]:
    """The bytes that exist according to ``status``, by Rabbit."""
    sizes: dict[str, int] = {}
    for entry in servers.made:
        for rabbit, made in entry.made.items():
            sizes[rabbit] = sizes.get(rabbit, 0) + (made.size or 0)
    return {rabbit: size for rabbit, size in sizes.items() if size}
