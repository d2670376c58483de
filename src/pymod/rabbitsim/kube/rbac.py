# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Kubernetes' role-based access control.

:class:`Rbac` answers from Roles, ClusterRoles and their bindings, as the API
server's RBAC authorizer does: nothing is allowed but what a rule allows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Iterable, Mapping

from flux_k8s.ports import Json

GROUP = "rbac.authorization.k8s.io"

_ACCOUNT = "system:serviceaccount"


def account_user(namespace: str, name: str) -> str:
    """The name of a ServiceAccount as a user."""
    return f"{_ACCOUNT}:{namespace}:{name}"


@dataclass(frozen=True)
class Rule:
    """One rule of a role; ``names`` is empty for objects of any name."""

    groups: frozenset[str]
    resources: frozenset[str]
    verbs: frozenset[str]
    names: frozenset[str]

    @classmethod
    def parse(cls, rule: Json) -> Rule:
        return cls(
            frozenset(rule.get("apiGroups") or ()),
            frozenset(rule.get("resources") or ()),
            frozenset(rule.get("verbs") or ()),
            frozenset(rule.get("resourceNames") or ()),
        )

    def allows(self, verb: str, group: str, resource: str, name: str) -> bool:
        """``resource`` is ``pods/log`` for a subresource, which a rule for
        ``pods`` does not cover."""
        _, _, subresource = resource.partition("/")
        wanted = {"*", resource, *([f"*/{subresource}"] if subresource else [])}
        return (
            not self.verbs.isdisjoint(("*", verb))
            and not self.groups.isdisjoint(("*", group))
            and not self.resources.isdisjoint(wanted)
            and (not self.names or name in self.names)
        )


@dataclass(frozen=True)
class Binding:
    """Rules that users have: in ``namespace``, or with "" everywhere."""

    namespace: str
    subjects: frozenset[tuple[str, str]]
    """(kind, name), where the kind is User or Group."""
    rules: tuple[Rule, ...]


class Rbac:
    """An :data:`rabbitsim.kube.routes.Authorizer` made of RBAC objects."""

    def __init__(self, objects: Iterable[Json]) -> None:
        """
        Args:
            objects: Roles, ClusterRoles, RoleBindings and ClusterRoleBindings;
                others are ignored.

        Raises:
            ValueError: a binding names a role that is not there.
        """
        found = [item for item in objects if GROUP in str(item.get("apiVersion"))]
        roles = {
            _role_key(item["kind"], item["metadata"]): tuple(
                Rule.parse(rule) for rule in item.get("rules") or ()
            )
            for item in found
            if item["kind"] in ("Role", "ClusterRole")
        }
        self._bindings = tuple(
            _binding(item, roles)
            for item in found
            if item["kind"] in ("RoleBinding", "ClusterRoleBinding")
        )

    def __call__(
        self,
        user: str,
        verb: str,
        group: str,
        resource: str,
        namespace: str,
        name: str,
    ) -> bool:
        subjects = {("User", user), *(("Group", group) for group in groups_of(user))}
        return any(
            rule.allows(verb, group, resource, name)
            for binding in self._bindings
            if binding.namespace in ("", namespace)
            and not binding.subjects.isdisjoint(subjects)
            for rule in binding.rules
        )


def groups_of(user: str) -> tuple[str, ...]:
    """The groups that Kubernetes itself puts a user into."""
    groups = ["system:authenticated"]
    if user.startswith(f"{_ACCOUNT}:"):
        namespace = user.split(":")[2]
        groups += [f"{_ACCOUNT}s", f"{_ACCOUNT}s:{namespace}"]
    return tuple(groups)


def _role_key(kind: str, metadata: Mapping[str, Any]) -> tuple[str, str, str]:
    namespace = metadata.get("namespace", "") if kind == "Role" else ""
    return kind, namespace, metadata["name"]


def _binding(
    item: Json, roles: Mapping[tuple[str, str, str], tuple[Rule, ...]]
) -> Binding:
    metadata, reference = item["metadata"], item["roleRef"]
    namespace = metadata.get("namespace", "") if item["kind"] == "RoleBinding" else ""
    kind = reference["kind"]
    key = _role_key(kind, {"namespace": namespace, "name": reference["name"]})
    if key not in roles:
        raise ValueError(
            f"{item['kind']} {metadata['name']} names {kind} {reference['name']},"
            " which is not there"
        )
    subjects = frozenset(_subject(subject) for subject in item.get("subjects") or ())
    return Binding(namespace, subjects, roles[key])


def _subject(subject: Json) -> tuple[str, str]:
    if subject["kind"] == "ServiceAccount":
        return "User", account_user(subject["namespace"], subject["name"])
    return subject["kind"], subject["name"]
