# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The rules for one object: what a create or an update makes of what a client
sent, before it is stored.
"""

from __future__ import annotations

import re
import time
from typing import Any, Optional

from flux_k8s.ports import Json, Kind
from rabbitsim.kube.errors import bad_request, conflict, invalid
from rabbitsim.kube.kinds import NAMESPACE, Kinds, Resource
from rabbitsim.kube.schema import Problem, Problems
from rabbitsim.kube.watch import Stored

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_LABEL_NAME = re.compile(_LABEL)
_SUBDOMAIN = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_SERVER_OWNED = (
    "name",
    "generateName",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)
_CLIENT_OWNED = ("labels", "annotations", "finalizers", "ownerReferences")


def timestamp(seconds: float) -> str:
    """UNIX time as metadata has it: RFC 3339 in UTC, whole seconds."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def shape(kinds: Kinds, resource: Resource, body: Any, old: Optional[Stored]) -> Json:
    """``body`` pruned, with defaults, and valid; ``metadata`` is a new
    dictionary, other parts may be shared with ``body`` and ``old``.

    Raises:
        ApiError: 400 for what is no such object, 422 for invalid fields.
    """
    if not isinstance(body, dict):
        raise bad_request(f"the body must be a {resource.kind.name}, a JSON object")
    _check_type(resource, body)
    problems: Problems = []
    metadata = body.get("metadata")
    before = None if old is None else old["metadata"]
    metadata = kinds.metadata.conform(
        {} if metadata is None else metadata, before, problems
    )
    for problem in problems:
        problem.below("metadata")
    rest = {
        key: value
        for key, value in body.items()
        if key not in ("apiVersion", "kind", "metadata")
    }
    if resource.schema is not None:
        rest = resource.schema.conform(rest, old, problems)
    if problems:
        name = metadata.get("name", "") if isinstance(metadata, dict) else ""
        raise invalid(resource.kind, name, [problem.cause() for problem in problems])
    head = {"apiVersion": resource.api_version, "kind": resource.kind.name}
    return {**head, "metadata": dict(metadata), **rest}


def _check_type(resource: Resource, body: Json) -> None:
    found = body.get("apiVersion") or resource.api_version
    if found != resource.api_version:
        raise bad_request(
            f"the API version in the data ({found}) does not match the expected "
            f"API version ({resource.api_version})"
        )
    found = body.get("kind") or resource.kind.name
    if found != resource.kind.name:
        raise bad_request(
            f"the kind in the data ({found}) does not match the expected "
            f"kind ({resource.kind.name})"
        )


def place(resource: Resource, namespace: str, metadata: Json) -> None:
    """Set ``metadata.namespace`` to that of the request."""
    if not resource.namespaced:
        metadata.pop("namespace", None)
        return
    if not namespace:
        raise bad_request("an empty namespace may not be set during creation")
    if metadata.get("namespace", namespace) != namespace:
        raise bad_request(
            "the namespace of the provided object does not match the namespace "
            "sent on the request"
        )
    metadata["namespace"] = namespace


def check_name(resource: Resource, name: str) -> None:
    """Raises ApiError 422 when ``name`` is no name for such an object."""
    problem = None
    if not name:
        problem = Problem(
            "FieldValueRequired", "Required value: name or generateName is required"
        )
    elif resource.kind == NAMESPACE:
        if len(name) > 63 or not _LABEL_NAME.fullmatch(name):
            problem = _bad_name(name, "label")
    elif len(name) > 253 or not _SUBDOMAIN.fullmatch(name):
        problem = _bad_name(name, "subdomain")
    if problem is not None:
        problem.path = "metadata.name"
        raise invalid(resource.kind, name, [problem.cause()])


def _bad_name(name: str, what: str) -> Problem:
    return Problem(
        "FieldValueInvalid",
        f'Invalid value: "{name}": a lowercase RFC 1123 {what} must consist of '
        "lower case alphanumeric characters, '-' or '.', and must start and end "
        "with an alphanumeric character",
    )


def check_uid(resource: Resource, old: Stored, metadata: object) -> None:
    """Raises ApiError 422 when a patch changes the uid, which is the precondition of an
    update (:func:`check_preconditions`)."""
    current, uid = old["metadata"], isinstance(metadata, dict) and metadata.get("uid")
    if uid and uid != current["uid"]:
        message = f'Invalid value: "{uid}": field is immutable'
        cause = {"reason": "FieldValueInvalid", "message": message}
        cause["field"] = "metadata.uid"
        raise invalid(resource.kind, current["name"], [cause])


