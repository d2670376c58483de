# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""rabbitsim.kube.store: what it refuses, drops and leaves alone, as Kubernetes does."""

from __future__ import annotations

import copy
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.ports import COMPUTES, SERVERS, WORKFLOW, Json
from rabbitsim.kube.patch import json_patch, merge_patch, same_json
from rabbitsim.kube.store import Event, Store
from support.store import owned, refused, workflow

NAME = "workflows.dataworkflowservices.github.io"
INVALID = 'Workflow.dataworkflowservices.github.io "w" is invalid: '


# Objects


def test_unknown_fields_and_nulls_are_dropped_and_defaults_filled_in(
    store: Store,
) -> None:
    body = workflow()
    body["spec"].update(unheardOf=1, hurry=None)
    body["extra"] = {}
    body["metadata"]["managedFields"] = []
    obj = store.create(WORKFLOW, "default", body)
    assert "unheardOf" not in obj["spec"] and obj["spec"]["hurry"] is False
    assert "extra" not in obj and "managedFields" not in obj["metadata"]
    assert obj["metadata"]["generation"] == 1


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (
            {"spec": {"desiredState": "Lunch"}},
            422,
            INVALID + 'spec.desiredState: Unsupported value: "Lunch": supported values',
        ),
        ({"spec": {"userID": None}}, 422, INVALID + "spec.userID: Required value"),
        (
            {"spec": {"userID": "1"}},
            422,
            INVALID + 'spec.userID: Invalid value: "string": spec.userID in body must '
            'be of type integer: "string"',
        ),
        ({"spec": {"userID": True}}, 422, INVALID + "spec.userID: Invalid value"),
        ({"spec": {"dwDirectives": ["", 3]}}, 422, INVALID + "spec.dwDirectives[1]: "),
        (
            {"status": {"drivers": [{"completed": True}]}},
            422,
            INVALID + "[status.drivers[0].driverID: Required value, ",
        ),
        ({"metadata": {"finalizers": "x"}}, 422, INVALID + "metadata.finalizers: "),
        (
            {"metadata": {"uid": "other"}},
            422,
            INVALID + 'metadata.uid: Invalid value: "other": field is immutable',
        ),
        ({"metadata": {"name": "other"}}, 400, ""),
        (
            {"metadata": {"resourceVersion": "1"}},
            409,
            f'Operation cannot be fulfilled on {NAME} "w": the object has been',
        ),
    ],
)
def test_a_patch_that_may_not_be_is_refused_and_changes_nothing(
    store: Store, change: Json, code: int, message: str
) -> None:
    store.create(WORKFLOW, "default", workflow())
    before = store.version
    error = refused(lambda: store.merge_patch(WORKFLOW, "default", "w", change))
    assert (error.code, error.message[: len(message)]) == (code, message)
    assert store.version == before


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (None, 400),
        ([], 400),
        ({"kind": "Servers"}, 400),
        ({"apiVersion": "dataworkflowservices.github.io/v1"}, 400),
        ({"metadata": {"namespace": "elsewhere", "name": "a"}}, 400),
        ({"metadata": {"name": "a", "resourceVersion": "3"}}, 400),
        ({"metadata": 3}, 422),
        ({"metadata": {}}, 422),
        ({"metadata": {"name": "No Capitals"}}, 422),
        ({"metadata": {"name": "a" * 254}}, 422),
        ({"metadata": {"name": "a", "labels": {"x": 1}}}, 422),
    ],
)
def test_an_object_of_another_kind_is_refused(
    store: Store, body: Any, code: int
) -> None:
    assert refused(lambda: store.create(COMPUTES, "default", body)).code == code


# Writes


def test_a_write_that_changes_nothing_makes_no_version_and_no_event(
    store: Store,
) -> None:
    first = store.create(WORKFLOW, "default", workflow(labels={"a": "b"}))
    events: list[Event] = []
    store.watch(
        WORKFLOW,
        None,
        events.append,
        resource_version=first["metadata"]["resourceVersion"],
    )
    before = store.version
    store.merge_patch(WORKFLOW, "default", "w", {"spec": {"hurry": False}})
    store.json_patch(
        WORKFLOW,
        "default",
        "w",
        [{"op": "replace", "path": "/spec/userID", "value": 1000}],
    )
    store.update(WORKFLOW, "default", "w", copy.deepcopy(dict(first)))
    assert store.version == before
    assert events == []


