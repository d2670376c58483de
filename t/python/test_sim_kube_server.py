# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""rabbitsim.kube.server: verbs, watches and discovery over HTTP."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException

from flux_k8s.ports import DWS_GROUP, WORKFLOW
from rabbitsim.kube.routes import is_set
from rabbitsim.kube.server import KubeServer
from support.kubernetes import (
    ALL,
    PATH,
    VERSION,
    WATCH,
    WORKFLOWS,
    Http,
    lines,
    make_server,
    python_client,
    workflow,
)


def test_the_official_client_walks_an_object_through_its_life(
    server: KubeServer, tmp_path: Path
) -> None:
    api = python_client(server, tmp_path)
    created = api.create_namespaced_custom_object(*WORKFLOWS, workflow())
    assert created["spec"]["hurry"] is False
    patch = {"metadata": {"finalizers": ["a.io/x"]}, "status": {"ready": True}}
    api.patch_namespaced_custom_object(*WORKFLOWS, "w", patch)
    got = api.get_namespaced_custom_object(*WORKFLOWS, "w")
    assert got["status"] == {"ready": True}
    got["spec"]["hurry"] = True
    replaced = api.replace_namespaced_custom_object(*WORKFLOWS, "w", got)
    assert replaced["metadata"]["generation"] == 3
    with pytest.raises(ApiException) as caught:
        api.replace_namespaced_custom_object(*WORKFLOWS, "w", got)
    assert caught.value.status == 409
    listed = api.list_cluster_custom_object(DWS_GROUP, VERSION, "workflows")
    assert [obj["metadata"]["name"] for obj in listed["items"]] == ["w"]
    assert listed["kind"] == "WorkflowList"
    api.delete_namespaced_custom_object(*WORKFLOWS, "w")
    release = {"metadata": {"finalizers": None}}
    api.patch_namespaced_custom_object(*WORKFLOWS, "w", release)
    with pytest.raises(ApiException) as caught:
        api.get_namespaced_custom_object(*WORKFLOWS, "w")
    assert caught.value.status == 404
    assert json.loads(caught.value.body or "")["reason"] == "NotFound"


@pytest.mark.parametrize(
    "text,expected",
    [("true", True), ("True", True), ("1", True), ("0", False), ("false", False)],
)
def test_a_boolean_parameter_is_read_as_apimachinery_does(
    text: str, expected: bool
) -> None:
    assert is_set({"watch": text}, "watch") is expected
    assert not is_set({}, "watch")


def test_the_official_client_watches(server: KubeServer, tmp_path: Path) -> None:
    api = python_client(server, tmp_path)
    store = server.store
    server.call(lambda: store.create(WORKFLOW, "default", workflow("a")))
    stream = WATCH.Watch().stream(
        api.list_cluster_custom_object, DWS_GROUP, VERSION, "workflows"
    )
    assert next(stream)["object"]["metadata"]["name"] == "a"
    hurry = {"spec": {"hurry": True}}
    server.call(lambda: store.merge_patch(WORKFLOW, "default", "a", hurry))
    server.call(lambda: store.delete(WORKFLOW, "default", "a"))
    seen = [next(stream), next(stream)]
    assert [event["type"] for event in seen] == ["MODIFIED", "DELETED"]


def test_namespaces_secrets_and_logs_are_there(server: KubeServer) -> None:
    http, spaces = Http(server), "/api/v1/namespaces"
    http.ask("POST", spaces, {"metadata": {"name": "compute-01"}})
    names = [s["metadata"]["name"] for s in http.ask("GET", spaces)[1]["items"]]
    assert names == ["compute-01", "default", "kube-system"]
    secret = {"metadata": {"name": "s"}, "data": {"token": "c2VzYW1l"}}
    http.ask("POST", f"{spaces}/compute-01/secrets", secret)
    _, found = http.ask("GET", f"{spaces}/compute-01/secrets/s")
    assert found["data"] == {"token": "c2VzYW1l"}
    pods = f"{spaces}/default/pods"
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}}
    http.ask("POST", pods, pod)
    log = {("default", "p", "c"): "hello\nworld\n"}
    server.call(lambda: server.store.pod_logs.update(log))
    assert http.open("GET", f"{pods}/p/log").read() == b"hello\nworld\n"
    tail = http.open("GET", f"{pods}/p/log?container=c&tailLines=1").read()
    assert tail == b"world\n"
    for query, status in (("q/log?container=c", 404), ("p/log?container=d", 400)):
        assert http.ask("GET", f"{pods}/{query}")[0] == status


