# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""An HTTP server that misbehaves, and the client on a thread like the service's.

:class:`Fake` is an HTTP server whose answers are a script, down to the bytes,
for the faults that no decent API server has. :class:`Service` stands for the
service: it has an event loop, and runs it.
"""

from __future__ import annotations

import json
import socket
import ssl
import struct
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Optional, Union
from urllib.parse import parse_qsl, urlsplit

import yaml

from flux_k8s import ports
from flux_k8s.eventloop import PollLoop
from flux_k8s.kube.client import KubeClient
from flux_k8s.objects.decoding import plain
from flux_k8s.ports import DWS_GROUP, Json, KubeError, Seen

PATIENCE = 60.0
"""Seconds after which a test gives up; nothing comes near it."""

WORKFLOWS = f"/apis/{DWS_GROUP}/v1alpha7/namespaces/default/workflows"

TOKEN = "sesame-4711"


@dataclass
class Request:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes


@dataclass
class Wire:
    """The connection that a request came on, for the answer."""

    socket: socket.socket
    over: threading.Event
    open: bool = True

    def send(self, data: bytes) -> None:
        try:
            self.socket.sendall(data)
        except OSError:
            self.open = False

    def json(self, status: int, value: Json, **headers: str) -> None:
        body = json.dumps(value).encode()
        self.text(status, body, **{"Content_Type": "application/json", **headers})

    def text(self, status: int, body: bytes, **headers: str) -> None:
        lines = [f"{k.replace('_', '-')}: {v}" for k, v in headers.items()]
        lines.append(f"Content-Length: {len(body)}")
        head = "\r\n".join([f"HTTP/1.1 {status} Whatever", *lines, "", ""])
        self.send(head.encode() + body)

    def begin_stream(self) -> None:
        self.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")

    def chunk(self, data: bytes) -> None:
        self.send(b"%x\r\n%s\r\n" % (len(data), data))

    def event(self, type: str, object: Json) -> None:
        event = {"type": type, "object": object}
        self.chunk(json.dumps(event).encode() + b"\n")

    def end_stream(self) -> None:
        self.send(b"0\r\n\r\n")

    def hang(self) -> None:
        """Say nothing more until the server closes."""
        self.over.wait(PATIENCE)

    def await_end(self) -> bool:
        """Say nothing more until the client closes the connection; whether it did."""
        self.socket.settimeout(PATIENCE)
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True
        except OSError:
            return False

    def drop(self) -> None:
        """Close the connection."""
        self.open = False

    def reset(self) -> None:
        linger = struct.pack("ii", 1, 0)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.open = False


Answer = Callable[[Request, Wire], None]


class Fake:
    """An HTTP server on loopback; ``answer`` writes each answer. With a
    ``context`` it speaks TLS."""

    def __init__(
        self, answer: Answer, context: Optional[ssl.SSLContext] = None
    ) -> None:
        self.answer = answer
        self._context = context
        self.requests: list[Request] = []
        self._over = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        self._connections: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Fake:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self._over.set()
        for connection in [self._listener, *self._connections]:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            connection.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            threading.Thread(
                target=self._converse, args=(connection,), daemon=True
            ).start()

    def _converse(self, connection: socket.socket) -> None:
        try:
            if self._context is not None:
                connection = self._context.wrap_socket(connection, server_side=True)
                self._connections.append(connection)
            wire = Wire(connection, self._over)
            with connection, connection.makefile("rb") as file:
                while wire.open and (request := _read_request(file)) is not None:
                    self.requests.append(request)
                    self.answer(request, wire)
        except OSError:
            pass


def _read_request(file: Any) -> Optional[Request]:
    first = file.readline().decode("latin-1").split()
    if len(first) < 2:  # the end, or what is no HTTP
        return None
    headers = {}
    while line := file.readline().decode("latin-1").strip():
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    # CONNECT has a host and a port, of which Python 3.9 makes a scheme and a path.
    url = urlsplit(f"//{first[1]}/{first[1]}" if first[0] == "CONNECT" else first[1])
    body = file.read(int(headers.get("content-length", 0)))
    return Request(first[0], url.path, dict(parse_qsl(url.query)), headers, body)


def discovery(version: str = "v1alpha7") -> Json:
    return {"kind": "APIGroup", "preferredVersion": {"version": version}}


def with_discovery(answer: Answer) -> Answer:
    """Answer discovery; leave the rest to ``answer``."""

    def both(request: Request, wire: Wire) -> None:
        if request.path == f"/apis/{DWS_GROUP}":
            wire.json(200, discovery())
        else:
            answer(request, wire)

    return both


def write_kubeconfig(
    path: Path,
    server: Union[int, str],
    user: Optional[Json] = None,
    cluster: Optional[Json] = None,
) -> str:
    """Write a kubeconfig for a URL, or a port of loopback; return its path."""
    url = server if isinstance(server, str) else f"http://127.0.0.1:{server}"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": url, **(cluster or {})}}],
        "users": [{"name": "u", "user": {"token": TOKEN} if user is None else user}],
    }
    path.write_text(yaml.safe_dump(content))
    return str(path)


Connect = Callable[..., tuple[Fake, KubeClient]]
"""Makes a server that answers so, and a client of it. ``user`` is that of the
kubeconfig, other options are those of :meth:`Service.client`."""


def workflow(name: str, version: int = 1, uid: str = "", **metadata: Any) -> Json:
    return {
        "kind": "Workflow",
        "metadata": {
            "namespace": "default",
            "name": name,
            "uid": uid or f"uid-{name}",
            "resourceVersion": str(version),
            **metadata,
        },
    }


def computes(name: str, **labels: str) -> Json:
    metadata: dict[str, Any] = {"name": name}
    if labels:
        metadata["labels"] = labels
    return {"metadata": metadata, "data": [{"name": "node1"}]}


class Service:
    """The service's event loop, on the test's thread."""

    def __init__(self) -> None:
        self.loop = PollLoop()
        self.logged: list[str] = []
        self._clients: list[KubeClient] = []

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *exc: object) -> None:
        for client in self._clients:
            client.close()
        self.loop.close()

    def client(self, kubeconfig: Optional[str], **options: Any) -> KubeClient:
        client = KubeClient(
            kubeconfig,
            loop=self.loop,
            log=lambda level, message, reason: self.logged.append(message),
            **options,
        )
        self._clients.append(client)
        return client

    def run(self, until: Callable[[], bool], patience: float = PATIENCE) -> None:
        """Run what arrives until ``until()``; fail when that takes too long."""
        deadline = time.monotonic() + patience
        while not self.loop.run(until, 0.05):  # a thread may have changed the answer
            assert time.monotonic() < deadline, "nothing happened"

    def ask(self, client: KubeClient, verb: str, *args: Any, **options: Any) -> Any:
        """The answer to a request."""
        answers: list[Any] = []
        client.send(ports.Request(verb, *args, **options), answers.append, key="k")
        self.run(lambda: bool(answers))
        return answers[0]

    def refused(
        self, client: KubeClient, verb: str, *args: Any, **options: Any
    ) -> KubeError:
        answer = self.ask(client, verb, *args, **options)
        assert isinstance(answer, KubeError), answer
        return answer


@dataclass
class Recorder:
    """A watch handler that records its calls."""

    calls: list[str] = field(default_factory=list)
    view: dict[str, Json] = field(default_factory=dict)
    errors: list[KubeError] = field(default_factory=list)

    def event(self, type: str, object: Seen) -> None:
        name = object.name
        self.calls.append(f"{type} {name}")
        if type == "DELETED":
            assert name in self.view
            del self.view[name]
        else:
            assert (name in self.view) == (type == "MODIFIED")
            self.view[name] = plain(object.encoded)

    def synced(self) -> None:
        self.calls.append("synced")

    def trouble(self, error: KubeError) -> None:
        self.calls.append(f"trouble {error.reason}")
        self.errors.append(error)


OK = {"kind": "Workflow", "metadata": {"name": "w"}}


def reply(status: int, value: dict[str, Any], **headers: str) -> Answer:
    return with_discovery(lambda request, wire: wire.json(status, value, **headers))


def failure(code: int, reason: str, name: str = "w", **more: Any) -> dict[str, Any]:
    return {
        "kind": "Status",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": f"{reason} it is",
        "details": {"name": name, **more},
    }
