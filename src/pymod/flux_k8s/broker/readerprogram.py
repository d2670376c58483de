# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The program that reads large ``dws.setup`` requests for the service.

A job waits until it has started, so it imports little. :mod:`.readerprocess` starts it.
"""

from __future__ import annotations

import contextlib
import gc
import struct
import sys

from flux_k8s.jobs.setupreader import encode_answer

MAX_REUSE_SIZE = 8 * 1024 * 1024
"""The most bytes of a request after which the process reads another one. Python would
not give the memory of a larger request back to the system."""

READER_OOM_SCORE = 1000
"""The kernel kills this process before the service, which has a lower score."""

LENGTH = struct.Struct("=Q")
"""The length of a request, before its text."""


def main() -> None:
    """Read requests from standard input until its end, and write the answers to
    standard output."""
    gc.disable()  # there are no cycles, and millions of objects
    raise_oom_score(READER_OOM_SCORE)
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    while length := requests.read(LENGTH.size):
        text = requests.read(LENGTH.unpack(length)[0])
        answers.write(encode_answer(text))
        answers.flush()
        if len(text) > MAX_REUSE_SIZE:
            return


def raise_oom_score(score: int) -> None:
    """Have the kernel kill this process before others when memory runs out.

    Args:
        score: up to 1000, added to the process's score. The kernel kills the process
            with the highest score first.
    """
    with contextlib.suppress(OSError):
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
            file.write(str(score))


if __name__ == "__main__":
    main()
