# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Objects as a watch shows them."""

from __future__ import annotations

import msgspec

from flux_k8s.ports import Json, Seen


def watched(object: Json) -> Seen:
    """An object as a watch shows it."""
    metadata = object.get("metadata", {})
    return Seen(
        metadata.get("namespace", ""),
        metadata.get("name", ""),
        metadata.get("uid", ""),
        metadata.get("resourceVersion", ""),
        msgspec.json.encode(object),
    )
