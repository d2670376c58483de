# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""A process that reads large ``dws.setup`` requests.

The service writes each request as its length (8 bytes) and its text, and reads one line
as the answer. It starts the process for the first request, and ends it when no request
comes for a while, or after a request that took much memory.
"""

from __future__ import annotations

import contextlib
import gc
import os
import queue
import struct
import subprocess
import sys
import threading
from functools import partial
from typing import Optional

from flux_k8s.jobs.requests import Payload
from flux_k8s.jobs.setupreader import Done, Result, decode_answer, encode_answer
from flux_k8s.ports import Deliver
from flux_k8s.rfc.rset import UnreadableR

TIME_LIMIT = 120.0
"""Seconds after which a process that does not answer is killed."""

IDLE_LIMIT = 30.0
"""Seconds that a process waits for the next request."""

MAX_REUSE_SIZE = 8 * 1024 * 1024
"""The most bytes of a request after which the process reads another one. Python would
not give the memory of a larger request back to the system."""

READER_OOM_SCORE = 1000
"""The kernel kills this process before the service, which has a lower score."""

_LENGTH = struct.Struct("=Q")


class ReaderProcess:
    """Implements :class:`flux_k8s.jobs.setupreader.SetupReader`.

    The process reads one request at a time: each may need ten times its size in memory.

    Args:
        deliver: calls a function on the service's thread.
    """

    def __init__(self, deliver: Deliver) -> None:
        self._deliver = deliver
        self._requests: queue.SimpleQueue[Optional[tuple[Payload, Done]]]
        self._requests = queue.SimpleQueue()
        self._thread: Optional[threading.Thread] = None
        self._process: Optional[subprocess.Popen[bytes]] = None

    @property
    def pid(self) -> Optional[int]:
        """The ID of the process; None while there is none."""
        process = self._process
        return None if process is None else process.pid

    def read(self, text: Payload, done: Done) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        self._requests.put((text, done))

    def close(self) -> None:
        """Kill the process. No ``done`` of a request that waits is called."""
        self._requests.put(None)
        process = self._process
        if process is not None:
            process.kill()

    def _run(self) -> None:
        while True:
            try:
                request = self._requests.get(timeout=IDLE_LIMIT)
            except queue.Empty:
                self._end()
                continue
            if request is None:
                self._end()
                return
            text, done = request
            result = self._ask(text)
            del request, text  # frees up to 100 MB before the next request
            self._deliver(partial(done, result))

    def _ask(self, text: Payload) -> Result:
        """Have the process read a request. Wait for its answer."""
        line = b""
        try:
            process = self._start_process()
        except OSError as error:
            return UnreadableR(f"cannot start a process that reads R: {error}")
        assert process.stdin is not None and process.stdout is not None
        watchdog = threading.Timer(TIME_LIMIT, process.kill)
        watchdog.start()
        with contextlib.suppress(OSError):  # the process has ended
            process.stdin.write(_LENGTH.pack(len(text)))
            process.stdin.write(text)
            process.stdin.flush()
            line = process.stdout.readline()
        watchdog.cancel()
        if not line.endswith(b"\n"):
            return UnreadableR(f"the process that reads R {self._end()}")
        if len(text) > MAX_REUSE_SIZE:
            self._end()
        try:
            return decode_answer(line)
        except (KeyError, TypeError, ValueError):
            return UnreadableR(f"the process that reads R wrote {line[:80]!r}")

    def _start_process(self) -> subprocess.Popen[bytes]:
        """The running process; a new one if there is none."""
        if self._process is not None and self._process.poll() is not None:
            self._end()
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                cwd="/",
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                start_new_session=True,
            )
        return self._process

    def _end(self) -> str:
        """End the process. Return words for the way in which it has ended."""
        process, self._process = self._process, None
        if process is None:
            return "is not there"
        with contextlib.suppress(OSError):
            process.communicate()
        if process.returncode < 0:
            return f"was ended by signal {-process.returncode}"
        return f"ended with status {process.returncode}"


def main() -> None:
    """Read requests from standard input until its end, and write the answers to
    standard output."""
    gc.disable()  # there are no cycles, and millions of objects
    raise_oom_score(READER_OOM_SCORE)
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    while length := requests.read(_LENGTH.size):
        text = requests.read(_LENGTH.unpack(length)[0])
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
