# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
""":class:`flux_k8s.ports.Kube` over HTTP.

Requests and watches never wait: the service's event loop has their sockets
(:mod:`.transfers`), and all is done on its thread.
"""

from __future__ import annotations

import contextlib
import json
import random
from collections import deque
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Callable, Coroutine, Optional

from flux_k8s.control.coroutines import Call, drive
from flux_k8s.errors import ConfigError
from flux_k8s.eventloop import EventLoop, PollLoop
from flux_k8s.kube.api import Api
from flux_k8s.kube.session import Session
from flux_k8s.kube.transfers import Transfers
from flux_k8s.kube.watch import Informer, Watchers
from flux_k8s.ports import (
    Json,
    Kind,
    Kube,
    KubeDone,
    KubeError,
    Log,
    Request,
    WatchHandler,
)
from flux_k8s.reasons import Reason

CONNECT_TIMEOUT = 5.0
READ_TIMEOUT = 30.0


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


class KubeClient(Kube):
    """A cluster, with the credentials of a kubeconfig.

    Args:
        kubeconfig: the path of the kubeconfig, or None for the default of kubectl
            (``KUBECONFIG``, ``~/.kube/config``, the service account of a pod).
        loop: the service's event loop.
        workers: the number of requests, without watches, that are made at a time.
        api_versions: the API versions, by group, that are used without discovery.
        rng: the source of jitter.
        log: logs a line.
        read_timeout: seconds to wait for an answer, or for more of it.
        watch_timeout: seconds after which a watch is opened again.

    Raises:
        ConfigError: the kubeconfig cannot be used.
    """

    def __init__(
        self,
        kubeconfig: Optional[str],
        *,
        loop: EventLoop,
        workers: int = 4,
        api_versions: Optional[Mapping[str, str]] = None,
        rng: Optional[random.Random] = None,
        log: Log = lambda level, message, reason: None,
        read_timeout: float = READ_TIMEOUT,
        watch_timeout: float = 300.0,
    ) -> None:
        self._log_raw = log
        self._loop = loop
        self._transfers = Transfers(loop)
        try:
            self._session = Session(
                self._transfers,
                kubeconfig,
                connect_timeout=min(CONNECT_TIMEOUT, read_timeout),
                read_timeout=read_timeout,
                log=self._log,
            )
        except ConfigError:
            self._transfers.close()
            raise
        self._api = Api(self._session, api_versions or {}, self._log)
        self._requests = RequestQueue(workers)
        self._watchers = Watchers(
            self._transfers,
            self._api,
            rng or random.Random(),
            watch_timeout,
            self._log,
        )

    def waiting(self) -> int:
        return len(self._transfers)

    def send(self, request: Request, done: KubeDone, *, key: str) -> None:
        # What is sent is the body as it is now.
        body = b"" if request.body is None else json.dumps(request.body).encode()
        carried_out = partial(self._api.carry_out, request, body)

        def start(ended: Callable[[], None]) -> None:
            def answered(answer: Any) -> None:
                self._transfers.call(lambda: done(answer))
                ended()

            drive(_answer(carried_out()), answered, ())

        if not self._transfers.closed:
            self._requests.submit(key, start)

    def watch(
        self,
        kind: Kind,
        namespace: Optional[str],
        handler: WatchHandler,
    ) -> Informer:
        return self._watchers.watch(kind, namespace, handler)

    def close(self) -> None:
        """Stop all watches and requests, and close their connections. No ``done`` and
        no handler is called after it."""
        self._watchers.stop()
        self._transfers.close()

    def _log(self, level: int, message: str, reason: Reason) -> None:
        # A thread logs as well, that which reads the kubeconfig again.
        log = partial(self._log_raw, level, message, reason)
        self._loop.call_soon_threadsafe(log)


async def _answer(request: Coroutine[Call[Any], Any, Any]) -> Any:
    """The result of a request, or its error."""
    try:
        return await request
    except KubeError as error:
        return error
    except Exception as error:
        return KubeError(0, "InternalError", type(error).__name__)


@contextlib.contextmanager
def blocking(kubeconfig: Optional[str]) -> Iterator[Callable[[Request], Json]]:
    """A cluster for a program that may wait: a function that carries out a request.

    Args:
        kubeconfig: as for :class:`KubeClient`.

    Raises:
        ConfigError: the kubeconfig cannot be used.
        KubeError: by the function: the request failed.
    """
    loop = PollLoop()
    with contextlib.ExitStack() as stack:
        stack.callback(loop.close)
        client = KubeClient(kubeconfig, loop=loop)
        stack.callback(client.close)

        def ask(request: Request) -> Json:
            answers: list[Any] = []
            client.send(request, answers.append, key="")
            loop.run(lambda: bool(answers))
            if isinstance(answers[0], KubeError):
                raise answers[0]
            answer: Json = answers[0]
            return answer

        yield ask
