# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Job IDs, and the names of Workflows, which are made of them.

RFC 19 writes a job ID in F58 with the prefix U+0192. This module writes the ASCII
stand-in ``f``: a job ID becomes the value of a Kubernetes label, which cannot hold
other characters.
"""

from __future__ import annotations

import re
from typing import Optional

from flux_k8s.text import quoted

_ALPHABET = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_DIGITS = {character: value for value, character in enumerate(_ALPHABET)}
_LIMIT = 1 << 64
_F58 = re.compile(r"[ƒf][1-9A-Za-z]{5,11}")
_LONGEST = 24
"""Characters of a job ID in the longest of its forms."""

_WORKFLOW_NAME = re.compile(r"fluxjob-(0|[1-9][0-9]{0,19})")


def f58(jobid: int) -> str:
    """The job ID in F58 (RFC 19), in ASCII.

    >>> f58(6731191091817518)
    'fuZZybuNNy'

    Raises:
        ValueError: the number is negative.
    """
    if jobid < 0:
        raise ValueError(f"{jobid} is no job ID: it is negative")
    digits = ""
    while True:
        jobid, digit = divmod(jobid, 58)
        digits = _ALPHABET[digit] + digits
        if jobid == 0:
            return "f" + digits


def decode(text: str) -> int:
    """The job ID in F58 (either prefix, ``ƒ`` or ``f``), decimal, ``0x`` or dotted
    hexadecimal.

    Raises:
        ValueError: ``text`` is none of these, or does not fit 64 bits.
    """
    jobid = -1
    try:
        if len(text) > _LONGEST:
            pass
        elif "." in text:
            jobid = _decode_dothex(text)
        elif text[:1] in ("ƒ", "f"):
            jobid = _decode58(text[1:])
        elif text.isascii():
            jobid = int(text, 0)
    except (KeyError, ValueError):
        pass
    if not 0 <= jobid < _LIMIT:
        raise ValueError(f"{quoted(text)} is not a job ID: expected one like ƒ26cdPmUM")
    return jobid


def of_flux(text: str) -> Optional[int]:
    """The number of the job that ``text`` names in F58 as Flux writes it, or None.

    The result is None for a plain number or a short word, which may be the job ID of
    another resource manager. The bits of an ID above the lowest 24 are the milliseconds
    since the instance began: an ID without any of them is not Flux's.
    """
    if _F58.fullmatch(text) is None:
        return None
    try:
        jobid = decode(text)
    except ValueError:
        return None
    is_canonical = f58(jobid)[1:] == text[1:]
    return jobid if is_canonical and jobid >= 1 << 24 else None


def _decode58(digits: str) -> int:
    if not digits:
        raise ValueError
    jobid = 0
    for character in digits:
        jobid = jobid * 58 + _DIGITS[character]
    return jobid


def _decode_dothex(text: str) -> int:
    groups = text.split(".")
    if len(groups) != 4 or any(len(group) != 4 for group in groups):
        raise ValueError
    return int("".join(groups), 16)


def kvs_directory(jobid: int) -> str:
    """The directory of a job in the KVS (RFC 16), which names it in dotted hexadecimal.

    >>> kvs_directory(6731191091817518)
    'job.0017.e9fb.8df1.6c2e'
    """
    digits = f"{jobid:016x}"
    groups = (digits[at : at + 4] for at in range(0, len(digits), 4))
    return ".".join(["job", *groups])


def workflow_name(jobid: int) -> str:
    """The name of a job's Workflow."""
    return f"fluxjob-{jobid}"


def jobid_of_workflow(name: str) -> Optional[int]:
    """The job of the Workflow with this name, or None for a name that
    :func:`workflow_name` does not give."""
    match = _WORKFLOW_NAME.fullmatch(name)
    return int(match.group(1)) if match else None
