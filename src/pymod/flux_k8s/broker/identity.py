# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The identity of the Flux instance among others that use the same cluster."""

from __future__ import annotations

import uuid
from typing import Any, Optional

import flux.constants
import flux.kvs

from flux_k8s.config.settings import Identity

KEY = "dws.instance"
"""Where Flux's KVS has the identity. It is kept there for as long as the jobs are."""

NAMES = "dws.names"
"""Where it has the names that the instance has, or has had."""


def identify(handle: Any, name: Optional[str]) -> Identity:
    """The identity of the instance. One without a name is given an identity of its own.

    Args:
        name: ``rabbit.instance``.

    Raises:
        OSError: the KVS fails.
    """
    kept = str(_kept(handle, KEY) or "")
    names = list(_kept(handle, NAMES) or ())
    if name is not None:
        if name not in names:
            _keep(handle, NAMES, [*names, name])
        return Identity(name, former=kept, shares=True, names=frozenset(names))
    if not kept:
        kept = uuid.uuid4().hex
        _keep(handle, KEY, kept)
    return Identity(kept, names=frozenset(names))


def _kept(handle: Any, key: str) -> Any:
    try:
        return flux.kvs.get(handle, key)
    except FileNotFoundError:
        return None


def _keep(handle: Any, key: str, value: Any) -> None:
    """Write a value so that it outlives a crash of Flux, where the KVS does: the KVS
    goes back to its last checkpoint then."""
    try:
        flux.kvs.put(handle, key, value)
        flux.kvs.commit(handle, flux.constants.FLUX_KVS_SYNC)
    except OSError:  # nothing outlives this instance
        flux.kvs.put(handle, key, value)
        flux.kvs.commit(handle)
