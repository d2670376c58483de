# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The order of the versions of an object in Kubernetes."""

from __future__ import annotations

from typing import Optional

from flux_k8s.json_reader import decimal


def is_newer(version: str, other: str) -> Optional[bool]:
    """Whether a resourceVersion of an object is newer than another one; None where they
    are the same, or cannot be compared. Those of a kind are ordered decimal numbers;
    versions of another form are not compared."""
    mine, its = decimal(version), decimal(other)
    if mine is None or its is None or mine == its:
        return None
    return mine > its
