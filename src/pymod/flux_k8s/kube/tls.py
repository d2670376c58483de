# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Whom to trust, and who we are: TLS for a kubeconfig.

The ``kubernetes`` package leaves this to urllib3, with the names of files. Then what
is no PEM certificate is found out with the first request, and Python 3.13 refuses
certificates that kubectl accepts: there is no setting for that.
"""

from __future__ import annotations

import ssl
import tempfile
from typing import Optional

from flux_k8s.errors import ConfigError
from flux_k8s.kube.kubeconfig import KEY, Kubeconfig


def verifying(origin: str, pem: Optional[bytes]) -> ssl.SSLContext:
    """TLS that trusts ``pem``, or else the system's certificates.

    Raises:
        ConfigError: it is no PEM certificate.
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
    """TLS as the kubeconfig wants it; None when the server speaks plain HTTP.

    Args:
        certificate, key: files with what a plugin gave, if it did.

    Raises:
        ConfigError: it cannot be used.
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
    """Keeps OpenSSL from asking for one on the terminal."""
    return ""
