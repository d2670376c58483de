# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What the client makes of a server that misbehaves."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from email.utils import formatdate
from pathlib import Path
from typing import Any, Callable

import pytest

import flux_k8s.kube.session
from flux_k8s.ports import DWS_GROUP, WORKFLOW, KubeError
from support.client import (
    OK,
    PATIENCE,
    TOKEN,
    Connect,
    Fake,
    Request,
    Service,
    Wire,
    failure,
    reply,
    with_discovery,
    write_kubeconfig,
)

Answer = Callable[[Request, Wire], None]


def status(code: int, reason: str, **details: Any) -> Answer:
    return lambda request, wire: wire.json(code, failure(code, reason, **details))


def retry_after(value: str) -> Answer:
    return lambda request, wire: wire.json(503, {}, Retry_After=value)


def raw(data: bytes) -> Answer:
    """So much is sent, and the connection is lost."""

    def answer(request: Request, wire: Wire) -> None:
        wire.send(data)
        wire.drop()

    return answer


def endless(request: Request, wire: Wire) -> None:
    wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    while wire.open and not wire.over.wait(0.02):
        wire.send(b"x")


REASONS = {
    404: ["NotFound"],
    409: ["Conflict", "AlreadyExists"],
    403: ["Forbidden"],
    422: ["Invalid"],
    410: ["Expired"],
    500: ["InternalError"],
}
CUT = [
    b'Content-Length: 1000\r\n\r\n{"kind": "Workf',
    b"Transfer-Encoding: chunked\r\n\r\nff\r\n{",
    b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n",
    b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{",
]
MALFORMED = [
    b'Content-Length: 7\r\n\r\n{"kind"',
    b"Content-Length: 2\r\n\r\n[]",
    b"Content-Length: 4\r\n\r\n\xff\xfe{}",
    b"Content-Length: 0\r\n\r\n",
    b"Content-Length: 20000\r\n\r\n" + b"[" * 20000,
]
OK_LINE = b"HTTP/1.1 200 OK\r\n"
WAS_CUT = (0, "ConnectionLost", "the connection was cut")
BAD = (0, "BadResponse", "the answer is malformed: ")

FAILURES: dict[str, tuple[Answer, int, str, str]] = {
    **{
        reason: (status(code, reason), code, reason, f"{reason} it is")
        for code, reasons in REASONS.items()
        for reason in reasons
    },
    **{
        f"retryAfterSeconds is {value!r}": (
            status(504, "ServerTimeout", retryAfterSeconds=value),
            *(504, "ServerTimeout", "ServerTimeout it is"),
        )
        for value in ("7", True, float("inf"), [], {})
    },
    "an error page of a proxy": (
        lambda request, wire: wire.text(502, b"<html>no</html>"),
        *(502, "Whatever", ""),
    ),
    "a redirection, which is not followed": (
        lambda request, wire: wire.text(302, b"", Location="http://127.0.0.1:1/"),
        *(302, "Whatever", ""),
    ),
    **{f"cut off {n}": (raw(OK_LINE + data), *WAS_CUT) for n, data in enumerate(CUT)},
    **{
        f"malformed {n}": (raw(OK_LINE + data), *BAD)
        for n, data in enumerate(MALFORMED)
    },
    "no HTTP": (raw(b"I am not an HTTP server\r\n\r\n"), *BAD),
    "no answer": (lambda request, wire: wire.hang(), 0, "Timeout", ""),
    "an answer that does not end": (endless, 0, "Timeout", ""),
    "a connection that is closed": (
        lambda request, wire: wire.drop(),
        *(0, "ConnectionLost", ""),
    ),
    "a connection that is reset": (
        lambda request, wire: wire.reset(),
        *(0, "ConnectionLost", ""),
    ),
}
"""What a server answers; the status, the reason, and words of the error."""

RETRIES: dict[str, tuple[Answer, int, float, float]] = {
    "in seconds": (
        lambda request, wire: wire.json(429, {}, Retry_After="7"),
        *(429, 7.0, 7.0),
    ),
    "as a date": (
        lambda request, wire: retry_after(formatdate(time.time() + 50, usegmt=True))(
            request, wire
        ),
        *(503, 30.0, 50.0),
    ),
    "in a Status": (
        status(504, "ServerTimeout", retryAfterSeconds=3),
        *(504, 3.0, 3.0),
    ),
    **{
        f"of days: {value}": (retry_after(value), 503, 60.0, 60.0)
        for value in ("9999999", "999999999999", formatdate(1e11, usegmt=True))
    },
}
"""What a server answers; the status, and the least and the most seconds to wait."""


class Test_failures:
    """Each is a KubeError that says what happened."""

    @pytest.fixture
    def error_of(
        self, service: Service, connect: Connect
    ) -> Callable[[Answer], KubeError]:
        """What a client makes of a server that answers so."""

        def error_of(answer: Answer) -> KubeError:
            _, client = connect(with_discovery(answer), read_timeout=2.0)
            error = service.refused(client.get, WORKFLOW, "default", "w")
            assert TOKEN not in repr(vars(error)) + "".join(service.logged)
            assert "\n" not in error.message
            return error

        return error_of

    @pytest.mark.parametrize("name", FAILURES)
    def test_the_error_says_what_happened(
        self, error_of: Callable[[Answer], KubeError], name: str
    ) -> None:
        answer, status, reason, words = FAILURES[name]
        error = error_of(answer)
        assert (error.status, error.reason) == (status, reason)
        assert words in error.message
        assert error.retry_after is None

    @pytest.mark.parametrize("name", RETRIES)
    def test_the_server_may_say_when_to_try_again(
        self, error_of: Callable[[Answer], KubeError], name: str
    ) -> None:
        answer, status, least, most = RETRIES[name]
        error = error_of(answer)
        assert error.status == status
        assert error.retry_after is not None and least <= error.retry_after <= most

    @pytest.mark.parametrize(
        "value",
        ["soon", "-5", "9" * 5000, "Wed, 21 Oct 99999999999 07:28:00 GMT", "nan"],
    )
    def test_a_Retry_After_that_makes_no_sense_is_ignored(
        self, error_of: Callable[[Answer], KubeError], value: str
    ) -> None:
        error = error_of(retry_after(value))
        assert error.status == 503
        assert error.retry_after in (None, 60.0)

    @pytest.mark.parametrize("status", [200, 500])
    def test_an_answer_without_end_is_not_kept(
        self,
        error_of: Callable[[Answer], KubeError],
        monkeypatch: pytest.MonkeyPatch,
        status: int,
    ) -> None:
        monkeypatch.setattr(flux_k8s.kube.session, "MOST_ANSWERS", 100_000)

        def answer(request: Request, wire: Wire) -> None:
            wire.send(b"HTTP/1.1 %d Whatever\r\n\r\n" % status)
            while wire.open:
                wire.send(b"x" * 10_000)

        error = error_of(answer)
        assert (error.status, error.reason) == (0, "BadResponse")
        assert error.message.endswith(": the answer is too long")

    def test_answers_that_are_read_at_a_time_are_bounded_together(
        self, service: Service, connect: Connect, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Four answers of 40 kB: each alone would be read."""
        monkeypatch.setattr(flux_k8s.kube.session, "MOST_ANSWERS", 100_000)
        body = json.dumps({"kind": "Workflow", "x": "x" * 40_000}).encode()
        go_on = threading.Event()

        def answer(request: Request, wire: Wire) -> None:
            wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body))
            wire.send(body[:-1])
            go_on.wait(10.0)
            wire.send(body[-1:])

        _, client = connect(with_discovery(answer))
        answers: list[Any] = []
        for name in "abcd":
            client.get(WORKFLOW, "default", name, answers.append, key=name)
        service.run(lambda: len(answers) == 2)
        assert all(isinstance(error, KubeError) for error in answers)
        assert str(answers[0]).endswith(": the answer is too long")
        go_on.set()
        service.run(lambda: len(answers) == 4)
        assert all(isinstance(found, dict) for found in answers[2:])
        # What is over is not counted any more.
        client.get(WORKFLOW, "default", "e", answers.append, key="e")
        service.run(lambda: len(answers) == 5)
        assert isinstance(answers[4], dict)

    def test_a_server_that_is_not_there_refuses_the_connection(
        self, service: Service, tmp_path: Path
    ) -> None:
        with Fake(reply(200, OK)) as fake:
            port = fake.port
        client = service.client(write_kubeconfig(tmp_path / "kc", port))
        error = service.refused(client.get, WORKFLOW, "default", "w")
        assert (error.status, error.reason) == (0, "ConnectionRefused")
        assert f"127.0.0.1:{port}" in error.message

    def test_an_unknown_host_name_is_named_as_such(
        self, service: Service, tmp_path: Path
    ) -> None:
        kubeconfig = write_kubeconfig(tmp_path / "kc", "http://nowhere.invalid")
        client = service.client(kubeconfig)
        error = service.refused(client.get, WORKFLOW, "default", "w")
        assert (error.status, error.reason) == (0, "NameResolution")

    def test_a_server_that_speaks_no_TLS_is_an_error(
        self, service: Service, tmp_path: Path
    ) -> None:
        with Fake(reply(200, OK)) as fake:
            kubeconfig = write_kubeconfig(
                tmp_path / "kc", f"https://127.0.0.1:{fake.port}"
            )
            client = service.client(kubeconfig, read_timeout=1.0)
            error = service.refused(client.get, WORKFLOW, "default", "w")
            assert error.status == 0
            assert error.reason in ("TLS", "ConnectionLost", "Timeout")

    def test_a_request_on_a_connection_that_was_given_up_is_sent_on_another_one(
        self, service: Service, connect: Connect
    ) -> None:
        faults = iter([None, Wire.drop, None, Wire.reset])

        def answer(request: Request, wire: Wire) -> None:
            fault = next(faults, None)
            if fault is not None:
                fault(wire)
            else:
                wire.json(200, OK)

        _, client = connect(with_discovery(answer))
        for _ in range(4):
            assert service.ask(client.get, WORKFLOW, "d", "w") == OK

    def test_a_failed_request_does_not_hurt_the_next_one(
        self, service: Service, connect: Connect
    ) -> None:
        faults = iter([Wire.drop, Wire.reset, Wire.drop])

        def answer(request: Request, wire: Wire) -> None:
            fault = next(faults, None)
            if fault is not None:
                wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{")
                fault(wire)
            else:
                wire.json(200, OK)

        _, client = connect(with_discovery(answer))
        answers = [service.ask(client.get, WORKFLOW, "d", "w") for _ in range(5)]
        assert [isinstance(a, KubeError) for a in answers] == [True] * 3 + [
            False,
            False,
        ]


def test_an_answer_that_came_while_the_service_was_stopped_is_taken(
    service: Service, connect: Connect
) -> None:
    asked, stopped = threading.Event(), threading.Event()

    def answer(request: Request, wire: Wire) -> None:
        asked.set()
        stopped.wait(PATIENCE)
        wire.json(200, OK)

    _, client = connect(answer, read_timeout=0.5, api_versions={DWS_GROUP: "v1alpha7"})
    answers: list[Any] = []
    client.get(WORKFLOW, "default", "w", answers.append, key="k")
    service.run(asked.is_set)
    stopped.set()
    time.sleep(1.5)  # longer than any limit
    service.run(lambda: bool(answers))
    assert answers == [OK]


NO_END = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <string.h>
#include <unistd.h>

int getaddrinfo (const char *node,
                 const char *service,
                 const struct addrinfo *hints,
                 struct addrinfo **res)
{
    int (*next) () = (int (*) ()) dlsym (RTLD_NEXT, "getaddrinfo");
    while (node && strcmp (node, "kube.invalid") == 0)
        pause ();
    return next (node, service, hints, res);
}
"""
"""A resolver that never says whether ``kube.invalid`` exists."""

ASK = """
import sys
from flux_k8s.ports import WORKFLOW
from support.client import Service

with Service() as service:
    client = service.client(sys.argv[1], read_timeout=0.1)
    print(service.ask(client.get, WORKFLOW, "default", "w").reason)
    client.get(WORKFLOW, "default", "w", print, key="k")
print("closed", flush=True)
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="cc, which makes a resolver")
def test_a_name_that_is_not_resolved_holds_up_nothing(tmp_path: Path) -> None:
    library = tmp_path / "noend.so"
    command = ["cc", "-shared", "-fPIC", "-w", "-x", "c", "-", "-o", str(library)]
    subprocess.run([*command, "-ldl"], input=NO_END, text=True, check=True)
    kubeconfig = write_kubeconfig(tmp_path / "kc", "http://kube.invalid")
    run = subprocess.run(
        [sys.executable, "-c", ASK, kubeconfig],
        env={
            **os.environ,
            "LD_PRELOAD": str(library),
            "PYTHONPATH": os.pathsep.join(sys.path),
        },
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (run.stdout, run.stderr) == ("Timeout\nclosed\n", "")
