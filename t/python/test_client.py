# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What the client sends, in which order, and with which versions."""

from __future__ import annotations

import functools
import gc
import json
import os
import select
import threading
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from flux_k8s.eventloop.callbackqueue import CallbackQueue
from flux_k8s.kube.client import KubeClient
from flux_k8s.kube.transfer import Transfer
from flux_k8s.ports import DWS_GROUP, NNF_GROUP, SECRET, WORKFLOW
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
    unused_port,
    with_discovery,
    write_kubeconfig,
)


def refused_client(service: Service, tmp_path: Path) -> KubeClient:
    """A client of a server that is not there."""
    kubeconfig = write_kubeconfig(tmp_path / "kc", unused_port())
    return service.client(kubeconfig, api_versions={DWS_GROUP: "v1alpha7"})


@pytest.mark.parametrize("status", [200, 404])
def test_a_version_that_is_set_and_not_served_is_logged_with_the_first_answer(
    service: Service, tmp_path: Path, status: int
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
                assert service.ask(client.get, WORKFLOW, "default", "w") == OK
    hint = "see rabbit.dws_api_version and rabbit.nnf_api_version"
    has = "v1alpha7, v1alpha8" if status == 200 else "no version"
    lines = [line for line in service.logged if NNF_GROUP in line]
    assert lines[0] == f"the API server has no {NNF_GROUP}/v1alpha99, but {has}: {hint}"
    assert len(lines) == (1 if status == 200 else 2)


class Test_requests:
    def test_create_fills_in_the_version_and_the_kind(
        self, service: Service, connect: Connect
    ) -> None:
        fake, client = connect(reply(201, OK))
        body = {"metadata": {"name": "w"}, "kind": "Nonsense"}
        assert service.ask(client.create, WORKFLOW, "default", body) == OK
        request = fake.requests[-1]
        assert (request.method, request.path) == ("POST", WORKFLOWS)
        assert json.loads(request.body) == {
            "apiVersion": f"{DWS_GROUP}/v1alpha7",
            "kind": "Workflow",
            "metadata": {"name": "w"},
        }
        assert body["kind"] == "Nonsense"

    def test_nothing_is_left_of_requests_that_were_answered(
        self, service: Service, connect: Connect
    ) -> None:
        """The service collects garbage rarely."""
        _, client = connect(reply(200, OK))
        left = []
        gc.disable()
        try:
            for _ in range(20):
                assert service.ask(client.get, WORKFLOW, "default", "w") == OK
                found = [type(each) for each in gc.get_objects()]
                left.append(found.count(Transfer))
        finally:
            gc.enable()
        assert left[-1] <= left[1]  # the first request finds out the version

    def test_idle_connections_keep_nothing_of_long_answers(
        self, service: Service, connect: Connect
    ) -> None:
        """A page of a list has megabytes."""
        lengths: list[int] = []

        def done(answer: Any) -> None:
            lengths.append(len(answer["items"]))

        page = {"items": [{"metadata": {"name": "w" * 1000}}] * 1000}
        _, client = connect(reply(200, page), workers=4)
        tracemalloc.start()
        try:
            for number in range(4):
                client.get(WORKFLOW, "default", "w", done, key=str(number))
            service.run(lambda: lengths == [1000] * 4)
            service.run(lambda: tracemalloc.get_traced_memory()[0] < 1_000_000)
        finally:
            tracemalloc.stop()

    def test_a_body_that_is_changed_after_the_call_is_sent_as_it_was(
        self, service: Service, connect: Connect
    ) -> None:
        fake, client = connect(reply(200, OK))
        body = {"spec": {"desiredState": "Setup"}}
        answers: list[Any] = []
        client.patch(WORKFLOW, "default", "w", body, answers.append, key="k")
        body["spec"]["desiredState"] = "Teardown"
        service.run(lambda: bool(answers))
        sent = json.loads(fake.requests[-1].body)
        assert sent == {"spec": {"desiredState": "Setup"}}

    def test_patch_is_a_merge_patch(self, service: Service, connect: Connect) -> None:
        fake, client = connect(reply(200, OK))
        service.ask(client.patch, WORKFLOW, "default", "w", {"spec": {}})
        request = fake.requests[-1]
        assert (request.method, request.path) == ("PATCH", f"{WORKFLOWS}/w")
        assert request.headers["content-type"] == "application/merge-patch+json"

    def test_a_patch_of_the_status_goes_to_the_subresource(
        self, service: Service, connect: Connect
    ) -> None:
        fake, client = connect(reply(200, OK))
        service.ask(client.patch_status, WORKFLOW, "default", "a b", {"status": None})
        request = fake.requests[-1]
        assert request.path == f"{WORKFLOWS}/a%20b/status"
        assert json.loads(request.body) == {"status": None}

    def test_get_delete_and_list_name_what_they_are_about(
        self, service: Service, connect: Connect
    ) -> None:
        fake, client = connect(reply(200, OK))
        service.ask(client.get, WORKFLOW, "default", "w")
        service.ask(client.delete, WORKFLOW, "default", "w", uid="u")
        service.ask(client.list, WORKFLOW, None, label_selector="a=b,c!=d")
        get, delete, list_all = fake.requests[-3:]
        assert (get.method, get.path) == ("GET", f"{WORKFLOWS}/w")
        assert (delete.method, delete.path) == ("DELETE", f"{WORKFLOWS}/w")
        assert json.loads(delete.body) == {"preconditions": {"uid": "u"}}
        assert list_all.path == f"/apis/{DWS_GROUP}/v1alpha7/workflows"
        assert list_all.query == {"labelSelector": "a=b,c!=d"}
        service.ask(client.list, WORKFLOW, None, limit=2, token="x")
        assert fake.requests[-1].query == {"limit": "2", "continue": "x"}

    def test_a_secret_is_read_through_the_core_api(
        self, service: Service, connect: Connect
    ) -> None:
        fake, client = connect(reply(200, {"kind": "Secret"}))
        service.ask(client.get, SECRET, "default", "token")
        paths = [request.path for request in fake.requests]
        assert paths == ["/api/v1/namespaces/default/secrets/token"]

    def test_the_token_and_who_we_are_are_sent(
        self, service: Service, connect: Connect
    ) -> None:
        fake, client = connect(reply(200, OK))
        service.ask(client.get, WORKFLOW, "default", "w")
        headers = fake.requests[-1].headers
        assert headers["authorization"] == f"Bearer {TOKEN}"
        assert headers["user-agent"] == "flux-dws"

    def test_done_is_never_called_from_within_the_call(
        self, service: Service, connect: Connect
    ) -> None:
        _, client = connect(reply(200, OK))
        threads: list[int] = []
        client.get(
            WORKFLOW,
            "default",
            "w",
            lambda answer: threads.append(threading.get_ident()),
            key="k",
        )
        assert not threads
        service.run(lambda: bool(threads))
        assert threads == [threading.get_ident()]

    @pytest.mark.parametrize("line", ["line é\n", "𝄞", "\n", "x"])
    def test_the_end_of_a_log_is_cut_to_characters(
        self, service: Service, connect: Connect, line: str
    ) -> None:
        log = line * 50_000 + "the end"

        def answer(request: Request, wire: Wire) -> None:
            wire.text(200, log.encode())

        fake, client = connect(answer)
        text = service.ask(client.pod_log, "ns", "pod", "user", characters=1000)
        assert text == log[-1000:]
        request = fake.requests[-1]
        assert request.path == "/api/v1/namespaces/ns/pods/pod/log"
        assert request.query == {"container": "user", "tailLines": "1000"}

    @pytest.mark.parametrize("log", [b"", b"\xff", b"\xa9 and \xc3"])
    def test_a_log_need_not_be_text(
        self, service: Service, connect: Connect, log: bytes
    ) -> None:
        _, client = connect(lambda request, wire: wire.text(200, log))
        text = service.ask(client.pod_log, "ns", "pod", "user", characters=1000)
        assert text == log.decode(errors="replace")


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
            client.get(
                WORKFLOW,
                "default",
                name,
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
        lock = threading.Lock()
        now, most = 0, 0

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
            client.get(WORKFLOW, "default", "w", finished.append, key=str(number))
        service.run(lambda: len(finished) == 60)
        assert most == 3

    def test_a_key_with_many_requests_does_not_hold_up_others(
        self, service: Service, connect: Connect
    ) -> None:
        _, client = connect(reply(200, OK), workers=1)
        finished: list[str] = []
        for _ in range(200):
            client.get(WORKFLOW, "d", "w", lambda a: finished.append("greedy"), key="g")
        client.get(WORKFLOW, "d", "w", lambda a: finished.append("modest"), key="m")
        service.run(lambda: "modest" in finished)
        assert len(finished) < 100

    def test_nothing_is_called_after_close(
        self, service: Service, connect: Connect
    ) -> None:
        fake, client = connect(with_discovery(lambda request, wire: wire.hang()))
        answers: list[Any] = []
        client.get(WORKFLOW, "default", "w", answers.append, key="k")
        client.get(WORKFLOW, "default", "w", answers.append, key="k")
        client.close()
        fake.close()
        service.loop.run(lambda: False, 0.01)
        client.get(WORKFLOW, "default", "w", answers.append, key="k")
        service.loop.run(lambda: False, 0.01)
        assert answers == []

    def test_a_request_that_fails_at_once_is_answered_before_the_next_is_sent(
        self, service: Service, tmp_path: Path
    ) -> None:
        """Nothing listens there: libcurl may know it as soon as it tries."""
        client = refused_client(service, tmp_path)
        answers: list[Any] = []

        def done(answer: Any) -> None:
            answers.append(answer.reason)
            if len(answers) < 50:
                client.get(WORKFLOW, "default", "w", done, key="k")

        client.get(WORKFLOW, "default", "w", done, key="k")
        service.run(lambda: len(answers) == 50)
        assert set(answers) == {"ConnectionRefused"}

    def test_requests_that_fail_at_once_let_others_have_their_turns(
        self, service: Service, tmp_path: Path
    ) -> None:
        client = refused_client(service, tmp_path)
        answers: list[Any] = []
        turns: list[int] = []

        def turn() -> None:
            turns.append(len(answers))
            service.loop.call_later(0.0, turn)

        turn()
        for number in range(1000):
            client.get(WORKFLOW, "default", "w", answers.append, key=str(number))
        service.run(lambda: len(answers) == 1000)
        assert max(later - before for before, later in zip(turns, turns[1:])) < 500

    def test_a_client_may_be_closed_by_an_answer(
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
            client.get(WORKFLOW, "default", "w", done, key=str(number))
        service.run(lambda: bool(answers))
        seen = list(handler.calls)
        service.loop.run(lambda: False, 0.05)
        assert (answers, handler.calls) == ([OK], seen)


class Test_versions:
    def test_api_versions_are_discovered_once(
        self, service: Service, connect: Connect
    ) -> None:
        fake, client = connect(reply(200, OK))
        for _ in range(3):
            service.ask(client.get, WORKFLOW, "default", "w")
        paths = [request.path for request in fake.requests]
        assert paths.count(f"/apis/{DWS_GROUP}") == 1

    def test_api_versions_can_be_forced(
        self, service: Service, connect: Connect
    ) -> None:
        fake, client = connect(reply(200, OK), api_versions={DWS_GROUP: "v1alpha2"})
        service.ask(client.get, WORKFLOW, "default", "w")
        [request] = fake.requests
        assert request.path.startswith(f"/apis/{DWS_GROUP}/v1alpha2/")

    def test_a_forced_api_version_that_is_not_served_is_named(
        self, service: Service, connect: Connect
    ) -> None:
        missing = with_discovery(lambda request, wire: wire.text(404, b"not found"))
        _, client = connect(missing, api_versions={DWS_GROUP: "v0"})
        error = service.refused(client.get, WORKFLOW, "default", "w")
        assert f"no workflows in {DWS_GROUP}/v0" in error.message
        assert "rabbit.dws_api_version" in error.message

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
        assert service.ask(client.get, WORKFLOW, "default", "w") == OK
        current = "v1alpha7"
        assert service.ask(client.get, WORKFLOW, "default", "w") == OK
        assert fake.requests[-1].path == f"{WORKFLOWS}/w"

    def test_an_api_group_that_is_not_served_is_named(
        self, service: Service, connect: Connect
    ) -> None:
        _, client = connect(lambda request, wire: wire.text(404, b"404 page not found"))
        error = service.refused(client.get, WORKFLOW, "default", "w")
        assert (error.status, error.reason) == (404, "GroupNotFound")
        assert DWS_GROUP in error.message

    def test_a_kind_that_is_not_there_is_not_mistaken_for_an_object(
        self, service: Service, connect: Connect
    ) -> None:
        missing = with_discovery(lambda request, wire: wire.text(404, b"not found"))
        fake, client = connect(missing)
        error = service.refused(client.get, WORKFLOW, "default", "w")
        assert (error.status, error.reason) == (404, "KindNotFound")
        assert "workflows" in error.message
        fake.answer = reply(200, OK)
        assert service.ask(client.get, WORKFLOW, "default", "w") == OK

    def test_discovery_without_a_version_is_a_bad_response(
        self, service: Service, connect: Connect
    ) -> None:
        _, client = connect(lambda request, wire: wire.json(200, {"versions": []}))
        error = service.refused(client.get, WORKFLOW, "default", "w")
        assert (error.status, error.reason) == (0, "BadResponse")


def is_readable(callbacks: CallbackQueue) -> bool:
    return bool(select.select([callbacks], [], [], 0)[0])


class Test_CallbackQueue:
    def test_the_callback_queue_is_readable_while_it_has_functions(self) -> None:
        callbacks = CallbackQueue()
        done: list[int] = []
        assert not is_readable(callbacks)
        for number in range(5):
            callbacks.put(functools.partial(done.append, number))
        assert is_readable(callbacks)
        assert callbacks.run(limit=3) == 3
        assert is_readable(callbacks)
        assert callbacks.run() == 2
        assert not is_readable(callbacks)
        assert done == [0, 1, 2, 3, 4]
        descriptor = callbacks.fileno()
        callbacks.close()
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)
        callbacks.put(lambda: done.append(5))
        callbacks.close()

    def test_the_callback_queue_goes_on_later_after_a_long_function(self) -> None:
        callbacks = CallbackQueue()
        for _ in range(3):
            callbacks.put(lambda: time.sleep(0.002))
        for _ in range(3):
            assert is_readable(callbacks)
            assert callbacks.run(seconds=0.001) == 1
        assert callbacks.run() == 0
        assert not is_readable(callbacks)
        callbacks.close()

    def test_the_callback_queue_survives_a_function_that_raises(self) -> None:
        callbacks = CallbackQueue()
        done: list[str] = []
        callbacks.put(lambda: 1 / 0)  # type: ignore[arg-type]
        callbacks.put(lambda: done.append("next"))
        with pytest.raises(ZeroDivisionError):
            callbacks.run()
        callbacks.run()
        assert done == ["next"]
        callbacks.close()

    def test_the_callback_queue_loses_nothing_of_many_threads(self) -> None:
        callbacks = CallbackQueue()
        done: list[int] = []
        count, each = 4, 2000

        def put() -> None:
            for number in range(each):
                callbacks.put(functools.partial(done.append, number))

        threads = [threading.Thread(target=put) for _ in range(count)]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + 10
        while len(done) < count * each and time.monotonic() < deadline:
            if select.select([callbacks], [], [], 0.1)[0]:
                callbacks.run()
        assert len(done) == count * each
        callbacks.close()
