# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Counts the requests to Kubernetes by verb and result, those without an answer yet,
and the watches that were lost."""

from __future__ import annotations

from typing import Any, Callable, Optional

from flux_k8s.ports import (
    Json,
    Kind,
    KindOfRequest,
    Kube,
    KubeDone,
    KubeError,
    Request,
    Watch,
    WatchHandler,
)

OK = "ok"
NO_ANSWER = "no answer"


class CountedKube(Kube):
    """:class:`flux_k8s.ports.Kube` over another one, with counts.

    Attributes:
        recovered: is called when a request has succeeded of which the server had wanted
            another one, of the same kind, later.
    """

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._requests: dict[str, dict[str, int]] = {}
        self._lost: dict[str, int] = {}
        self._in_flight = 0
        self._refused: set[KindOfRequest] = set()
        self.recovered: Callable[[KindOfRequest], None] = lambda request: None

    def to_json(self) -> Json:
        """``requests``: for each verb the number of answers by result, which is ``ok``,
        ``no answer`` or the HTTP status; ``requests_in_flight``: the number of those
        without an answer yet; ``watches_lost``: how often the watch of each kind has
        failed."""
        return {
            "requests_in_flight": self._in_flight,
            "requests": {verb: dict(found) for verb, found in self._requests.items()},
            "watches_lost": dict(self._lost),
        }

    def send(self, request: Request, done: KubeDone, *, key: str) -> None:
        verb = "patch" if request.verb == "patch_status" else request.verb
        self._kube.send(request, self._count(verb, request.kind, done), key=key)

    def watch(
        self,
        kind: Kind,
        namespace: Optional[str],
        handler: WatchHandler,
        *,
        label_selector: str = "",
    ) -> Watch:
        counted = _CountedHandler(handler, kind, self._lost)
        return self._kube.watch(kind, namespace, counted, label_selector=label_selector)

    def _count(
        self, verb: str, kind: Kind, done: Callable[[Any], None]
    ) -> Callable[[Any], None]:
        self._in_flight += 1
        request = verb, kind.plural

        def counted(answer: Any) -> None:
            self._in_flight -= 1
            result = OK
            if isinstance(answer, KubeError):
                result = str(answer.status) if answer.status else NO_ANSWER
            results = self._requests.setdefault(verb, {})
            results[result] = results.get(result, 0) + 1
            if isinstance(answer, KubeError) and answer.retry_after is not None:
                answer.request = request
                self._refused.add(request)
            done(answer)
            if result == OK and request in self._refused:
                self._refused.remove(request)
                self.recovered(request)

        return counted


class _CountedHandler:
    """A WatchHandler over another one, which counts the failures of its watch."""

    def __init__(self, handler: WatchHandler, kind: Kind, lost: dict[str, int]) -> None:
        self._handler = handler
        self._kind = kind
        self._lost = lost
        # No event costs a further call.
        self.event = handler.event
        self.synced = handler.synced

    def trouble(self, error: KubeError) -> None:
        self._lost[self._kind.plural] = self._lost.get(self._kind.plural, 0) + 1
        self._handler.trouble(error)
