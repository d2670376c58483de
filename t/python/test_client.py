# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What the client sends, in which order, and with which versions."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from flux_k8s import ports
from flux_k8s.ports import DWS_GROUP, NNF_GROUP, POD, SECRET, WORKFLOW, Json
from support.client import (
    OK,
    TOKEN,
    WORKFLOWS,
    Connect,
    Fake,
    Recorder,
    Request,
    Service,
    Wire,
    discovery,
    reply,
    with_discovery,
    write_kubeconfig,
)

W = (WORKFLOW, "default", "w")
OF_DWS = f"/apis/{DWS_GROUP}/v1alpha7"
PODS = "/api/v1/namespaces/ns/pods"
MADE = {"apiVersion": f"{DWS_GROUP}/v1alpha7", "kind": "Workflow", "metadata": {}}

# The call; the request, its query and its body.
REQUESTS: dict[str, tuple[str, Json, Json, Any]] = {
    "create": (f"POST {WORKFLOWS}", {"body": {"metadata": {}, "kind": "X"}}, {}, MADE),
    "patch": (f"PATCH {WORKFLOWS}/w", {"body": {"spec": {}}}, {}, {"spec": {}}),
    "patch_status": (
        f"PATCH {WORKFLOWS}/a%20b/status",
        {"name": "a b", "body": {"status": None}},
        {},
        {"status": None},
    ),
    "get": (f"GET {WORKFLOWS}/w", {}, {}, None),
    "delete": (
        f"DELETE {WORKFLOWS}/w",
        {"uid": "u"},
        {},
        {"preconditions": {"uid": "u"}},
    ),
    "list": (
        f"GET {OF_DWS}/workflows",
        {"namespace": None, "label_selector": "a=b,c!=d"},
        {"labelSelector": "a=b,c!=d"},
        None,
    ),
    "list of a namespace": (
        f"GET {WORKFLOWS}",
        {"limit": 2, "token": "x"},
        {"limit": "2", "continue": "x"},
        None,
    ),
    "get a secret": (
        "GET /api/v1/namespaces/default/secrets/w",
        {"kind": SECRET},
        {},
        None,
    ),
}


@pytest.mark.parametrize("what", REQUESTS)
def test_a_request_names_what_it_is_about(
    service: Service, connect: Connect, what: str
) -> None:
    """And who we are. A body is sent as it was when the call was made."""
    expected, options, query, body = REQUESTS[what]
    fake, client = connect(reply(200, OK))
    verb = what.split()[0]
    given = {"kind": WORKFLOW, "namespace": "default", **options}
    if verb not in ("create", "list"):
        given.setdefault("name", "w")
    answers: list[Any] = []
    client.send(ports.Request(verb, **given), answers.append, key="k")
    assert not answers
    options.get("body", {}).update(later="change")
    service.run(lambda: bool(answers))
    assert answers == [OK]
    request = fake.requests[-1]
    assert f"{request.method} {request.path}" == expected
    assert request.query == query
    assert (json.loads(request.body) if request.body else None) == body
    headers = request.headers
    assert headers["authorization"] == f"Bearer {TOKEN}"
    assert headers["user-agent"] == "flux-dws"
    if verb.startswith("patch"):
        assert headers["content-type"] == "application/merge-patch+json"


@pytest.mark.parametrize(
    "log",
    [
        *(line.encode() * 50_000 for line in ("line é\n", "𝄞", "\n", "x")),
        *(b"", b"\xff", b"\xa9 and \xc3"),
    ],
    ids=len,
)
def test_the_end_of_a_log_is_cut_to_characters_and_need_not_be_text(
    service: Service, connect: Connect, log: bytes
) -> None:
    fake, client = connect(lambda request, wire: wire.text(200, log))
    text = service.ask(
        client, "log", POD, "ns", "pod", container="user", characters=1000
    )
    assert text == log.decode(errors="replace")[-1000:]
    request = fake.requests[-1]
    assert request.path == f"{PODS}/pod/log"
    assert request.query == {"container": "user", "tailLines": "1000"}


