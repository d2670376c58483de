# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""rabbitsim.kube.patch: merge patch (RFC 7386) and JSON patch (RFC 6902)."""

from __future__ import annotations

import copy
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.ports import (
    Json,
)
from rabbitsim.kube.patch import json_patch, merge_patch, same_json
from support.store import refused

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text("ab~/", max_size=2),
    lambda children: (
        st.lists(children, max_size=3)
        | st.dictionaries(st.text("ab~/", max_size=2), children, max_size=3)
    ),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.sampled_from("abcd"), JSON, max_size=4)


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: without_nulls(v) for k, v in value.items() if v is not None}
    return value


def difference(old: Any, new: Any) -> Any:
    """A merge patch that leads from one object (without nulls) to another."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    patch = {key: None for key in old if key not in new}
    for key, value in new.items():
        if key not in old or not same_json(old[key], value):
            patch[key] = difference(old.get(key), value)
    return patch


@given(target=JSON, patch=JSON)
def test_a_merge_patch_twice_is_a_merge_patch_once(target: Any, patch: Any) -> None:
    original = copy.deepcopy(target)
    once = merge_patch(target, patch)
    assert same_json(merge_patch(once, patch), once)
    assert same_json(target, original)


@given(old=OBJECTS, new=OBJECTS)
def test_a_merge_patch_leads_from_any_object_to_any_other(old: Json, new: Json) -> None:
    old, new = without_nulls(old), without_nulls(new)
    assert same_json(merge_patch(old, difference(old, new)), new)


def test_the_examples_of_rfc_7386() -> None:
    cases: list[tuple[Any, Any, Any]] = [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ]
    for target, patch, result in cases:
        assert same_json(merge_patch(target, patch), result)


@given(document=OBJECTS, value=JSON, key=st.text("ab~/", min_size=1, max_size=3))
def test_json_patch_operations_undo_each_other(
    document: Json, value: Any, key: str
) -> None:
    pointer = "/" + key.replace("~", "~0").replace("/", "~1")
    original = copy.deepcopy(document)
    had = key in document
    added = json_patch(document, [{"op": "add", "path": pointer, "value": value}])
    assert same_json(added[key], value)
    undo: list[Json] = [{"op": "test", "path": pointer, "value": value}]
    if had:
        undo.append({"op": "replace", "path": pointer, "value": document[key]})
    else:
        undo.append({"op": "remove", "path": pointer})
    assert same_json(json_patch(added, undo), original)
    assert same_json(document, original)
    there_and_back = [
        {"op": "move", "from": pointer, "path": "/elsewhere"},
        {"op": "copy", "from": "/elsewhere", "path": pointer},
        {"op": "remove", "path": "/elsewhere"},
    ]
    assert same_json(json_patch(added, there_and_back), added)


def test_json_patch_on_arrays() -> None:
    document = {"a": [1, 2]}
    operations = [
        {"op": "add", "path": "/a/0", "value": 0},
        {"op": "add", "path": "/a/-", "value": 3},
        {"op": "remove", "path": "/a/1"},
        {"op": "replace", "path": "/a/1", "value": [4]},
        {"op": "add", "path": "/a/1/0", "value": {"b": None}},
    ]
    assert json_patch(document, operations) == {"a": [0, [{"b": None}, 4], 3]}
    assert document == {"a": [1, 2]}


STRICT = pytest.mark.skipif(
    sys.version_info < (3, 10), reason="the jsonpatch for Python 3.9 takes it"
)


@pytest.mark.parametrize(
    ("operation", "code"),
    [
        pytest.param({"op": "test", "path": "/a", "value": True}, 422, marks=STRICT),
        ({"op": "remove", "path": "/nope"}, 422),
        ({"op": "replace", "path": "/nope", "value": 1}, 422),
        ({"op": "add", "path": "/nope/b", "value": 1}, 422),
        ({"op": "add", "path": "/l/3", "value": 1}, 422),
        pytest.param({"op": "add", "path": "/l/01", "value": 1}, 422, marks=STRICT),
        ({"op": "move", "from": "/l", "path": "/l/0"}, 422),
        ({"op": "remove", "path": ""}, 422),
        ({"op": "add", "path": "/a"}, 400),
        ({"op": "add", "path": "a", "value": 1}, 400),
        ({"op": "dance", "path": "/a"}, 400),
        ({"op": [], "path": "/a"}, 400),
        ({"op": "copy", "path": "/a"}, 400),
        ({"op": "copy", "from": 3, "path": "/a"}, 400),
        ({"op": "add", "path": 5, "value": 1}, 400),
        ({"op": "add", "path": "/a/b", "value": 1}, 422),
        ({"op": "remove", "path": "/l/-"}, 422),
        ({"op": "test", "path": "/nope", "value": None}, 422),
        ("add", 400),
    ],
)
def test_a_json_patch_that_cannot_be_applied_is_refused(
    operation: Any, code: int
) -> None:
    document = {"a": 1, "l": [0]}
    assert refused(lambda: json_patch(document, [operation])).code == code


@pytest.mark.parametrize("operations", [{}, "[]", 5, None])
def test_a_json_patch_that_is_no_array_is_refused(operations: Any) -> None:
    assert refused(lambda: json_patch({"a": 1}, operations)).code == 400
