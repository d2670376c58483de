# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""From a kubeconfig to a pool of connections, and the headers with credentials.

The ``kubernetes`` package gives the credentials: tokens, token files, plugins,
identity providers, the service account of a pod. It knows the protocols of
credential plugins and of OpenID Connect, and when a token expires. To import it
costs 19 MiB and 0.2 s with 37, which loads the classes of the API only when they
are used, and 46 to 55 MiB and 0.3 s with 31 to 36. No smaller import is possible:
``kubernetes/__init__`` imports all of its packages.

This module does what the package does not do:

- It keeps certificates in memory, in a pool of connections of its own. The package
  would write them, the key included, to temporary files, and read these again for each
  connection, long after a cleaner of ``/tmp`` has removed them. The pool of 31 also has
  no keep-alive, and takes no proxy from the environment.
- It raises an error when a credential plugin fails. The package logs the failure, and
  goes on without credentials.
- It lets one thread at a time renew credentials: the package has no lock. The other
  threads wait for a limited time. The package gives a plugin any time.
"""

from __future__ import annotations

import socket
import ssl
import threading
from typing import Any, Optional
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3
from kubernetes.client import Configuration
from kubernetes.config import (
    ConfigException,
    load_incluster_config,
    load_kube_config_from_dict,
)

from flux_k8s.errors import ConfigError
from flux_k8s.kube import tls as _tls
from flux_k8s.kube.kubeconfig import KEY, Kubeconfig
from flux_k8s.ports import KubeError

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

_PATIENCE = 30.0
"""Seconds to wait for another thread that renews the credentials."""


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
        self.kubeconfig = kubeconfig
        configuration = Configuration()
        if kubeconfig is None:
            self.origin = "the pod's service account"
            _load(load_incluster_config, self.origin, configuration)
            self.server: str = configuration.host.rstrip("/")
            context: Optional[ssl.SSLContext] = _pod_context(self.origin, configuration)
            server_name = proxy = None
        else:
            self.origin = kubeconfig.origin
            _load_user(kubeconfig, configuration)
            self.server = kubeconfig.server
            certificate, key = configuration.cert_file, configuration.key_file
            context = _tls.context(kubeconfig, certificate, key)
            server_name, proxy = kubeconfig.server_name, kubeconfig.proxy
        self._configuration = configuration
        self._lock = threading.Lock()
        self.name = _without_userinfo(self.server)
        self.pool = _pool(self.server, context, server_name, proxy, pool_size)

    def headers(self) -> dict[str, str]:
        """The headers with the credentials, which are renewed when they have expired.

        Raises:
            KubeError: the credentials cannot be renewed, or not in time.
        """
        if not self._lock.acquire(timeout=_PATIENCE):
            raise KubeError(
                0, "Timeout", f"{self.origin}: the credentials are being renewed"
            )
        try:
            settings: Any = self._configuration.auth_settings()
        except ConfigException as error:
            message = f"{self.origin}: {_first_line(error)}"
            raise KubeError(0, "Credentials", message) from None
        finally:
            self._lock.release()
        found: list[dict[str, str]] = list(settings.values())
        headers = {item["key"]: item["value"].strip() for item in found}
        if not all(v.isascii() and v.isprintable() for v in headers.values()):
            raise KubeError(
                0, "Credentials", f"{self.origin}: the token has a line break"
            )
        return headers

    def close(self) -> None:
        """Close the idle connections. Each other connection closes after its
        request."""
        self.pool.clear()


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _load(function: Any, origin: str, *args: Any, **kwargs: Any) -> None:
    try:
        function(*args, **kwargs)
    except ConfigException as error:
        raise ConfigError(KEY, f"{origin}: {_first_line(error)}") from None
    except Exception as error:
        # Exceptions that are not the package's own may quote a token.
        name = type(error).__name__
        raise ConfigError(KEY, f"{origin}: cannot be used ({name})") from None


def _load_user(kubeconfig: Kubeconfig, configuration: Any) -> None:
    config = {
        "current-context": "context",
        "contexts": [
            {"name": "context", "context": {"cluster": "cluster", "user": "user"}}
        ],
        "clusters": [{"name": "cluster", "cluster": {"server": kubeconfig.server}}],
        "users": [{"name": "user", "user": kubeconfig.user}],
    }
    _load(
        load_kube_config_from_dict,
        kubeconfig.origin,
        config_dict=config,
        client_configuration=configuration,
        persist_config=False,
    )
    if kubeconfig.asks_others and not (
        configuration.api_key or configuration.cert_file
    ):
        raise ConfigError(
            KEY, f"{kubeconfig.origin}: its credential plugin gave no credentials"
        )


def _pod_context(origin: str, configuration: Any) -> ssl.SSLContext:
    with open(configuration.ssl_ca_cert, "rb") as file:
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
