# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The simulated API server, and requests to it over HTTP."""

from __future__ import annotations

import http.client
import json
import random
import time
from collections.abc import Iterator
from typing import Any

from flux_k8s.ports import DWS_GROUP, Json
from rabbitsim.kube.server import KubeServer
from rabbitsim.kube.store import Store

LOST = (ConnectionError, http.client.HTTPException)
VERSION = "v1alpha7"
PATH = f"/apis/{DWS_GROUP}/{VERSION}/namespaces/default/workflows"
ALL = f"/apis/{DWS_GROUP}/{VERSION}/workflows"


def make_server(**options: Any) -> KubeServer:
    return KubeServer(Store(time.time, random.Random(1)), **options)


def workflow(name: str = "w") -> Json:
    return {
        "apiVersion": f"{DWS_GROUP}/{VERSION}",
        "kind": "Workflow",
        "metadata": {"name": name},
        "spec": {
            "desiredState": "Proposal",
            "dwDirectives": [],
            "groupID": 0,
            "jobID": "f1",
            "userID": 0,
            "wlmID": "flux",
        },
    }


class Http:
    """One connection to a server."""

    def __init__(self, server: KubeServer, token: str = "") -> None:
        port = int(server.url.rpartition(":")[2])
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}

    def open(
        self, method: str, path: str, body: Any = None, **headers: str
    ) -> http.client.HTTPResponse:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        data = None if body is None else json.dumps(body)
        self.connection.request(method, path, data, {**self.headers, **given})
        return self.connection.getresponse()

    def ask(
        self, method: str, path: str, body: Any = None, **headers: str
    ) -> tuple[int, Any]:
        response = self.open(method, path, body, **headers)
        return response.status, json.loads(response.read())


def lines(response: http.client.HTTPResponse) -> Iterator[Json]:
    while True:
        line = response.readline()
        if not line:
            return
        yield json.loads(line)
