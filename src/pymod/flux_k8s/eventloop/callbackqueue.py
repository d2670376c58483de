# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The queue through which threads call functions on the thread of an event loop."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from typing import Callable

Function = Callable[[], None]


class CallbackQueue:
    """Functions to be called on the thread of an event loop.

    The loop watches :meth:`fileno`, and calls :meth:`run` when it is readable.
    """

    def __init__(self) -> None:
        self._functions: deque[Function] = deque()
        self._lock = threading.Lock()
        self._signalled = False
        self._closed = False
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def fileno(self) -> int:
        """A file descriptor that is readable while functions wait."""
        return self._read

    def __len__(self) -> int:
        """The number of functions that wait."""
        return len(self._functions)

    def put(self, function: Function) -> None:
        """Append a function. Any thread may call this; after :meth:`close` it has no
        effect."""
        with self._lock:
            if self._closed:
                return
            self._functions.append(function)
            if not self._signalled:
                self._signalled = True
                os.write(self._write, b"x")

    def run(self, limit: int = 100, seconds: float = 0.005) -> int:
        """Call functions, in the order of :meth:`put`, and return their number: at
        most ``limit``, and none after the first that ends ``seconds`` or more after
        the call. ``fileno`` stays readable while more functions wait.

        An exception of a function is raised; the functions after it stay in the queue.
        """
        deadline = time.monotonic() + seconds
        for count in range(limit):
            with self._lock:
                if not self._functions:
                    self._reset()
                    return count
                function = self._functions.popleft()
            function()
            if time.monotonic() >= deadline:
                return count + 1
        return limit

    def close(self) -> None:
        """Drop the functions that still wait. Only the loop's thread may call this."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._functions.clear()
                os.close(self._read)
                os.close(self._write)

    def _reset(self) -> None:
        if self._signalled and not self._closed:
            self._signalled = False
            os.read(self._read, 1)