def check_preconditions(resource: Resource, old: Stored, metadata: Json) -> None:
    """Raises ApiError when ``metadata`` speaks of another object, or of another
    version of it, than the stored one (400, 409)."""
    current = old["metadata"]
    for key in ("name", "namespace"):
        found = metadata.get(key)
        if found is not None and found != current.get(key, ""):
            raise bad_request(
                f"the {key} of the object ({found}) does not match the {key} on "
                f"the URL ({current.get(key, '')})"
            )
    uid = metadata.get("uid")
    if uid and uid != current["uid"]:
        why = (
            f"Precondition failed: UID in precondition: {uid}, "
            f"UID in object meta: {current['uid']}"
        )
        raise conflict(resource.kind, current["name"], why)
    version = metadata.get("resourceVersion")
    if version and version != current["resourceVersion"]:
        raise conflict(resource.kind, current["name"])


def check_versioned(resource: Resource, name: str, metadata: Json) -> None:
    """Raises ApiError 422 when an update does not say what it replaces."""
    if not metadata.get("resourceVersion"):
        problem = Problem(
            "FieldValueInvalid",
            "Invalid value: 0: must be specified for an update",
            "metadata.resourceVersion",
        )
        raise invalid(resource.kind, name, [problem.cause()])


def keep_owned(resource: Resource, old: Stored, new: Json, subresource: str) -> None:
    """Undo in ``new`` what the client may not change with this request."""
    if subresource == "status":
        new["metadata"] = dict(old["metadata"])
        for key in set(old) | set(new):
            if key not in ("status", "metadata"):
                _keep(old, new, key)
        return
    metadata = {
        key: old["metadata"][key] for key in _SERVER_OWNED if key in old["metadata"]
    }
    for key in _CLIENT_OWNED:
        if new["metadata"].get(key):
            metadata[key] = new["metadata"][key]
    new["metadata"] = metadata
    if resource.has_status:
        _keep(old, new, "status")


def _keep(old: Json, new: Json, key: str) -> None:
    if key in old:
        new[key] = old[key]
    else:
        new.pop(key, None)


def check_finalizers(resource: Resource, old: Stored, new: Json) -> None:
    """Raises ApiError 422 when a finalizer is added to an object that is being
    deleted."""
    if "deletionTimestamp" not in old["metadata"]:
        return
    before = old["metadata"].get("finalizers", [])
    added = [f for f in new["metadata"].get("finalizers", []) if f not in before]
    if added:
        text = ", ".join(f'"{name}"' for name in added)
        problem = Problem(
            "FieldValueForbidden",
            "Forbidden: no new finalizers can be added if the object is being "
            f"deleted, found new finalizers []string{{{text}}}",
            "metadata.finalizers",
        )
        raise invalid(resource.kind, old["metadata"]["name"], [problem.cause()])


def generation_changes(resource: Resource, old: Stored, new: Json) -> bool:
    """Whether what the client wants changed: all but metadata, and but status
    where that is a subresource."""
    ignored = {"metadata", "status"} if resource.has_status else {"metadata"}
    return any(
        new.get(key) != old.get(key)
        for key in set(old) | set(new)
        if key not in ignored
    )


def finalizers(resource: Resource, obj: Json) -> Any:
    """Who must let go of an object before it is really deleted. A namespace
    has some in its spec as well."""
    found = obj["metadata"].get("finalizers")
    if not found and resource.kind == NAMESPACE:
        found = (obj.get("spec") or {}).get("finalizers")
    return found


def deleted(kind: Kind, obj: Json) -> Json:
    """The answer when an object is gone."""
    details = {"name": obj["metadata"]["name"], "kind": kind.plural}
    if kind.group:
        details["group"] = kind.group
    details["uid"] = obj["metadata"]["uid"]
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": details,
    }


def managed_fields(obj: Json, now: float) -> list[Json]:
    """``metadata.managedFields`` of an object: who wrote its fields last. All of its
    status was written by one controller, the rest by its creator."""
    rest = {key: value for key, value in obj.items() if key != "status"}
    rest["metadata"] = {
        key: value
        for key, value in obj["metadata"].items()
        if key in ("annotations", "finalizers", "labels", "ownerReferences")
    }
    parts = [("creator", "", rest)]
    if "status" in obj:
        parts.append(("controller", "status", {"status": obj["status"]}))
    return [
        {
            "apiVersion": obj.get("apiVersion", ""),
            "fieldsType": "FieldsV1",
            "fieldsV1": _fields(fields),
            "manager": manager,
            "operation": "Update",
            **({"subresource": subresource} if subresource else {}),
            "time": timestamp(now),
        }
        for manager, subresource, fields in parts
    ]


def _fields(value: Json) -> Json:
    """The names of an object's fields, as ``FieldsV1`` writes them."""
    return {
        f"f:{key}": _fields(each) if isinstance(each, dict) else {}
        for key, each in value.items()
        if key not in ("apiVersion", "kind")
    }