def test_discovery_names_groups_versions_and_resources(server: KubeServer) -> None:
    http = Http(server)
    _, groups = http.ask("GET", "/apis")
    versions = {g["name"]: g["preferredVersion"]["version"] for g in groups["groups"]}
    assert versions[DWS_GROUP] == VERSION
    _, group = http.ask("GET", f"/apis/{DWS_GROUP}")
    assert group["preferredVersion"]["groupVersion"] == f"{DWS_GROUP}/{VERSION}"
    _, resources = http.ask("GET", f"/apis/{DWS_GROUP}/{VERSION}")
    names = {entry["name"]: entry for entry in resources["resources"]}
    assert names["workflows"]["kind"] == "Workflow"
    assert names["workflows"]["namespaced"] is True
    assert "servers/status" in names
    assert "workflows/status" not in names
    assert http.ask("GET", "/api")[1]["versions"] == ["v1"]
    assert http.ask("GET", "/version")[1]["major"] == "1"


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "code", "reason"),
    [
        ("GET", "/apis/example.com", None, {}, 404, "NotFound"),
        ("GET", f"/apis/{DWS_GROUP}/v1alpha1/workflows", None, {}, 404, "NotFound"),
        ("GET", f"{PATH}/x/nonsense", None, {}, 404, "NotFound"),
        ("GET", f"{PATH}/x", None, {}, 404, "NotFound"),
        ("GET", f"{ALL}/x", None, {}, 404, "NotFound"),
        ("POST", PATH, {"kind": "Dog"}, {}, 400, "BadRequest"),
        ("POST", PATH, {"metadata": {"name": "w"}, "spec": {}}, {}, 422, "Invalid"),
        ("POST", ALL, workflow(), {}, 400, "BadRequest"),
        ("POST", f"{PATH}/w", {}, {}, 405, "MethodNotAllowed"),
        ("PUT", PATH, {}, {}, 405, "MethodNotAllowed"),
        ("GET", f"{PATH}?limit=many", None, {}, 400, "BadRequest"),
        ("GET", f"{PATH}?labelSelector=a%20b", None, {}, 400, "BadRequest"),
        ("GET", f"{PATH}?resourceVersion=999999", None, {}, 504, "Timeout"),
        ("GET", f"{PATH}?watch=1&resourceVersion=x", None, {}, 400, "BadRequest"),
        (
            "PATCH",
            f"{PATH}/w",
            {},
            {"Content_Type": "application/strategic-merge-patch+json"},
            415,
            "UnsupportedMediaType",
        ),
    ],
)
def test_a_malformed_request_is_refused_with_a_status(
    server: KubeServer,
    method: str,
    path: str,
    body: Any,
    headers: dict[str, str],
    code: int,
    reason: str,
) -> None:
    status, answer = Http(server).ask(method, path, body, **headers)
    assert (status, answer["kind"]) == (code, "Status")
    assert (answer["code"], answer["reason"]) == (code, reason)
    assert answer["message"]


def test_a_body_that_is_no_json_is_a_bad_request(server: KubeServer) -> None:
    http = Http(server)
    http.connection.request("POST", PATH, "{nonsense")
    response = http.connection.getresponse()
    assert response.status == 400
    assert "is no JSON" in json.loads(response.read())["message"]


def test_a_collection_may_be_deleted_by_selector(server: KubeServer) -> None:
    http = Http(server)
    for name in ("a", "b"):
        body = workflow(name)
        body["metadata"]["labels"] = {"name": name}
        http.ask("POST", PATH, body)
    assert http.ask("DELETE", f"{PATH}?labelSelector=name=a")[0] == 200
    left = http.ask("GET", ALL)[1]["items"]
    assert [obj["metadata"]["name"] for obj in left] == ["b"]


