# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Programs: those of the administrator, and the one that reads large R's."""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import signal
import subprocess
import sys
import time
from typing import Any, BinaryIO, Sequence

from flux_k8s.broker import parentdeath
from flux_k8s.ports import Payload, ReadOutput

MOST = 1 << 20
"""The most bytes that a program may print; one that gets a longer text may print as
many as it has."""

CHUNK = 1 << 16
"""How many bytes are read at a time."""

LAST_WAIT = 1.0
"""Seconds within which a program has ended that was killed."""


class Programs:
    """The programs that run. Several threads may run one each."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[bytes]] = set()
        self._closed = False

    def run(
        self,
        argv: Sequence[str],
        timeout: float,
        read: ReadOutput = str,
        text: Payload = b"",
    ) -> Any:
        """What a program prints, as it was read: see
        :meth:`flux_k8s.ports.Flux.run_program`.

        Raises:
            OSError: it has failed. Its ``strerror`` has the reason.
            ValueError: from ``read``.
        """
        program, failure = _start(argv, text)
        assert program.stdout is not None
        with program.stdout, failure:
            self._running.add(program)
            if self._closed:  # meanwhile
                _kill(program)
            try:
                output = _output(program, failure, timeout, max(MOST, len(text)))
            finally:
                self._running.discard(program)
        return read(output)

    def close(self) -> None:
        """Kill the programs that run, and those that are started from now on."""
        self._closed = True
        for program in tuple(self._running):
            _kill(program)


def _start(
    argv: Sequence[str], text: Payload
) -> tuple[subprocess.Popen[bytes], BinaryIO]:
    """Start a program, whose standard input has a text. The threads of the service
    block the signals that its reactor receives; the program blocks none. A service that
    is killed kills no program, so the kernel does.

    Returns:
        the program, and a file from which the ``errno`` is read, after its end, if it
        could not be run.
    """
    readable, writable = os.pipe()
    ours = [sys.executable, "-I", "-S", parentdeath.__file__]
    try:
        with open(os.memfd_create("text"), "w+b") as given:
            given.write(text)
            given.seek(0)
            program = subprocess.Popen(
                [*ours, str(os.getpid()), str(writable), *argv],
                stdin=given,
                stdout=subprocess.PIPE,
                pass_fds=[writable],
                start_new_session=True,
            )
    except OSError:
        os.close(readable)
        raise
    finally:
        os.close(writable)
    return program, open(readable, "rb")


def _output(
    program: subprocess.Popen[bytes], failure: BinaryIO, timeout: float, most: int
) -> str:
    """Wait for a program. Return what it prints.

    Raises:
        OSError: it has failed.
    """
    deadline = time.monotonic() + timeout
    try:
        output = _read(program, deadline, most)
        status = program.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        _end_now(program)
        text = f"it took more than {timeout:g} s"
        raise OSError(errno.ETIMEDOUT, text) from None
    except OSError:  # there may be no more file descriptors
        _end_now(program)
        raise
    if status:
        number = failure.read()
        if number:
            raise OSError(int(number), os.strerror(int(number)))
        raise OSError(errno.EIO, _end(status))
    try:
        return output.decode()
    except UnicodeDecodeError:
        raise OSError(errno.EILSEQ, "it prints what is not UTF-8") from None


def _read(program: subprocess.Popen[bytes], deadline: float, most: int) -> bytes:
    """What a program prints, until nobody has its output open any more.

    Raises:
        subprocess.TimeoutExpired: it takes too long.
        OSError: it prints more than ``most`` bytes.
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
            if len(output) > most:
                raise OSError(errno.EFBIG, f"it prints more than {most} bytes")


def _kill(program: subprocess.Popen[bytes]) -> None:
    """Kill a program, and what it has started: that has its process group. One that
    runs as another user, by sudo, may not be killed."""
    with contextlib.suppress(OSError):
        os.killpg(program.pid, signal.SIGKILL)


def _end_now(program: subprocess.Popen[bytes]) -> None:
    """Kill a program, and do not wait long for its end: that of one that may not be
    killed, or that waits for a file system, may never come."""
    _kill(program)
    with contextlib.suppress(subprocess.TimeoutExpired):
        program.wait(LAST_WAIT)


def _end(status: int) -> str:
    if status > 0:
        return f"it ended with status {status}"
    try:
        return f"it was killed by {signal.Signals(-status).name}"
    except ValueError:  # a real-time signal has no name
        return f"it was killed by signal {-status}"
