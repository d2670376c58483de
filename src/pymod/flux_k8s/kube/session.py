# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""HTTP requests to the API server.

All functions wait for the server, so only worker threads call them. Every failure is
raised as :class:`~flux_k8s.ports.KubeError`, whose message has no header, and so no
credentials.

The client of the ``kubernetes`` package does not make the requests: its exceptions
quote headers and bodies, it has no time limit for a whole answer, and it cannot end a
watch that waits in another thread. Nor does it renew credentials that the server
refuses. It renews a token only when the token came with its time of expiry, but never
a token from a file or of OpenID Connect, nor the certificate of a plugin. This module
reads the kubeconfig again after a 401, and when TLS fails.
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
"""Seconds between two readings of a kubeconfig whose credentials are refused."""

_HEADERS = {"User-Agent": "flux-dws", "Accept": "application/json, */*"}


class Stream:
    """The body of a response, read while it arrives. One thread reads; any thread may
    interrupt it."""

    def __init__(self, response: urllib3.BaseHTTPResponse, server: str) -> None:
        self._response = response
        self._server = server
        # Closing a file does not wake up the thread that reads from it, but shutting
        # down its socket does. The reader cannot close a duplicate, so the number of
        # its descriptor is not reused meanwhile.
        self._socket: Optional[socket.socket] = None
        with contextlib.suppress(AttributeError, OSError):  # an empty body
            self._socket = socket.socket(fileno=os.dup(response.fileno()))
        self._lock = threading.Lock()

    def chunks(self) -> Iterator[bytes]:
        """The pieces of the body, as they arrive.

        Raises:
            KubeError: the body ended early, or the read timeout has passed.
        """
        with as_kube_error(self._server):
            while chunk := self._response.read1(_CHUNK):
                yield chunk

    def interrupt(self) -> None:
        """End ``chunks`` in the thread that waits in it. A second call has no
        effect."""
        with self._lock, contextlib.suppress(OSError):
            if self._socket is not None:
                self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection. Only the thread that reads may call this."""
        with self._lock:
            if self._socket is not None:
                self._socket.close()
        self._response.close()


class Session:
    """An API server, and the service's credentials there. Any thread may use it.

    Args:
        kubeconfig: the path of the kubeconfig, or None for the default of kubectl.
        pool_size: the number of idle connections to keep.
        connect_timeout: seconds to wait for a connection.
        read_timeout: seconds to wait for more of an answer; the whole answer may take
            twice as long.
        log: receives a syslog level and a line.

    Raises:
        ConfigError: the kubeconfig is invalid. The first request calls a credential
            plugin, so an error of a plugin is an error of that request.
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
        """Send a request, and return the JSON object of the answer.

        Raises:
            KubeError: the request failed.
        """
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
        """GET ``path``, and return when the answer begins.

        Args:
            read_timeout: seconds to wait for more of the answer.

        Raises:
            KubeError: the request failed.
        """

        def exchange(transport: Transport) -> Stream:
            response = self._open(
                transport, "GET", path, query, read_timeout=read_timeout
            )
            return Stream(response, transport.name)

        return self._with_credentials(exchange)

    def tail(self, path: str, *, query: Mapping[str, str], size: int) -> bytes:
        """GET ``path``, and return the last ``size`` bytes of the answer.

        Raises:
            KubeError: the request failed.
        """

        def exchange(transport: Transport) -> bytes:
            deadline = time.monotonic() + 2 * self._read_timeout
            response = self._open(transport, "GET", path, query)
            tail = b""
            for chunk in _chunks(response, transport.name, deadline):
                tail = (tail + chunk)[-size:]
            return tail

        return self._with_credentials(exchange)

    def close(self) -> None:
        """Close the idle connections."""
        transport = self._transport
        if transport is not None:
            transport.close()

    def _with_credentials(self, exchange: Callable[[Transport], T]) -> T:
        """The result of ``exchange``. When the server refuses the credentials, they are
        renewed, and ``exchange`` is called once more."""
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
        """The transport by a new reading of the kubeconfig.

        None when the kubeconfig has been read within ``_RENEW_INTERVAL``, has not
        changed, or is invalid.

        Args:
            refused: the transport whose credentials the server refused. When another
                thread has replaced it, the result is the new one.
            why: the error of the server, for the log.
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
        """Send a request, and return the answer, with its body still to be read.

        Raises:
            KubeError: there is no answer, or its status is not a success.
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
    """The pieces of the whole body. After the last one the connection is free for
    another request.

    Raises:
        KubeError: the body ended early, or has not ended at ``deadline``.
    """
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
