# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The kinds of objects, from :file:`kinds.yaml`."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

import yaml

from flux_k8s.ports import Json, Kind
from rabbitsim.kube.schema import Schema, compile_schema, explicit

NAMESPACE = Kind("", "Namespace", "namespaces")
EVENT = Kind("", "Event", "events")
CRD = Kind(
    "apiextensions.k8s.io", "CustomResourceDefinition", "customresourcedefinitions"
)


@dataclass(frozen=True)
class Column:
    """A column of ``kubectl get``; ``path`` leads to its value."""

    name: str
    type: str
    path: tuple[str, ...]
    wide: bool = False


@dataclass(frozen=True)
class Resource:
    """A kind that the server serves.

    Attributes:
        has_status: ``status`` is a subresource, written through ``/status`` only.
        schema: of the properties besides apiVersion, kind and metadata, or None
            for a kind that keeps whatever it is given.
        selectable: field paths besides metadata.name and metadata.namespace
            that a field selector may name.
    """

    kind: Kind
    version: str
    singular: str
    short_names: tuple[str, ...]
    namespaced: bool
    has_status: bool
    read_only: bool
    subresources: tuple[str, ...]
    columns: tuple[Column, ...]
    selectable: tuple[str, ...]
    schema: Optional[Schema]
    open_api: Json
    """The schema with all types written out, for discovery and CRDs."""

    @property
    def api_version(self) -> str:
        group = self.kind.group
        return f"{group}/{self.version}" if group else self.version

    @property
    def custom(self) -> bool:
        """Whether a CustomResourceDefinition stands behind the kind."""
        return self.schema is not None


@dataclass(frozen=True)
class Kinds:
    """All kinds, by (group, plural), and the schema of ``metadata``."""

    resources: Mapping[tuple[str, str], Resource]
    metadata: Schema


@functools.cache
def _document() -> Any:
    text = (Path(__file__).parent / "kinds.yaml").read_text(encoding="utf-8")
    return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def load_kinds(versions: Optional[Mapping[str, str]] = None) -> Kinds:
    """Load the kinds; ``versions`` maps a group to the version to serve it as,
    where that is not the default."""
    return _load_kinds(frozenset((versions or {}).items()))


@functools.cache
def _load_kinds(versions: frozenset[tuple[str, str]]) -> Kinds:
    document = _document()
    chosen = dict(versions)
    resources = {}
    for group in document["groups"]:
        version = chosen.get(group["group"], group["version"])
        for entry in group["kinds"]:
            resource = _resource(group["group"], version, entry)
            resources[(resource.kind.group, resource.kind.plural)] = resource
    return Kinds(resources, compile_schema(document["metadata"]))


def _resource(group: str, version: str, entry: Mapping[str, Any]) -> Resource:
    node: Optional[Json] = None
    if "schema" in entry:
        node = {"type": "object", "properties": entry["schema"]}
        if "required" in entry:
            node["required"] = entry["required"]
    return Resource(
        kind=Kind(group, entry["kind"], entry["plural"]),
        version=version,
        singular=entry["singular"],
        short_names=tuple(entry.get("shortNames", ())),
        namespaced=entry.get("namespaced", True),
        has_status=entry.get("status", False),
        read_only=entry.get("readOnly", False),
        subresources=tuple(entry.get("subresources", ())),
        columns=tuple(
            Column(name, type_, tuple(path.split(".")), "wide" in rest)
            for name, type_, path, *rest in entry["columns"]
        ),
        selectable=tuple(entry.get("selectable", ())),
        schema=None if node is None else compile_schema(node),
        open_api={} if node is None else explicit(node),
    )
