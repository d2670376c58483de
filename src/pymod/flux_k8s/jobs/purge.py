# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Jobs that Flux has removed after their end (``flux job purge``, or by age)."""

from __future__ import annotations

import errno

from flux_k8s.control.coroutines import call
from flux_k8s.ports import Flux, RpcError


async def is_purged(flux: Flux, jobid: int) -> bool:
    """Whether Flux has removed a job and its KVS directory. A write would make the
    directory anew.

    Raises:
        RpcError: that is not known.
    """
    payload = {"id": jobid, "keys": ["jobspec"], "flags": 0}
    try:
        await call(flux.rpc, "job-info.lookup", payload)
    except RpcError as error:
        if error.errnum != errno.ENOENT:
            raise
        return True
    return False
