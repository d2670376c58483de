# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""TLS: whom the client trusts, and how it shows who it is."""

from __future__ import annotations

import base64
import contextlib
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import Any, Callable, NamedTuple, Optional

import pytest

from flux_k8s.ports import WORKFLOW, Json
from support.client import (
    OK,
    Answer,
    Fake,
    Request,
    Service,
    Wire,
    reply,
    with_discovery,
    write_kubeconfig,
)

pytestmark = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="openssl, which makes certificates"
)


class Identity:
    """A self-signed certificate for loopback and ``kube.example``, and its key."""

    def __init__(self, folder: Path, name: str) -> None:
        self.certificate = folder / f"{name}.crt"
        self.key = folder / f"{name}.key"
        command = (
            "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
            f" -days 2 -subj /CN={name} -keyout {self.key} -out {self.certificate}"
            " -addext subjectAltName=IP:127.0.0.1,DNS:kube.example"
        )
        subprocess.run(command.split(), check=True, capture_output=True)

    def server(self, *, trust: Any = None) -> ssl.SSLContext:
        """A server's context; ``trust``: whose certificate clients must show."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, self.key)
        if trust is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(trust.certificate)
        return context


def data(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


@pytest.fixture(scope="module")
def identities(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Identity]:
    folder = tmp_path_factory.mktemp("tls")
    return {name: Identity(folder, name) for name in ("server", "other", "client")}


def url(fake: Fake) -> str:
    return f"https://127.0.0.1:{fake.port}"


class Ask(NamedTuple):
    """Asks a server over TLS, by a kubeconfig with these entries."""

    service: Service
    identities: dict[str, Identity]
    path: Path

    def client(self, server: str, cluster: Json, user: Optional[Json] = None) -> Any:
        """``cluster`` trusts the server, if it does not say whom."""
        own = self.identities["server"]
        if not any("certificate" in key or "insecure" in key for key in cluster):
            cluster = {**cluster, "certificate-authority": str(own.certificate)}
        return self.service.client(write_kubeconfig(self.path, server, user, cluster))

    def __call__(
        self,
        cluster: Json,
        user: Optional[Json] = None,
        *,
        answer: Optional[Answer] = None,
        **options: Any,
    ) -> Any:
        """OK, or the error."""
        own = self.identities["server"]
        with Fake(answer or reply(200, OK), own.server(**options)) as fake:
            client = self.client(url(fake), cluster, user)
            return self.service.ask(client, "get", WORKFLOW, "default", "w")


@pytest.fixture
def ask(service: Service, identities: dict[str, Identity], tmp_path: Path) -> Ask:
    return Ask(service, identities, tmp_path / "kc")


# Whom a kubeconfig trusts, and whether that is so.
TRUSTS: dict[str, tuple[Callable[[Identity, Identity], Json], bool]] = {
    "a file": (
        lambda own, other: {"certificate-authority": str(own.certificate)},
        True,
    ),
    "data": (
        lambda own, other: {"certificate-authority-data": data(own.certificate)},
        True,
    ),
    "another": (
        lambda own, other: {"certificate-authority": str(other.certificate)},
        False,
    ),
    "all": (lambda own, other: {"insecure-skip-tls-verify": True}, True),
    "all, in a string": (
        lambda own, other: {"insecure-skip-tls-verify": "true"},
        False,
    ),
    "its name": (lambda own, other: {"tls-server-name": "kube.example"}, True),
    "another name": (lambda own, other: {"tls-server-name": "else.example"}, False),
}


@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
@pytest.mark.parametrize("trust", TRUSTS)
def test_a_server_is_one_that_the_kubeconfig_trusts(ask: Ask, trust: str) -> None:
    cluster, good = TRUSTS[trust]
    found = ask(cluster(ask.identities["server"], ask.identities["other"]))
    if good:
        assert found == OK
        return
    assert (found.status, found.reason) == (0, "TLS")
    if trust == "another":
        assert "self-signed certificate" in found.message.replace("self s", "self-s")


def test_an_authority_that_was_replaced_is_read_again(
    ask: Ask, tmp_path: Path, identities: dict[str, Identity]
) -> None:
    path = tmp_path / "ca.crt"
    path.write_bytes(identities["other"].certificate.read_bytes())
    with Fake(reply(200, OK), identities["server"].server()) as fake:
        client = ask.client(url(fake), {"certificate-authority": "ca.crt"})
        path.write_bytes(identities["server"].certificate.read_bytes())
        assert ask.service.ask(client, "get", WORKFLOW, "default", "w") == OK


def tunnel(request: Request, wire: Wire) -> None:
    """Answer CONNECT as a proxy does."""

    def copy(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)

    host, _, port = request.path[1:].rpartition(":")
    with socket.create_connection((host, int(port))) as server:
        wire.send(b"HTTP/1.1 200 OK\r\n\r\n")
        threading.Thread(target=copy, args=(server, wire.socket), daemon=True).start()
        copy(wire.socket, server)
    wire.drop()


@pytest.mark.parametrize("verified", [True, False])
def test_a_proxy_over_TLS_is_verified_as_the_server_is(
    ask: Ask, identities: dict[str, Identity], verified: bool
) -> None:
    cluster = {} if verified else {"insecure-skip-tls-verify": True}
    outcomes = []
    for name in ("server", "other"):
        with Fake(tunnel, identities[name].server()) as proxy:
            outcomes.append(ask({**cluster, "proxy-url": url(proxy)}))
    assert outcomes[0] == OK
    assert outcomes[1] == OK if not verified else outcomes[1].reason == "TLS"


def test_a_client_certificate_is_shown_and_its_key_not_left_in_a_file(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    own = ask.identities["client"]
    user = {
        "client-certificate-data": data(own.certificate),
        "client-key-data": data(own.key),
    }
    assert ask({}, user, trust=own) == OK
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.parametrize(
    "part", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"]
)
@pytest.mark.parametrize("how", [Wire.drop, Wire.reset])
def test_a_server_that_dies_during_an_answer_over_TLS_is_a_lost_connection(
    ask: Ask, part: bytes, how: Callable[[Wire], None]
) -> None:
    """It is no error of TLS, for which the credentials would be renewed."""

    def answer(request: Request, wire: Wire) -> None:
        wire.send(part)
        how(wire)

    error = ask({}, answer=with_discovery(answer))
    assert (error.status, error.reason) == (0, "ConnectionLost")
