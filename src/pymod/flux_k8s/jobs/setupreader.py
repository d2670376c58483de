# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Reading of a ``dws.setup`` that is too large for the process of the service.

R of a large job has 100 MB. Parsing it takes seconds, in which no other thread of the
process runs. A :class:`SetupReader` has another process parse it: that process writes
:func:`encode_answer`, and the service reads it with :func:`decode_answer`.
"""

from __future__ import annotations

import json
from typing import Callable, Protocol, Union

from flux_k8s.errors import DWSError
from flux_k8s.jobs.setuppayload import Payload, load, read_setup
from flux_k8s.rfc.rset import Summary, UnreadableR

Result = Union[Summary, UnreadableR]

Done = Callable[[Result], None]


class SetupReader(Protocol):
    """Reads the R of ``dws.setup`` outside of the process of the service."""

    def read(self, text: Payload, done: Done) -> None:
        """Read a whole payload. ``done`` is called once, later, on the thread that
        owns the service; with UnreadableR also when R could not be read."""


def encode_answer(text: Payload) -> bytes:
    """A line of JSON with the summary of R, or with the error when R is malformed."""
    try:
        _, summary = read_setup(load("setup", text))
    except DWSError as error:
        return json.dumps({"error": str(error)}).encode() + b"\n"
    return json.dumps(summary.to_json()).encode() + b"\n"


def decode_answer(line: bytes) -> Result:
    """The result in a line of :func:`encode_answer`."""
    value = json.loads(line)
    if "error" in value:
        return UnreadableR(value["error"])
    return Summary.from_json(value)
