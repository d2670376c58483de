# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The queue from a watch to its handler."""

from __future__ import annotations

import gc
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Callable, Optional

from flux_k8s.kube.cache import Event, ObjectKey
from flux_k8s.ports import KubeError, Seen, WatchHandler


class EventQueue:
    """Delivers the events of a watch to its handler.

    One call of ``deliver`` serves many events: up to ``PORTION`` events, for about
    ``SECONDS`` seconds, are delivered before other work has its turn. A MODIFIED that
    waits is replaced by a newer one of the same object, so that a service which falls
    behind catches up. When ``CAPACITY`` events wait, the queue is ``full``, and whoever
    puts events into it is to wait with ``when_fewer``.

    After ``COLLECTED`` events the garbage collector looks at what is new. By itself it
    would not: it counts the objects that were made since less those that were freed,
    and more of an event is freed, its JSON, than what the service keeps of it. When it
    came it would hold up the service for the objects of all ten thousand Workflows.
    """

    PORTION = 50
    SECONDS = 0.002
    CAPACITY = 10_000
    COLLECTED = 100

    def __init__(
        self,
        handler: WatchHandler,
        deliver: Callable[[Callable[[], None]], None],
    ) -> None:
        self._handler = handler
        self._deliver = deliver
        self._waiting: deque[_QueuedEvent] = deque()
        self._latest: dict[ObjectKey, _QueuedEvent] = {}
        self._scheduled = False
        self._uncollected = 0
        self._closed = False
        self._when_fewer: list[tuple[int, Callable[[], None]]] = []

    @property
    def full(self) -> bool:
        """Whether as many events wait as may."""
        return len(self._waiting) >= self.CAPACITY

    def when_fewer(self, count: int, function: Callable[[], None]) -> None:
        """Call a function when fewer than ``count`` events wait: at once, or later.
        After :meth:`close` it is not called any more."""
        if self._closed:
            return
        if len(self._waiting) < count:
            function()
        else:
            self._when_fewer.append((count, function))

    def put_events(self, events: Iterable[Event]) -> None:
        """Have ``handler.event`` called for each event."""
        self._put([_QueuedEvent(type, object) for type, object in events])

    def put_synced(self) -> None:
        """Have ``handler.synced`` called."""
        self._put([_QueuedEvent("synced")])

    def put_trouble(self, error: KubeError) -> None:
        """Have ``handler.trouble`` called."""
        self._put([_QueuedEvent("trouble", error=error)])

    def close(self) -> None:
        """Deliver nothing more."""
        self._closed = True
        self._waiting.clear()
        self._latest.clear()
        self._when_fewer.clear()

    def _put(self, items: list[_QueuedEvent]) -> None:
        if self._closed or not items:
            return
        for item in items:
            self._enqueue(item)
        if not self._scheduled:
            self._scheduled = True
            self._deliver(self._deliver_portion)

    def _enqueue(self, item: _QueuedEvent) -> None:
        if item.object is not None:
            key = item.object.namespace, item.object.name
            latest = self._latest.get(key)
            if item.type == "MODIFIED" and latest and latest.type != "DELETED":
                latest.object = item.object
                return
            item.key = key
            self._latest[key] = item
        self._waiting.append(item)

    def _take(self) -> Optional[_QueuedEvent]:
        if not self._waiting:
            return None
        item = self._waiting.popleft()
        if item.key is not None and self._latest.get(item.key) is item:
            del self._latest[item.key]
        if self._when_fewer:
            held, self._when_fewer = self._when_fewer, []
            for count, function in held:
                self.when_fewer(count, function)
        return item

    def _deliver_portion(self) -> None:
        if self._uncollected >= self.COLLECTED:
            self._uncollected = 0
            gc.collect(1)
        deadline = time.monotonic() + self.SECONDS
        try:
            for _ in range(self.PORTION):
                item = self._take()
                if item is None:
                    return
                self._uncollected += 1
                self._call_handler(item)
                if time.monotonic() >= deadline:
                    return
        finally:
            self._scheduled = bool(self._waiting)
            if self._scheduled:
                self._deliver(self._deliver_portion)

    def _call_handler(self, item: _QueuedEvent) -> None:
        if item.object is not None:
            self._handler.event(item.type, item.object)
        elif item.error is not None:
            self._handler.trouble(item.error)
        else:
            self._handler.synced()


@dataclass(eq=False)
class _QueuedEvent:
    """An event, or ``synced`` or ``trouble``, that waits for its delivery."""

    type: str
    object: Optional[Seen] = None
    error: Optional[KubeError] = None
    key: Optional[ObjectKey] = None
