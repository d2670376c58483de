# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Credentials that a plugin, an identity provider, a file or a pod gives.

The ``kubernetes`` package knows the protocols of credential plugins and of OpenID
Connect, the service account of a pod, and when a token expires. To import it costs
19 MiB and 0.2 s with 37, which loads the classes of the API only when they are used,
and 46 to 55 MiB and 0.3 s with 31 to 36. No smaller import is possible:
``kubernetes/__init__`` imports all of its packages. So only this module imports the
package, and :mod:`.transport` imports this module only when it needs it.

This module does what the package does not do:

- It raises an error when a credential plugin fails. The package logs the failure, and
  goes on without credentials.
- It keeps credentials until they expire, so that a request needs no thread which may
  wait for others.
"""

from __future__ import annotations

import math
import time
from datetime import datetime, timezone
from typing import Any, Optional

from kubernetes.client import Configuration
from kubernetes.config import (
    ConfigException,
    load_incluster_config,
)
from kubernetes.config.kube_config import KubeConfigLoader

from flux_k8s.errors import ConfigError
from flux_k8s.kube.kubeconfig import KEY, Kubeconfig
from flux_k8s.ports import KubeError

KEPT = 60.0
"""Seconds after which credentials are read again: of those of a pod nobody says when
they expire. No plugin is asked for it."""

MARGIN = 5.0
"""Seconds before the end of credentials after which they are renewed."""

_POD = "the pod's service account"


class Credentials:
    """Credentials that may change.

    Args:
        kubeconfig: the context; None for the service account of this pod.

    Attributes:
        origin: their source, for messages.
        server: the URL of the API server.
        ca_file: the path of the certificates to trust, in a pod.
        cert_file, key_file: the paths of a plugin's client certificate and of its key,
            or None.

    Raises:
        ConfigError: there are no credentials, or they are invalid.
    """

    def __init__(self, kubeconfig: Optional[Kubeconfig]) -> None:
        self._headers: dict[str, str] = {}
        self._valid_until = -math.inf
        self._loader: Any = None
        if kubeconfig is None:
            self.origin = _POD
            self._configuration = _load(load_incluster_config, _POD)
        else:
            self.origin = kubeconfig.origin
            self._loader, self._configuration = _load_user(kubeconfig)
        self.server: str = self._configuration.host.rstrip("/")
        self.ca_file: str = self._configuration.ssl_ca_cert
        self.cert_file: Optional[str] = self._configuration.cert_file
        self.key_file: Optional[str] = self._configuration.key_file

    @property
    def headers(self) -> Optional[dict[str, str]]:
        """The headers with the credentials; None when they have to be renewed."""
        return self._headers if time.monotonic() < self._valid_until else None

    def renew(self) -> dict[str, str]:
        """The headers with the credentials, after others were asked for them, which may
        take any time. One thread may call this.

        Raises:
            KubeError: there are none.
        """
        try:
            settings = self._configuration.auth_settings().values()
        except ConfigException as error:
            message = f"{self.origin}: {_first_line(error)}"
            raise KubeError(0, "Credentials", message) from None
        self._headers = {s["key"]: s["value"].strip() for s in settings}
        left = _time_of_expiry(self._loader) - time.time()
        self._valid_until = time.monotonic() + min(KEPT, left)
        return self._headers


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _load(function: Any, origin: str, **kwargs: Any) -> Any:
    """A ``Configuration`` that ``function`` has filled in."""
    configuration = Configuration()
    try:
        function(client_configuration=configuration, **kwargs)
    except ConfigException as error:
        raise ConfigError(KEY, f"{origin}: {_first_line(error)}") from None
    except Exception as error:
        # Exceptions that are not the package's own may quote a token.
        name = type(error).__name__
        raise ConfigError(KEY, f"{origin}: cannot be used ({name})") from None
    return configuration


def _time_of_expiry(loader: Any) -> float:
    """The UNIX time at which the credentials of a user expire, with ``MARGIN``;
    infinite where that is not known."""
    expiry: Optional[datetime] = getattr(loader, "expiry", None)
    if expiry is None:
        return math.inf
    if expiry.tzinfo is None:
        expiry = expiry.replace(tzinfo=timezone.utc)
    return expiry.timestamp() - MARGIN


def _load_user(kubeconfig: Kubeconfig) -> tuple[Any, Any]:
    """A ``KubeConfigLoader``, which knows when credentials expire, and a
    ``Configuration`` that it has filled in."""
    config = {
        "current-context": "context",
        "contexts": [
            {"name": "context", "context": {"cluster": "cluster", "user": "user"}}
        ],
        "clusters": [{"name": "cluster", "cluster": {"server": kubeconfig.server}}],
        "users": [{"name": "user", "user": kubeconfig.user}],
    }
    loaders: list[KubeConfigLoader] = []

    def load(client_configuration: Any) -> None:
        loaders.append(KubeConfigLoader(config_dict=config, config_base_path=None))
        loaders[0].load_and_set(client_configuration)

    configuration = _load(load, kubeconfig.origin)
    if kubeconfig.asks_others and not (
        configuration.api_key or configuration.cert_file
    ):
        raise ConfigError(
            KEY, f"{kubeconfig.origin}: its credential plugin gave no credentials"
        )
    return loaders[0], configuration
