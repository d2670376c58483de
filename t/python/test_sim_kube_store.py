# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""rabbitsim.kube.store: the rules of the API server."""

from __future__ import annotations

import copy
from random import Random
from typing import Any, Optional

import pytest

from flux_k8s.ports import (
    COMPUTES,
    SECRET,
    SERVERS,
    WORKFLOW,
    Json,
    Kind,
)
from rabbitsim.kube.kinds import CRD, NAMESPACE
from rabbitsim.kube.store import Event, Forbidden, Store, denied
from support.store import new_store, owned, refused, workflow

# Objects


def test_a_created_object_gets_metadata_and_defaults(store: Store) -> None:
    obj = store.create(WORKFLOW, "default", workflow())
    metadata = obj["metadata"]
    assert obj["apiVersion"] == "dataworkflowservices.github.io/v1alpha7"
    assert obj["kind"] == "Workflow"
    assert obj["spec"]["forceReady"] is False
    assert obj["spec"]["hurry"] is False
    assert metadata["creationTimestamp"] == "2027-01-15T08:00:00Z"
    assert metadata["generation"] == 1
    assert metadata["namespace"] == "default"
    assert int(metadata["resourceVersion"]) == store.version
    assert store.get(WORKFLOW, "default", "w") == obj


def test_the_same_seed_gives_the_same_uids_and_names() -> None:
    def run() -> Json:
        body = {"metadata": {"generateName": "job-"}, "data": []}
        return new_store().create(COMPUTES, "default", body)

    assert run() == run()
    assert run()["metadata"]["name"].startswith("job-")


def test_unknown_fields_and_nulls_are_pruned(store: Store) -> None:
    body = workflow()
    body["spec"]["unheardOf"] = 1
    body["spec"]["hurry"] = None
    body["extra"] = {}
    body["metadata"]["managedFields"] = []
    obj = store.create(WORKFLOW, "default", body)
    assert "unheardOf" not in obj["spec"]
    assert obj["spec"]["hurry"] is False
    assert "extra" not in obj
    assert "managedFields" not in obj["metadata"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"spec": {"desiredState": "Lunch"}},
            (
                'spec.desiredState: Unsupported value: "Lunch": supported values: '
                '"Proposal", "Setup", "DataIn", "PreRun", "PostRun", "DataOut", '
                '"Teardown"'
            ),
        ),
        ({"spec": {"userID": None}}, "spec.userID: Required value"),
        (
            {"spec": {"userID": "1"}},
            (
                'spec.userID: Invalid value: "string": spec.userID in body must be of '
                'type integer: "string"'
            ),
        ),
        (
            {"spec": {"userID": True}},
            (
                'spec.userID: Invalid value: "boolean": spec.userID in body must be of '
                'type integer: "boolean"'
            ),
        ),
        (
            {"spec": {"dwDirectives": ["", 3]}},
            (
                'spec.dwDirectives[1]: Invalid value: "integer": spec.dwDirectives[1] '
                'in body must be of type string: "integer"'
            ),
        ),
        (
            {"status": {"ready": True, "drivers": [{"completed": True}]}},
            (
                "[status.drivers[0].driverID: Required value, "
                "status.drivers[0].dwdIndex: Required value, "
                "status.drivers[0].lastHB: Required value, "
                "status.drivers[0].taskID: Required value, "
                "status.drivers[0].watchState: Required value]"
            ),
        ),
        (
            {"metadata": {"finalizers": "x"}},
            (
                'metadata.finalizers: Invalid value: "string": metadata.finalizers in '
                'body must be of type array: "string"'
            ),
        ),
    ],
)
def test_an_invalid_field_is_named(store: Store, change: Json, message: str) -> None:
    store.create(WORKFLOW, "default", workflow())
    before = store.version
    error = refused(lambda: store.merge_patch(WORKFLOW, "default", "w", change))
    assert (error.code, error.reason) == (422, "Invalid")
    prefix = 'Workflow.dataworkflowservices.github.io "w" is invalid: '
    assert error.message == prefix + message
    assert error.status()["details"]["kind"] == "Workflow"
    assert store.version == before


