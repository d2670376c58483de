# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""TLS for a kubeconfig: the certificates to trust, and the client's own.

They are checked when they are read: libcurl would find an invalid one with the first
request only. libcurl gets them as files in memory: the key is never on a disk, where
cleaners of ``/tmp`` and others may find it.
"""

from __future__ import annotations

import os
import ssl
from typing import Any, Optional

import pycurl

from flux_k8s.errors import ConfigError
from flux_k8s.kube.kubeconfig import KEY, Kubeconfig


class MemoryFile:
    """A file in memory, for as long as this object is there.

    Attributes:
        path: its path, for this process.
    """

    def __init__(self, content: bytes) -> None:
        self._file = open(os.memfd_create("pem", os.MFD_CLOEXEC), "wb", buffering=0)
        self._file.write(content)
        self.path = f"/proc/self/fd/{self._file.fileno()}"


class Tls:
    """The TLS options of connections.

    Args:
        authorities: the certificates to trust, as PEM; None for those of the system.
        client: the client's certificate and key, as PEM.
        insecure: any certificate of the server is accepted.
    """

    def __init__(
        self,
        authorities: Optional[bytes],
        client: Optional[bytes] = None,
        insecure: bool = False,
    ) -> None:
        system = ssl.get_default_verify_paths()
        self._authorities = None if authorities is None else MemoryFile(authorities)
        self._cafile = system.cafile if authorities is None else None
        self._capath = system.capath if authorities is None else None
        self._client = None if client is None else MemoryFile(client)
        self._insecure = insecure

    @classmethod
    def verifying(cls, origin: str, pem: Optional[bytes]) -> Tls:
        """Trust the certificates in ``pem``; None for those of the system.

        Raises:
            ConfigError: ``pem`` has no PEM certificate. The error names ``origin``.
        """
        _check_authorities(origin, pem)
        return cls(pem)

    @classmethod
    def of(
        cls,
        kubeconfig: Kubeconfig,
        certificate: Optional[str] = None,
        key: Optional[str] = None,
    ) -> Optional[Tls]:
        """What a kubeconfig describes; None for a server without TLS.

        Args:
            certificate, key: the paths of the client certificate and key of a
                credential plugin; they take the place of those in the kubeconfig.

        Raises:
            ConfigError: a certificate or a key is invalid.
        """
        if not kubeconfig.server.startswith("https:"):
            return None
        _check_authorities(kubeconfig.origin, kubeconfig.ca)
        client = _client_of(kubeconfig, certificate, key)
        return cls(kubeconfig.ca, client, kubeconfig.insecure)

    def configure(self, curl: Any) -> None:
        """Set the options of a handle of libcurl for connections to the server."""
        curl.setopt(pycurl.SSLVERSION, pycurl.SSLVERSION_TLSv1_2)
        self._verify(curl, pycurl.SSL_VERIFYPEER, pycurl.SSL_VERIFYHOST)
        self._trust(curl, pycurl.CAINFO, pycurl.CAPATH)
        if self._client is not None:
            curl.setopt(pycurl.SSLCERT, self._client.path)
            curl.setopt(pycurl.SSLKEY, self._client.path)

    def configure_proxy(self, curl: Any) -> None:
        """Set the options of a handle of libcurl for connections to a proxy over TLS,
        which is verified as the server is. kubectl does the same."""
        self._verify(curl, pycurl.PROXY_SSL_VERIFYPEER, pycurl.PROXY_SSL_VERIFYHOST)
        self._trust(curl, pycurl.PROXY_CAINFO, pycurl.PROXY_CAPATH)

    def _verify(self, curl: Any, peer: int, host: int) -> None:
        if self._insecure:
            curl.setopt(peer, 0)
            curl.setopt(host, 0)

    def _trust(self, curl: Any, cainfo: int, capath: int) -> None:
        if self._authorities is not None:
            curl.setopt(cainfo, self._authorities.path)
        else:
            if self._cafile:
                curl.setopt(cainfo, self._cafile)
            if self._capath:
                curl.setopt(capath, self._capath)


def _check_authorities(origin: str, pem: Optional[bytes]) -> None:
    if pem is None:
        return
    try:
        ssl.create_default_context(cadata=pem.decode("ascii", "replace"))
    except (ssl.SSLError, ValueError):
        raise ConfigError(
            KEY, f"{origin}: certificate-authority is not a PEM certificate"
        ) from None


def _client_of(
    kubeconfig: Kubeconfig, certificate: Optional[str], key: Optional[str]
) -> Optional[bytes]:
    """The client's certificate and key, one after the other.

    Raises:
        ConfigError: one of them is invalid.
    """
    try:
        if certificate:
            client = _content(certificate) + b"\n" + (_content(key) if key else b"")
        elif kubeconfig.certificate is not None and kubeconfig.key is not None:
            client = kubeconfig.certificate + b"\n" + kubeconfig.key
        else:
            return None
        file = MemoryFile(client)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_cert_chain(file.path, password=_no_passphrase)
    except (ssl.SSLError, OSError, ValueError):
        raise ConfigError(
            KEY,
            f"{kubeconfig.origin}: client-certificate and client-key are not a"
            " PEM certificate and its key, without a passphrase",
        ) from None
    return client


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _no_passphrase() -> str:
    """An empty passphrase: OpenSSL would ask for one on the terminal."""
    return ""
