# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Kubernetes in trouble, as the service meets it."""

from __future__ import annotations

import random
from collections import deque
from typing import Any, Callable, Optional, Sequence, Union

from flux_k8s.formats.jobid import jobid_of_workflow
from flux_k8s.ports import (
    BAD_RESPONSE,
    DIRECTIVEBREAKDOWN,
    SERVERS,
    WORKFLOW,
    Clock,
    Json,
    Kind,
    KubeDone,
    KubeError,
    Request,
    Seen,
    WatchHandler,
)
from rabbitsim.kube.direct import DirectKube, DirectWatch, Fault, Faults
from rabbitsim.kube.store import Store
from rabbitsim.torture.trouble import Trouble

CLIENT_TIMEOUT = 30.0
"""Seconds after which a client gives up a request that gets no answer."""

ERRORS = {
    "refused": KubeError(0, "ConnectionRefused", "connection refused"),
    "hang": KubeError(0, "Timeout", "no answer in time"),
    "tls": KubeError(0, "TLS", "the certificate is not valid"),
    "malformed": KubeError(0, BAD_RESPONSE, "the answer is not a JSON object"),
    "truncated": KubeError(0, BAD_RESPONSE, "the answer ended early"),
    "lost": KubeError(0, "ConnectionLost", "the connection was lost"),
    "late": KubeError(0, "Timeout", "no answer in time"),
    "no-kind": KubeError(404, "PathNotFound", "the server does not serve this"),
    "401": KubeError(401, "Unauthorized", "Unauthorized"),
    "403": KubeError(403, "Forbidden", "workflows is forbidden"),
    "409": KubeError(409, "Conflict", "the object has been modified"),
    "410": KubeError(410, "Expired", "too old resource version"),
    "429": KubeError(429, "TooManyRequests", "please wait", retry_after=2.0),
    "500": KubeError(500, "InternalError", "etcd has no leader"),
    "502": KubeError(502, "BadGateway", "HTTP status 502 Bad Gateway"),
    "503": KubeError(503, "ServiceUnavailable", "the lights are out"),
    "504": KubeError(504, "Timeout", "the server was too slow"),
}
"""The faults of a request: a status, or trouble on the way."""

DONE_ALL_THE_SAME = ("malformed", "truncated", "lost", "504")
"""Answers that do not tell whether the request was carried out: half of them
were."""

WRITES = ("create", "patch", "patch_status", "delete")


class ApiTroubles:
    """Injects the present troubles of the API. They stay when the module is loaded
    again.

    Attributes:
        seen: is called with each request that arrives, and its fault.
        sent: is called with each request that is sent.
        late: the IDs of jobs whose Workflows were changed by a request after the
            service had given up waiting for its answer.
    """

    def __init__(self, clock: Clock, store: Store, rng: random.Random) -> None:
        self._clock = clock
        self._rng = rng
        self._straight = DirectKube(store, clock)
        self._present: list[tuple[Trouble, float]] = []
        self.seen: Callable[[Request, Optional[Fault]], None] = lambda *_: None
        self.sent: Callable[[Request], None] = lambda request: None
        self.late: set[int] = set()

    def add(self, trouble: Trouble) -> None:
        self._present.append((trouble, self._clock.now() + trouble.duration))

    def clear(self) -> None:
        self._present.clear()

    def inject(self, kind: str, whats: Sequence[str] = ()) -> Optional[Trouble]:
        """The trouble of a kind that is to be injected now, by the chance of each;
        None if there is none."""
        now = self._clock.now()
        self._present = [each for each in self._present if each[1] > now]
        for trouble, _ in self._present:
            if trouble.kind != kind or (whats and trouble.what not in whats):
                continue
            if trouble.chance >= 1.0 or self._rng.random() < trouble.chance:
                return trouble
        return None

    def fault(self, request: Request) -> Optional[Fault]:
        """The fault of a request of the service, or None."""
        trouble = self.inject("outage") or self.inject("api")
        fault = None if trouble is None else self._fault_of(trouble, request)
        self.seen(request, fault)
        return fault

    def _fault_of(self, trouble: Trouble, request: Request) -> Fault:
        what = trouble.what
        error = ERRORS[what]
        if what == "late" and request.verb in WRITES:
            wait = self._rng.uniform(0.0, 2.0 * CLIENT_TIMEOUT)
            self._clock.call_later(wait, lambda: self.carry_out(request))
        delay = CLIENT_TIMEOUT if what in ("hang", "late") else 0.0
        done = what in DONE_ALL_THE_SAME and self._rng.random() < 0.5
        return Fault(delay=delay, error=error, carried_out=done)

    def carry_out(self, request: Request) -> None:
        """Carry out a request whose answer is lost."""
        if request.verb not in WRITES:
            return
        if request.kind == WORKFLOW:
            body: Any = request.body
            name = request.name or body["metadata"]["name"]
            self.late.add(jobid_of_workflow(name) or 0)
        self._straight.send(request, lambda answer: None, key="late")

    def latency(self, most: float) -> float:
        seconds = self._rng.uniform(0.0, most) if most > 0 else 0.0
        trouble = self.inject("watch", ("delay",))
        return seconds if trouble is None else seconds + self._rng.uniform(0.0, 20.0)


