# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""From a kubeconfig to a pool of connections, and the headers with credentials.

A token, a password or a client certificate that the kubeconfig itself holds goes into
each request as it is. Other credentials come from the ``kubernetes`` package, through
:mod:`.credentials`, which is imported only then.

The pool of connections is not the package's:

- It keeps certificates in memory. The package would write them, the key included, to
  temporary files, and read these again for each connection, long after a cleaner of
  ``/tmp`` has removed them.
- It has keep-alive, and takes a proxy from the environment, which the pool of 31 does
  not.
"""

from __future__ import annotations

import base64
import socket
import ssl
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, Optional
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3

from flux_k8s.kube import tls as _tls
from flux_k8s.kube.kubeconfig import Kubeconfig
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


class Transport:
    """The connections to one API server, and the credentials there. Several threads may
    use it at a time.

    Args:
        kubeconfig: the context; None for the service account of this pod.
        pool_size: the number of idle connections to keep.

    Attributes:
        kubeconfig: as above.
        origin: the source of the credentials, for messages.
        server: the URL of the API server, without a slash at its end.
        name: ``server`` for messages: without the password that the URL may have.
        pool: the connections.

    Raises:
        ConfigError: there are no credentials, or they are invalid.
    """

    def __init__(self, kubeconfig: Optional[Kubeconfig], pool_size: int) -> None:
        self._credentials: Callable[[], dict[str, str]]
        self.kubeconfig = kubeconfig
        if kubeconfig is None:
            pod = _changing(None)
            self.origin, self.server = pod.origin, pod.server
            self._credentials = pod.headers
            context: Optional[ssl.SSLContext] = _pod_context(pod.origin, pod.ca_file)
            server_name = proxy = None
        else:
            self.origin, self.server = kubeconfig.origin, kubeconfig.server
            if kubeconfig.is_fixed:
                self._credentials = partial(_fixed_headers, kubeconfig)
                context = _tls.context(kubeconfig)
            else:
                credentials = _changing(kubeconfig)
                self._credentials = credentials.headers
                context = _tls.context(
                    kubeconfig, credentials.cert_file, credentials.key_file
                )
            server_name, proxy = kubeconfig.server_name, kubeconfig.proxy
        self.name = _without_userinfo(self.server)
        self.pool = _pool(self.server, context, server_name, proxy, pool_size)

    def headers(self) -> dict[str, str]:
        """The headers with the credentials, which are renewed when they have expired.

        Raises:
            KubeError: the credentials cannot be renewed, or not in time.
        """
        headers = self._credentials()
        if not all(v.isascii() and v.isprintable() for v in headers.values()):
            raise KubeError(
                0, "Credentials", f"{self.origin}: the token has a line break"
            )
        return headers

    def close(self) -> None:
        """Close the idle connections. Each other connection closes after its
        request."""
        self.pool.clear()


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


def _pod_context(origin: str, ca_file: str) -> ssl.SSLContext:
    with open(ca_file, "rb") as file:
        return _tls.verifying(origin, file.read())


def _without_userinfo(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _pool(
    server: str,
    context: Optional[ssl.SSLContext],
    server_name: Optional[str],
    proxy: Optional[str],
    size: int,
) -> urllib3.PoolManager:
    arguments: dict[str, Any] = {
        "maxsize": size,
        "socket_options": list(_KEEPALIVE),
    }
    if context is not None:
        arguments["ssl_context"] = context
        arguments["cert_reqs"] = context.verify_mode
        if server_name is not None:
            arguments["server_hostname"] = server_name
            arguments["assert_hostname"] = server_name
    url = urlsplit(server)
    if proxy is None and not proxy_bypass(url.hostname or ""):
        proxy = getproxies().get(url.scheme)
    if proxy is None:
        return urllib3.PoolManager(**arguments)
    return urllib3.ProxyManager(proxy, **arguments)
