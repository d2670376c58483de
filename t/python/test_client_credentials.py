# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Kubeconfigs, good and bad, and credentials that change."""

from __future__ import annotations

import base64
import os
import stat
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Callable, Optional

import certifi
import pytest
import yaml

from flux_k8s.errors import ConfigError
from flux_k8s.kube.credentials import Credentials
from flux_k8s.ports import WORKFLOW, Json
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
    failure,
    reply,
    with_discovery,
    write_kubeconfig,
)


def only(token: str) -> Callable[[Request, Wire], None]:
    """A server that lets in who has ``token``."""

    def answer(request: Request, wire: Wire) -> None:
        if request.headers.get("authorization") == f"Bearer {token}":
            wire.json(200, OK)
        else:
            wire.json(401, failure(401, "Unauthorized", name=""))

    return with_discovery(answer)


def plugin(folder: Path, token: str, more: str = "") -> dict[str, str]:
    """A credential plugin, as the ``exec`` of a user."""
    version = "client.authentication.k8s.io/v1"
    script = folder / "plugin"
    script.write_text(
        "#!/bin/sh\ncat <<END\n"
        f'{{"apiVersion": "{version}", "kind": "ExecCredential",'
        f' "status": {{{more}"token": "{token}"}}}}\nEND\n'
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return {"apiVersion": version, "command": "./plugin"}


W = (WORKFLOW, "default", "w")
EXPIRED = '"expirationTimestamp": "2020-01-01T00:00:00Z", '
BASIC = "Basic " + base64.b64encode(f"flux:{TOKEN}".encode()).decode()

USERS: dict[str, tuple[Callable[[Path], Json], str]] = {
    "token": (lambda folder: {"token": TOKEN}, f"Bearer {TOKEN}"),
    "tokenFile": (lambda folder: {"tokenFile": "token"}, f"Bearer {TOKEN}"),
    "password": (lambda folder: {"username": "flux", "password": TOKEN}, BASIC),
    "exec": (lambda folder: {"exec": plugin(folder, TOKEN)}, f"Bearer {TOKEN}"),
    "expires": (
        lambda folder: {"exec": plugin(folder, TOKEN, EXPIRED.replace("2020", "2099"))},
        f"Bearer {TOKEN}",
    ),
}


@pytest.mark.parametrize("kind", USERS)
def test_who_we_are_is_sent(
    service: Service, tmp_path: Path, connect: Connect, kind: str
) -> None:
    """A token file may end with a line break."""
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    user, header = USERS[kind]
    fake, client = connect(reply(200, OK), user=user(tmp_path))
    for _ in range(3):
        assert service.ask(client, "get", *W) == OK
    sent = {
        r.headers.get("authorization") for r in fake.requests if WORKFLOWS in r.path
    }
    assert sent == {header}


class Test_change:
    def test_a_kubeconfig_that_changed_is_read_after_a_401(
        self, service: Service, tmp_path: Path, connect: Connect
    ) -> None:
        path = tmp_path / "kc"
        fake, client = connect(only("first"), user={"token": "first"})
        assert service.ask(client, "get", *W) == OK
        fake.answer = only("second")
        write_kubeconfig(path, fake.port, {"token": "second"})
        assert service.ask(client, "get", *W) == OK
        service.run(lambda: any(str(path) in line for line in service.logged))
        assert "second" not in "".join(service.logged)

    @pytest.mark.parametrize(("has", "count"), [(False, 3), (True, 4)])
    def test_a_401_that_stays_is_an_error_and_a_plugin_is_asked_again_once(
        self, service: Service, tmp_path: Path, connect: Connect, has: bool, count: int
    ) -> None:
        user = {"exec": plugin(tmp_path, TOKEN)} if has else {"token": TOKEN}
        fake, client = connect(only("other"), user=user)
        for _ in range(3):
            error = service.refused(client, "get", *W)
            assert (error.status, error.reason) == (401, "Unauthorized")
            named = f"http://127.0.0.1:{fake.port}: Unauthorized"
            assert error.message.startswith(named)
        asked = [r for r in fake.requests if r.path == f"{WORKFLOWS}/w"]
        assert len(asked) == count

    @pytest.mark.parametrize(
        ("minutes", "then", "requests"),
        [(None, "two", 2), (-60 * 24 * 365, "two", 1), (3, "one", 1)],
    )
    def test_a_plugin_is_asked_again_after_a_401_or_when_its_token_has_expired(
        self,
        service: Service,
        tmp_path: Path,
        connect: Connect,
        minutes: Optional[int],
        then: str,
        requests: int,
    ) -> None:
        token = tmp_path / "current"
        token.write_text("one")
        end = datetime.now(timezone.utc) + timedelta(minutes=minutes or 0)
        more = f'"expirationTimestamp": "{end:%Y-%m-%dT%H:%M:%SZ}", '
        user = {"exec": plugin(tmp_path, f"$(cat {token})", more if minutes else "")}
        fake, client = connect(only("one"), user=user)
        assert service.ask(client, "get", *W) == OK
        token.write_text("two")
        fake.answer = only(then)
        asked = len(fake.requests)
        assert service.ask(client, "get", *W) == OK
        assert len(fake.requests) == asked + requests

    @pytest.mark.parametrize("broken", ["plugin", "token"])
    def test_credentials_that_cannot_be_had_or_sent_fail_requests_and_not_the_client(
        self, service: Service, tmp_path: Path, connect: Connect, broken: str
    ) -> None:
        user: Json = {"token": f"{TOKEN}\nX: y"}
        if broken == "plugin":
            user = {"exec": {**plugin(tmp_path, TOKEN), "command": "false"}}
        fake, client = connect(reply(200, OK), user=user)
        for _ in range(2):
            error = service.refused(client, "get", *W)
            assert (error.status, error.reason) == (0, "Credentials")
            assert TOKEN not in error.message
        assert fake.requests == []

    def test_a_plugin_that_does_not_end_fails_each_request_until_it_does(
        self, service: Service, tmp_path: Path, connect: Connect
    ) -> None:
        gate = tmp_path / "gate"
        os.mkfifo(gate)
        user = {"exec": plugin(tmp_path, f"$(cat {gate})")}
        _, client = connect(only("late"), user=user, read_timeout=0.1)
        handler = Recorder()
        client.watch(WORKFLOW, None, handler)
        for _ in range(3):
            error = service.refused(client, "get", *W)
            assert (error.status, error.reason) == (0, "Timeout")
        service.run(lambda: handler.calls == ["trouble Timeout"])
        gate.write_text("late")
        service.run(lambda: service.ask(client, "get", *W) == OK)


@pytest.mark.parametrize("excluded", [False, True])
def test_the_proxy_of_a_kubeconfig_is_used_whatever_the_environment_says(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, excluded: bool
) -> None:
    if excluded:
        monkeypatch.setenv("no_proxy", "*")
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with Fake(reply(200, OK)) as proxy:
        cluster = {"proxy-url": f"http://127.0.0.1:{proxy.port}"}
        url = "http://kube.example:6443"
        path = write_kubeconfig(tmp_path / "kc", url, cluster=cluster)
        assert service.ask(service.client(path), "get", *W) == OK
        assert proxy.requests[-1].headers["host"] == "kube.example:6443"


def test_a_proxy_that_refuses_is_named_as_such(
    service: Service, tmp_path: Path
) -> None:
    with Fake(reply(403, {})) as proxy:
        cluster = {"proxy-url": f"http://127.0.0.1:{proxy.port}"}
        path = write_kubeconfig(
            tmp_path / "kc", "https://kube.example", cluster=cluster
        )
        error = service.refused(service.client(path), "get", WORKFLOW, "d", "w")
        assert (error.status, error.reason) == (0, "ConnectionLost")
        assert "the proxy refuses the connection: HTTP status 403" in error.message
        assert "authorization" not in proxy.requests[-1].headers


def test_in_a_pod_its_service_account_is_used(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(client_configuration: Any) -> None:
        client_configuration.host = "https://127.0.0.1:1"
        client_configuration.ssl_ca_cert = certifi.where()

    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    with pytest.raises(ConfigError, match="service account"):
        service.client(None)
    monkeypatch.setattr("flux_k8s.kube.credentials.load_incluster_config", load)
    client = service.client(None)
    error = service.refused(client, "get", WORKFLOW, "default", "w")
    assert error.reason == "ConnectionRefused"


def test_the_token_of_a_pod_is_read_again_after_a_minute_whatever_the_clock_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tokens = ["one"]

    def read(configuration: Any) -> None:
        configuration.api_key["authorization"] = tokens[-1]

    def load(client_configuration: Any) -> None:
        read(client_configuration)
        client_configuration.refresh_api_key_hook = read

    monkeypatch.setattr("flux_k8s.kube.credentials.load_incluster_config", load)
    now, wall = time.monotonic(), time.time()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    pod = Credentials(None)
    assert pod.headers is None
    assert pod.renew() == {"authorization": "one"} == pod.headers
    tokens.append("two")
    monkeypatch.setattr(time, "time", lambda: wall + 86400.0)
    assert pod.headers == {"authorization": "one"}
    monkeypatch.setattr(time, "time", lambda: wall - 86400.0)
    monkeypatch.setattr(time, "monotonic", lambda: now + 61.0)
    assert pod.headers is None
    assert pod.renew() == {"authorization": "two"}


class Test_kubeconfig:
    """A bad one is refused with one line that names the file."""

    def problem(self, service: Service, path: Path) -> str:
        with pytest.raises(ConfigError) as caught:
            service.client(str(path))
        assert caught.value.key == "rabbit.kubeconfig"
        text = str(caught.value)
        assert str(path) in text
        assert "\n" not in text
        assert TOKEN not in text
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__ or not caught.value.__context__
        return text

    @pytest.mark.parametrize(
        ("name", "problem"), [("none", "No such file"), ("", "directory")]
    )
    def test_a_kubeconfig_that_is_no_file_is_an_error(
        self, service: Service, tmp_path: Path, name: str, problem: str
    ) -> None:
        assert problem in self.problem(service, tmp_path / name)

    @pytest.mark.parametrize(
        ("content", "problem"),
        [
            (b"users:\n- {token: " + TOKEN.encode() + b"\nx: [", "is not YAML in line"),
            (b"users:\n- {token: 2026-13-45}", "is not YAML"),
            (b"[" * 600, "is not YAML"),
            (b"\xff\xfe\x00", "is not text"),
            (b"", "is not a kubeconfig"),
            (b"- a\n- b\n", "is not a kubeconfig"),
            (b"hello", "is not a kubeconfig"),
            (b"clusters: 7\ncontexts: []\n", "is not a kubeconfig"),
            (b"clusters: [{name: c, cluster: {}}]\n", "no current-context"),
        ],
    )
    def test_a_kubeconfig_that_is_another_file_is_an_error(
        self, service: Service, tmp_path: Path, content: bytes, problem: str
    ) -> None:
        (tmp_path / "kc").write_bytes(content)
        assert problem in self.problem(service, tmp_path / "kc")

    @pytest.mark.parametrize(
        ("place", "change", "problem"),
        [
            ("", {"current-context": "x"}, "context x, which is not"),
            ("", {"clusters": []}, "cluster c, which is not there"),
            ("", {"users": []}, "user u, which is not there"),
            ("users", {"user": None}, "user must be a mapping"),
            ("cluster", {"server": None}, "server must be"),
            ("cluster", {"server": []}, "a string"),
            ("cluster", {"certificate-authority": "ca.crt"}, "ca.crt: No such file"),
            (
                "cluster",
                {"certificate-authority-data": "abc"},
                "certificate-authority-data is not base64",
            ),
            (
                "cluster",
                {"certificate-authority-data": "Tm8="},
                "certificate-authority is not a PEM certificate",
            ),
            ("user", {"client-key": "k.pem"}, "client-key: "),
            ("user", {"client-key-data": "Tm8="}, "need each other"),
            (
                "user",
                {"client-key-data": "Tm8=", "client-certificate-data": "Tm8="},
                "are not a PEM certificate and its key",
            ),
            ("users", {"user": {"tokenFile": "t"}}, "tokenFile: "),
            ("user", {"token": ["x"]}, "token must be a"),
            ("user", {"password": 1}, "password must be a"),
            (
                "users",
                {"user": {"exec": {"apiVersion": "v1", "command": "no-such-plugin"}}},
                "no-such-plugin: no such command",
            ),
            ("cluster", {"proxy-url": "ftp://x"}, "proxy-url must begin"),
            ("cluster", {"proxy-url": "http://[::1"}, "proxy-url must begin"),
            *(
                ("cluster", {"server": f"https://{host}"}, "server must be a URL")
                for host in ("", "[::1", "h:99999", "h:port", "h/\0", "\xfcber.example")
            ),
        ],
    )
    def test_a_wrong_entry_of_a_kubeconfig_is_an_error_with_its_place(
        self, service: Service, tmp_path: Path, place: str, change: Json, problem: str
    ) -> None:
        path = tmp_path / "kc"
        content = yaml.safe_load(Path(write_kubeconfig(path, "https://h")).read_text())
        places = {"": content, "users": content["users"][0]}
        places["user"] = content["users"][0]["user"]
        places["cluster"] = content["clusters"][0]["cluster"]
        places[place].update(change)
        path.write_text(yaml.safe_dump(content))
        assert problem in self.problem(service, path)

    def test_without_any_kubeconfig_the_error_says_what_to_do(
        self, service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("KUBECONFIG", raising=False)
        monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
        monkeypatch.setenv("HOME", str(tmp_path))
        with pytest.raises(ConfigError, match=r"\.kube/config.*KUBECONFIG names"):
            service.client(None)


def test_a_password_in_the_url_of_the_server_is_never_shown(
    service: Service, tmp_path: Path
) -> None:
    path = tmp_path / "kubeconfig"
    write_kubeconfig(path, "http://admin:secret@127.0.0.1:1", {}, {})
    client = service.client(str(path))
    error = service.refused(client, "get", WORKFLOW, "default", "w")
    assert error.status == 0 and "127.0.0.1:1" in error.message
    assert "secret" not in error.message
