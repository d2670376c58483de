# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The payload of ``dws.setup``, a job and its R, and how a large one is read.

R of a large job has 100 MB. Parsing it takes seconds, in which no other thread of the
process runs. So another process parses it (:func:`read_large`): it prints
:func:`encode_answer`, and the service reads that with :func:`decode_answer`.

A job waits until that process has started, so it imports this module and little else.
"""

from __future__ import annotations

import gc
import json
import re
import sys
from dataclasses import dataclass
from typing import Any, Callable, Union

from flux_k8s.errors import DWSError
from flux_k8s.formats import rset
from flux_k8s.formats.jobid import f58
from flux_k8s.formats.rset import Summary, UnreadableR
from flux_k8s.json_reader import Reader
from flux_k8s.ports import Flux, Payload

Result = Union[Summary, UnreadableR]

Done = Callable[[Result], None]

LARGE = 1024 * 1024
"""A ``dws.setup`` of more bytes is not parsed in the process of the service. As many
take it some 25 ms; to start another process takes longer."""

TIME_LIMIT = 120.0
"""Seconds within which R is read: many times as many as it takes."""

COMMAND = (
    sys.executable,
    "-I",
    "-c",
    f"import sys; sys.path.insert(0, {__file__.rsplit('/', 3)[0]!r})\n"
    "from flux_k8s.jobs.setupreader import main; main()",
)
"""The program that reads R. Nothing but Python's own packages is needed."""

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


def read_large(flux: Flux, text: Payload, done: Done) -> None:
    """Have another process read a payload. One is read at a time: it may take ten times
    its size of memory.

    Args:
        done: is called once, later; with UnreadableR also when R could not be read.
    """

    def ended(result: Any) -> None:
        if isinstance(result, OSError):
            reason = result.strerror or str(result)
            result = UnreadableR(f"the process that reads R fails: {reason}")
        done(result)

    flux.run_program(
        COMMAND, TIME_LIMIT, ended, read=decode_answer, text=text, thread="R"
    )


def encode_answer(text: Payload) -> str:
    """JSON with the summary of R, or with the error when R is malformed."""
    try:
        _, summary = read_setup(load("setup", text))
    except DWSError as error:
        return json.dumps({"error": str(error)})
    return json.dumps(summary.to_json())


def decode_answer(answer: str) -> Result:
    """The result in the JSON of :func:`encode_answer`."""
    value = json.loads(answer)
    if "error" in value:
        return UnreadableR(value["error"])
    return Summary.from_json(value)


def main() -> None:
    """Read the payload in standard input, and print the answer."""
    gc.disable()  # there are no cycles, and millions of objects
    sys.stdout.write(encode_answer(sys.stdin.buffer.read()))
