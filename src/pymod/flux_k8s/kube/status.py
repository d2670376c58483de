# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Answers of Kubernetes: their JSON, and errors by their Status objects. The module is
pure."""

from __future__ import annotations

import email.utils
import json
import math
import re
import time
from collections.abc import Iterable, Sequence
from typing import Any, Optional

from flux_k8s.ports import BAD_RESPONSE, Json, KubeError

MAX_RETRY_AFTER = 60.0
"""The most seconds that the service waits because a server asks for it."""


def status_error(
    status: Json, code: int = 0, retry_after: Optional[float] = None
) -> KubeError:
    """The error that a Status object describes.

    A 404 that names no object means that the API server does not serve the path. Its
    reason becomes "PathNotFound".

    Args:
        code: the HTTP status, if it is known; else that of the Status counts.
        retry_after: the header Retry-After in seconds, if there was one.
    """
    details = status.get("details")
    if not isinstance(details, dict):
        details = {}
    if retry_after is None:
        retry_after = _seconds(details.get("retryAfterSeconds"))
    code = code or (status["code"] if isinstance(status.get("code"), int) else 0)
    reason, message = (
        value if isinstance(value, str) else ""
        for value in (status.get("reason"), status.get("message"))
    )
    if code == 404 and not details.get("name"):
        reason = "PathNotFound"
    return KubeError(code, reason, message, retry_after)


def _seconds(value: Any) -> Optional[float]:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(min(max(value, 0), MAX_RETRY_AFTER))


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
            return _seconds_of(value.strip())
    return None


def _seconds_of(text: str) -> Optional[float]:
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
