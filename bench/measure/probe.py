# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""How long one API round trip takes: a patch of an object that is nobody's, by a
client that does nothing else, on a connection that stands."""

from __future__ import annotations

import http.client
import json
import time
from urllib.parse import urlsplit

from flux_k8s.ports import COMPUTES, DWS_GROUP

NAME = "bench-round-trip"
PAUSE = 0.01
"""Seconds of rest before a round trip: events come one at a time as well, and
find a server, and caches, that did something else meanwhile."""


class Probe:
    """A connection to an API server."""

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        assert address.hostname is not None
        self._http = http.client.HTTPConnection(
            address.hostname, address.port, timeout=60.0
        )
        group = json.loads(self._ask("GET", f"/apis/{DWS_GROUP}"))
        version = group["preferredVersion"]["groupVersion"]
        path = f"/apis/{version}/namespaces/default/{COMPUTES.plural}"
        body = {
            "apiVersion": version,
            "kind": COMPUTES.name,
            "metadata": {"name": NAME},
            "data": [],
        }
        self._path = f"{path}/{NAME}"
        self._number = 0
        self._ask("POST", path, json.dumps(body).encode())

    def sample(self) -> float:
        """Seconds of one round trip."""
        self._number += 1
        body = {"metadata": {"annotations": {"number": str(self._number)}}}
        text = json.dumps(body).encode()
        time.sleep(PAUSE)
        begin = time.perf_counter()
        self._ask("PATCH", self._path, text, "application/merge-patch+json")
        return time.perf_counter() - begin

    def _ask(
        self, method: str, path: str, body: bytes = b"", type: str = "application/json"
    ) -> bytes:
        headers = {"Content-Type": type} if body else {}
        self._http.request(method, path, body or None, headers)
        response = self._http.getresponse()
        answer = response.read()
        if response.status >= 300:
            raise OSError(f"{method} {path}: {response.status} {answer!r}")
        return answer

    def close(self) -> None:
        self._http.close()
