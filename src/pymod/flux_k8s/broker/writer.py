# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Writes to the log and to the KVS, on a thread.

A Flux handle waits while its socket is full. Many writes at a time (the records of a
hundred jobs) would hold up the reactor. So a thread of its own, with a handle of its
own, writes.
"""

from __future__ import annotations

import errno
import queue
import syslog
import threading
import time
from collections import deque
from functools import partial
from typing import Any, Callable, Optional, Sequence

import flux.kvs
from flux.core.inner import lib

import flux
from flux_k8s.broker.log import log
from flux_k8s.reasons import Reason, log_line

INTERVAL = 0.05
"""Seconds from one commit that a job waits for to the next. When many jobs end at once,
they share commits: each is a millisecond or two of work for the broker."""

Write = Callable[[Any], None]
"""Writes something with the Flux handle that it is called with."""

Puts = Sequence[tuple[str, Optional[str]]]
"""Keys and values. The value None removes the key."""

Committed = Callable[[Optional[OSError]], None]
"""Receives None after success, else the error."""


def _stage(transaction: Any, puts: Puts) -> dict[str, OSError]:
    """Add writes to a transaction. Return the error of each that cannot be added."""
    failures: dict[str, OSError] = {}
    for path, value in puts:
        try:
            if value is None:
                transaction.unlink(path)
            else:
                transaction.put(path, value, raw=True)
        except OSError as error:
            failures[path] = error
        except (TypeError, ValueError) as error:  # such as a text that has no encoding
            failures[path] = OSError(errno.EINVAL, str(error))
    return failures


class Writer:
    """Writes on its thread, in the order of the calls.

    Args:
        name: the module's name, for the lines of the log.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: queue.SimpleQueue[Optional[Write]] = queue.SimpleQueue()
        self._waiting: deque[tuple[Puts, Optional[Committed]]] = deque()
        self._awaited = 0.0
        """When the last commit that a job waits for began, by the monotonic clock."""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def log(self, level: int, text: str) -> None:
        """Write a line to the log, at a level of :mod:`syslog`."""
        self._tasks.put(partial(log, level=level, text=text))

    def put(self, puts: Puts) -> None:
        """Have the next commit write to keys of the KVS. A failure is logged."""
        self._waiting.append((puts, None))

    def commit(self, puts: Puts, committed: Optional[Committed] = None) -> None:
        """Write to keys of the KVS, with what was put before.

        Args:
            committed: is called on the writer's thread. Without it a failure is logged.
        """
        self._waiting.append((puts, committed))
        self._tasks.put(self._commit if committed is None else self._commit_awaited)

    def close(self, timeout: float) -> None:
        """Wait until all is written, for at most ``timeout`` seconds."""
        self._tasks.put(None)
        self._thread.join(timeout)

    def _run(self) -> None:
        handle = flux.Flux()
        lib.flux_log_set_appname(handle.handle, self._name.encode())
        for task in iter(self._tasks.get, None):
            task(handle)

    def _commit_awaited(self, handle: Any) -> None:
        if self._waiting:  # else an earlier call has committed them
            time.sleep(max(0.0, self._awaited + INTERVAL - time.monotonic()))
            self._awaited = time.monotonic()
            self._commit(handle)

    def _commit(self, handle: Any) -> None:
        """Write all that waits in one commit, which costs as much as a commit of one
        write."""
        transaction = flux.kvs.KVSTxn(handle)
        commits = [self._waiting.popleft() for _ in range(len(self._waiting))]
        if not commits:  # an earlier call has committed them
            return
        unstaged = [_stage(transaction, puts) for puts, _ in commits]
        failed = None
        try:
            transaction.commit()
        except OSError as error:
            failed = error
        for (puts, committed), failures in zip(commits, unstaged):
            if failed is not None:
                failures = {**{path: failed for path, _ in puts}, **failures}
            failure = next(iter(failures.values()), None)
            if committed is not None:
                committed(failure)
            elif failure is not None:
                paths = ", ".join(failures)
                text = f"cannot write {paths}: {failure}"
                log(handle, syslog.LOG_WARNING, log_line(text, Reason.FLUX_ERROR))
