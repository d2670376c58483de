# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Job IDs, and the names that they give to Workflows.

RFC 19 writes a job ID in F58 with the prefix U+0192. Here the prefix is always
its ASCII stand-in ``f``: the ID becomes the value of a Kubernetes label, which
cannot hold other characters.
"""

from __future__ import annotations

import re
from typing import Optional

_ALPHABET = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_WORKFLOW_NAME = re.compile(r"fluxjob-(0|[1-9][0-9]{0,19})")


def f58(jobid: int) -> str:
    """The job ID in F58 (RFC 19), in ASCII.

    >>> f58(6731191091817518)
    'fuZZybuNNy'
    """
    digits = ""
    while True:
        jobid, digit = divmod(jobid, 58)
        digits = _ALPHABET[digit] + digits
        if jobid == 0:
            return "f" + digits


def workflow_name(jobid: int) -> str:
    """The name of a job's Workflow."""
    return f"fluxjob-{jobid}"


def jobid_of_workflow(name: str) -> Optional[int]:
    """The job that a Workflow's name stands for, or None if it is not of ours."""
    match = _WORKFLOW_NAME.fullmatch(name)
    return int(match.group(1)) if match else None
