# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""rabbitsim.kube.server: access, faults, and the server's thread."""

from __future__ import annotations

import json
import os
import stat
import threading
from pathlib import Path

import pytest

from flux_k8s.ports import COMPUTES, DWS_GROUP, WORKFLOW, Json, KubeError
from rabbitsim.kube.direct import DirectKube
from rabbitsim.kube.handler import HttpFault
from rabbitsim.kube.server import KubeServer
from support.kubernetes import (
    ALL,
    LOST,
    PATH,
    VERSION,
    WORKFLOWS,
    Http,
    lines,
    make_server,
    python_client,
    workflow,
)

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
        assert answer["message"] == (
            f'workflows.{DWS_GROUP} "w" is forbidden: User "flux" cannot delete '
            f'resource "workflows" in API group "{DWS_GROUP}" in the namespace '
            '"default"'
        )
        assert http.ask("GET", f"{ALL}?watch=1")[0] == 403
        assert asked == [
            ("flux", "create", DWS_GROUP, "workflows", "default", ""),
            ("flux", "delete", DWS_GROUP, "workflows", "default", "w"),
            ("flux", "watch", DWS_GROUP, "workflows", "", ""),
        ]
    finally:
        server.stop()


def test_the_kubeconfig_is_for_its_owner_only(tmp_path: Path) -> None:
    server = make_server(tokens={"to/ken": "us er"})
    server.start()
    try:
        api = python_client(server, tmp_path)
        assert (
            api.list_cluster_custom_object(*WORKFLOWS[:2], "workflows")["items"] == []
        )
        mode = os.stat(tmp_path / "kubeconfig").st_mode
        assert stat.S_IMODE(mode) == 0o600
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


def test_a_request_that_hangs_delays_no_other(server: KubeServer) -> None:
    server.faults = lambda method, path, query: (
        HttpFault(hang=3600.0) if method == "POST" else None
    )
    hung = Http(server)
    hung.connection.request("POST", PATH, json.dumps(workflow()))
    assert Http(server).ask("GET", ALL)[0] == 200
    hung.connection.close()


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


def test_call_runs_on_the_thread_of_the_store(server: KubeServer) -> None:
    here = threading.current_thread()
    there = server.call(threading.current_thread)
    assert there is not here
    assert server.call(lambda: server.call(threading.current_thread)) is there
    with pytest.raises(KubeError):
        server.call(_fail)


def _fail() -> None:
    raise KubeError(418, "Teapot")


def test_a_server_stops_and_its_port_is_free_again() -> None:
    server = make_server()
    url = server.start()
    server.stop()
    server.stop()
    again = make_server(port=int(url.rpartition(":")[2]))
    assert again.start() == url
    with pytest.raises(OSError, match="address already in use"):
        make_server(port=int(url.rpartition(":")[2])).start()
    again.stop()


def test_controllers_may_live_on_the_thread_of_the_server(server: KubeServer) -> None:
    """A DirectKube on the server's clock sees what comes in through HTTP, and
    what it writes is seen there."""

    class Mirror:
        def __init__(self, kube: DirectKube) -> None:
            self.kube = kube

        def event(self, type: str, object: Json) -> None:
            name = object["metadata"]["name"]
            body = {"metadata": {"name": name}, "data": []}
            if type == "ADDED":
                self.kube.create(COMPUTES, "default", body, lambda _: None, key=name)

        def synced(self) -> None:
            pass

        def trouble(self, error: KubeError) -> None:
            raise error

    def start() -> None:
        kube = DirectKube(server.store, server.clock)
        kube.watch(WORKFLOW, None, Mirror(kube))

    server.call(start)
    http = Http(server)
    computes = f"/apis/{DWS_GROUP}/{VERSION}/computes"
    seen = lines(Http(server).open("GET", f"{computes}?watch=1"))
    for number in range(10):
        http.ask("POST", PATH, workflow(f"w{number}"))
    names = [next(seen)["object"]["metadata"]["name"] for _ in range(10)]
    assert names == [f"w{number}" for number in range(10)]
