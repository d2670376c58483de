# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""From a kubeconfig to handles of libcurl, and the headers with credentials.

A token, a password or a client certificate that the kubeconfig itself holds goes into
each request as it is. Other credentials come from the ``kubernetes`` package, through
:mod:`.credentials`, which is imported only then.
"""

from __future__ import annotations

import base64
import contextlib
import socket
from typing import TYPE_CHECKING, Any, Optional
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import pycurl

from flux_k8s.kube.kubeconfig import Kubeconfig
from flux_k8s.kube.tls import Tls
from flux_k8s.ports import KubeError

if TYPE_CHECKING:
    from flux_k8s.kube.credentials import Credentials

_KEEPALIVE = (
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 20),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 40_000),
)
"""Options of sockets. A connection whose other end has vanished is closed after 40 s,
that of a watch included."""

_QUICK_EXIT = 322
"""CURLOPT_QUICK_EXIT, which pycurl does not name."""


class Transport:
    """The way to one API server, and the credentials there.

    Args:
        kubeconfig: the context; None for the service account of this pod.

    Attributes:
        kubeconfig: as above.
        origin: the source of the credentials, for messages.
        server: the URL of the API server, without a slash at its end.
        name: ``server`` for messages: without the password that the URL may have.

    Raises:
        ConfigError: there are no credentials, or they are invalid.
    """

    def __init__(self, kubeconfig: Optional[Kubeconfig]) -> None:
        self.kubeconfig = kubeconfig
        self._server_name: Optional[str] = None
        proxy: Optional[str] = None
        self._fixed: dict[str, str] = {}
        self._changing: Optional[Credentials] = None
        if kubeconfig is None:
            self._changing = pod = _changing(None)
            self.origin, self.server = pod.origin, pod.server
            with open(pod.ca_file, "rb") as file:
                self._tls: Optional[Tls] = Tls.verifying(pod.origin, file.read())
        else:
            self.origin, self.server = kubeconfig.origin, kubeconfig.server
            if kubeconfig.is_fixed:
                self._fixed = _fixed_headers(kubeconfig)
                self._tls = Tls.of(kubeconfig)
            else:
                self._changing = credentials = _changing(kubeconfig)
                self._tls = Tls.of(
                    kubeconfig, credentials.cert_file, credentials.key_file
                )
            self._server_name, proxy = kubeconfig.server_name, kubeconfig.proxy
        self.name = _without_userinfo(self.server)
        self._proxy = _proxy_from_environment(self.server) if proxy is None else proxy
        self._handles: list[Any] = []

    def headers(self) -> Optional[dict[str, str]]:
        """The headers with the credentials; None when they have to be renewed."""
        if self._changing is None:
            return self._checked(self._fixed)
        return self._changing.headers

    def renew(self) -> dict[str, str]:
        """The headers with the credentials, after others were asked for them, which may
        take any time. One thread may call this.

        Raises:
            KubeError: there are none.
        """
        assert self._changing is not None
        return self._checked(self._changing.renew())

    def _checked(self, headers: dict[str, str]) -> dict[str, str]:
        if all(v.isascii() and v.isprintable() for v in headers.values()):
            return headers
        text = f"{self.origin}: the token has a line break"
        raise KubeError(0, "Credentials", text)

    def handle(self) -> Any:
        """A handle for an exchange with the server. What is the same for all exchanges
        is set."""
        if self._handles:
            return self._handles.pop()
        curl = pycurl.Curl()
        curl.setopt(pycurl.NOSIGNAL, 1)
        # Do not wait for the thread that resolves a name when an exchange is given up.
        # Before 7.87 libcurl has no such option, and waits.
        with contextlib.suppress(pycurl.error, TypeError):
            curl.setopt(_QUICK_EXIT, 1)
        curl.setopt(pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_1_1)
        curl.setopt(pycurl.SOCKOPTFUNCTION, _set_options)
        curl.setopt(pycurl.PROTOCOLS, pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS)
        # Without these two libcurl would look for them in the environment.
        curl.setopt(pycurl.PROXY, self._proxy)
        curl.setopt(pycurl.NOPROXY, "")
        if self._tls is not None:
            self._tls.configure(curl)
            if self._proxy.startswith("https:"):
                self._tls.configure_proxy(curl)
        if self._server_name is not None and self._tls is not None:
            curl.setopt(pycurl.CONNECT_TO, [f"::{_host(self.server)}:"])
        return curl

    def give_back(self, curl: Any) -> None:
        """An exchange is over: its handle may be used for another one."""
        self._handles.append(curl)

    def url(self, path: str) -> tuple[str, list[str]]:
        """The URL of a path, and the headers that it needs."""
        if self._server_name is None or self._tls is None:
            return self.server + path, []
        # The certificate must have the name that the URL has: CONNECT_TO leads to the
        # server.
        parts = urlsplit(self.server)
        host = parts.netloc.rpartition("@")[2]
        port = f":{parts.port}" if parts.port else ""
        there = parts._replace(netloc=f"{self._server_name}{port}").geturl()
        return there + path, [f"Host: {host}"]


def _changing(kubeconfig: Optional[Kubeconfig]) -> Credentials:
    """Credentials that the kubeconfig does not hold."""
    # Imported here: the kubernetes package would be most of what the service imports.
    from flux_k8s.kube.credentials import Credentials

    return Credentials(kubeconfig)


def _fixed_headers(kubeconfig: Kubeconfig) -> dict[str, str]:
    """The headers with the token, or the user and password, of a kubeconfig."""
    user = kubeconfig.user
    if "token" in user:
        return {"authorization": f"Bearer {user['token'].strip()}"}
    if "username" in user and "password" in user:
        pair = f"{user['username']}:{user['password']}".encode(errors="replace")
        return {"authorization": f"Basic {base64.b64encode(pair).decode()}"}
    return {}


def _host(url: str) -> str:
    """The host in a URL; an IPv6 address in brackets."""
    host = urlsplit(url).hostname or ""
    return f"[{host}]" if ":" in host else host


def _without_userinfo(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _proxy_from_environment(server: str) -> str:
    """The proxy that the environment names for a server; empty for none."""
    url = urlsplit(server)
    if proxy_bypass(url.hostname or ""):
        return ""
    return getproxies().get(url.scheme, "")


def _set_options(descriptor: int, purpose: int) -> int:
    """Set the options of a socket of libcurl."""
    own = socket.socket(fileno=descriptor)
    try:
        for option in _KEEPALIVE:
            own.setsockopt(*option)
    finally:
        own.detach()
    return int(pycurl.SOCKOPT_OK)
