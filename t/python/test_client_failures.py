# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What the client makes of a server that misbehaves."""

from __future__ import annotations

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
from flux_k8s import ports
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

FAILURES: dict[str, tuple[Any, ...]] = {
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
    "429, and when to try again in seconds": (
        lambda request, wire: wire.json(429, {}, Retry_After="7"),
        *(429, "Whatever", "", 7.0, 7.0),
    ),
    "when to try again as a date": (
        lambda request, wire: retry_after(formatdate(time.time() + 50, usegmt=True))(
            request, wire
        ),
        *(503, "Whatever", "", 30.0, 50.0),
    ),
    "when to try again in a Status": (
        status(504, "ServerTimeout", retryAfterSeconds=3),
        *(504, "ServerTimeout", "", 3.0, 3.0),
    ),
    "to try again at once": (
        status(504, "ServerTimeout", retryAfterSeconds=0),
        *(504, "ServerTimeout", "", 0.0, 0.0),
    ),
    **{
        f"in days, or what makes no sense: {value[:40]}": (
            *(retry_after(value), 503, "Whatever", "", *[60.0] * 2 * is_time),
        )
        for value, is_time in (
            *(("9999999", 1), ("999999999999", 1), (formatdate(1e11, usegmt=True), 1)),
            *(("9" * 5000, 1), ("soon", 0), ("-5", 0), ("nan", 0)),
            ("Wed, 21 Oct 99999999999 07:28:00 GMT", 0),
        )
    },
}
"""What a server answers; the status, the reason, and words of the error, and the least
and the most seconds to wait, if it says something of that."""


@pytest.fixture
def error_of(service: Service, connect: Connect) -> Callable[[Answer], KubeError]:
    """What a client makes of a server that answers so."""

    def error_of(answer: Answer) -> KubeError:
        _, client = connect(with_discovery(answer), read_timeout=2.0)
        error = service.refused(client, "get", WORKFLOW, "default", "w")
        assert TOKEN not in repr(vars(error)) + "".join(service.logged)
        assert "\n" not in error.message
        return error

    return error_of


@pytest.mark.parametrize("name", FAILURES)
def test_the_error_says_what_happened(
    error_of: Callable[[Answer], KubeError], name: str
) -> None:
    answer, status, reason, words, *wait = FAILURES[name]
    error = error_of(answer)
    assert (error.status, error.reason) == (status, reason)
    assert words in error.message
    if wait:
        assert error.retry_after is not None
        assert wait[0] <= error.retry_after <= wait[1]
    else:
        assert error.retry_after is None


class Test_failures:
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

    def test_a_server_that_is_not_there_refuses_the_connection(
        self, service: Service, tmp_path: Path
    ) -> None:
        with Fake(reply(200, OK)) as fake:
            port = fake.port
        client = service.client(write_kubeconfig(tmp_path / "kc", port))
        error = service.refused(client, "get", WORKFLOW, "default", "w")
        assert (error.status, error.reason) == (0, "ConnectionRefused")
        assert f"127.0.0.1:{port}" in error.message

    def test_an_unknown_host_name_is_named_as_such(
        self, service: Service, tmp_path: Path
    ) -> None:
        kubeconfig = write_kubeconfig(tmp_path / "kc", "http://nowhere.invalid")
        client = service.client(kubeconfig)
        error = service.refused(client, "get", WORKFLOW, "default", "w")
        assert (error.status, error.reason) == (0, "NameResolution")

    @pytest.mark.parametrize("part", [b"", b"Content-Length: 9\r\n\r\n{"])
    def test_a_failed_request_does_not_hurt_the_next_one(
        self, service: Service, connect: Connect, part: bytes
    ) -> None:
        """One on a connection that was given up meanwhile is sent on another one."""
        faults = iter([None, Wire.drop, None, Wire.reset])

        def answer(request: Request, wire: Wire) -> None:
            fault = next(faults, None)
            if fault is None:
                wire.json(200, OK)
                return
            if part:
                wire.send(OK_LINE + part)
            fault(wire)

        _, client = connect(with_discovery(answer))
        answers = [service.ask(client, "get", WORKFLOW, "d", "w") for _ in range(5)]
        failed = [isinstance(each, KubeError) for each in answers]
        assert failed == [False, bool(part), False, bool(part), False]


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
    client.send(ports.Request("get", WORKFLOW, "default", "w"), answers.append, key="k")
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
from flux_k8s.ports import WORKFLOW, Request
from support.client import Service

with Service() as service:
    client = service.client(sys.argv[1], read_timeout=0.1)
    print(service.ask(client, "get", WORKFLOW, "default", "w").reason)
    client.send(Request("get", WORKFLOW, "default", "w"), print, key="k")
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
