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
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Callable, Coroutine, Optional, TypeVar, Union

from flux_k8s.control.coroutines import Call, drive
from flux_k8s.errors import ConfigError
from flux_k8s.eventloop.loop import EventLoop, PollLoop
from flux_k8s.kube.api import Api
from flux_k8s.kube.requestqueue import RequestQueue
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

T = TypeVar("T")

CONNECT_TIMEOUT = 5.0
READ_TIMEOUT = 30.0


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
        """The number of answers, and of portions of events, that wait for their
        turn."""
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
        *,
        label_selector: str = "",
    ) -> Informer:
        return self._watchers.watch(kind, namespace, handler, label_selector)

    def close(self) -> None:
        """Stop all watches and requests, and close their connections. No ``done`` and
        no handler is called after it."""
        self._watchers.stop()
        self._transfers.close()

    def _log(self, level: int, message: str, reason: Reason) -> None:
        # A thread logs as well, that which reads the kubeconfig again.
        log = partial(self._log_raw, level, message, reason)
        self._loop.call_soon_threadsafe(log)


async def _answer(request: Coroutine[Call[Any], Any, T]) -> Union[T, KubeError]:
    """The result of a request, or its error."""
    try:
        return await request
    except KubeError as error:
        return error
    except Exception as error:
        return KubeError(0, "InternalError", type(error).__name__)


class BlockingApi:
    """Requests that wait for their answers."""

    def __init__(self, loop: PollLoop, api: Api) -> None:
        self._loop = loop
        self._api = api

    def request(
        self, method: str, kind: Kind, namespace: Optional[str], name: str = ""
    ) -> Json:
        """As :meth:`flux_k8s.kube.api.Api.request`."""
        answers: list[Any] = []
        request = self._api.request(method, kind, namespace, name)
        drive(request, answers.append, (Exception,))
        self._loop.run(lambda: bool(answers))
        (answer,) = answers
        if isinstance(answer, Exception):
            raise answer
        found: Json = answer
        return found


@contextlib.contextmanager
def blocking(kubeconfig: Optional[str]) -> Iterator[BlockingApi]:
    """The API of a cluster for a program that may wait.

    Args:
        kubeconfig: as for :class:`KubeClient`.

    Raises:
        ConfigError: the kubeconfig cannot be used.
    """

    def log(level: int, message: str, reason: Reason) -> None:
        """Log nothing: the caller of a request receives its error."""

    loop = PollLoop()
    transfers = Transfers(loop)
    try:
        session = Session(
            transfers,
            kubeconfig,
            connect_timeout=CONNECT_TIMEOUT,
            read_timeout=READ_TIMEOUT,
            log=log,
        )
        yield BlockingApi(loop, Api(session, {}, log))
    finally:
        transfers.close()
        loop.close()
