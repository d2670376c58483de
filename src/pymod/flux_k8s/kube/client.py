# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
""":class:`flux_k8s.ports.Kube` over HTTP.

The service's thread must never wait. A few worker threads make the requests, and each
watch has a thread of its own. Answers and events return to the service's thread through
the function ``deliver``, which :class:`flux_k8s.broker.callbackqueue.CallbackQueue`
provides.
"""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Iterator, Mapping
from typing import Callable, Optional, TypeVar, Union

from flux_k8s.kube.api import Api
from flux_k8s.kube.session import Session
from flux_k8s.kube.watch import Informer, Watchers
from flux_k8s.kube.workers import Workers
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
        self._session = Session(
            kubeconfig,
            pool_size=workers + 1,
            connect_timeout=min(CONNECT_TIMEOUT, read_timeout),
            read_timeout=read_timeout,
            log=self._log,
        )
        self._api = Api(self._session, api_versions or {}, self._log)
        self._workers = Workers(workers, "kube")
        self._watchers = Watchers(
            self._api, self._deliver, rng or random.Random(), watch_timeout
        )

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

        def fetch() -> str:
            tail = self._api.pod_log(namespace, name, query, 4 * characters)
            return tail.decode(errors="replace")[-characters:]

        self._submit(key, done, fetch)

    def close(self) -> None:
        """Stop all watches and workers. No ``done`` and no handler is called after it.

        The call waits up to ``2 * CLOSE_TIMEOUT`` for the threads. It leaves threads
        behind that wait for the server longer than that.
        """
        self._closed = True
        self._watchers.stop()
        self._workers.close(CLOSE_TIMEOUT)
        self._watchers.join(CLOSE_TIMEOUT)
        self._session.close()

    def _submit(
        self,
        key: str,
        done: Callable[[Union[T, KubeError]], None],
        request: Callable[[], T],
    ) -> None:
        def task() -> None:
            answer: Union[T, KubeError]
            try:
                answer = request()
            except KubeError as error:
                answer = error
            except Exception as error:
                answer = KubeError(0, "InternalError", type(error).__name__)
            self._deliver(lambda: done(answer))

        self._workers.submit(key, task)

    def _deliver(self, function: Callable[[], None]) -> None:
        """Call ``function`` on the service's thread, unless the client is closed
        first."""

        def run() -> None:
            if not self._closed:
                function()

        self._deliver_raw(run)

    def _log(self, level: int, message: str) -> None:
        self._deliver(lambda: self._log_raw(level, message))


@contextlib.contextmanager
def blocking(kubeconfig: Optional[str]) -> Iterator[Api]:
    """The API of a cluster for a program that may wait.

    Args:
        kubeconfig: as for :class:`KubeClient`.

    Raises:
        ConfigError: the kubeconfig cannot be used.
    """

    def log(level: int, message: str) -> None:
        """Log nothing: the caller of a request receives its error."""

    session = Session(
        kubeconfig,
        pool_size=1,
        connect_timeout=CONNECT_TIMEOUT,
        read_timeout=READ_TIMEOUT,
        log=log,
    )
    try:
        yield Api(session, {}, log)
    finally:
        session.close()
