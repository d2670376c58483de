# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Runs programs of the administrator, on a thread that may wait for them."""

from __future__ import annotations

import errno
import os
import selectors
import signal
import subprocess
import time
from typing import Sequence, Union

MOST = 1 << 20
"""The most bytes that a program may print."""

CHUNK = 1 << 16
"""How many bytes are read at a time."""


def run(argv: Sequence[str], timeout: float) -> Union[str, OSError]:
    """What a program prints, or why it failed, as
    :meth:`flux_k8s.ports.Flux.run_program`."""
    deadline = time.monotonic() + timeout
    try:
        program = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        return error
    with program:
        try:
            output = _read(program, deadline)
            status = program.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            _kill(program)
            return OSError(errno.ETIMEDOUT, f"it took more than {timeout:g} s")
        except OverflowError:
            _kill(program)
            return OSError(errno.EFBIG, f"it prints more than {MOST} bytes")
    if status:
        return OSError(errno.EIO, _end(status))
    try:
        return output.decode()
    except UnicodeDecodeError:
        return OSError(errno.EILSEQ, "it prints what is not UTF-8")


def _read(program: subprocess.Popen[bytes], deadline: float) -> bytes:
    """What a program prints, until nobody has its output open any more.

    Raises:
        subprocess.TimeoutExpired: it takes too long.
        OverflowError: it prints more than :data:`MOST` bytes.
    """
    assert program.stdout is not None
    output = bytearray()
    with selectors.DefaultSelector() as ready:
        ready.register(program.stdout, selectors.EVENT_READ)
        while True:
            left = deadline - time.monotonic()
            if left <= 0 or not ready.select(left):
                raise subprocess.TimeoutExpired(program.args, left)
            chunk = os.read(program.stdout.fileno(), CHUNK)
            if not chunk:
                return bytes(output)
            output += chunk
            if len(output) > MOST:
                raise OverflowError


def _kill(program: subprocess.Popen[bytes]) -> None:
    """Kill a program that has not been waited for, and what it has started: that has
    its process group."""
    os.killpg(program.pid, signal.SIGKILL)


def _end(status: int) -> str:
    if status > 0:
        return f"it ended with status {status}"
    try:
        return f"it was killed by {signal.Signals(-status).name}"
    except ValueError:  # a real-time signal has no name
        return f"it was killed by signal {-status}"
