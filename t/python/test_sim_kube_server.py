# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""rabbitsim.kube.server: verbs, watches, access and faults over HTTP."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Optional

import pytest

from flux_k8s.ports import DWS_GROUP, WORKFLOW
from rabbitsim.kube.cli import serve as run
from rabbitsim.kube.handler import HttpFault
from rabbitsim.kube.server import KubeServer
from support.effort import night
from support.kubernetes import (
    ALL,
    LOST,
    PATH,
    Http,
    lines,
    make_server,
    workflow,
)


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


def test_a_watch_from_too_long_ago_gets_an_error_event(server: KubeServer) -> None:
    http = Http(server)
    http.ask("POST", PATH, workflow())
    server.call(server.store.forget_history)
    response = http.open("GET", f"{ALL}?watch=1&resourceVersion=1")
    assert response.status == 200
    (event,) = lines(response)
    assert event["type"] == "ERROR"
    assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")


# Permissions


def test_without_a_token_the_answer_is_401() -> None:
    server = make_server(tokens={"sesame": "flux"})
    server.start()
    try:
        for token in ("", "wrong"):
            status, answer = Http(server, token).ask("GET", ALL)
            assert (status, answer["reason"]) == (401, "Unauthorized")
        assert Http(server, "sesame").ask("GET", ALL)[0] == 200
    finally:
        server.stop()


def test_the_authorizer_decides_and_the_answer_is_403() -> None:
    asked: list[tuple[str, ...]] = []

    def authorizer(*request: str) -> bool:
        asked.append(request)
        return request[1] not in ("delete", "watch")

    server = make_server(tokens={"t": "flux"}, authorizer=authorizer)
    server.start()
    try:
        http = Http(server, "t")
        assert http.ask("POST", PATH, workflow())[0] == 201
        status, answer = http.ask("DELETE", f"{PATH}/w")
        assert (status, answer["reason"]) == (403, "Forbidden")
        message = f'workflows.{DWS_GROUP} "w" is forbidden: User "flux" cannot delete '
        assert answer["message"].startswith(message)
        assert http.ask("GET", f"{ALL}?watch=1")[0] == 403
        assert asked == [
            ("flux", "create", DWS_GROUP, "workflows", "default", ""),
            ("flux", "delete", DWS_GROUP, "workflows", "default", "w"),
            ("flux", "watch", DWS_GROUP, "workflows", "", ""),
        ]
    finally:
        server.stop()


# Faults


def test_faults_refuse_garble_truncate_and_cut(server: KubeServer) -> None:
    http = Http(server)
    http.ask("POST", PATH, workflow())
    current: list[HttpFault] = []
    server.faults = lambda method, path, query: current[0]

    current[:] = [HttpFault(status=429, retry_after=3)]
    response = http.open("GET", f"{PATH}/w")
    assert response.status == 429
    assert response.headers["Retry-After"] == "3"
    assert json.loads(response.read())["code"] == 429

    current[:] = [HttpFault(malformed=True)]
    body = http.open("GET", f"{PATH}/w").read()
    with pytest.raises(ValueError, match="Expecting"):
        json.loads(body)

    current[:] = [HttpFault(truncate=True)]
    with pytest.raises(LOST):
        http.open("GET", f"{PATH}/w").read()

    current[:] = [HttpFault(close=True)]
    with pytest.raises(LOST):
        Http(server).ask("DELETE", f"{PATH}/w")
    assert server.call(lambda: server.store.find(WORKFLOW, "default", "w"))

    current[:] = [HttpFault(close=True, carried_out=True)]
    with pytest.raises(LOST):
        Http(server).ask("DELETE", f"{PATH}/w")
    assert not server.call(lambda: server.store.find(WORKFLOW, "default", "w"))


def test_a_paused_server_refuses_connections_and_comes_back(
    server: KubeServer,
) -> None:
    url = server.url
    http = Http(server)
    response = http.open("GET", f"{ALL}?watch=1")
    server.pause()
    server.pause()
    with pytest.raises(LOST):
        assert response.read() == b""
        raise ConnectionError
    with pytest.raises(ConnectionRefusedError):
        Http(server).ask("GET", ALL)
    server.call(lambda: server.store.create(WORKFLOW, "default", workflow()))
    server.resume()
    server.resume()
    assert server.url == url
    assert len(Http(server).ask("GET", ALL)[1]["items"]) == 1


# The thread


# The command


def serve(tmp_path: Path) -> tuple[subprocess.Popen[str], str]:
    code = (
        "import sys; from rabbitsim.kube.cli import serve;"
        "sys.exit(serve(0, sys.argv[1]))"
    )
    path = str(tmp_path / "kc")
    process = subprocess.Popen(
        [sys.executable, "-c", code, path], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert re.fullmatch(r"Kubernetes API at http://127\.0\.0\.1:\d+\n", line)
    return process, path


def test_serve_names_the_reason_why_it_cannot_start(
    server: KubeServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    port = int(server.url.rpartition(":")[2])
    assert run(port, None, lambda: None) == 1
    assert f"port {port}" in capsys.readouterr().err
    missing = str(tmp_path / "no" / "folder")
    assert run(0, missing, lambda: None) == 1
    assert f"{missing}: No such file or directory" in capsys.readouterr().err


KUBECTL: Optional[str] = shutil.which("kubectl")


@night
@pytest.mark.skipif(KUBECTL is None, reason="there is no kubectl on PATH")
def test_kubectl_works_unchanged(tmp_path: Path) -> None:
    process, kubeconfig = serve(tmp_path)
    body = workflow()
    body["status"] = {"state": "Proposal", "ready": True, "status": "Completed"}
    (tmp_path / "w.json").write_text(json.dumps(body))
    environment = {**os.environ, "HOME": str(tmp_path), "KUBECONFIG": kubeconfig}

    def kubectl(*arguments: str) -> str:
        done = subprocess.run(
            [str(KUBECTL), *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    try:
        kubectl("create", "-f", str(tmp_path / "w.json"))
        header, row = kubectl("get", "workflows", "-A").splitlines()
        assert header.split()[:5] == ["NAMESPACE", "NAME", "STATE", "READY", "STATUS"]
        assert row.split()[:5] == ["default", "w", "Proposal", "true", "Completed"]
        watching = subprocess.Popen(
            [str(KUBECTL), "get", "workflows", "-A", "-w", "--no-headers"],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert watching.stdout is not None
        assert "Proposal" in watching.stdout.readline()
        patch = '{"status": {"state": "Setup", "ready": false}}'
        kubectl("patch", "workflow", "w", "--type=merge", "-p", patch)
        assert "Setup" in watching.stdout.readline()
        watching.terminate()
        watching.wait(10)
        assert "desiredState" in kubectl("explain", "workflow.spec")
        kubectl("delete", "workflow", "w")
    finally:
        process.terminate()
        assert process.wait(10) == 0
