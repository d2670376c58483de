# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The payload of ``dws.setup``, a job and its R, and how a large one is read.

R of a large job has 100 MB. Parsing it takes seconds, in which no other thread of the
process runs. A :class:`SetupReader` has another process parse it: that process writes
:func:`encode_answer`, and the service reads it with :func:`decode_answer`.

A job waits until that process has started, so it imports this module and little else.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Callable, Protocol, Union

from flux_k8s.errors import DWSError
from flux_k8s.formats import rset
from flux_k8s.formats.jobid import f58
from flux_k8s.formats.rset import Summary, UnreadableR
from flux_k8s.json_reader import Reader

Payload = Union[bytes, memoryview]
"""JSON as it came."""

Result = Union[Summary, UnreadableR]

Done = Callable[[Result], None]

LARGE = 128 * 1024
"""A ``dws.setup`` of more bytes is not parsed in the process of the service."""

_SETUP = re.compile(rb'\{"jobid":(\d{1,19}),"R":')
_SETUP_START = 64


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


@dataclass(frozen=True)
class LargeSetup:
    """A ``dws.setup`` that is too large to be parsed here: its job, and its whole
    payload."""

    jobid: int
    text: Payload


def parse(method: str, text: Payload, large: int = LARGE) -> Any:
    """The payload of ``dws.<method>``; a :class:`LargeSetup` for a ``dws.setup``
    of more than ``large`` bytes.

    Raises:
        NotJson: the payload is not JSON.
    """
    if method == "setup" and len(text) > large:
        found = _SETUP.match(bytes(text[:_SETUP_START]))
        if found is not None:
            return LargeSetup(int(found[1]), text)
    return load(method, text)


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
