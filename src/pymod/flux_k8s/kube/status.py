# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""From Status objects of Kubernetes to errors. The module is pure."""

from __future__ import annotations

import math
from typing import Any, Optional

from flux_k8s.ports import Json, KubeError

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
