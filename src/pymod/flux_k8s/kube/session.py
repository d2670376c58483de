# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""HTTP requests to the API server, and what can go wrong with them.

Everything here waits, so it is called on worker threads only. Whatever fails
is raised as :class:`~flux_k8s.ports.KubeError`, whose message holds no header,
so no credentials.

Requests are not made by the client of the ``kubernetes`` package. Its exceptions
quote headers and bodies, it has no limit for the whole of an answer, and it gives
no way to end a watch that waits in another thread. Nor does it renew credentials
that the server refuses: a token is renewed only when it comes with a time at which
it expires, so one from a file, one of OpenID Connect and the certificate of a
plugin are never renewed. Here the kubeconfig is read again after a 401, or when
TLS fails.
"""

from __future__ import annotations

import contextlib
import os
import socket
import syslog
import threading
import time
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Callable, Optional, TypeVar
from urllib.parse import urlencode

import urllib3

from flux_k8s.errors import ConfigError
from flux_k8s.kube import kubeconfig as _kubeconfig
from flux_k8s.kube.failures import as_kube_error, parse_object, response_error
from flux_k8s.kube.transport import Transport
from flux_k8s.ports import Json, KubeError

T = TypeVar("T")

_CHUNK = 65536

_RENEW_INTERVAL = 5.0
"""Seconds between two readings of a kubeconfig that the server refuses."""

_HEADERS = {"User-Agent": "flux-dws", "Accept": "application/json, */*"}


class Stream:
    """The body of a response, as it arrives."""

    def __init__(self, response: urllib3.BaseHTTPResponse, server: str) -> None:
        self._response = response
        self._server = server
        # Closing a file does not wake up the thread that reads from it, but
        # shutting down its socket does. A duplicate cannot be closed, and its
        # number reused, by the reader meanwhile.
        self._socket: Optional[socket.socket] = None
        with contextlib.suppress(AttributeError, OSError):  # an empty body
            self._socket = socket.socket(fileno=os.dup(response.fileno()))
        self._lock = threading.Lock()

    def chunks(self) -> Iterator[bytes]:
        """Pieces of the body, each as soon as it is there.

        Raises:
            KubeError: the body ended early, or nothing came for too long.
        """
        with as_kube_error(self._server):
            while chunk := self._response.read1(_CHUNK):
                yield chunk

    def interrupt(self) -> None:
        """End a ``chunks`` that waits in another thread. May be called twice."""
        with self._lock, contextlib.suppress(OSError):
            if self._socket is not None:
                self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Give up the connection. For the thread that reads."""
        with self._lock:
            if self._socket is not None:
                self._socket.close()
        self._response.close()


