# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The paths of the Kubernetes API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Callable, Optional

from rabbitsim.kube.errors import ApiError, no_such_resource
from rabbitsim.kube.kinds import Kinds, Resource

Authorizer = Callable[[str, str, str, str, str, str], bool]
"""``(user, verb, group, resource, namespace, name)`` → whether it is allowed.
``resource`` is ``pods/log`` for a subresource; namespace and name may be ""."""

_VERBS = {
    ("GET", True): "get",
    ("PUT", True): "update",
    ("PATCH", True): "patch",
    ("DELETE", True): "delete",
    ("GET", False): "list",
    ("POST", False): "create",
    ("DELETE", False): "deletecollection",
}
_OF_NAMESPACES = ("status", "finalize")


def is_set(query: Mapping[str, str], name: str) -> bool:
    """Whether a boolean parameter is true: any value but these two is, in apimachinery,
    and its clients write True, true and 1."""
    return query.get(name, "false").lower() not in ("false", "0")


@dataclass(frozen=True)
class Target:
    """What a path below a group and version names. ``namespace`` is None for
    all of them, ``name`` is "" for a collection."""

    resource: Resource
    namespace: Optional[str]
    name: str
    subresource: str

    def verb(self, method: str, query: Mapping[str, str]) -> str:
        """The verb of RBAC for ``method``. Raises ApiError 405."""
        verb = _VERBS.get((method, bool(self.name)))
        if verb is None:
            raise ApiError(
                405,
                "MethodNotAllowed",
                "the server does not allow this method on the requested resource",
            )
        if verb == "list" and is_set(query, "watch"):
            return "watch"
        return verb


def parse_target(kinds: Kinds, group: str, version: str, rest: list[str]) -> Target:
    """Parse what follows the group and version of a path.

    Raises:
        ApiError: 404 when nothing is served there.
    """
    namespace: Optional[str] = None
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in _OF_NAMESPACES:
        namespace, rest = rest[1], rest[2:]
    resource = kinds.resources.get((group, rest[0]))
    if resource is None or resource.version != version or len(rest) > 3:
        raise no_such_resource()
    if namespace is not None and not resource.namespaced:
        raise no_such_resource()
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    if name and resource.namespaced and namespace is None:
        raise no_such_resource()
    allowed = (*resource.subresources, *(["status"] if resource.has_status else []))
    if subresource and subresource not in allowed:
        raise no_such_resource()
    return Target(resource, namespace, name, subresource)


def authorize(authorizer: Authorizer, user: str, verb: str, target: Target) -> None:
    """Raises ApiError 403 when the user may not do this."""
    kind = target.resource.kind
    resource = "/".join(filter(None, (kind.plural, target.subresource)))
    namespace = target.namespace or ""
    if not authorizer(user, verb, kind.group, resource, namespace, target.name):
        raise refusal(user, verb, target)


def refusal(user: str, verb: str, target: Target) -> ApiError:
    """403, in the words of RBAC."""
    kind = target.resource.kind
    resource = "/".join(filter(None, (kind.plural, target.subresource)))
    full = f"{kind.plural}.{kind.group}" if kind.group else kind.plural
    subject = f'{full} "{target.name}"' if target.name else full
    where = (
        f'in the namespace "{target.namespace}"'
        if target.namespace
        else "at the cluster scope"
    )
    details = {"kind": kind.plural, "group": kind.group, "name": target.name}
    return ApiError(
        403,
        "Forbidden",
        f'{subject} is forbidden: User "{user}" cannot {verb} resource "{resource}" '
        f'in API group "{kind.group}" {where}',
        {key: value for key, value in details.items() if value},
    )