@pytest.mark.parametrize("jobid", ["f123", 123])
def test_a_job_id_may_be_a_string_or_an_integer(store: Store, jobid: Any) -> None:
    body = workflow()
    body["spec"]["jobID"] = jobid
    assert store.create(WORKFLOW, "default", body)["spec"]["jobID"] == jobid


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


def test_errors_are_worded_as_kubernetes_words_them(store: Store) -> None:
    name = "workflows.dataworkflowservices.github.io"
    error = refused(lambda: store.get(WORKFLOW, "default", "x"))
    assert error.status() == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": f'{name} "x" not found',
        "reason": "NotFound",
        "code": 404,
        "details": {
            "name": "x",
            "kind": "workflows",
            "group": "dataworkflowservices.github.io",
        },
    }
    store.create(WORKFLOW, "default", workflow())
    error = refused(lambda: store.create(WORKFLOW, "default", workflow()))
    assert (error.code, error.reason) == (409, "AlreadyExists")
    assert error.message == f'{name} "w" already exists'
    error = refused(lambda: store.create(WORKFLOW, "nowhere", workflow()))
    assert (error.code, error.message) == (404, 'namespaces "nowhere" not found')
    stale = {"metadata": {"resourceVersion": "1"}}
    error = refused(lambda: store.merge_patch(WORKFLOW, "default", "w", stale))
    assert (error.code, error.reason) == (409, "Conflict")
    assert error.message == (
        f'Operation cannot be fulfilled on {name} "w": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )


# Writes


def test_an_update_must_name_the_version_that_it_replaces(store: Store) -> None:
    first = store.create(WORKFLOW, "default", workflow())
    body = copy.deepcopy(dict(first))
    body["spec"]["hurry"] = True
    second = store.update(WORKFLOW, "default", "w", body)
    assert second["spec"]["hurry"] is True
    assert second["metadata"]["generation"] == 2
    error = refused(lambda: store.update(WORKFLOW, "default", "w", body))
    assert error.code == 409
    del body["metadata"]["resourceVersion"]
    error = refused(lambda: store.update(WORKFLOW, "default", "w", body))
    assert error.code == 422
    assert "metadata.resourceVersion" in error.message


def test_a_secret_may_be_updated_unconditionally(store: Store) -> None:
    store.create(SECRET, "default", {"metadata": {"name": "s"}, "data": {"a": "YQ=="}})
    body = {"metadata": {"name": "s"}, "data": {"a": "Yg=="}}
    assert store.update(SECRET, "default", "s", body)["data"] == {"a": "Yg=="}


def test_a_client_cannot_change_what_the_server_owns(store: Store) -> None:
    before = store.create(WORKFLOW, "default", workflow())
    patch = {
        "metadata": {
            "creationTimestamp": "2000-01-01T00:00:00Z",
            "deletionTimestamp": "2000-01-01T00:00:00Z",
            "generation": 99,
        }
    }
    assert store.merge_patch(WORKFLOW, "default", "w", patch) is before
    rename = {"metadata": {"name": "other"}}
    assert (
        refused(lambda: store.merge_patch(WORKFLOW, "default", "w", rename)).code == 400
    )


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


def test_the_generation_follows_the_spec_and_a_status_that_is_no_subresource(
    store: Store,
) -> None:
    def generation(kind: Kind, name: str, patch: Json, subresource: str = "") -> int:
        obj = store.merge_patch(kind, "default", name, patch, subresource=subresource)
        number: int = obj["metadata"]["generation"]
        return number

    store.create(WORKFLOW, "default", workflow())
    assert generation(WORKFLOW, "w", {"metadata": {"labels": {"a": "b"}}}) == 1
    assert generation(WORKFLOW, "w", {"spec": {"hurry": True}}) == 2
    assert generation(WORKFLOW, "w", {"status": {"ready": False}}) == 3
    store.create(SERVERS, "default", {"metadata": {"name": "s"}})
    assert generation(SERVERS, "s", {"status": {"ready": True}}, "status") == 1
    assert generation(SERVERS, "s", {"spec": {"allocationSets": []}}) == 2


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


def test_a_dry_run_answers_and_changes_nothing(store: Store) -> None:
    events: list[Event] = []
    store.watch(WORKFLOW, None, events.append)
    before = store.version
    obj = store.create(WORKFLOW, "default", workflow(), dry_run=True)
    assert obj["spec"]["hurry"] is False
    assert store.find(WORKFLOW, "default", "w") is None
    store.create(WORKFLOW, "default", workflow("kept"))
    patched = store.merge_patch(
        WORKFLOW, "default", "kept", {"spec": {"hurry": True}}, dry_run=True
    )
    assert patched["spec"]["hurry"] is True
    store.delete(WORKFLOW, "default", "kept", dry_run=True)
    assert store.get(WORKFLOW, "default", "kept")["spec"]["hurry"] is False
    assert store.version == before + 1
    assert [event.type for event in events] == ["ADDED"]


def test_an_admission_hook_may_refuse_and_may_fill_in(store: Store) -> None:
    asked: list[tuple[str, Kind, bool, bool]] = []

    def hook(op: str, kind: Kind, new: Optional[Json], old: Optional[Json]) -> None:
        asked.append((op, kind, new is not None, old is not None))
        if op == "CREATE" and new is not None:
            if not new["spec"]["dwDirectives"][0].startswith("#DW "):
                raise denied("vworkflow.kb.io", "missing '#DW' prefix")
            new["status"] = {"ready": False}

    store.admission.append(hook)
    bad = workflow()
    bad["spec"]["dwDirectives"] = ["jobdw"]
    for dry_run in (True, False):
        error = refused(
            lambda d=dry_run: store.create(WORKFLOW, "default", bad, dry_run=d)  # type: ignore[misc]
        )
        assert isinstance(error, Forbidden)
        assert error.status() == {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": 'admission webhook "vworkflow.kb.io" denied the request: '
            "missing '#DW' prefix",
            "reason": "Forbidden",
            "code": 403,
        }
    assert store.create(WORKFLOW, "default", workflow())["status"] == {"ready": False}
    store.merge_patch(WORKFLOW, "default", "w", {"spec": {"hurry": True}})
    store.delete(WORKFLOW, "default", "w")
    assert asked[2:] == [
        ("CREATE", WORKFLOW, True, False),
        ("UPDATE", WORKFLOW, True, True),
        ("DELETE", WORKFLOW, False, True),
    ]


# Deletion


def test_an_object_without_finalizers_is_gone_at_once(store: Store) -> None:
    obj = store.create(WORKFLOW, "default", workflow())
    answer = store.delete(WORKFLOW, "default", "w")
    assert answer["status"] == "Success"
    assert answer["details"]["uid"] == obj["metadata"]["uid"]
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


def test_delete_preconditions_name_the_object_that_is_meant(store: Store) -> None:
    obj = store.create(WORKFLOW, "default", workflow())
    error = refused(lambda: store.delete(WORKFLOW, "default", "w", uid="other"))
    assert error.code == 409
    assert "Precondition failed: UID in precondition: other" in error.message
    error = refused(
        lambda: store.delete(WORKFLOW, "default", "w", resource_version="1")
    )
    assert error.code == 409
    store.delete(WORKFLOW, "default", "w", uid=obj["metadata"]["uid"])


def test_a_merge_patch_may_name_the_object_that_is_meant(store: Store) -> None:
    uid = store.create(WORKFLOW, "default", workflow())["metadata"]["uid"]
    other = {"metadata": {"uid": "other", "labels": {"a": "b"}}}
    error = refused(lambda: store.merge_patch(WORKFLOW, "default", "w", other))
    assert error.code == 422
    assert error.message.endswith(
        'metadata.uid: Invalid value: "other": field is immutable'
    )
    same = {"metadata": {"uid": uid, "labels": {"a": "b"}}}
    patched = store.merge_patch(WORKFLOW, "default", "w", same)
    assert patched["metadata"]["labels"] == {"a": "b"}


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


def test_an_object_whose_owner_is_gone_already_is_collected(store: Store) -> None:
    owner = store.create(WORKFLOW, "default", workflow())
    store.delete(WORKFLOW, "default", "w")
    store.create(COMPUTES, "default", owned("late", owner))
    assert store.find(COMPUTES, "default", "late") is None


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


def test_in_the_foreground_the_owner_waits_for_its_dependents(store: Store) -> None:
    owner = store.create(WORKFLOW, "default", workflow())
    body = owned("s", owner)
    body["metadata"]["finalizers"] = ["a.io/x"]
    store.create(SERVERS, "default", body)
    store.delete(WORKFLOW, "default", "w", propagation="Foreground")
    waiting = store.get(WORKFLOW, "default", "w")["metadata"]
    assert waiting["finalizers"] == ["foregroundDeletion"]
    assert "deletionTimestamp" in waiting
    store.merge_patch(SERVERS, "default", "s", {"metadata": {"finalizers": None}})
    assert store.find(SERVERS, "default", "s") is None
    assert store.find(WORKFLOW, "default", "w") is None


def test_orphans_stay_and_forget_their_owner(store: Store) -> None:
    owner = store.create(WORKFLOW, "default", workflow())
    store.create(COMPUTES, "default", owned("c", owner))
    store.delete(WORKFLOW, "default", "w", propagation="Orphan")
    assert "ownerReferences" not in store.get(COMPUTES, "default", "c")["metadata"]


def test_a_namespace_takes_its_content_along(store: Store) -> None:
    store.ensure_namespace("compute-01")
    store.ensure_namespace("compute-01")
    store.create(SECRET, "compute-01", {"metadata": {"name": "s"}})
    held = {"metadata": {"name": "c", "finalizers": ["a.io/x"]}}
    store.create(COMPUTES, "compute-01", held)
    store.delete(NAMESPACE, "", "compute-01")
    space = store.get(NAMESPACE, "", "compute-01")
    assert space["status"] == {"phase": "Terminating"}
    assert store.find(SECRET, "compute-01", "s") is None
    error = refused(
        lambda: store.create(SECRET, "compute-01", {"metadata": {"name": "t"}})
    )
    assert (error.code, error.reason) == (403, "Forbidden")
    store.merge_patch(COMPUTES, "compute-01", "c", {"metadata": {"finalizers": None}})
    assert store.find(NAMESPACE, "", "compute-01") is None
    assert refused(lambda: store.delete(NAMESPACE, "", "default")).code == 403


def test_crds_are_listed_and_cannot_be_written(store: Store) -> None:
    names = {obj["metadata"]["name"] for obj in store.select(CRD).items}
    assert "workflows.dataworkflowservices.github.io" in names
    assert "nnfdatamovements.nnf.cray.hpe.com" in names
    assert refused(lambda: store.delete(CRD, "", next(iter(names)))).code == 405


def test_managed_fields_name_the_fields_of_an_object_where_they_are_wanted() -> None:
    store = Store(lambda: 1.8e9, Random(1), managed_fields=True)
    store.create(WORKFLOW, "default", workflow())
    status = {"status": {"drivers": [], "env": {"A": "b"}, "ready": False}}
    obj = store.merge_patch(WORKFLOW, "default", "w", status)
    creator, controller = obj["metadata"]["managedFields"]
    assert creator["fieldsV1"]["f:spec"]["f:desiredState"] == {}
    assert controller["subresource"] == "status"
    assert controller["fieldsV1"]["f:status"]["f:env"] == {"f:A": {}}
