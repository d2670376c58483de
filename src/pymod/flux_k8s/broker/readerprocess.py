# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""A process that reads large ``dws.setup`` requests, and the program that it runs.

The service writes each request as its length (8 bytes) and its text, and reads one line
as the answer. It starts the process for the first request, and ends it when no request
comes for a while, or after a request that took much memory. A job waits until it has
started, so this module imports little.
"""

from __future__ import annotations

import contextlib
import gc
import os
import queue
import struct
import subprocess
import sys
import syslog
import threading
from functools import partial
from typing import Optional

from flux_k8s.formats.rset import UnreadableR
from flux_k8s.jobs.setupreader import (
    Done,
    Payload,
    Result,
    decode_answer,
    encode_answer,
)
from flux_k8s.ports import Deliver, Log
from flux_k8s.reasons import Reason

FIRST_LIMIT = 10.0
SECONDS_PER_MB = 0.25
"""Seconds after which a process that does not answer is killed, and a new one gets the
same request: more than ten times as long as it takes."""

TIME_LIMIT = 120.0
"""Seconds after which the second process is killed, too."""

IDLE_LIMIT = 30.0
"""Seconds that a process waits for the next request."""

COMMAND = (sys.executable, "-m", "flux_k8s.broker.readerprocess")

MAX_REUSE_SIZE = 8 * 1024 * 1024
"""The most bytes of a request after which the process reads another one. Python would
not give the memory of a larger request back to the system."""

READER_OOM_SCORE = 1000
"""The kernel kills this process before the service, which has a lower score."""

LENGTH = struct.Struct("=Q")
"""The length of a request, before its text."""


class ReaderProcess:
    """Implements :class:`flux_k8s.jobs.setupreader.SetupReader`.

    The process reads one request at a time: each may need ten times its size in memory.

    Args:
        deliver: calls a function on the service's thread.
        log: logs a line, on the service's thread.
    """

    def __init__(self, deliver: Deliver, log: Log = lambda *_: None) -> None:
        self._deliver = deliver
        self._log = log
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
            self._deliver(partial(done, self._ask(text)))
            if len(text) > MAX_REUSE_SIZE:
                self._end()
            del request, text  # frees up to 100 MB before the next request

    def _ask(self, text: Payload) -> Result:
        """Have the process read a request, and if it does not answer, a new one. Wait
        for the answer."""
        patience = FIRST_LIMIT + SECONDS_PER_MB * len(text) / 1e6
        result = self._ask_once(text, patience)
        if result is not None:
            return result
        line = (
            f"no answer within {patience:.0f} s from the process that reads R:"
            f" it {self._end()}; another one reads it"
        )
        log = partial(self._log, syslog.LOG_WARNING, line, Reason.OVERLOADED)
        self._deliver(log)
        return self._ask_once(text, TIME_LIMIT) or UnreadableR(
            f"the process that reads R {self._end()}"
        )

    def _ask_once(self, text: Payload, seconds: float) -> Optional[Result]:
        """As :meth:`_ask`, by one process; None if it was killed after ``seconds``."""
        line = b""
        try:
            process = self._start_process()
        except OSError as error:
            return UnreadableR(f"cannot start a process that reads R: {error}")
        assert process.stdin is not None and process.stdout is not None
        silent = threading.Event()

        def give_up() -> None:
            silent.set()
            process.kill()

        watchdog = threading.Timer(seconds, give_up)
        watchdog.start()
        with contextlib.suppress(OSError):  # the process has ended
            process.stdin.write(LENGTH.pack(len(text)))
            process.stdin.write(text)
            process.stdin.flush()
            line = process.stdout.readline()
        watchdog.cancel()
        if not line.endswith(b"\n"):
            if silent.is_set():
                return None
            return UnreadableR(f"the process that reads R {self._end()}")
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
                COMMAND,
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
        try:
            process.communicate(timeout=FIRST_LIMIT)
        except (OSError, subprocess.TimeoutExpired):
            process.kill()  # it has ended before it had read all, or it has stopped
        process.wait()
        if process.returncode < 0:
            return f"was ended by signal {-process.returncode}"
        return f"ended with status {process.returncode}"


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
