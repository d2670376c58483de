# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""From failed exchanges to :class:`~flux_k8s.ports.KubeError`."""

from __future__ import annotations

import email.utils
import errno
import json
import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Optional

import pycurl

from flux_k8s.kube.status import MAX_RETRY_AFTER, status_error
from flux_k8s.kube.transfer import CurlError, Interrupted, Silence
from flux_k8s.ports import BAD_RESPONSE, Json, KubeError

LOST = "ConnectionLost"


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
        raise KubeError(0, BAD_RESPONSE, "the answer is malformed: no JSON object")
    return value


def response_error(
    status: int, head: Sequence[bytes], body: bytes, server: str
) -> KubeError:
    """The error for an answer whose HTTP status is not a success.

    The body of an answer from Kubernetes is a Status object. An answer from a proxy, or
    about a path that is not served, may have any body. The message of a 401 says only
    "Unauthorized", so ``server`` is put before it.

    Args:
        head: the lines of the answer's head, and before it that of a proxy's answer.
    """
    retry_after = _retry_after(head)
    try:
        answer = parse_object(body)
    except KubeError:
        answer = {}
    if answer.get("kind") == "Status":
        error = status_error(answer, status, retry_after)
        if error.status != 401:
            return error
        return KubeError(401, error.reason, f"{server}: {error}", retry_after)
    phrase = _phrase(head)
    reason = "PathNotFound" if status == 404 else "".join(phrase.split())
    message = f"HTTP status {status} {phrase}".rstrip()
    return KubeError(status, reason, message, retry_after)


def _phrase(head: Sequence[bytes]) -> str:
    """What the server says about the HTTP status."""
    starts = [line for line in head if line.startswith(b"HTTP/")]
    words = starts[-1].decode("latin-1").split(None, 2) if starts else []
    return "".join(words[2:]).strip()


def _retry_after(head: Iterable[bytes]) -> Optional[float]:
    """The seconds of Retry-After, which may be a number of them, or a date."""
    for header in head:
        name, _, value = header.decode("latin-1").partition(":")
        if name.lower() == "retry-after":
            return _seconds(value.strip())
    return None


def _seconds(text: str) -> Optional[float]:
    if re.fullmatch("[0-9]+", text):
        return float(min(int(text[:9]), MAX_RETRY_AFTER))
    date = email.utils.parsedate_tz(text)
    if date is None:
        return None
    try:
        seconds = email.utils.mktime_tz(date) - time.time()
    except (ValueError, OverflowError):
        return None
    return min(max(seconds, 0.0), MAX_RETRY_AFTER)


def transfer_error(error: Exception, server: str) -> KubeError:
    """The error for an exchange that was not completed. The message begins with
    ``server``."""
    reason, text = _diagnose(error)
    return KubeError(0, reason, f"{server}: {text}")


def _diagnose(error: Exception) -> tuple[str, str]:
    if isinstance(error, Interrupted):
        return LOST, "the connection was closed"
    if isinstance(error, Silence):
        return "Timeout", "no answer in time"
    if not isinstance(error, CurlError):
        return "InternalError", type(error).__name__
    if error.code == pycurl.E_COULDNT_CONNECT and error.errnum == errno.ECONNREFUSED:
        return "ConnectionRefused", "connection refused"
    if error.code in _VERIFICATION:
        return "TLS", _TLS_DETAIL.sub("", error.text) or "the certificate is not valid"
    refused = _PROXY_REFUSED.search(error.text)
    if refused is not None:
        return LOST, f"the proxy refuses the connection: HTTP status {refused[1]}"
    tls = error.code == pycurl.E_SSL_CONNECT_ERROR or _TLS_ALERT.search(error.text)
    if tls and not _ENDED.search(error.text):
        return "TLS", "TLS failed"
    known = _DIAGNOSES.get(error.code)
    if known is not None:
        return known
    return LOST, os.strerror(
        error.errnum
    ) if error.errnum else "the connection was lost"


_VERIFICATION = frozenset((pycurl.E_PEER_FAILED_VERIFICATION, pycurl.E_SSL_CACERT))

_TLS_DETAIL = re.compile("^SSL(?: certificate problem)?: ")

_PROXY_REFUSED = re.compile("CONNECT.*(?:response|code) ([0-9]{3})")

_TLS_ALERT = re.compile(r"\balert\b|SSL routines")
"""The server has refused the client's certificate, which it may say after the
handshake."""

_ENDED = re.compile(
    "unexpected eof|SYSCALL|(?:Recv|Send) failure|terminated|end of file|reset by peer"
)
"""The connection has ended, in the words of OpenSSL, GnuTLS and NSS. A server that
dies, and a load balancer without one, close it without an alert of TLS."""

_CUT = "the connection was cut before the answer ended"

_DIAGNOSES: Mapping[int, tuple[str, str]] = MappingProxyType(
    {
        pycurl.E_COULDNT_RESOLVE_HOST: (
            "NameResolution",
            "the host's name is not known",
        ),
        pycurl.E_COULDNT_RESOLVE_PROXY: (
            "NameResolution",
            "the proxy's name is not known",
        ),
        pycurl.E_OPERATION_TIMEDOUT: ("Timeout", "no answer in time"),
        pycurl.E_GOT_NOTHING: (LOST, "the connection was lost"),
        pycurl.E_PARTIAL_FILE: (LOST, _CUT),
        pycurl.E_RECV_ERROR: (LOST, _CUT),
        pycurl.E_FTP_WEIRD_SERVER_REPLY: (
            BAD_RESPONSE,
            "the answer is malformed: no HTTP",
        ),
        pycurl.E_UNSUPPORTED_PROTOCOL: (
            BAD_RESPONSE,
            "the answer is malformed: no HTTP",
        ),
    }
)
"""Reason and message by libcurl's code."""