class Session:
    """An API server, and our credentials there. Safe to use from any thread.

    Args:
        kubeconfig: its path, or None for the client's default.
        connect_timeout: seconds until a connection must stand.
        read_timeout: seconds until something more of an answer must arrive;
            twice as long for all of it.
        log: gets a syslog level and a line.

    Raises:
        ConfigError: the kubeconfig cannot be used. Whether a credential plugin
            works is found out with the first request.
    """

    def __init__(
        self,
        kubeconfig: Optional[str],
        *,
        pool_size: int,
        connect_timeout: float,
        read_timeout: float,
        log: Callable[[int, str], None],
    ) -> None:
        self._path = kubeconfig
        self._pool_size = pool_size
        self._connect_timeout = connect_timeout
        self._read_timeout = read_timeout
        self._log = log
        self._lock = threading.Lock()
        self._renewed = float("-inf")
        self._problem = ""
        self._transport: Optional[Transport] = None
        first = _kubeconfig.read(kubeconfig)
        if first is None or not first.asks_others:
            self._transport = Transport(first, pool_size)

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Optional[Mapping[str, str]] = None,
        body: Optional[bytes] = None,
        content_type: str = "application/json",
    ) -> Json:
        """Send a request and return the object that answers it."""
        headers = {} if body is None else {"Content-Type": content_type}

        def exchange(transport: Transport) -> bytes:
            deadline = time.monotonic() + 2 * self._read_timeout
            response = self._open(transport, method, path, query, body, headers)
            return b"".join(_chunks(response, transport.name, deadline))

        return parse_object(self._with_credentials(exchange))

    def stream(
        self,
        path: str,
        *,
        query: Optional[Mapping[str, str]] = None,
        read_timeout: Optional[float] = None,
    ) -> Stream:
        """GET ``path`` and return as soon as the answer begins.

        ``read_timeout``: seconds until something more of it must arrive.
        """

        def exchange(transport: Transport) -> Stream:
            response = self._open(
                transport, "GET", path, query, read_timeout=read_timeout
            )
            return Stream(response, transport.name)

        return self._with_credentials(exchange)

    def tail(self, path: str, *, query: Mapping[str, str], size: int) -> bytes:
        """GET ``path`` and return the last ``size`` bytes of the answer."""

        def exchange(transport: Transport) -> bytes:
            deadline = time.monotonic() + 2 * self._read_timeout
            response = self._open(transport, "GET", path, query)
            tail = b""
            for chunk in _chunks(response, transport.name, deadline):
                tail = (tail + chunk)[-size:]
            return tail

        return self._with_credentials(exchange)

    def close(self) -> None:
        transport = self._transport
        if transport is not None:
            transport.close()

    def _with_credentials(self, exchange: Callable[[Transport], T]) -> T:
        """``exchange``, and once again after renewing refused credentials."""
        transport = self._current_transport()
        try:
            return exchange(transport)
        except KubeError as error:
            if error.status != 401 and error.reason != "TLS":
                raise
            renewed = self._renew(transport, error)
            if renewed is None:
                raise
        return exchange(renewed)

    def _current_transport(self) -> Transport:
        transport = self._transport
        if transport is None:
            transport = self._renew(None, None)
        if transport is None:
            raise KubeError(0, "Credentials", self._problem)
        return transport

    def _renew(
        self, refused: Optional[Transport], why: Optional[KubeError]
    ) -> Optional[Transport]:
        """Read the kubeconfig again, unless another thread just did.

        None: it was read a moment ago, did not change, or cannot be used.
        """
        if not self._lock.acquire(timeout=self._read_timeout):
            raise KubeError(0, "Timeout", "the kubeconfig is being read")
        try:
            if self._transport is not refused:
                return self._transport
            if time.monotonic() < self._renewed + _RENEW_INTERVAL:
                return None
            return self._read_again(why)
        finally:
            self._lock.release()

    def _read_again(self, why: Optional[KubeError]) -> Optional[Transport]:
        old = self._transport
        try:
            kubeconfig = _kubeconfig.read(self._path)
            if old is not None and kubeconfig is not None:
                if kubeconfig.is_fixed and kubeconfig == old.kubeconfig:
                    return None
            transport = Transport(kubeconfig, self._pool_size)
        except ConfigError as error:
            self._problem = str(error)
            self._renewed = time.monotonic()
            if old is not None:
                self._log(syslog.LOG_ERR, self._problem)
            return None
        self._transport = transport
        if old is not None:
            self._renewed = time.monotonic()
            self._log(syslog.LOG_INFO, f"{transport.origin}: read again after: {why}")
            old.close()
        return transport

    def _open(
        self,
        transport: Transport,
        method: str,
        path: str,
        query: Optional[Mapping[str, str]] = None,
        body: Optional[bytes] = None,
        headers: Mapping[str, str] = MappingProxyType({}),
        read_timeout: Optional[float] = None,
    ) -> urllib3.BaseHTTPResponse:
        """Send a request; return the answer, whose body was not read yet.

        Raises:
            KubeError: there is none, or it is not a success.
        """
        url = transport.server + path + ("?" + urlencode(query) if query else "")
        timeout = urllib3.Timeout(
            connect=self._connect_timeout, read=read_timeout or self._read_timeout
        )
        with as_kube_error(transport.name):
            response = transport.pool.urlopen(
                method,
                url,
                body=body,
                headers={**_HEADERS, **headers, **transport.headers()},
                timeout=timeout,
                retries=False,
                redirect=False,
                preload_content=False,
            )
        if 200 <= response.status < 300:
            return response
        deadline = time.monotonic() + self._read_timeout
        body = b"".join(_chunks(response, transport.name, deadline))
        raise response_error(response, body, transport.name)


def _chunks(
    response: urllib3.BaseHTTPResponse, server: str, deadline: float
) -> Iterator[bytes]:
    """The whole body, after which the connection is free for another request."""
    with as_kube_error(server):
        try:
            while chunk := response.read1(_CHUNK):
                yield chunk
                if time.monotonic() > deadline:
                    raise KubeError(0, "Timeout", "the answer did not end in time")
        except BaseException:
            response.close()
            raise
        response.release_conn()
