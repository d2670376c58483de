# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""A real API server: the ``kube-apiserver`` and ``etcd`` of a folder.

``KUBEBUILDER_ASSETS`` names the folder, as in projects of Kubernetes
controllers. Both programs run on this machine only: the API server listens on
loopback, etcd on sockets in a folder that nobody else can look into.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import secrets
import socket
import ssl
import subprocess
import time
from pathlib import Path
from typing import Optional

from flux_k8s.errors import DWSError
from flux_k8s.ports import Json
from rabbitsim.kube import kubeconfig
from rabbitsim.signals import signals_held

VARIABLE = "KUBEBUILDER_ASSETS"
PROGRAMS = ("etcd", "kube-apiserver")

START_TIMEOUT = 120.0
"""Seconds; it takes a few where nothing else runs."""

_HOST = "127.0.0.1"
_INTERVAL = 0.1

# etcd takes the names of its sockets, which are relative to the folder, from
# URLs that must have a port.
_ETCD = "unix://etcd:0"
_ETCD_PEERS = "unix://etcd:1"


class AssetsError(DWSError):
    """The programs of ``KUBEBUILDER_ASSETS`` cannot be used; one line says why."""


def missing() -> Optional[str]:
    """The reason why there is no real API server, or None when there is one."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        return f"{VARIABLE} names no folder with etcd and kube-apiserver"
    for program in PROGRAMS:
        path = os.path.join(folder, program)
        if not os.path.isfile(path):
            return f"{VARIABLE}: {folder} has no {program}"
        if not os.access(path, os.X_OK):
            return f"{VARIABLE}: {path} is not executable"
    return None


class ApiServer:
    """An API server and its etcd.

    Attributes:
        version: of Kubernetes, as in ``1.36``; empty before the start.
    """

    def __init__(self, folder: Path) -> None:
        """``folder`` takes all of their files; make it private.

        Raises:
            AssetsError: the programs are not there.
        """
        problem = missing()
        if problem is not None:
            raise AssetsError(problem)
        self._assets = Path(os.environ[VARIABLE]).resolve()
        self._folder = folder
        self._port = _free_port()
        self._token = secrets.token_urlsafe()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.version = ""

    def start(self, timeout: float = START_TIMEOUT) -> None:
        """Start both, and wait until requests are answered.

        Raises:
            AssetsError: they are not answered after ``timeout`` seconds, or a
                program has ended. Nothing runs then.
        """
        try:
            self._write("tokens.csv", f'{self._token},admin,1,"system:masters"\n')
            self._write("accounts.key", _private_key())
            self._run("etcd", self._etcd_options())
            self._run("kube-apiserver", self._apiserver_options())
            deadline = time.monotonic() + timeout
            while self._ask("/readyz") is None:
                self._check_alive()
                if time.monotonic() > deadline:
                    raise AssetsError(
                        f"kube-apiserver of {VARIABLE} is not ready after {timeout:g} s"
                    )
                time.sleep(_INTERVAL)
            self.version = _version(json.loads(self._ask("/version") or "{}"))
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End both. What they stored is of no use to anyone."""
        processes = list(reversed(self._processes.values()))
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()

    def write_kubeconfig(self, path: Path) -> None:
        """Write a kubeconfig for an administrator, readable by its owner only."""
        authority = base64.b64encode(self._certificate.read_bytes()).decode()
        kubeconfig.write(
            path,
            {
                "server": f"https://{_HOST}:{self._port}",
                "certificate-authority-data": authority,
            },
            {"token": self._token},
        )

    @property
    def _certificate(self) -> Path:
        """Where the API server puts its certificate, with that of the authority
        that it makes for the purpose."""
        return self._folder / "apiserver.crt"

    def _etcd_options(self) -> list[str]:
        return [
            "--data-dir=etcd",
            f"--listen-client-urls={_ETCD}",
            f"--advertise-client-urls={_ETCD}",
            f"--listen-peer-urls={_ETCD_PEERS}",
            "--unsafe-no-fsync",
        ]

    def _apiserver_options(self) -> list[str]:
        return [
            f"--etcd-servers={_ETCD}",
            f"--bind-address={_HOST}",
            f"--advertise-address={_HOST}",
            "--endpoint-reconciler-type=none",
            f"--secure-port={self._port}",
            "--cert-dir=.",
            "--token-auth-file=tokens.csv",
            "--authorization-mode=RBAC",
            "--disable-admission-plugins=ServiceAccount",
            f"--service-account-issuer=https://{_HOST}",
            "--service-account-key-file=accounts.key",
            "--service-account-signing-key-file=accounts.key",
            "--service-cluster-ip-range=10.0.0.0/24",
        ]

    def _write(self, name: str, text: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        with open(os.open(self._folder / name, flags, 0o600), "w") as file:
            file.write(text)

    def _run(self, program: str, options: list[str]) -> None:
        try:
            path = self._folder / f"{program}.log"
            with open(path, "wb") as log, signals_held():
                self._processes[program] = subprocess.Popen(
                    [str(self._assets / program), *options],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=self._folder,
                    # An interrupt from the terminal is not for them: there may
                    # be a job to be cancelled first.
                    start_new_session=True,
                )
        except OSError as error:
            path = self._assets / program
            raise AssetsError(f"{VARIABLE}: {path}: {error.strerror}") from None

    def _check_alive(self) -> None:
        for program, process in self._processes.items():
            status = process.poll()
            if status is not None:
                raise AssetsError(
                    f"{program} of {VARIABLE} ended with status {status}:"
                    f" {self._last_words(program)}"
                )

    def _last_words(self, program: str) -> str:
        text = (self._folder / f"{program}.log").read_text(errors="replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return lines[-1] if lines else "it said nothing"

    def _ask(self, path: str) -> Optional[bytes]:
        """The answer of the server to a GET; None without an answer."""
        try:
            context = ssl.create_default_context(cafile=str(self._certificate))
        except OSError:  # it is not written (whole) yet; ssl.SSLError is one too
            return None
        connection = http.client.HTTPSConnection(
            _HOST, self._port, context=context, timeout=5.0
        )
        try:
            headers = {"Authorization": f"Bearer {self._token}"}
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            return response.read() if response.status == 200 else None
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()


def _free_port() -> int:
    with socket.create_server((_HOST, 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def _version(answer: Json) -> str:
    return f"{answer.get('major', '?')}.{answer.get('minor', '?')}"


def _private_key() -> str:
    """A new private key on P-256, for tokens of service accounts, in PEM.

    The key is any number below the order of the curve; RFC 5915 says how it is
    written: version 1, the number, the name of the curve.
    """
    number = bytes([secrets.randbelow(0x80)]) + secrets.token_bytes(31)
    curve = bytes.fromhex("a00a06082a8648ce3d030107")
    der = bytes.fromhex("30310201010420") + number + curve
    text = base64.b64encode(der).decode()
    label = "EC PRIVATE KEY"
    return f"-----BEGIN {label}-----\n{text}\n-----END {label}-----\n"
