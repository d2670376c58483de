# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Job IDs: FLUIDs (RFC 19) and their encodings."""

from __future__ import annotations

ALPHABET = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
"""RFC 19's base58: digits and letters without 0, O, I and l."""

_DIGIT = {character: value for value, character in enumerate(ALPHABET)}
_LIMIT = 1 << 64


def encode(jobid: int, prefix: str = "ƒ") -> str:
    """``jobid`` in F58, as Flux prints job IDs.

    Raises:
        ValueError: ``jobid`` is no unsigned 64-bit integer.
    """
    if not 0 <= jobid < _LIMIT:
        raise ValueError(f"{jobid} is not a job ID: not an unsigned 64-bit integer")
    digits = ""
    while True:
        jobid, value = divmod(jobid, 58)
        digits = ALPHABET[value] + digits
        if jobid == 0:
            return prefix + digits


def decode(text: str) -> int:
    """The job ID in F58 (either prefix, ``ƒ`` or ``f``), decimal, ``0x`` or
    dotted hexadecimal.

    Raises:
        ValueError: ``text`` is none of these, or does not fit 64 bits.
    """
    jobid = -1
    try:
        if "." in text:
            jobid = _decode_dothex(text)
        elif text[:1] in ("ƒ", "f"):
            jobid = _decode58(text[1:])
        elif text.isascii():
            jobid = int(text, 0)
    except (KeyError, ValueError):
        pass
    if not 0 <= jobid < _LIMIT:
        raise ValueError(f"{text!r} is not a job ID: expected one like ƒ26cdPmUM")
    return jobid


def _decode58(digits: str) -> int:
    if not digits:
        raise ValueError
    jobid = 0
    for character in digits:
        jobid = jobid * 58 + _DIGIT[character]
    return jobid


def _decode_dothex(text: str) -> int:
    groups = text.split(".")
    if len(groups) != 4 or any(len(group) != 4 for group in groups):
        raise ValueError
    return int("".join(groups), 16)


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
