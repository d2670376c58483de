# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""A few threads that carry out the tasks of many queues."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Callable

Task = Callable[[], None]


class Workers:
    """Carries out tasks on ``count`` daemon threads.

    Tasks with the same key are carried out one after the other, in the order of
    :meth:`submit`. Keys take turns: a key with many tasks does not delay the others.

    Args:
        name: the beginning of the threads' names.
    """

    def __init__(self, count: int, name: str) -> None:
        self._count = count
        self._name = name
        self._threads: list[threading.Thread] = []
        self._changed = threading.Condition()
        self._queues: dict[str, deque[Task]] = {}
        self._turns: deque[str] = deque()
        self._idle = 0
        self._closed = False

    def submit(self, key: str, task: Task) -> None:
        """Have ``task`` carried out. The task must not raise. After :meth:`close` the
        call has no effect."""
        with self._changed:
            if self._closed:
                return
            queue = self._queues.get(key)
            if queue is not None:
                queue.append(task)
                return
            self._queues[key] = deque((task,))
            self._turns.append(key)
            if self._idle >= len(self._turns):
                self._changed.notify()
            elif len(self._threads) < self._count:
                self._start_thread()

    def close(self, seconds: float) -> None:
        """Drop the tasks that wait. Wait up to ``seconds`` for those that run."""
        with self._changed:
            self._closed = True
            self._queues.clear()
            self._turns.clear()
            self._changed.notify_all()
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(deadline - time.monotonic(), 0.0))

    def _start_thread(self) -> None:
        thread = threading.Thread(
            target=self._work, name=f"{self._name}-{len(self._threads)}", daemon=True
        )
        self._threads.append(thread)
        thread.start()

    def _work(self) -> None:
        with self._changed:
            while True:
                while not self._turns and not self._closed:
                    self._idle += 1
                    self._changed.wait()
                    self._idle -= 1
                if self._closed:
                    return
                key = self._turns.popleft()
                task = self._queues[key].popleft()
                self._changed.release()
                try:
                    task()
                finally:
                    self._changed.acquire()
                self._end_turn(key)

    def _end_turn(self, key: str) -> None:
        queue = self._queues.get(key)
        if queue:
            self._turns.append(key)
            self._changed.notify()
        elif queue is not None:
            del self._queues[key]
