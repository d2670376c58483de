# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""rabbitsim.kube.server: verbs, watches, access and faults over HTTP."""

from __future__ import annotations

import json

import pytest

from flux_k8s.ports import WORKFLOW
from rabbitsim.kube.handler import HttpFault
from rabbitsim.kube.server import KubeServer
from support.kubernetes import (
    ALL,
    LOST,
    PATH,
    Http,
    lines,
    make_server,
    workflow,
)

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
