# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""From a kubeconfig to a pool of connections and the headers that log us in.

The ``kubernetes`` package gives the credentials: tokens, token files, plugins,
identity providers, the service account of a pod. It knows the protocols of
credential plugins and of OpenID Connect, and when a token expires. To import it
costs 19 MiB and 0.2 s with 37, which loads the classes of the API only when they
are used, and 46 to 55 MiB and 0.3 s with 31 to 36. No smaller import is possible:
``kubernetes/__init__`` imports all of its packages.

What is done here is what the package does not do:

- Certificates do not pass through it: it would write them, the key too, to temporary
  files, and read those again for each connection, long after a cleaner of ``/tmp``
  has taken them. So the pool of connections is ours. In 31 that of the package also
  has no keep-alive, and takes no proxy from the environment.
- A credential plugin that fails is an error. The package logs that, and goes on
  without credentials.
- One thread at a time renews credentials: the package has no lock. Others wait for a
  plugin, which the package gives any time, for a while and not for ever.
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
"""A peer that is gone without a word is noticed after 40 s, on watches too."""

_PATIENCE = 30.0
"""Seconds to wait for another thread that is asking for credentials."""


class Transport:
    """How to talk to one API server. Safe to use from several threads.

    Raises (the constructor):
        ConfigError: the credentials cannot be had or used.
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
        """The server as messages call it: its URL may have a password."""
        self.pool = _pool(self.server, context, server_name, proxy, pool_size)

    def headers(self) -> dict[str, str]:
        """The headers that carry the credentials; refreshed when they expire.

        Raises:
            KubeError: they cannot be had, or not in time.
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
        """Close connections that are idle; those in use close when done."""
        self.pool.clear()


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _load(function: Any, origin: str, *args: Any, **kwargs: Any) -> None:
    try:
        function(*args, **kwargs)
    except ConfigException as error:
        raise ConfigError(KEY, f"{origin}: {_first_line(error)}") from None
    except Exception as error:
        # What the package raises beyond its own exception may quote a token.
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