def test_a_dry_run_changes_nothing(server: KubeServer) -> None:
    http = Http(server)
    assert http.ask("POST", f"{PATH}?dryRun=All", workflow())[0] == 201
    assert http.ask("GET", f"{PATH}/w")[0] == 404


# Watches


def test_a_watch_replays_from_a_version_and_ends_at_its_timeout(
    server: KubeServer,
) -> None:
    http = Http(server)
    _, first = http.ask("POST", PATH, workflow("a"))
    http.ask("POST", PATH, workflow("b"))
    version = first["metadata"]["resourceVersion"]
    query = f"watch=true&resourceVersion={version}&timeoutSeconds=1"
    response = http.open("GET", f"{ALL}?{query}&allowWatchBookmarks=true")
    added, bookmark = lines(response)
    assert (added["type"], added["object"]["metadata"]["name"]) == ("ADDED", "b")
    assert bookmark["type"] == "BOOKMARK"
    assert bookmark["object"]["kind"] == "Workflow"
    latest = str(server.call(lambda: server.store.version))
    assert bookmark["object"]["metadata"] == {"resourceVersion": latest}


def test_bookmarks_come_when_nothing_happens() -> None:
    server = make_server(bookmark_every=0.01)
    server.start()
    try:
        response = Http(server).open("GET", f"{ALL}?watch=1&allowWatchBookmarks=true")
        seen = lines(response)
        assert [next(seen)["type"] for _ in range(3)] == ["BOOKMARK"] * 3
    finally:
        server.stop()


def test_a_streaming_list_says_where_the_watch_begins(server: KubeServer) -> None:
    http = Http(server)
    http.ask("POST", PATH, workflow("a"))
    query = (
        "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
        "&allowWatchBookmarks=true"
    )
    seen = lines(http.open("GET", f"{ALL}?{query}"))
    assert next(seen)["type"] == "ADDED"
    annotations = next(seen)["object"]["metadata"]["annotations"]
    assert annotations == {"k8s.io/initial-events-end": "true"}


def test_a_watch_from_too_long_ago_gets_an_error_event(server: KubeServer) -> None:
    http = Http(server)
    http.ask("POST", PATH, workflow())
    server.call(server.store.forget_history)
    response = http.open("GET", f"{ALL}?watch=1&resourceVersion=1")
    assert response.status == 200
    (event,) = lines(response)
    assert event["type"] == "ERROR"
    assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")


def test_dropped_watches_end_and_can_be_opened_again(server: KubeServer) -> None:
    http = Http(server)
    response = http.open("GET", f"{ALL}?watch=1")
    server.drop_watches()
    assert list(lines(response)) == []
    http.ask("POST", PATH, workflow())
    assert next(lines(http.open("GET", f"{ALL}?watch=1")))["type"] == "ADDED"


def test_every_watcher_sees_every_change_in_order(server: KubeServer) -> None:
    watchers = [Http(server).open("GET", f"{ALL}?watch=1") for _ in range(3)]
    http = Http(server)
    http.ask("POST", PATH, workflow())
    for number in range(200):
        patch = {"status": {"ready": False, "message": str(number)}}
        http.ask(
            "PATCH", f"{PATH}/w", patch, Content_Type="application/merge-patch+json"
        )
    for response in watchers:
        seen = lines(response)
        assert next(seen)["type"] == "ADDED"
        messages = [next(seen)["object"]["status"]["message"] for _ in range(200)]
        assert messages == [str(number) for number in range(200)]


def test_a_watcher_that_goes_away_leaves_nothing_behind(server: KubeServer) -> None:
    http = Http(server)
    http.open("GET", f"{ALL}?watch=1")
    streams = server._handler.streams
    assert server.call(lambda: len(streams)) == 1
    http.connection.close()
    deadline = time.monotonic() + 10
    while server.call(lambda: len(streams)) and time.monotonic() < deadline:
        time.sleep(0.005)
    assert server.call(lambda: len(streams)) == 0
