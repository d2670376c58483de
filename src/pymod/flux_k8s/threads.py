# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What may block, on threads, so that the service does not wait."""

from __future__ import annotations

import errno
import queue
import threading
from functools import partial
from typing import Any, Callable

from flux_k8s.ports import Deliver

Function = Callable[[], Any]

Done = Callable[[Any], None]
"""Gets what a function has returned, or the Exception that it has raised."""


class Threads:
    """Calls functions that may block.

    Args:
        deliver: calls a function on the service's thread.
    """

    def __init__(self, deliver: Deliver) -> None:
        self._deliver = deliver
        self._queues: dict[str, queue.SimpleQueue[tuple[Function, Done]]] = {}

    def call(self, name: str, function: Function, done: Done) -> None:
        """Have a thread call a function, and the service's thread ``done``.

        Args:
            name: of the thread, which calls one function after the other.
        """
        if name not in self._queues:
            calls: queue.SimpleQueue[tuple[Function, Done]] = queue.SimpleQueue()
            thread = threading.Thread(target=self._run, args=(calls,), daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # there may be no more of them
                self._deliver(partial(done, OSError(errno.EAGAIN, str(error))))
                return
            self._queues[name] = calls
        self._queues[name].put((function, done))

    def _run(self, calls: queue.SimpleQueue[tuple[Function, Done]]) -> None:
        while True:
            function, done = calls.get()
            try:
                result = function()
            except Exception as error:
                result = error
            self._deliver(partial(done, result))
            del function, done, result  # they may be large
