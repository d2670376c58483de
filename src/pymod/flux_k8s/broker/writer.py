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
from typing import Any, Callable, Optional

import flux.kvs

from flux_k8s.broker.log import log, open_handle
from flux_k8s.reasons import Reason, log_line

INTERVAL = 0.05
"""Seconds from one commit that a job waits for to the next. When many jobs end at once,
they share commits: each is a millisecond or two of work for the broker."""

Write = Callable[[Any], None]
"""Writes something with the Flux handle that it is called with."""

Committed = Callable[[Optional[OSError]], None]
"""Receives None after success, else the error."""

Put = tuple[str, Optional[str], Optional[Committed]]
"""A key of the KVS, the value, or None to remove the key, and who waits for it."""


def _stage(transaction: Any, path: str, value: Optional[str]) -> Optional[OSError]:
    """Add a write to a transaction. Return why that cannot be done."""
    try:
        if value is None:
            transaction.unlink(path)
        else:
            transaction.put(path, value, raw=True)
    except OSError as error:
        return error
    except (TypeError, ValueError) as error:  # such as a text that has no encoding
        return OSError(errno.EINVAL, str(error))
    return None


class Writer:
    """Writes on its thread, in the order of the calls.

    Args:
        name: the module's name, for the lines of the log.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: queue.SimpleQueue[Optional[Write]] = queue.SimpleQueue()
        self._waiting: deque[Put] = deque()
        self._awaited = 0.0
        """When the last commit that a job waits for began, by the monotonic clock."""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def log(self, level: int, text: str) -> None:
        """Write a line to the log, at a level of :mod:`syslog`."""
        self._tasks.put(partial(log, level=level, text=text))

    def put(
        self, path: str, value: Optional[str], committed: Optional[Committed] = None
    ) -> bool:
        """Have the next commit write a key of the KVS, or remove it if the value is
        None. Return whether no other write waits for that commit.

        Args:
            committed: is called on the writer's thread. Without it a failure is logged.
        """
        self._waiting.append((path, value, committed))
        return len(self._waiting) == 1

    def commit(self, awaited: bool = False) -> None:
        """Commit what was put; if a job waits for that, with what others put within
        ``INTERVAL``."""
        self._tasks.put(self._commit_awaited if awaited else self._commit)

    def close(self, timeout: float) -> None:
        """Write all, and wait until that is done, for at most ``timeout`` seconds."""
        self.commit()
        self._tasks.put(None)
        self._thread.join(timeout)

    def _run(self) -> None:
        handle = open_handle(self._name)
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
        puts: list[Put] = []
        while self._waiting:  # to the end: what is put meanwhile has nobody else
            puts.append(self._waiting.popleft())
        if not puts:  # an earlier call has committed them
            return
        transaction = flux.kvs.KVSTxn(handle)
        errors = [_stage(transaction, path, value) for path, value, _ in puts]
        try:
            transaction.commit()
        except OSError as failure:
            errors = [error or failure for error in errors]
        lost: dict[str, OSError] = {}
        for (path, _, committed), error in zip(puts, errors):
            if committed is not None:
                committed(error)
            elif error is not None:
                lost[path] = error
        if lost:
            text = f"cannot write {', '.join(lost)}: {next(iter(lost.values()))}"
            log(handle, syslog.LOG_WARNING, log_line(text, Reason.FLUX_ERROR))