def test_a_status_subresource_is_written_by_itself_only(store: Store) -> None:
    body = {"metadata": {"name": "s"}, "spec": {}, "status": {"ready": True}}
    assert "status" not in store.create(SERVERS, "default", body)
    both = {
        "spec": {"allocationSets": []},
        "status": {"ready": True},
        "metadata": {"labels": {"a": "b"}},
    }
    obj = store.merge_patch(SERVERS, "default", "s", both, subresource="status")
    assert obj["status"] == {"ready": True}
    assert obj["spec"] == {}
    assert "labels" not in obj["metadata"]
    both["status"] = {"ready": False}
    obj = store.merge_patch(SERVERS, "default", "s", both)
    assert obj["status"] == {"ready": True}
    assert obj["spec"] == {"allocationSets": []}
    error = refused(
        lambda: store.merge_patch(
            WORKFLOW, "default", "w", {"status": {}}, subresource="status"
        )
    )
    assert error.code == 404


# Deletion


def test_delete_preconditions_name_the_object_that_is_meant(store: Store) -> None:
    obj = store.create(WORKFLOW, "default", workflow())
    for meant in ({"uid": "other"}, {"resource_version": "1"}):
        error = refused(lambda m=meant: store.delete(WORKFLOW, "default", "w", **m))  # type: ignore[misc]
        assert error.code == 409
    store.delete(WORKFLOW, "default", "w", uid=obj["metadata"]["uid"])
    assert refused(lambda: store.delete(WORKFLOW, "default", "w")).code == 404


def test_finalizers_hold_an_object_until_the_last_is_removed(store: Store) -> None:
    events: list[Event] = []
    store.watch(WORKFLOW, None, events.append)
    store.create(WORKFLOW, "default", workflow(finalizers=["a.io/x", "b.io/y"]))
    marked = store.delete(WORKFLOW, "default", "w")
    assert marked["metadata"]["deletionTimestamp"] == "2027-01-15T08:00:00Z"
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 0
    assert marked["metadata"]["generation"] == 2
    assert store.delete(WORKFLOW, "default", "w") == marked
    add = {"metadata": {"finalizers": ["a.io/x", "b.io/y", "c.io/z"]}}
    error = refused(lambda: store.merge_patch(WORKFLOW, "default", "w", add))
    assert error.code == 422
    assert 'found new finalizers []string{"c.io/z"}' in error.message
    store.merge_patch(
        WORKFLOW, "default", "w", {"metadata": {"finalizers": ["b.io/y"]}}
    )
    assert store.find(WORKFLOW, "default", "w") is not None
    last = store.merge_patch(WORKFLOW, "default", "w", {"metadata": {"finalizers": []}})
    assert "finalizers" not in last["metadata"]
    assert store.find(WORKFLOW, "default", "w") is None
    types = [event.type for event in events]
    assert types == ["ADDED", "MODIFIED", "MODIFIED", "DELETED"]
    assert events[-1].object["metadata"]["finalizers"] == ["b.io/y"]


def test_dependents_go_with_their_last_owner(store: Store) -> None:
    one = store.create(WORKFLOW, "default", workflow("one"))
    two = store.create(WORKFLOW, "default", workflow("two"))
    store.create(COMPUTES, "default", owned("c", one, two))
    child = store.create(SERVERS, "default", owned("s", one))
    store.create(SERVERS, "default", owned("grandchild", child))
    store.delete(WORKFLOW, "default", "one")
    left = store.get(COMPUTES, "default", "c")["metadata"]["ownerReferences"]
    assert [reference["name"] for reference in left] == ["two"]
    assert store.select(SERVERS).items == []
    store.delete(WORKFLOW, "default", "two")
    assert store.find(COMPUTES, "default", "c") is None


def test_a_dependent_with_finalizers_outlives_its_owner(store: Store) -> None:
    owner = store.create(WORKFLOW, "default", workflow())
    body = owned("s", owner)
    body["metadata"]["finalizers"] = ["a.io/x"]
    store.create(SERVERS, "default", body)
    store.delete(WORKFLOW, "default", "w")
    held = store.get(SERVERS, "default", "s")
    assert "deletionTimestamp" in held["metadata"]
    store.merge_patch(SERVERS, "default", "s", {"metadata": {"finalizers": None}})
    assert store.find(SERVERS, "default", "s") is None


# Patches

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


@given(old=OBJECTS, new=OBJECTS)
def test_a_merge_patch_leads_from_any_object_to_any_other(old: Json, new: Json) -> None:
    old, new = without_nulls(old), without_nulls(new)
    assert same_json(merge_patch(old, difference(old, new)), new)


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
