# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The payload of ``dws.setup``: a job and its R.

The process that reads large payloads imports this module and little else, since a job
waits until that process has started.
"""

from __future__ import annotations

import json
from typing import Any, Union

from flux_k8s.errors import DWSError
from flux_k8s.json_reader import Reader
from flux_k8s.rfc import rset
from flux_k8s.rfc.jobid import f58
from flux_k8s.rfc.rset import Summary

Payload = Union[bytes, memoryview]
"""JSON as it came."""


class NotJson(DWSError):
    """The payload of a request is not JSON."""

    def __init__(self, method: str) -> None:
        super().__init__(f"dws.{method}: the payload is not JSON")


def load(method: str, text: Payload) -> Any:
    """The payload of ``dws.<method>``.

    Raises:
        NotJson: the payload is not JSON.
    """
    try:
        return json.loads(bytes(text))
    except (ValueError, RecursionError):
        raise NotJson(method) from None


def read_setup(payload: Any) -> tuple[int, Summary]:
    """``dws.setup``: the job and its R."""
    reader = Reader("dws.setup", payload)
    jobid = reader.integer("jobid", minimum=0)
    name = f"R of job {f58(jobid)}"
    R = rset.parse(reader.object("R").value, name)
    return jobid, rset.summarize(R, name)
