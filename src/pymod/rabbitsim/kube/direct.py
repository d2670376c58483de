# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
""":class:`flux_k8s.ports.Kube` straight on a store, for virtual time.

No thread and no I/O: every request, answer and watch event travels by a timer
of the clock that was given. With a :class:`rabbitsim.loop.VirtualLoop` and a
seed a run is the same each time.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Callable, Optional, Union

import msgspec
from msgspec import to_builtins

from flux_k8s.control.backoff import Backoff
from flux_k8s.kube.cache import Cache, Event, identify
from flux_k8s.ports import (
    Clock,
    Encoded,
    Json,
    Kind,
    Kube,
    KubeDone,
    KubeError,
    Request,
    WatchHandler,
)
from rabbitsim.kube.errors import ApiError
from rabbitsim.kube.podlogs import read_log
from rabbitsim.kube.routes import Target
from rabbitsim.kube.store import Store
from rabbitsim.kube.watch import StoreWatch

_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 30.0


@dataclass(frozen=True)
class Fault:
    """A fault of a request.

    Attributes:
        delay: seconds that it takes longer.
        error: the answer instead of the true one.
        answer: likewise: what a proxy makes of it, say. Of a watch: the list with which
            it begins, if there is something in it.
        carried_out: with ``error`` or ``answer``: the request was carried out all the
            same, and only its answer was lost.
    """

    delay: float = 0.0
    error: Optional[KubeError] = None
    carried_out: bool = False
    answer: Optional[Json] = None


Faults = Callable[[Request], Optional[Fault]]

Guard = Callable[[str, Target], None]
"""Raises ApiError 403 for a verb that is not allowed on a target; see
:func:`rabbitsim.kube.routes.authorize`."""

Call = Callable[[], None]

_Pending = tuple[Request, Callable[[Any], None]]
"""A request, and who gets the answer."""


def kube_error(error: ApiError) -> KubeError:
    return KubeError(error.code, error.reason, error.message)


class DirectKube(Kube):
    """Kubernetes without a network.

    Args:
        clock: carries requests, answers and events.
        latency: seconds for one way; asked anew for every message. Messages of
            one key, and events of one watch, stay in order all the same.

    Attributes:
        faults: asked about every request when it arrives; returns None when
            all is well. What a watch sends, lists too, is a ``watch``, which has a
            ``token`` when it goes on, and does not begin with a list.
        guard: refuses what the client may not do; without it, it may do all.
        copy: makes the client's own object of an answer. A client that changes nothing
            that it gets may do without.
        encode: makes JSON of an object that a watch shows. A client that changes
            nothing may do without.
        sent: called with each request when the client sends it.
        listed: called with each list with which a watch begins.
        receive: calls the function that reads what a watch has sent.
        deliver: calls a function of the client with an answer (the first argument is
            ``answer``) or with what a watch has shown (the plural of its kind).
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        latency: Callable[[], float] = lambda: 0.0,
        faults: Optional[Faults] = None,
    ) -> None:
        self.store = store
        self.clock = clock
        self.latency = latency
        self.faults = faults
        self.guard: Optional[Guard] = None
        self.copy: Callable[[Any], Any] = to_builtins
        self.encode: Callable[[Any], Encoded] = msgspec.json.encode
        self.sent: Callable[[Request], None] = lambda request: None
        self.listed: Callable[[Json], None] = lambda page: None
        self.receive: Callable[[Call], None] = lambda call: call()
        self.deliver: Callable[[str, Call], None] = lambda what, call: call()
        self._queues: dict[str, deque[_Pending]] = {}
        self._watches: dict[int, DirectWatch] = {}

    def send(self, request: Request, done: KubeDone, *, key: str) -> None:
        """Send a request after those of the same key."""
        self.sent(request)
        queue = self._queues.get(key)
        request = replace(request, body=to_builtins(request.body))
        if queue is not None:
            queue.append((request, done))
            return
        self._queues[key] = deque([(request, done)])
        self._send_first(key)

    def watch(
        self,
        kind: Kind,
        namespace: Optional[str],
        handler: WatchHandler,
    ) -> DirectWatch:
        watch = DirectWatch(self, kind, namespace, handler)
        self._watches[id(watch)] = watch
        watch.open()
        return watch

    @property
    def watched(self) -> frozenset[Kind]:
        """The kinds of objects that are watched."""
        return frozenset(watch.kind for watch in self._watches.values())

    def drop_watches(self, error: Optional[KubeError] = None) -> None:
        """Break every watch. Each tells its handler, and opens again after a
        while; what happens meanwhile it learns from a new list."""
        for watch in tuple(self._watches.values()):
            watch.drop(error or KubeError(0, "Dropped", "the connection was lost"))

    def end_watches(self) -> None:
        """Have the server end every watch, as it does every few minutes."""
        for watch in tuple(self._watches.values()):
            watch.end()

    def silence_watches(self, kind: Optional[Kind] = None) -> None:
        """Nothing comes through any watch, or any of a kind, from now on, and nobody
        notices, until they are dropped."""
        for watch in tuple(self._watches.values()):
            if kind is None or watch.kind == kind:
                watch.silence()

    def show(self, kind: Kind, type: str, object: Json) -> None:
        """Have each watch of a kind show this, whatever is stored: a server may lag,
        and an object may have any content."""
        for watch in tuple(self._watches.values()):
            if watch.kind == kind:
                watch.show(type, object)

    def fault(self, request: Request) -> Optional[Fault]:
        return None if self.faults is None else self.faults(request)

    def forget_watch(self, watch: DirectWatch) -> None:
        self._watches.pop(id(watch), None)

    def _send_first(self, key: str) -> None:
        """Send what waits at the head of a queue; it stays there until it is
        answered, so that the next one waits."""
        self.clock.call_later(self.latency(), lambda: self._arrive(key))

    def _arrive(self, key: str) -> None:
        request, _ = self._queues[key][0]
        fault = self.fault(request) or Fault()
        answer: Any = fault.answer if fault.error is None else fault.error
        if answer is None or fault.carried_out:
            outcome = self._carry_out(request)
            answer = outcome if answer is None else answer
        delay = fault.delay + self.latency()
        self.clock.call_later(delay, lambda: self._answer(key, answer))

    def _answer(self, key: str, answer: Any) -> None:
        queue = self._queues[key]
        _, done = queue.popleft()
        if queue:
            self._send_first(key)
        else:
            del self._queues[key]
        self.deliver("answer", lambda: done(answer))

    def _carry_out(self, request: Request) -> Any:
        try:
            return self.copy(self._call(request))
        except ApiError as error:
            return kube_error(error)

    def check(self, verb: str, request: Request, subresource: str = "") -> None:
        """Raises ApiError 403 when the client may not do this."""
        if self.guard is not None:
            kind = (request.kind.group, request.kind.plural)
            resource = self.store.kinds.resources[kind]
            name = request.name or ""
            self.guard(verb, Target(resource, request.namespace, name, subresource))

    def _call(self, request: Request) -> Union[Json, str]:
        store, kind = self.store, request.kind
        verb, sub = {"log": ("get", "log"), "patch_status": ("patch", "status")}.get(
            request.verb, (request.verb, "")
        )
        self.check(verb, request, sub)
        if request.verb == "list":
            return store.list(
                kind,
                request.namespace,
                label_selector=request.label_selector,
                limit=request.limit,
                token=request.token,
            )
        namespace, name = request.namespace or "", request.name or ""
        if request.verb == "log":
            log = read_log(store, namespace, name, request.container)
            return log[-request.characters :]
        if request.verb == "get":
            return store.get(kind, namespace, name)
        if request.verb == "delete":
            return store.delete(kind, namespace, name, uid=request.uid)
        body = request.body
        if request.verb == "create":
            return store.create(kind, namespace, body)
        if isinstance(body, list):
            return store.json_patch(kind, namespace, name, body, subresource=sub)
        return store.merge_patch(kind, namespace, name, body, subresource=sub)


