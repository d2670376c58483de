# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Requests to the jobtap plugin."""

from __future__ import annotations

import errno

from flux_k8s.control.coroutines import call
from flux_k8s.ports import Flux, Json, RpcError


async def request_plugin(flux: Flux, method: str, payload: Json) -> None:
    """Send an RPC to the plugin. ENOENT is no error: the job has ended, and needs no
    request.

    Raises:
        RpcError: it was not answered, or refused.
    """
    try:
        await call(flux.rpc, f"job-manager.dws.{method}", payload)
    except RpcError as error:
        if error.errnum != errno.ENOENT:
            raise
