# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What the service writes and gets no answer to: lines of the log, and the KVS.

A handle sends a message before it returns, and waits while its socket is full. Where
much is written (the records of a hundred jobs) that would hold up the reactor. So a
thread writes, on a handle of its own.
"""

from __future__ import annotations

import errno
import queue
import syslog
import threading
from collections import deque
from functools import partial
from typing import Any, Callable, Optional, Sequence

import flux.kvs
from flux.core.inner import lib

import flux

from .log import log

Write = Callable[[Any], None]

Puts = Sequence[tuple[str, Optional[str]]]
"""Keys and values; None removes the key."""

Committed = Callable[[Optional[OSError]], None]


def _stage(transaction: Any, puts: Puts) -> Optional[OSError]:
    """Add to a transaction. What cannot be added spares the others in it."""
    try:
        for path, value in puts:
            if value is None:
                transaction.unlink(path)
            else:
                transaction.put(path, value, raw=True)
    except OSError as error:
        return error
    except (TypeError, ValueError) as error:  # a text that cannot be encoded, say
        return OSError(errno.EINVAL, str(error))
    return None


class Writer:
    """Writes in the order of the calls.

    Args:
        name: whose lines they are.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: queue.SimpleQueue[Optional[Write]] = queue.SimpleQueue()
        self._waiting: deque[tuple[Puts, Optional[Committed]]] = deque()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def log(self, level: int, text: str) -> None:
        self._tasks.put(partial(log, level=level, text=text))

    def commit(self, puts: Puts, committed: Optional[Committed] = None) -> None:
        """Write to keys of the KVS.

        Args:
            committed: gets None, or why it failed, on the writer's thread. Without it
                a failure is logged.
        """
        self._waiting.append((puts, committed))
        self._tasks.put(self._commit)

    def close(self, timeout: float) -> None:
        """Wait until all is written, but not for longer than this."""
        self._tasks.put(None)
        self._thread.join(timeout)

    def _run(self) -> None:
        handle = flux.Flux()
        lib.flux_log_set_appname(handle.handle, self._name.encode())
        for task in iter(self._tasks.get, None):
            task(handle)

    def _commit(self, handle: Any) -> None:
        """Write all that waits, in one commit: it costs as much as one of them."""
        transaction = flux.kvs.KVSTxn(handle)
        commits = [self._waiting.popleft() for _ in range(len(self._waiting))]
        if not commits:  # an earlier call has taken it
            return
        failures = [_stage(transaction, puts) for puts, _ in commits]
        failed = None
        try:
            transaction.commit()
        except OSError as error:
            failed = error
        for (puts, committed), unstaged in zip(commits, failures):
            failure = unstaged or failed
            if committed is not None:
                committed(failure)
            elif failure is not None:
                paths = ", ".join(path for path, _ in puts)
                log(handle, syslog.LOG_WARNING, f"cannot write {paths}: {failure}")
