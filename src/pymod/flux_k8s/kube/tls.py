# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""TLS for a kubeconfig: the certificates to trust, and the client's own.

The ``kubernetes`` package passes the names of files to urllib3. An invalid certificate
would then be found with the first request only, and Python 3.13 would refuse
certificates that kubectl accepts, without a setting for that.
"""

from __future__ import annotations

import ssl
import tempfile
from typing import Optional

from flux_k8s.errors import ConfigError
from flux_k8s.kube.kubeconfig import KEY, Kubeconfig


def verifying(origin: str, pem: Optional[bytes]) -> ssl.SSLContext:
    """A context that trusts the certificates in ``pem``; None for those of the system.

    Raises:
        ConfigError: ``pem`` has no PEM certificate. The error names ``origin``.
    """
    try:
        text = None if pem is None else pem.decode("ascii", "replace")
        context = ssl.create_default_context(cadata=text)
    except (ssl.SSLError, ValueError):
        raise ConfigError(
            KEY, f"{origin}: certificate-authority is not a PEM certificate"
        ) from None
    # Python 3.13 refuses certificates that kubectl, and so the site, accepts.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def context(
    kubeconfig: Kubeconfig,
    certificate: Optional[str] = None,
    key: Optional[str] = None,
) -> Optional[ssl.SSLContext]:
    """The context that a kubeconfig describes; None for a server without TLS.

    Args:
        certificate, key: the paths of the client certificate and key of a credential
            plugin; they take the place of those in the kubeconfig.

    Raises:
        ConfigError: a certificate or a key is invalid.
    """
    if not kubeconfig.server.startswith("https:"):
        return None
    context = verifying(kubeconfig.origin, kubeconfig.ca)
    if kubeconfig.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    try:
        if certificate:
            context.load_cert_chain(certificate, key, _no_passphrase)
        elif kubeconfig.certificate is not None and kubeconfig.key is not None:
            with tempfile.NamedTemporaryFile() as file:
                file.write(kubeconfig.certificate + b"\n" + kubeconfig.key)
                file.flush()
                context.load_cert_chain(file.name, password=_no_passphrase)
    except (ssl.SSLError, OSError, ValueError):
        raise ConfigError(
            KEY,
            f"{kubeconfig.origin}: client-certificate and client-key are not a"
            " PEM certificate and its key, without a passphrase",
        ) from None
    return context


def _no_passphrase() -> str:
    """An empty passphrase: OpenSSL would ask for one on the terminal."""
    return ""