class DirectWatch:
    """One watch of a :class:`DirectKube`: list, then events, and again after
    every trouble.

    It stands in for :class:`flux_k8s.kube.watch.Informer`. What it
    receives goes through the same :class:`~flux_k8s.kube.cache.Cache`.
    """

    def __init__(
        self,
        kube: DirectKube,
        kind: Kind,
        namespace: Optional[str],
        handler: WatchHandler,
    ) -> None:
        self._kube = kube
        self.kind = kind
        self._request = Request("watch", kind, namespace)
        self._handler = handler
        self._cache = Cache()
        self._mail: deque[tuple[float, Callable[[], None]]] = deque()
        self._carrying = False
        self._source: Optional[StoreWatch] = None
        self._backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        self._connection = 0
        self._connected = False
        self._silent = False
        self._stopped = False

    def stop(self) -> None:
        self._stopped = True
        self._close()
        self._kube.forget_watch(self)

    def drop(self, error: KubeError) -> None:
        """Lose the connection, with all that is still under way on it."""
        if self._connected and not self._stopped:
            self._close()
            self._fail(error, 0.0)

    def end(self) -> None:
        """Have the server end the watch, with a bookmark. It is opened again from
        there, without a list."""
        if self._source is None or self._silent:
            return
        self._source.stop()
        self._source = None
        version = str(self._kube.store.version)
        bookmark = {"metadata": {"resourceVersion": version}}
        self._send("BOOKMARK", bookmark)
        self._post(self.open)

    def silence(self) -> None:
        """Lose the other end without noticing: nothing comes any more, until
        ``drop``."""
        self._silent = self._connected
        if self._source is not None:
            self._source.stop()

    def open(self) -> None:
        self._after(self._kube.latency(), self._connect)

    def _close(self) -> None:
        self._connection += 1
        self._connected = self._silent = False
        self._mail.clear()
        if self._source is not None:
            self._source.stop()
            self._source = None

    def _after(self, delay: float, function: Callable[[], None]) -> None:
        """Call ``function`` unless the watch was closed or silenced meanwhile."""
        connection = self._connection

        def call() -> None:
            if connection == self._connection and not (self._stopped or self._silent):
                function()

        self._kube.clock.call_later(delay, call)

    def _connect(self) -> None:
        request = replace(self._request, token=self._cache.resource_version or "")
        fault = self._kube.fault(request) or Fault()
        if fault.error is not None:
            self._fail(fault.error, fault.delay + self._kube.latency())
            return
        self._connected = True
        if fault.delay:
            self._after(fault.delay, partial(self._arrive, fault.answer))
        else:
            self._arrive(fault.answer)

    def _arrive(self, answer: Optional[Json]) -> None:
        try:
            if self._cache.resource_version:
                self._watch()
            else:
                self._list(answer)
        except ApiError as error:
            self._fail(kube_error(error), self._kube.latency())

    def _fail(self, error: KubeError, delay: float) -> None:
        self._close()

        def report() -> None:
            self._after(self._backoff.fail(error.retry_after), self._connect)
            if self._cache.note_error(error):
                self._hand(lambda: self._handler.trouble(error))

        self._after(delay, report)

    def _list(self, answer: Optional[Json]) -> None:
        self._kube.check("list", self._request)
        page = answer or self._kube.store.list(
            self._request.kind, self._request.namespace
        )
        self._kube.listed(page)
        version = page["metadata"]["resourceVersion"]
        items = [self._kube.encode(item) for item in page["items"]]
        self._post(lambda: self._take_list(items, version))

    def _watch(self) -> None:
        self._kube.check("watch", self._request)
        self._source = self._kube.store.watch(
            self._request.kind,
            self._request.namespace,
            lambda event: self._send(event.type, event.object),
            resource_version=self._cache.resource_version,
        )
        self._backoff.reset()

    def _send(self, type: str, object: Json) -> None:
        encoded = self._kube.encode(object)
        self._post(lambda: self._take(type, encoded))

    def _post(self, call: Callable[[], None]) -> None:
        """Deliver by timer, not before what was posted earlier."""
        due = self._kube.clock.now() + self._kube.latency()
        if self._mail:
            due = max(due, self._mail[-1][0])
        self._mail.append((due, call))
        if not self._carrying:
            self._carry()

    def _carry(self) -> None:
        """One timer is enough: events stay in order whatever the clock does
        with timers that are due at the same moment."""
        self._carrying = True
        delay = max(0.0, self._mail[0][0] - self._kube.clock.now())
        self._kube.clock.call_later(delay, self._hand_over)

    def _hand_over(self) -> None:
        self._carrying = False
        if self._mail and self._mail[0][0] > self._kube.clock.now():
            self._carry()  # this timer was started for mail that is gone
        elif self._mail:
            _, call = self._mail.popleft()
            # A handler that fails must not keep the next event from coming.
            try:
                self._kube.receive(call)
            finally:
                if self._mail and not self._carrying:
                    self._carry()

    def show(self, type: str, object: Json) -> None:
        """Show an event that nobody has made."""
        encoded = self._kube.encode(object)
        self._post(lambda: self._deliver([(type, identify(encoded))]))

    def _take_list(self, items: list[Encoded], version: str) -> None:
        self._cache.begin_list()
        events = self._cache.add_page(items)
        try:
            events += self._cache.end_list(version)
        except KubeError as error:
            self._fail(error, 0.0)
            return
        self.open()
        self._deliver(events)
        self._hand(self._handler.synced)

    def _take(self, type: str, encoded: Encoded) -> None:
        self._deliver(self._cache.add_event(type, encoded))
        self._cache.watch_worked()

    def _deliver(self, events: list[Event]) -> None:
        for type, object in events:
            self._hand(partial(self._handler.event, type, object))

    def _hand(self, call: Call) -> None:
        """Have the client called, unless it has stopped the watch before."""

        def hand() -> None:
            if not self._stopped:
                call()

        self._kube.deliver(self.kind.plural, hand)
