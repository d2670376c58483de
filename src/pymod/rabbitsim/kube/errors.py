# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The errors of the API server, as Kubernetes' ``Status`` objects.

Wording follows the real server's, since clients and people match on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Optional

from flux_k8s.ports import Json, Kind


class ApiError(Exception):
    """A request that the server refuses.

    Attributes:
        code: the HTTP status.
        reason: Kubernetes' machine-readable word for it.
        message: a sentence for a person.
        details: ``details`` of the Status, when there are any.
    """

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: Optional[Mapping[str, Any]] = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details

    def status(self) -> Json:
        """The ``Status`` object to answer with."""
        status: Json = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        }
        if self.details:
            status["details"] = dict(self.details)
        return status


class Forbidden(ApiError):
    """403: what an admission hook raises to refuse a request."""

    def __init__(
        self, message: str, details: Optional[Mapping[str, Any]] = None
    ) -> None:
        super().__init__(403, "Forbidden", message, details)


def denied(webhook: str, message: str) -> Forbidden:
    """The refusal of the admission webhook of that name."""
    return Forbidden(f'admission webhook "{webhook}" denied the request: {message}')


def resource_name(kind: Kind) -> str:
    """``workflows.dataworkflowservices.github.io``, or ``pods`` for the core."""
    return f"{kind.plural}.{kind.group}" if kind.group else kind.plural


def _about(kind: Kind, name: str) -> Json:
    details = {"name": name, "kind": kind.plural}
    if kind.group:
        details["group"] = kind.group
    return details


def not_found(kind: Kind, name: str) -> ApiError:
    message = f'{resource_name(kind)} "{name}" not found'
    return ApiError(404, "NotFound", message, _about(kind, name))


def no_such_resource() -> ApiError:
    """404 for a path that the server does not serve at all."""
    return ApiError(
        404, "NotFound", "the server could not find the requested resource", {}
    )


def already_exists(kind: Kind, name: str) -> ApiError:
    message = f'{resource_name(kind)} "{name}" already exists'
    return ApiError(409, "AlreadyExists", message, _about(kind, name))


def terminating(kind: Kind, name: str, namespace: str) -> Forbidden:
    """The refusal to create an object in a namespace that is being deleted."""
    return Forbidden(
        f'{resource_name(kind)} "{name}" is forbidden: unable to create new content '
        f"in namespace {namespace} because it is being terminated",
        _about(kind, name),
    )


def conflict(kind: Kind, name: str, why: str = "") -> ApiError:
    why = why or (
        "the object has been modified; please apply your changes to the latest "
        "version and try again"
    )
    message = f'Operation cannot be fulfilled on {resource_name(kind)} "{name}": {why}'
    return ApiError(409, "Conflict", message, _about(kind, name))


def invalid(kind: Kind, name: str, causes: Sequence[Mapping[str, str]]) -> ApiError:
    """422. Each cause has ``reason``, ``message`` and ``field``."""
    texts = [f"{cause['field']}: {cause['message']}" for cause in causes]
    text = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    qualified = f"{kind.name}.{kind.group}" if kind.group else kind.name
    details = _about(kind, name)
    details["kind"] = kind.name
    details["causes"] = [dict(cause) for cause in causes]
    message = f'{qualified} "{name}" is invalid: {text}'
    return ApiError(422, "Invalid", message, details)


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def expired(message: str) -> ApiError:
    return ApiError(410, "Expired", message)


def unsupported_media(accepted: Sequence[str]) -> ApiError:
    message = (
        "the body of the request was in an unknown format - accepted media types "
        f"include: {', '.join(accepted)}"
    )
    return ApiError(415, "UnsupportedMediaType", message)


def method_not_allowed() -> ApiError:
    return ApiError(
        405,
        "MethodNotAllowed",
        "the server does not allow this method on the requested resource",
    )