class Test_order:
    def test_requests_of_one_key_stay_in_order_and_others_overtake_them(
        self, service: Service, connect: Connect
    ) -> None:
        held = threading.Event()

        def answer(request: Request, wire: Wire) -> None:
            if request.path.endswith("/slow"):
                held.wait(10)
            wire.json(200, OK)

        _, client = connect(with_discovery(answer), workers=2)
        finished: list[str] = []

        def ask(name: str, key: str) -> None:
            client.send(
                ports.Request("get", WORKFLOW, "default", name),
                lambda answer: finished.append(name),
                key=key,
            )

        ask("slow", "a")
        ask("after-slow", "a")
        for number in range(5):
            ask(f"other-{number}", f"key-{number % 2}")
        service.run(lambda: len(finished) == 5)
        assert "slow" not in finished
        held.set()
        service.run(lambda: len(finished) == 7)
        assert finished.index("slow") < finished.index("after-slow")
        assert finished.index("other-0") < finished.index("other-2")

    def test_no_more_requests_are_under_way_than_there_are_workers(
        self, service: Service, connect: Connect
    ) -> None:
        lock, now, most = threading.Lock(), 0, 0

        def answer(request: Request, wire: Wire) -> None:
            nonlocal now, most
            with lock:
                now += 1
                most = max(most, now)
            time.sleep(0.002)
            with lock:
                now -= 1
            wire.json(200, OK)

        _, client = connect(with_discovery(answer), workers=3)
        finished: list[Any] = []
        for number in range(60):
            client.send(ports.Request("get", *W), finished.append, key=str(number))
        service.run(lambda: len(finished) == 60)
        assert most == 3

    def test_nothing_is_called_after_close_which_may_be_done_by_an_answer(
        self, service: Service, connect: Connect
    ) -> None:
        _, client = connect(with_discovery(reply(200, OK)))
        answers: list[Any] = []
        handler = Recorder()

        def done(answer: Any) -> None:
            answers.append(answer)
            client.close()

        client.watch(WORKFLOW, "default", handler)
        for number in range(10):
            client.send(ports.Request("get", *W), done, key=str(number % 5))
        service.run(lambda: bool(answers))
        client.send(ports.Request("get", *W), done, key="late")
        seen = list(handler.calls)
        service.loop.run(lambda: False, 0.05)
        assert (answers, handler.calls) == ([OK], seen)


class Test_versions:
    """That a group or a kind is not served: test_client_cluster.py."""

    def test_api_versions_are_discovered_once(
        self, service: Service, connect: Connect
    ) -> None:
        fake, client = connect(reply(200, OK))
        for _ in range(3):
            service.ask(client, "get", *W)
        paths = [request.path for request in fake.requests]
        assert paths.count(f"/apis/{DWS_GROUP}") == 1

    def test_api_versions_can_be_forced_and_one_that_is_not_served_is_named(
        self, service: Service, connect: Connect
    ) -> None:
        missing = with_discovery(lambda request, wire: wire.text(404, b"not found"))
        fake, client = connect(reply(200, OK), api_versions={DWS_GROUP: "v0"})
        service.ask(client, "get", *W)
        [request] = fake.requests
        assert request.path.startswith(f"/apis/{DWS_GROUP}/v0/")
        fake.answer = missing
        error = service.refused(client, "get", *W)
        assert f"no workflows in {DWS_GROUP}/v0" in error.message
        assert "rabbit.dws_api_version" in error.message

    @pytest.mark.parametrize("status", [200, 404])
    def test_a_version_that_is_set_and_not_served_is_logged_with_the_first_answer(
        self, service: Service, tmp_path: Path, status: int
    ) -> None:
        """Objects of NNF may be asked for only when data of a job moves."""
        served = [{"version": "v1alpha7"}, {"version": "v1alpha8"}]

        def answer(request: Request, wire: Wire) -> None:
            if request.path == f"/apis/{NNF_GROUP}":
                wire.json(status, {"versions": served} if status == 200 else {})
            else:
                wire.json(200, OK)

        for version in ("v1alpha99", "v1alpha8"):
            with Fake(answer) as fake:
                client = service.client(
                    write_kubeconfig(tmp_path / "kc", fake.port),
                    api_versions={DWS_GROUP: "v1alpha7", NNF_GROUP: version},
                )
                for _ in range(2):
                    assert service.ask(client, "get", *W) == OK
        hint = "see rabbit.dws_api_version and rabbit.nnf_api_version"
        has = "v1alpha7, v1alpha8" if status == 200 else "no version"
        named = f"the API server has no {NNF_GROUP}/v1alpha99, but {has}: {hint}"
        lines = [line for line in service.logged if NNF_GROUP in line]
        assert lines[0] == named
        assert len(lines) == (1 if status == 200 else 2)

    def test_an_api_version_that_disappears_is_replaced(
        self, service: Service, connect: Connect
    ) -> None:
        current = "v1alpha6"

        def answer(request: Request, wire: Wire) -> None:
            if request.path == f"/apis/{DWS_GROUP}":
                wire.json(200, discovery(current))
            elif f"/{current}/" in request.path:
                wire.json(200, OK)
            else:
                wire.text(404, b"404 page not found\n")

        fake, client = connect(answer)
        assert service.ask(client, "get", *W) == OK
        current = "v1alpha7"
        assert service.ask(client, "get", *W) == OK
        assert fake.requests[-1].path == f"{WORKFLOWS}/w"

    def test_discovery_without_a_version_is_a_bad_response(
        self, service: Service, connect: Connect
    ) -> None:
        _, client = connect(lambda request, wire: wire.json(200, {"versions": []}))
        error = service.refused(client, "get", *W)
        assert (error.status, error.reason) == (0, "BadResponse")
