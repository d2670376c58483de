# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The job exceptions (RFC 21) that are about storage: their types and severities."""

from __future__ import annotations

from flux_k8s.rfc.jobid import f58
from flux_k8s.text import NOTE, printable

DWS = "dws"
"""A job's storage is in trouble, or something of it is lost."""

NODE_FAILURE = "dws-node-failure"
"""A job goes on without the storage of a node, or a node has not unmounted."""

EPILOG_TIMEOUT = "dws-epilog-timeout"
"""The plugin gives an epilog up: it raises this one itself."""

FATAL = 0
WARNING = 1

USER_ERROR = "User error"
"""In messages of DWS about an error in the request of a job."""


UNKNOWN_LOSS = "what was to be copied may not be copied"
"""The loss of a job whose Workflow is gone, and with it the directives."""


def with_next_step(note: str, jobid: int) -> str:
    """``note``, printable, and where the job's owner learns more. A note about an error
    in the job's request is complete, and stays as it is."""
    if USER_ERROR in note:
        return printable(note, NOTE)
    more = f"; flux dws show {f58(jobid)} says more"
    return printable(note, NOTE - len(more)) + more
