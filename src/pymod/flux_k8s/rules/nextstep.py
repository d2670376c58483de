# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The end of a job's exception: which command says more."""

from __future__ import annotations

import re

from flux_k8s.formats.jobid import f58
from flux_k8s.text import NOTE, printable

USER_ERROR = "User error"
"""In messages of DWS about an error in the request of a job."""

_STEP = re.compile(r"; flux dws show \S+ says more\Z")


def with_next_step(note: str, jobid: int) -> str:
    """``note``, printable, and where the job's owner learns more. A note about an error
    in the job's request is complete, and stays as it is."""
    if USER_ERROR in note:
        return printable(note, NOTE)
    step = f"; flux dws show {f58(jobid)} says more"
    return printable(note, NOTE - len(step)) + step


def without_next_step(note: str) -> str:
    """The note of an exception as :func:`with_next_step` was given it: for those who
    read it with this command."""
    return _STEP.sub("", note)
