# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""JSON merge patch (RFC 7386) and JSON patch (RFC 6902).

Both leave the document alone and return a new one that shares the parts that
did not change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Callable

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
    if not isinstance(operations, list):
        raise bad_request("a JSON patch must be an array of operations")
    for operation in operations:
        if not isinstance(operation, dict) or operation.get("op") not in _OPERATIONS:
            names = ", ".join(_OPERATIONS)
            raise bad_request(f"a JSON patch operation must have op, one of {names}")
        document = _OPERATIONS[operation["op"]](document, operation)
    return document


def _pointer(operation: Mapping[str, Any], member: str = "path") -> list[str]:
    """The steps of a JSON pointer (RFC 6901)."""
    pointer = operation.get(member)
    if not isinstance(pointer, str) or (pointer and not pointer.startswith("/")):
        raise bad_request(f"{member} of a JSON patch operation must be a JSON pointer")
    steps = pointer.split("/")[1:]
    return [step.replace("~1", "/").replace("~0", "~") for step in steps]


def _value(operation: Mapping[str, Any]) -> Any:
    if "value" not in operation:
        raise bad_request(f"JSON patch operation {operation['op']} must have a value")
    return operation["value"]


def _failed(steps: Sequence[str], why: str) -> ApiError:
    path = "".join(f"/{step}" for step in steps)
    return ApiError(422, "Invalid", f"the JSON patch cannot be applied: {path}: {why}")


def _index(items: Sequence[Any], step: str, limit: int, steps: Sequence[str]) -> int:
    """The array index that a step names, at most ``limit``."""
    if not step.isdecimal() or (step != "0" and step.startswith("0")):
        raise _failed(steps, "not an array index")
    if int(step) > limit:
        raise _failed(steps, "index out of range")
    return int(step)


def _look_up(document: Any, steps: Sequence[str]) -> Any:
    for step in steps:
        if isinstance(document, dict) and step in document:
            document = document[step]
        elif isinstance(document, list):
            document = document[_index(document, step, len(document) - 1, steps)]
        else:
            raise _failed(steps, "no such path")
    return document


def _change(
    document: Any, steps: Sequence[str], edit: Callable[[Any, str], None]
) -> Any:
    """Copy the containers along ``steps``; ``edit`` changes the innermost."""

    def walk(node: Any, depth: int) -> Any:
        if not isinstance(node, (dict, list)):
            raise _failed(steps, "no such path")
        copy = node.copy()
        step = steps[depth]
        if depth == len(steps) - 1:
            edit(copy, step)
        elif isinstance(copy, dict):
            if step not in copy:
                raise _failed(steps, "no such path")
            copy[step] = walk(copy[step], depth + 1)
        else:
            index = _index(copy, step, len(copy) - 1, steps)
            copy[index] = walk(copy[index], depth + 1)
        return copy

    return walk(document, 0)


def _put(document: Any, steps: Sequence[str], value: Any) -> Any:
    def edit(container: Any, step: str) -> None:
        if isinstance(container, dict):
            container[step] = value
        elif step == "-":
            container.append(value)
        else:
            limit = len(container)
            container.insert(_index(container, step, limit, steps), value)

    return _change(document, steps, edit) if steps else value


def _take(document: Any, steps: Sequence[str]) -> Any:
    def edit(container: Any, step: str) -> None:
        if isinstance(container, dict):
            if step not in container:
                raise _failed(steps, "no such path")
            del container[step]
        else:
            del container[_index(container, step, len(container) - 1, steps)]

    if not steps:
        raise _failed(steps, "the whole document cannot be removed")
    return _change(document, steps, edit)


def _add(document: Any, operation: Mapping[str, Any]) -> Any:
    return _put(document, _pointer(operation), _value(operation))


def _remove(document: Any, operation: Mapping[str, Any]) -> Any:
    return _take(document, _pointer(operation))


def _replace(document: Any, operation: Mapping[str, Any]) -> Any:
    steps, value = _pointer(operation), _value(operation)
    _look_up(document, steps)

    def edit(container: Any, step: str) -> None:
        if isinstance(container, dict):
            container[step] = value
        else:
            container[int(step)] = value

    return _change(document, steps, edit) if steps else value


def _move(document: Any, operation: Mapping[str, Any]) -> Any:
    source, target = _pointer(operation, "from"), _pointer(operation)
    value = _look_up(document, source)
    if source == target:
        return document
    if target[: len(source)] == source:
        raise _failed(target, "a value cannot be moved into itself")
    return _put(_take(document, source), target, value)


def _copy(document: Any, operation: Mapping[str, Any]) -> Any:
    value = _look_up(document, _pointer(operation, "from"))
    return _put(document, _pointer(operation), value)


def _test(document: Any, operation: Mapping[str, Any]) -> Any:
    steps, expected = _pointer(operation), _value(operation)
    if not same_json(_look_up(document, steps), expected):
        raise _failed(steps, "the value is another one than the patch expects")
    return document


_OPERATIONS: Mapping[str, Callable[[Any, Mapping[str, Any]], Any]] = {
    "add": _add,
    "remove": _remove,
    "replace": _replace,
    "move": _move,
    "copy": _copy,
    "test": _test,
}


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
