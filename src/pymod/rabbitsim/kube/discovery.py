# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The discovery documents of the server: groups, resources, schemas."""

from __future__ import annotations

from collections.abc import Iterable

from flux_k8s.ports import Json
from rabbitsim.kube.crds import structural
from rabbitsim.kube.kinds import Kinds, Resource

_VERBS = [
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
]
_READ_VERBS = ["get", "list", "watch"]

VERSION: Json = {
    "major": "1",
    "minor": "30",
    "gitVersion": "v1.30.0-rabbitsim",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "2026-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "linux/amd64",
}


def groups(kinds: Kinds) -> dict[str, str]:
    """The version of each group, the core's ("") too."""
    return {r.kind.group: r.version for r in kinds.resources.values()}


def api_versions(address: str) -> Json:
    """The answer of ``/api``."""
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [
            {"clientCIDR": "0.0.0.0/0", "serverAddress": address}
        ],
    }


def api_group(group: str, version: str) -> Json:
    """The answer of ``/apis/<group>``, and an entry of that of ``/apis``."""
    entry = {"groupVersion": f"{group}/{version}", "version": version}
    return {
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": group,
        "versions": [entry],
        "preferredVersion": entry,
    }


def api_group_list(kinds: Kinds) -> Json:
    """The answer of ``/apis``."""
    entries = [
        api_group(name, version) for name, version in groups(kinds).items() if name
    ]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": entries}


def of_version(kinds: Kinds, group: str, version: str) -> list[Resource]:
    return [
        resource
        for resource in kinds.resources.values()
        if (resource.kind.group, resource.version) == (group, version)
    ]


def api_resource_list(resources: Iterable[Resource], group_version: str) -> Json:
    """The answer of ``/apis/<group>/<version>``."""
    entries = []
    for resource in resources:
        entry: Json = {
            "name": resource.kind.plural,
            "singularName": resource.singular,
            "namespaced": resource.namespaced,
            "kind": resource.kind.name,
            "verbs": _READ_VERBS if resource.read_only else _VERBS,
        }
        if resource.short_names:
            entry["shortNames"] = list(resource.short_names)
        entries.append(entry)
        subresources = {name: ["get"] for name in resource.subresources}
        if resource.has_status:
            subresources["status"] = ["get", "patch", "update"]
        for name, verbs in subresources.items():
            entries.append(
                {
                    "name": f"{resource.kind.plural}/{name}",
                    "singularName": "",
                    "namespaced": resource.namespaced,
                    "kind": resource.kind.name,
                    "verbs": verbs,
                }
            )
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": entries,
    }


def prefix(group: str, version: str) -> str:
    """The path of a group's version, without the first slash."""
    return f"apis/{group}/{version}" if group else f"api/{version}"


def open_api_index(kinds: Kinds) -> Json:
    """The answer of ``/openapi/v3``."""
    paths = [prefix(group, version) for group, version in groups(kinds).items()]
    return {"paths": {p: {"serverRelativeURL": f"/openapi/v3/{p}"} for p in paths}}


def open_api(resources: Iterable[Resource]) -> Json:
    """The answer of ``/openapi/v3/apis/<group>/<version>``: enough for kubectl
    to explain a kind, and to know that the server checks fields itself."""
    paths: Json = {}
    schemas: Json = {}
    for resource in resources:
        name = ".".join((*_backwards(resource), resource.kind.name))
        schemas[name] = _schema(resource)
        scope = "/namespaces/{namespace}" if resource.namespaced else ""
        base = f"/{prefix(resource.kind.group, resource.version)}{scope}"
        collection = f"{base}/{resource.kind.plural}"
        paths[collection] = {"post": _operation(resource, "post", name)}
        paths[f"{collection}/{{name}}"] = {
            method: _operation(resource, method, name)
            for method in ("get", "put", "patch", "delete")
        }
    return {
        "openapi": "3.0.0",
        "info": {"title": "rabbitsim", "version": VERSION["gitVersion"]},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _backwards(resource: Resource) -> list[str]:
    group = resource.kind.group or "core"
    return [*reversed(group.split(".")), resource.version]


def _gvk(resource: Resource) -> Json:
    return {
        "group": resource.kind.group,
        "version": resource.version,
        "kind": resource.kind.name,
    }


def _operation(resource: Resource, method: str, schema: str) -> Json:
    operation: Json = {
        "x-kubernetes-group-version-kind": _gvk(resource),
        "x-kubernetes-action": method,
        "responses": {
            "200": {
                "description": "OK",
                "content": {
                    "application/json": {
                        "schema": {"$ref": f"#/components/schemas/{schema}"}
                    }
                },
            }
        },
    }
    if method != "get":
        operation["parameters"] = [
            {"name": name, "in": "query", "schema": {"type": "string"}}
            for name in ("dryRun", "fieldManager", "fieldValidation")
        ]
    return operation


def _schema(resource: Resource) -> Json:
    schema = structural(resource)
    schema["x-kubernetes-group-version-kind"] = [_gvk(resource)]
    if not resource.custom:
        schema["x-kubernetes-preserve-unknown-fields"] = True
    return schema
