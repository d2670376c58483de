# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
""":class:`flux_k8s.ports.Kube` over HTTP.

The service's thread must never wait. Another thread makes the requests and the watches
(:mod:`.transfers`). Answers and events return to the service's thread through the
function ``deliver``, which :class:`flux_k8s.eventloop.callbackqueue.CallbackQueue`
provides.
"""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Callable, Coroutine, Optional, TypeVar, Union
from urllib.parse import quote

from flux_k8s.control.coroutines import Call, drive
from flux_k8s.errors import ConfigError
from flux_k8s.kube.api import Api
from flux_k8s.kube.requestqueue import RequestQueue
from flux_k8s.kube.session import Session
from flux_k8s.kube.transfers import Transfers
from flux_k8s.kube.watch import Informer, Watchers
from flux_k8s.ports import (
    Deliver,
    Json,
    Kind,
    KubeDone,
    KubeError,
    LogDone,
    Patch,
    WatchHandler,
)

Log = Callable[[int, str], None]
T = TypeVar("T")

CONNECT_TIMEOUT = 5.0
READ_TIMEOUT = 30.0
CLOSE_TIMEOUT = 1.0


class KubeClient:
    """A cluster, with the credentials of a kubeconfig.

    Args:
        kubeconfig: the path of the kubeconfig, or None for the default of kubectl
            (``KUBECONFIG``, ``~/.kube/config``, the service account of a pod).
        workers: the number of requests, without watches, that are made at a time.
        deliver: calls a function on the service's thread.
        api_versions: the API versions, by group, that are used without discovery.
        rng: the source of jitter.
        log: receives a syslog level and a line, on the service's thread.
        read_timeout: seconds to wait for an answer, or for more of it.
        watch_timeout: seconds after which a watch is opened again.

    Raises:
        ConfigError: the kubeconfig cannot be used.
    """

    def __init__(
        self,
        kubeconfig: Optional[str],
        *,
        workers: int = 4,
        deliver: Deliver,
        api_versions: Optional[Mapping[str, str]] = None,
        rng: Optional[random.Random] = None,
        log: Log = lambda level, message: None,
        read_timeout: float = READ_TIMEOUT,
        watch_timeout: float = 300.0,
    ) -> None:
        self._closed = False
        self._deliver_raw = deliver
        self._log_raw = log
        self._transfers = Transfers()
        try:
            self._session = Session(
                self._transfers,
                kubeconfig,
                connect_timeout=min(CONNECT_TIMEOUT, read_timeout),
                read_timeout=read_timeout,
                log=self._log,
            )
        except ConfigError:
            self._transfers.close(0.0)
            raise
        self._api = Api(self._session, api_versions or {}, self._log)
        self._requests = RequestQueue(workers)
        self._watchers = Watchers(
            self._transfers,
            self._api,
            self._deliver,
            rng or random.Random(),
            watch_timeout,
        )
        self._transfers.start("kube")

    def create(
        self, kind: Kind, namespace: str, body: Json, done: KubeDone, *, key: str
    ) -> None:
        text = json.dumps(body)

        def complete(api_version: str) -> bytes:
            names = {"apiVersion": api_version, "kind": kind.name}
            return json.dumps({**json.loads(text), **names}).encode()

        self._submit(
            key,
            done,
            lambda: self._api.request("POST", kind, namespace, body=complete),
        )

    def get(
        self, kind: Kind, namespace: str, name: str, done: KubeDone, *, key: str
    ) -> None:
        self._submit(key, done, lambda: self._api.request("GET", kind, namespace, name))

    def patch(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        body: Patch,
        done: KubeDone,
        *,
        key: str,
    ) -> None:
        text = json.dumps(body).encode()
        flavour = "json-patch" if isinstance(body, list) else "merge-patch"
        self._submit(
            key,
            done,
            lambda: self._api.request(
                "PATCH",
                kind,
                namespace,
                name,
                body=lambda api_version: text,
                content_type=f"application/{flavour}+json",
            ),
        )

    def patch_status(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        body: Json,
        done: KubeDone,
        *,
        key: str,
    ) -> None:
        # To the API it is one more object, "status", of a kind whose path is that of
        # its parent.
        parent = Kind(kind.group, kind.name, f"{kind.plural}/{quote(name, safe='')}")
        self.patch(parent, namespace, "status", body, done, key=key)

    def delete(
        self, kind: Kind, namespace: str, name: str, done: KubeDone, *, key: str
    ) -> None:
        self._submit(
            key, done, lambda: self._api.request("DELETE", kind, namespace, name)
        )

    def list(
        self,
        kind: Kind,
        namespace: Optional[str],
        done: KubeDone,
        *,
        key: str,
        label_selector: str = "",
        limit: int = 0,
        token: str = "",
    ) -> None:
        given = {
            "labelSelector": label_selector,
            "limit": str(limit or ""),
            "continue": token,
        }
        query = {name: value for name, value in given.items() if value}
        self._submit(
            key,
            done,
            lambda: self._api.request("GET", kind, namespace, query=query),
        )

    def watch(
        self,
        kind: Kind,
        namespace: Optional[str],
        handler: WatchHandler,
        *,
        label_selector: str = "",
    ) -> Informer:
        return self._watchers.watch(kind, namespace, handler, label_selector)

    def pod_log(
        self,
        namespace: str,
        name: str,
        container: str,
        done: LogDone,
        *,
        key: str,
        characters: int,
    ) -> None:
        # The API returns the last lines of a log. Each line has one character or
        # more, and a character has up to four bytes.
        query = {"container": container, "tailLines": str(characters)}

        async def fetch() -> str:
            tail = await self._api.pod_log(namespace, name, query, 4 * characters)
            return tail.decode(errors="replace")[-characters:]

        self._submit(key, done, fetch)

    def close(self) -> None:
        """Stop all watches and requests. No ``done`` and no handler is called after it.

        The call waits up to ``CLOSE_TIMEOUT`` for the connections to be closed.
        """
        self._closed = True
        self._watchers.stop()
        self._transfers.close(CLOSE_TIMEOUT)

    def _submit(
        self,
        key: str,
        done: Callable[[Union[T, KubeError]], None],
        request: Callable[[], Coroutine[Call[Any], Any, T]],
    ) -> None:
        def start(ended: Callable[[], None]) -> None:
            def answered(answer: Union[T, KubeError]) -> None:
                self._deliver(lambda: done(answer))
                ended()

            drive(_answer(request()), answered, ())

        self._transfers.call(partial(self._requests.submit, key, start))

    def _deliver(self, function: Callable[[], None]) -> None:
        """Call ``function`` on the service's thread, unless the client is closed
        first."""

        def run() -> None:
            if not self._closed:
                function()

        self._deliver_raw(run)

    def _log(self, level: int, message: str) -> None:
        self._deliver(lambda: self._log_raw(level, message))


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

    def __init__(self, transfers: Transfers, api: Api) -> None:
        self._transfers = transfers
        self._api = api

    def request(
        self, method: str, kind: Kind, namespace: Optional[str], name: str = ""
    ) -> Json:
        """As :meth:`flux_k8s.kube.api.Api.request`."""
        return self._transfers.wait_for(
            self._api.request(method, kind, namespace, name)
        )


@contextlib.contextmanager
def blocking(kubeconfig: Optional[str]) -> Iterator[BlockingApi]:
    """The API of a cluster for a program that may wait.

    Args:
        kubeconfig: as for :class:`KubeClient`.

    Raises:
        ConfigError: the kubeconfig cannot be used.
    """

    def log(level: int, message: str) -> None:
        """Log nothing: the caller of a request receives its error."""

    transfers = Transfers()
    try:
        session = Session(
            transfers,
            kubeconfig,
            connect_timeout=CONNECT_TIMEOUT,
            read_timeout=READ_TIMEOUT,
            log=log,
        )
        yield BlockingApi(transfers, Api(session, {}, log))
    finally:
        transfers.close(CLOSE_TIMEOUT)
