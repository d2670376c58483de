# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Job IDs: FLUIDs (RFC 19) and their encodings."""

from __future__ import annotations

from flux_k8s.formats.jobid import decode, f58

__all__ = ["FluidGenerator", "decode", "dothex", "encode"]

_LIMIT = 1 << 64


def encode(jobid: int, prefix: str = "ƒ") -> str:
    """``jobid`` in F58, as Flux prints job IDs.

    Raises:
        ValueError: ``jobid`` is no unsigned 64-bit integer.
    """
    if not 0 <= jobid < _LIMIT:
        raise ValueError(f"{jobid} is not a job ID: not an unsigned 64-bit integer")
    return prefix + f58(jobid)[1:]


def dothex(jobid: int) -> str:
    """``jobid`` as in KVS keys: ``0000.0000.0001.0000``."""
    digits = f"{jobid:016x}"
    return ".".join(digits[i : i + 4] for i in range(0, 16, 4))


class FluidGenerator:
    """Makes job IDs: milliseconds since ``epoch`` (40 bits), generator
    (14 bits, always 0: there is one), sequence number (10 bits)."""

    def __init__(self, epoch: float) -> None:
        self._epoch = epoch
        self._last = -1

    def next(self, now: float) -> int:
        """A new ID for the time ``now``, greater than all earlier ones."""
        fluid = int((now - self._epoch) * 1000) << 24
        self._last = max(fluid, self._last + 1)
        if self._last & 0xFFFFFF >= 1 << 10:  # 1024 in this millisecond
            self._last = ((self._last >> 24) + 1) << 24
        return self._last
