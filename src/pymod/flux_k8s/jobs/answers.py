# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Reads answers of Kubernetes."""

from __future__ import annotations

import base64
import binascii
from typing import Optional

from flux_k8s.ports import Json, KubeError


def refused(error: KubeError) -> bool:
    """Kubernetes or DWS will never accept this request as it is. (A plain 403
    is another matter: an administrator can grant the permission.)"""
    if error.status == 403:
        return "admission webhook" in error.message
    return error.status in (400, 422)


def in_question(error: KubeError) -> bool:
    """A patch has failed, maybe since the object is gone, is another one of its name,
    or has changed: a GET tells."""
    return error.status in (400, 404, 409, 422)


def refusal(error: KubeError) -> str:
    """The message of DWS about a request that it refused, for the job's owner."""
    _, found, message = error.message.partition("denied the request: ")
    return f"DWS refuses: {message if found else error.message}"


def read_token(secret: Json) -> Optional[str]:
    """The workflow token in a Secret, or None."""
    data = secret.get("data")
    encoded = data.get("token") if isinstance(data, dict) else None
    if not isinstance(encoded, str):
        return None
    try:
        return base64.b64decode(encoded, validate=True).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError):
        return None
