# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""JSON merge patch (RFC 7386) and JSON patch (RFC 6902).

Both leave the document alone and return a new one. After a merge patch it shares
the parts that did not change.
"""

from __future__ import annotations

from typing import Any

import jsonpatch
from jsonpointer import JsonPointer, JsonPointerException

from rabbitsim.kube.errors import ApiError, bad_request


def merge_patch(target: Any, patch: Any) -> Any:
    """``target`` with ``patch`` merged into it (RFC 7386, section 2)."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = merge_patch(result.get(key), value)
        else:
            result[key] = value
    return result


def json_patch(document: Any, operations: Any) -> Any:
    """``document`` after the operations of a JSON patch.

    Raises:
        ApiError: 400 when an operation is malformed, 422 when one cannot be
            applied (RFC 6902, section 5).
    """
    try:
        if not isinstance(operations, list):
            raise jsonpatch.InvalidJsonPatch("must be an array of operations")
        if not all(isinstance(operation, dict) for operation in operations):
            raise jsonpatch.InvalidJsonPatch("an operation must be an object")
        patch = jsonpatch.JsonPatch(operations)
    except (jsonpatch.JsonPatchException, JsonPointerException, TypeError) as error:
        raise bad_request(f"the JSON patch is malformed: {error}") from None
    try:
        return patch.apply(document)
    except (jsonpatch.InvalidJsonPatch, TypeError) as error:
        raise bad_request(f"the JSON patch is malformed: {error}") from None
    except (jsonpatch.JsonPatchException, JsonPointerException) as error:
        message = f"the JSON patch cannot be applied: {error}"
        raise ApiError(422, "Invalid", message) from None


def as_merge_patch(body: Any) -> Any:
    """What a JSON patch adds, as a merge patch; a body that is no JSON patch as it
    is."""
    if not isinstance(body, list):
        return body
    merged: dict[str, Any] = {}
    for operation in body:
        if operation["op"] == "add":
            *path, name = JsonPointer(operation["path"]).parts
            part = merged
            for key in path:
                part = part.setdefault(key, {})
            part[name] = operation["value"]
    return merged


def same_json(a: Any, b: Any) -> bool:
    """Equality of JSON values: unlike Python's, ``true`` is not 1."""
    if a is b:
        return True
    if isinstance(a, bool) or isinstance(b, bool):
        return False
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same_json(a[k], b[k]) for k in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same_json, a, b))
    return bool(a == b)
