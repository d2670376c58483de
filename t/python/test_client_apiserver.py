# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""A real kube-apiserver on loopback, for tests; no tests.

``KUBEBUILDER_ASSETS`` names a folder with ``kube-apiserver`` and ``etcd``, as
in projects of Kubernetes controllers.
"""

from __future__ import annotations

import http.client
import os
import socket
import ssl
import subprocess
import time
from pathlib import Path
from typing import Optional

from test_client_fakes import write_kubeconfig

START_TIMEOUT = 120.0
"""Seconds; it takes a few where nothing else runs."""

_TOKEN = "admin-of-a-test"


def missing() -> Optional[str]:
    """Why there is no real API server, or None when there is one."""
    folder = os.environ.get("KUBEBUILDER_ASSETS")
    if not folder:
        return "KUBEBUILDER_ASSETS names no folder with kube-apiserver and etcd"
    for program in ("kube-apiserver", "etcd"):
        if not os.access(os.path.join(folder, program), os.X_OK):
            return f"{folder} of KUBEBUILDER_ASSETS has no {program}"
    return None


class ApiServer:
    """An API server and its etcd, with everything that they need in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._assets = Path(os.environ["KUBEBUILDER_ASSETS"])
        self._processes: list[subprocess.Popen[bytes]] = []
        self._etcd_port, self._peer_port, self.port = _free_ports(3)

    def start(self) -> None:
        """Start both, and wait until requests are answered.

        Raises:
            TimeoutError: they are not; their output is in ``folder``.
        """
        self._make_secrets()
        self._run("etcd", *self._etcd_options())
        self._run("kube-apiserver", *self._apiserver_options())
        deadline = time.monotonic() + START_TIMEOUT
        while not self._ready():
            if time.monotonic() > deadline or self._processes[-1].poll() is not None:
                self.stop()
                raise TimeoutError((self._folder / "kube-apiserver.log").read_text())
            time.sleep(0.1)

    def stop(self) -> None:
        for process in reversed(self._processes):
            process.kill()
            process.wait()

    def write_kubeconfig(self, path: Path) -> str:
        """Write a kubeconfig for an administrator; return its path."""
        trust = {"certificate-authority": str(self._folder / "tls.crt")}
        url = f"https://127.0.0.1:{self.port}"
        return write_kubeconfig(path, url, {"token": _TOKEN}, trust)

    def _make_secrets(self) -> None:
        (self._folder / "tokens.csv").write_text(f'{_TOKEN},admin,1,"system:masters"\n')
        command = (
            "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test"
            " -keyout tls.key -out tls.crt -addext subjectAltName=IP:127.0.0.1"
        )
        subprocess.run(
            command.split(), check=True, capture_output=True, cwd=self._folder
        )

    def _etcd_options(self) -> list[str]:
        client = f"http://127.0.0.1:{self._etcd_port}"
        return [
            f"--data-dir={self._folder / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls=http://127.0.0.1:{self._peer_port}",
            "--unsafe-no-fsync",
        ]

    def _apiserver_options(self) -> list[str]:
        key = self._folder / "tls.key"
        return [
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",
            f"--secure-port={self.port}",
            f"--tls-cert-file={self._folder / 'tls.crt'}",
            f"--tls-private-key-file={key}",
            f"--cert-dir={self._folder}",
            f"--token-auth-file={self._folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--disable-admission-plugins=ServiceAccount",
            "--service-account-issuer=https://127.0.0.1",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-cluster-ip-range=10.0.0.0/24",
        ]

    def _run(self, program: str, *options: str) -> None:
        with open(self._folder / f"{program}.log", "wb") as log:
            self._processes.append(
                subprocess.Popen(
                    [str(self._assets / program), *options],
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=self._folder,
                )
            )

    def _ready(self) -> bool:
        context = ssl.create_default_context(cafile=str(self._folder / "tls.crt"))
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self.port, context=context, timeout=5
        )
        try:
            headers = {"Authorization": f"Bearer {_TOKEN}"}
            connection.request("GET", "/readyz", headers=headers)
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()


def _free_ports(count: int) -> list[int]:
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports
