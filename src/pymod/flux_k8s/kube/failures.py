# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""From failed requests to :class:`~flux_k8s.ports.KubeError`.

The messages of exceptions are not used: they may quote a header, and so credentials.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
from collections.abc import Iterator
from typing import Optional

import urllib3
from urllib3 import exceptions as urllib3_errors
from urllib3.util.retry import Retry

from flux_k8s.kube.status import MAX_RETRY_AFTER, status_error
from flux_k8s.ports import Json, KubeError


def parse_object(body: bytes) -> Json:
    """The JSON object in the body of an answer.

    Raises:
        KubeError: the body is no JSON object.
    """
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise KubeError(0, "BadResponse", "the answer is malformed: no JSON object")
    return value


def response_error(
    response: urllib3.BaseHTTPResponse, body: bytes, server: str
) -> KubeError:
    """The error for an answer whose HTTP status is not a success.

    The body of an answer from Kubernetes is a Status object. An answer from a proxy, or
    about a path that is not served, may have any body. The message of a 401 says only
    "Unauthorized", so ``server`` is put before it.
    """
    retry_after = _retry_after(response)
    try:
        status = parse_object(body)
    except KubeError:
        status = {}
    if status.get("kind") == "Status":
        error = status_error(status, response.status, retry_after)
        if error.status != 401:
            return error
        return KubeError(401, error.reason, f"{server}: {error}", retry_after)
    phrase = response.reason or ""
    reason = "PathNotFound" if response.status == 404 else "".join(phrase.split())
    message = f"HTTP status {response.status} {phrase}".rstrip()
    return KubeError(response.status, reason, message, retry_after)


def _retry_after(response: urllib3.BaseHTTPResponse) -> Optional[float]:
    try:
        seconds = Retry().get_retry_after(response)
    except (urllib3_errors.InvalidHeader, ValueError, OverflowError):
        return None
    return None if seconds is None else min(seconds, MAX_RETRY_AFTER)


@contextlib.contextmanager
def as_kube_error(server: str) -> Iterator[None]:
    """Raise all exceptions of urllib3 and of the system as KubeError. The message
    begins with ``server``."""
    try:
        yield
    except KubeError:
        raise
    except Exception as error:
        reason, text = _diagnose(error)
        raise KubeError(0, reason, f"{server}: {text}") from None


def _diagnose(error: BaseException) -> tuple[str, str]:
    """The reason and the message of the KubeError for an exception."""
    causes: list[BaseException] = []
    cause: Optional[BaseException] = error
    while cause is not None and cause not in causes:
        causes.append(cause)
        cause = cause.__cause__ or cause.__context__
    for kinds, reason, text in _DIAGNOSES:
        found = next((c for c in causes if isinstance(c, kinds)), None)
        if found is not None:
            detail = getattr(found, "verify_message", "") or text
            return reason, detail
    strerror = next((c.strerror for c in causes if isinstance(c, OSError)), None)
    if strerror or isinstance(error, urllib3_errors.HTTPError):
        return "ConnectionLost", strerror or "the connection was lost"
    return "InternalError", type(error).__name__


_DIAGNOSES: tuple[tuple[tuple[type[BaseException], ...], str, str], ...] = (
    ((ConnectionRefusedError,), "ConnectionRefused", "connection refused"),
    ((socket.gaierror,), "NameResolution", "the host's name is not known"),
    (
        (urllib3_errors.TimeoutError, TimeoutError, socket.timeout),
        "Timeout",
        "no answer in time",
    ),
    (
        (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionError),
        "ConnectionLost",
        "the connection was lost",
    ),
    (
        (http.client.IncompleteRead,),
        "ConnectionLost",
        "the connection was cut before the answer ended",
    ),
    (
        (http.client.HTTPException,),
        "BadResponse",
        "the answer is malformed: no HTTP",
    ),
    ((ssl.SSLCertVerificationError,), "TLS", "the certificate is not valid"),
    ((ssl.SSLError, urllib3_errors.SSLError), "TLS", "TLS failed"),
)
"""Reason and message by the type of an exception or of one of its causes. The first
line that fits counts."""
