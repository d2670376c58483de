# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""rabbitsim.kube.store: what it refuses, drops and leaves alone, as Kubernetes does."""

from __future__ import annotations

import copy

import pytest

from flux_k8s.ports import COMPUTES, SERVERS, WORKFLOW, Json
from rabbitsim.kube.store import Event, Store
from support.store import new_store, owned, refused, workflow

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


# Lists and watches


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("", "abcd"),
        ("app=x", "ab"),
        ("app==x,tier=1", "a"),
        ("app!=x", "cd"),
        ("app in (x, y)", "abc"),
        ("app notin (x)", "cd"),
        ("app", "abc"),
        ("!app", "d"),
        ("app,tier in (1,2),!nope", "ab"),
        ("example.com/job=7", "d"),
    ],
)
def test_label_selectors_match_as_in_kubernetes(
    store: Store, selector: str, names: str
) -> None:
    labels = {
        "a": {"app": "x", "tier": "1"},
        "b": {"app": "x", "tier": "2"},
        "c": {"app": "y"},
        "d": {"example.com/job": "7"},
    }
    for name, value in labels.items():
        store.create(COMPUTES, "default", {"metadata": {"name": name, "labels": value}})
    listed = store.list(COMPUTES, "default", label_selector=selector)
    assert "".join(obj["metadata"]["name"] for obj in listed["items"]) == names
    assert listed["kind"] == "ComputesList"
    assert listed["metadata"]["resourceVersion"] == str(store.version)


def test_a_watch_from_a_version_that_is_forgotten_gets_410() -> None:
    store = new_store(history=3)
    for number in range(5):
        store.create(COMPUTES, "default", {"metadata": {"name": f"c{number}"}})
    oldest = store.version - 3
    events: list[Event] = []
    store.watch(COMPUTES, None, events.append, resource_version=str(oldest))
    assert len(events) == 3
    error = refused(
        lambda: store.watch(
            COMPUTES, None, events.append, resource_version=str(oldest - 1)
        )
    )
    assert (error.code, error.reason) == (410, "Expired")
    assert error.message == f"too old resource version: {oldest - 1} ({oldest})"
    store.forget_history()
    error = refused(
        lambda: store.watch(
            COMPUTES, None, events.append, resource_version=str(store.version - 1)
        )
    )
    assert error.code == 410
    store.watch(COMPUTES, None, events.append, resource_version=str(store.version))
