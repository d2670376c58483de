# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""When a signal may interrupt the program."""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import Iterator

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def signals_held() -> Iterator[None]:
    """Have signals whose handlers are Python functions wait for the end of the block.

    Such a function may raise an exception at any moment, also when a process has been
    forked and ``Popen`` has not returned it: nobody would know it, and end it. That a
    thread blocks the signals is no help, as any other thread may receive them.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # Python's handlers run in the main thread only
        return
    handlers = {number: signal.getsignal(number) for number in _ENDING}
    held = {number: each for number, each in handlers.items() if callable(each)}
    came: list[int] = []
    try:
        for number in held:
            signal.signal(number, lambda sent, frame: came.append(sent))
        yield
    finally:
        for number, handler in held.items():
            signal.signal(number, handler)
        for each in came:
            signal.raise_signal(each)
