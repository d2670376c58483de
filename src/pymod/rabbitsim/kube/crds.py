# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""CustomResourceDefinitions, made from :file:`kinds.yaml`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Callable, Optional, Union

from flux_k8s.ports import (
    Clock,
    Json,
    Kube,
    KubeError,
    Request,
)
from rabbitsim.kube.kinds import CRD, Kinds, Resource

INTERVAL = 0.05
"""Seconds between looks at whether a new kind is served."""

_NOT_YET = (404, 429)
"""The answers of an API server about a kind that it does not serve yet."""


def definition(resource: Resource) -> Json:
    """The CustomResourceDefinition (apiextensions.k8s.io/v1) of a custom kind,
    without ``apiVersion`` and ``kind``."""
    version: Json = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": structural(resource)},
        "additionalPrinterColumns": [
            {
                "name": column.name,
                "type": column.type,
                "jsonPath": "." + ".".join(column.path),
                **({"priority": 1} if column.wide else {}),
            }
            for column in resource.columns
        ],
    }
    if resource.has_status:
        version["subresources"] = {"status": {}}
    return {
        "metadata": {"name": f"{resource.kind.plural}.{resource.kind.group}"},
        "spec": {
            "group": resource.kind.group,
            "names": _names(resource),
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "versions": [version],
        },
    }


def served(resource: Resource) -> Json:
    """The definition as an API server shows it that serves the kind."""
    conditions = [
        {"type": type, "status": "True", "reason": "Served", "message": ""}
        for type in ("NamesAccepted", "Established")
    ]
    return {
        **definition(resource),
        "status": {
            "acceptedNames": _names(resource),
            "conditions": conditions,
            "storedVersions": [resource.version],
        },
    }


def structural(resource: Resource) -> Json:
    """The schema of whole objects of a kind."""
    schema: Json = {"type": "object", **resource.open_api}
    schema["properties"] = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        **schema.get("properties", {}),
    }
    return schema


def _names(resource: Resource) -> Json:
    names: Json = {
        "kind": resource.kind.name,
        "listKind": f"{resource.kind.name}List",
        "plural": resource.kind.plural,
        "singular": resource.singular,
    }
    if resource.short_names:
        names["shortNames"] = list(resource.short_names)
    return names


Installed = Callable[[Optional[KubeError]], None]


def install(kube: Kube, clock: Clock, kinds: Kinds, done: Installed) -> None:
    """Make all custom kinds known to an API server, and wait until they are
    served. What exists is left as it is. ``done`` gets None, or the first error.
    """
    resources = [r for r in kinds.resources.values() if r.custom]
    _Installation(kube, clock, resources, done).run()


class _Installation:
    """Makes kinds, side by side."""

    def __init__(
        self, kube: Kube, clock: Clock, resources: Sequence[Resource], done: Installed
    ) -> None:
        self._kube = kube
        self._clock = clock
        self._resources = resources
        self._done = done
        self._left = len(resources)
        self._error: Optional[KubeError] = None

    def run(self) -> None:
        for resource in self._resources:
            body = definition(resource)
            created = partial(self._created, resource)
            request = Request("create", CRD, "", body=body)
            self._kube.send(request, created, key=body["metadata"]["name"])

    def _created(self, resource: Resource, answer: Union[Json, KubeError]) -> None:
        if isinstance(answer, KubeError) and answer.status != 409:
            self._finish(answer)
        else:
            self._look(resource)

    def _look(self, resource: Resource) -> None:
        """Whether a definition is established tells too little: the kind must be
        found by discovery as well, and there it shows up later."""
        listed = partial(self._listed, resource)
        request = Request("list", resource.kind, None)
        self._kube.send(request, listed, key=resource.kind.plural)

    def _listed(self, resource: Resource, answer: Union[Json, KubeError]) -> None:
        if not isinstance(answer, KubeError):
            self._finish(None)
        elif answer.status in _NOT_YET:
            delay = max(INTERVAL, answer.retry_after or 0.0)
            self._clock.call_later(delay, partial(self._look, resource))
        else:
            self._finish(answer)

    def _finish(self, error: Optional[KubeError]) -> None:
        self._error = self._error or error
        self._left -= 1
        if not self._left:
            self._done(self._error)
