# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Watches: the objects of a cluster as a stream of events.

Each watch has three parts. The :class:`Informer` lists, watches, and lists again after
an error. Its :class:`~flux_k8s.kube.cache.Cache` drops events that
change nothing. Its :class:`~flux_k8s.kube.eventqueue.EventQueue` delivers the rest.

Lists come in pages, and events are delivered in portions: neither the parser of a long
list nor its delivery keeps the service busy for long.
"""

from __future__ import annotations

import random
import syslog
import time
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Optional, TypeVar

from msgspec import Raw, Struct
from msgspec import field as renamed

from flux_k8s.control.backoff import Backoff
from flux_k8s.control.coroutines import Call, drive
from flux_k8s.control.kubecalls import check_list
from flux_k8s.errors import BadObject
from flux_k8s.kube.api import Api
from flux_k8s.kube.cache import Cache, Event
from flux_k8s.kube.eventqueue import EventQueue
from flux_k8s.kube.transfer import Transfer
from flux_k8s.kube.transfers import Transfers
from flux_k8s.objects.decoding import Filled, decode
from flux_k8s.ports import BAD_RESPONSE, Kind, KubeError, Log, Request, WatchHandler
from flux_k8s.reasons import Reason

T = TypeVar("T")

PAGE = 100
"""Objects per page of a list."""

GRACE = 10.0
"""Seconds that the server may take longer to end a watch than it was asked to."""

STEADY = 60.0
"""Seconds after which a watch that has delivered something has worked. One that is cut
again and again may deliver some events each time."""

LONGEST_LINE = 32 * 1024 * 1024
"""Bytes of an event. etcd takes no object of more than a few MiB."""

FIRST_PAUSE = 0.2
LONGEST_PAUSE = 15.0
"""Seconds after a list or a watch has failed. The pauses begin anew after a watch that
has lasted for so long. A proxy may cut each watch as soon as something has arrived."""


class Informer:
    """A watch, which lists and watches until :meth:`stop`.

    Args:
        watchers: has what all watches share.
        namespace: None for all namespaces.
    """

    def __init__(
        self,
        watchers: Watchers,
        kind: Kind,
        namespace: Optional[str],
        handler: WatchHandler,
    ) -> None:
        self._shared = watchers
        self._kind = kind
        self._objects = Request("list", kind, namespace)
        self._queue = EventQueue(handler, watchers.transfers.call)
        self._cache = Cache()
        self._backoff = Backoff(FIRST_PAUSE, LONGEST_PAUSE, watchers.rng)
        self._ended_early = False
        self._refused: Optional[KubeError] = None
        self._refusal_told = False
        self._stopped = False
        self._transfer: Optional[Transfer] = None
        watchers.transfers.call(lambda: drive(self._run(), _ignore, ()))

    @property
    def stopped(self) -> bool:
        """Whether :meth:`stop` was called."""
        return self._stopped

    def stop(self) -> None:
        """End the watch. Nothing is delivered afterwards."""
        self._queue.close()
        self._stopped = True
        if self._transfer is not None:
            self._transfer.interrupt()

    def _begun(self, transfer: Transfer) -> None:
        self._transfer = transfer
        if self.stopped:
            transfer.interrupt()

    async def _run(self) -> None:
        while not self.stopped:
            delay = 0.0
            try:
                if not self._cache.resource_version:
                    await self._list()
                if not self.stopped and not await self._watch():
                    delay = self._backoff.fail()
            except KubeError as error:
                delay = self._recover(error)
            except Exception as error:
                problem = KubeError(0, "InternalError", type(error).__name__)
                delay = self._recover(problem)
            if not self.stopped:
                await self._shared.transfers.sleep(delay)

    def _recover(self, error: KubeError) -> float:
        """Prepare for a new list after an error. Return the seconds to wait before
        it."""
        watched = bool(self._cache.resource_version)
        told = self._cache.note_error(error)
        if told:
            self._queue.put_trouble(error)
        failures = self._cache.watch_failures
        if told:
            self._refused = None  # its user knows
        elif watched and failures > 1:
            self._refused = error
        self._refusal_told = self._refusal_told and failures > 1
        return self._backoff.fail(error.retry_after)

    def _listed(self) -> None:
        """A list is complete. Say so if it follows one watch after the other that has
        failed."""
        if self._refused is not None and not self._refusal_told:
            self._refusal_told = True
            text = f"cannot watch {self._kind.plural}, and lists them: {self._refused}"
            self._shared.log(syslog.LOG_WARNING, text, Reason.OBJECTS_UNSEEN)
        self._queue.put_synced()

    async def _list(self) -> None:
        self._cache.begin_list()
        request = replace(self._objects, limit=PAGE)
        while not self.stopped:
            answer = await self._shared.api.fetch(request)
            page = _decode(_Page, answer, "the answer is not a list")
            check_list(self._kind, page.kind)
            self._queue.put_events(self._cache.add_page(map(bytes, page.items or ())))
            # The next page comes while this one is delivered, and no sooner: its JSON
            # takes many times the memory of what the service keeps of it.
            await self._fewer_than(PAGE)
            if not page.metadata.token:
                events = self._cache.end_list(page.metadata.resource_version)
                self._queue.put_events(events)
                self._listed()
                return
            request = replace(request, token=page.metadata.token)

    async def _watch(self) -> bool:
        """Watch until the server ends the watch, as it does every few minutes. One that
        ends as it began, such as that of a server that ends, is opened again soon: if
        that fails as well, its error says more.

        Returns:
            Whether the watch has lasted.
        """
        await self._fewer_than(self._queue.CAPACITY)
        timeout = self._shared.timeout * self._shared.rng.uniform(1.0, 1.2)
        seconds = max(int(timeout), 1)
        lasting = min(LONGEST_PAUSE, 0.9 * seconds)
        query = {
            "resourceVersion": self._cache.resource_version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(seconds),
        }
        lines = _Lines()
        quiet = True

        def receive(transfer: Transfer, data: bytes) -> None:
            nonlocal quiet
            quiet = False
            self._take(lines.split(data))
            if self._queue.full:
                transfer.pause()
                self._queue.when_fewer(self._queue.CAPACITY, transfer.resume)

        opened = time.monotonic()
        try:
            await self._shared.api.watch(
                self._objects,
                receive,
                begun=self._begun,
                query=query,
                read_timeout=timeout + GRACE,
            )
        finally:
            self._transfer = None
            lasted = time.monotonic() - opened
            if lasted >= lasting:
                self._backoff.reset()
            if not quiet and lasted >= STEADY:
                self._cache.watch_worked()
        if lines.unfinished:
            raise KubeError(
                0, "ConnectionLost", "the connection was cut in the middle of an event"
            )
        again = self._ended_early
        self._ended_early = quiet and lasted < 1.0
        if not self._ended_early:
            self._cache.watch_worked()
        elif again:
            raise KubeError(0, "ConnectionLost", "the watch ended as it began")
        return lasted >= lasting

    def _take(self, lines: list[bytes]) -> None:
        events: list[Event] = []
        try:
            for line in lines:
                event = _decode(_Event, line, "the watch sent what is no event")
                events += self._cache.add_event(event.type, bytes(event.object))
        finally:
            self._queue.put_events(events)

    def _fewer_than(self, count: int) -> Call[None]:
        """Wait until fewer events than that wait for their delivery."""
        return Call(lambda answer: self._queue.when_fewer(count, partial(answer, None)))


class _Event(Struct):
    type: str
    object: Raw


class _PageMetadata(Struct):
    resource_version: Filled = renamed(name="resourceVersion")
    token: Optional[str] = renamed(name="continue", default=None)


class _Page(Struct):
    kind: str
    metadata: _PageMetadata
    items: Optional[list[Raw]] = None
    """An empty list may be null."""


def _decode(kind: type[T], text: bytes, problem: str) -> T:
    """Raises KubeError with the problem where the text is something else."""
    try:
        return decode(kind, text, "")
    except BadObject:
        raise KubeError(0, BAD_RESPONSE, problem) from None


def _ignore(result: None) -> None:
    """The watch was stopped."""


class _Lines:
    """Splits a stream into lines."""

    def __init__(self) -> None:
        self._rest = bytearray()

    @property
    def unfinished(self) -> bool:
        """Whether the last line has not ended."""
        return bool(self._rest)

    def split(self, data: bytes) -> list[bytes]:
        """The lines that end in the next part of the stream, without empty ones.

        Raises:
            KubeError: a line is too long.
        """
        if b"\n" not in data:
            # A long line has many parts: it is not copied with each of them.
            self._rest += data
            if len(self._rest) > LONGEST_LINE:
                raise KubeError(
                    0, BAD_RESPONSE, "the watch sent an event that is too long"
                )
            return []
        *lines, rest = (bytes(self._rest) + data).split(b"\n")
        self._rest = bytearray(rest)
        return [line for line in lines if line]


@dataclass
class Watchers:
    """All watches of a client.

    Attributes:
        rng: the source of jitter.
        timeout: seconds after which a watch is opened again, without a list.
        log: logs a line.
    """

    transfers: Transfers
    api: Api
    rng: random.Random
    timeout: float
    log: Log
    _informers: list[Informer] = field(default_factory=list)

    def watch(
        self,
        kind: Kind,
        namespace: Optional[str],
        handler: WatchHandler,
    ) -> Informer:
        """Start a watch, as :meth:`flux_k8s.ports.Kube.watch` describes it."""
        informer = Informer(self, kind, namespace, handler)
        self._informers = [i for i in self._informers if not i.stopped] + [informer]
        return informer

    def stop(self) -> None:
        """Stop all watches."""
        for informer in self._informers:
            informer.stop()
