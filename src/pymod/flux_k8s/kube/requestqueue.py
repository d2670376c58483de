# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The order of requests, and how many are made at a time."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import Callable

Start = Callable[[Callable[[], None]], None]
"""Begins with a request. It gets the function to call when the request is over."""


class RequestQueue:
    """Begins with ``count`` requests at a time.

    Requests with the same key are made one after the other, in the order of
    :meth:`submit`. Keys take turns: a key with many requests does not delay the others.
    """

    def __init__(self, count: int) -> None:
        self._free = count
        self._queues: dict[str, deque[Start]] = {}
        self._turns: deque[str] = deque()
        self._starting = False

    def submit(self, key: str, start: Start) -> None:
        """Have ``start`` called when its turn has come."""
        queue = self._queues.get(key)
        if queue is not None:
            queue.append(start)
            return
        self._queues[key] = deque((start,))
        self._turns.append(key)
        self._start_some()

    def _start_some(self) -> None:
        if self._starting:
            return  # a request was over at once, in the loop below
        self._starting = True
        while self._free and self._turns:
            self._free -= 1
            key = self._turns.popleft()
            self._queues[key].popleft()(partial(self._end, key))
        self._starting = False

    def _end(self, key: str) -> None:
        self._free += 1
        if self._queues[key]:
            self._turns.append(key)
        else:
            del self._queues[key]
        self._start_some()