class TroubledKube(DirectKube):
    """Kubernetes with injected faults: requests fail, and events come twice, or
    again when they are out of date."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        latency: Callable[[], float],
        faults: Faults,
        api_troubles: ApiTroubles,
    ) -> None:
        super().__init__(store, clock, latency, faults)
        self._api_troubles = api_troubles
        self._arrived: dict[int, Request] = {}

    def fault(self, request: Request) -> Optional[Fault]:
        self._arrived[id(request)] = request
        return super().fault(request)

    def send(self, request: Request, done: KubeDone, *, key: str) -> None:
        def answered(result: Union[Json, KubeError]) -> None:
            trouble = self._api_troubles.inject("unready")
            if trouble is not None and request.kind in (DIRECTIVEBREAKDOWN, SERVERS):
                if not isinstance(result, KubeError):
                    status = {"ready": False} if trouble.what == "false" else None
                    result = {**result, "status": status}
            done(result)

        got = answered if request.verb == "get" else done
        super().send(request, got, key=key)

    def on_the_way(self) -> list[Request]:
        """Requests that were sent and have not arrived."""
        first = [queue[0][0] for queue in self._queues.values()]
        return [request for request in first if id(request) not in self._arrived]

    def watch(
        self,
        kind: Kind,
        namespace: Optional[str],
        handler: WatchHandler,
    ) -> DirectWatch:
        troubled = _Handler(handler, self._api_troubles, self.clock)
        return super().watch(kind, namespace, troubled)


class _Handler:
    """A WatchHandler over another one, to which it passes events more than once, or
    not before the next list."""

    MEMORY = 8

    def __init__(
        self, handler: WatchHandler, api_troubles: ApiTroubles, clock: Clock
    ) -> None:
        self._handler = handler
        self._api_troubles = api_troubles
        self._clock = clock
        self._past: deque[tuple[str, Seen]] = deque(maxlen=self.MEMORY)
        self._missed: dict[tuple[str, str], tuple[str, Seen]] = {}

    def event(self, type: str, object: Seen) -> None:
        key = _key(object)
        if self._api_troubles.inject("watch", ("miss",)) is not None:
            self._missed[key] = type, object
            return
        self._missed.pop(key, None)
        self._handler.event(type, object)
        trouble = self._api_troubles.inject("watch", ("duplicate", "stale", "replay"))
        if trouble is not None:
            self._repeat(trouble.what, type, object)
        self._past.append((type, object))

    def _repeat(self, what: str, type: str, object: Seen) -> None:
        if what == "duplicate":
            self._handler.event(type, object)
        elif what == "stale":
            # The answer of a server that has not caught up with another one.
            for past in tuple(self._past):
                if _key(past[1]) == _key(object):
                    self._handler.event(*past)
        else:
            for past in tuple(self._past):
                self._handler.event(*past)
        # No server shows for good an object that is gone, or what it was before.
        if type == "DELETED":
            self._handler.event(type, object)
        else:
            self._missed[_key(object)] = type, object

    def synced(self) -> None:
        missed, self._missed = self._missed, {}
        for type, object in missed.values():
            self._handler.event(type, object)
        self._handler.synced()

    def trouble(self, error: KubeError) -> None:
        self._handler.trouble(error)


def _key(object: Seen) -> tuple[str, str]:
    """ClientMounts of one Workflow have the same name, one on each node."""
    return object.namespace, object.name
