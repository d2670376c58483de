# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""HTTP requests to the API server.

Every failure is raised as :class:`~flux_k8s.ports.KubeError`, whose message has no
header, and so no credentials.

The client of the ``kubernetes`` package does not make the requests: its exceptions
quote headers and bodies, it has no time limit for a whole answer, and it cannot end a
watch. Nor does it renew credentials that the server refuses. It renews a token only
when the token came with its time of expiry, but never a token from a file or of OpenID
Connect, nor the certificate of a plugin. This module reads the kubeconfig again after a
401, and when TLS fails.
"""

from __future__ import annotations

import syslog
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Callable, Optional, TypeVar
from urllib.parse import urlencode

import pycurl

from flux_k8s.control.coroutines import Call
from flux_k8s.errors import ConfigError
from flux_k8s.kube import kubeconfig as _kubeconfig
from flux_k8s.kube.status import response_error
from flux_k8s.kube.transfer import Receive, Silence, Transfer, transfer_error
from flux_k8s.kube.transfers import Transfers
from flux_k8s.kube.transport import Transport
from flux_k8s.ports import BAD_RESPONSE, KubeError, Log
from flux_k8s.reasons import Reason

T = TypeVar("T")

_RENEW_INTERVAL = 5.0
"""Seconds between two readings of a kubeconfig whose credentials are refused."""

MOST_ANSWERS = 256 * 1024 * 1024
"""Bytes of all answers together that are being read, and read as a whole."""

_HEADERS = ("User-Agent: flux-dws", "Accept: application/json, */*", "Expect:")
"""libcurl would ask with Expect whether it may send a large body."""


@dataclass
class HttpRequest:
    """A request to the API server.

    Attributes:
        receive: gets the body of an answer that is a success, as it arrives. An
            exception that it raises ends the exchange. None: the body is returned as a
            whole.
        begun: gets the exchange before it begins.
        silence: seconds within which more of the answer must come; all of it may take
            any time. None: those of the session, which limits the whole answer as well.
    """

    method: str
    path: str
    query: Optional[Mapping[str, str]] = None
    body: Optional[bytes] = None
    content_type: str = ""
    receive: Optional[Receive] = None
    begun: Callable[[Transfer], None] = lambda transfer: None
    silence: Optional[float] = None


class Session:
    """An API server, and the service's credentials there.

    Args:
        transfers: makes the exchanges.
        kubeconfig: the path of the kubeconfig, or None for the default of kubectl.
        connect_timeout: seconds to wait for a connection.
        read_timeout: seconds to wait for more of an answer; the whole answer may take
            twice as long.
        log: logs a line.

    Raises:
        ConfigError: the kubeconfig is invalid. The first request calls a credential
            plugin, so an error of a plugin is an error of that request.
    """

    def __init__(
        self,
        transfers: Transfers,
        kubeconfig: Optional[str],
        *,
        connect_timeout: float,
        read_timeout: float,
        log: Log,
    ) -> None:
        self._transfers = transfers
        self._path = kubeconfig
        self._connect_timeout = connect_timeout
        self._read_timeout = read_timeout
        self._log = log
        self._renewed = float("-inf")
        self._problem = ""
        self._size_of_answers = 0
        self._transport: Optional[Transport] = None
        first = _kubeconfig.read(kubeconfig)
        self._origin = "the pod's service account" if first is None else first.origin
        if first is None or not first.asks_others:
            self._transport = Transport(first)

    async def send(self, request: HttpRequest) -> bytes:
        """The body of the answer. When the server refuses the credentials, they are
        renewed, and the request is sent once more.

        Raises:
            KubeError: the request failed, or the answer was cut.
        """
        transport = await self._current_transport()
        try:
            return await self._exchange(transport, request)
        except KubeError as error:
            if error.status != 401 and error.reason != "TLS":
                raise
            renewed = await self._ask_others(partial(self._renew, transport, error))
            if renewed is None:
                raise
        return await self._exchange(renewed, request)

    async def _current_transport(self) -> Transport:
        transport = self._transport
        if transport is None:
            transport = await self._ask_others(partial(self._renew, None, None))
        if transport is None:
            raise KubeError(0, "Credentials", self._problem)
        return transport

    async def _ask_others(self, function: Callable[[], T]) -> T:
        """The result of a function that may wait, for a credential plugin or for
        others that do.

        Raises:
            KubeError: it takes too long. It goes on, and others may use its result.
        """
        try:
            return await self._transfers.in_thread(function, 2 * self._read_timeout)
        except Silence:
            raise KubeError(
                0, "Timeout", f"{self._origin}: no credentials in time"
            ) from None

    async def _exchange(self, transport: Transport, request: HttpRequest) -> bytes:
        """Send a request, and return the body of the answer.

        Raises:
            KubeError: there is no answer, or its status is not a success.
        """
        credentials = transport.headers()
        if credentials is None:
            credentials = await self._ask_others(transport.renew)
        body = bytearray()
        refused: list[Exception] = []

        def receive(transfer: Transfer, data: bytes) -> None:
            try:
                if request.receive is not None and 200 <= transfer.status < 300:
                    request.receive(transfer, data)
                    return
                body.extend(data)
                self._size_of_answers += len(data)
                if self._size_of_answers > MOST_ANSWERS:
                    raise KubeError(
                        0, BAD_RESPONSE, f"{transport.name}: the answer is too long"
                    )
            except Exception as error:  # one that is raised here ends the service
                refused.append(error)
                transfer.interrupt()

        curl = transport.handle()
        self._prepare(curl, transport, request, credentials)
        silence, limit = request.silence, None
        if silence is None:
            silence, limit = self._read_timeout, 2 * self._read_timeout
        transfer = Transfer(self._transfers, curl, receive, silence, limit)
        request.begun(transfer)
        try:
            await Call(transfer.begin)
        except Exception as error:
            transport.give_back(curl)
            if refused:
                raise refused[0] from None
            raise transfer_error(error, transport.name) from None
        finally:
            self._size_of_answers -= len(body)
        status = transfer.status
        transport.give_back(curl)
        if 200 <= status < 300:
            return bytes(body)
        raise response_error(status, transfer.headers, bytes(body), transport.name)

    def _prepare(
        self,
        curl: Any,
        transport: Transport,
        request: HttpRequest,
        credentials: Mapping[str, str],
    ) -> None:
        """Set the options of a handle for a request."""
        url, headers = transport.url(request.path)
        headers += [*_HEADERS, *(f"{k}: {v}" for k, v in credentials.items())]
        if request.query:
            url += "?" + urlencode(request.query)
        if request.body is None:
            curl.setopt(pycurl.HTTPGET, 1)
        else:
            headers.append(f"Content-Type: {request.content_type}")
            curl.setopt(pycurl.POSTFIELDS, request.body)
        curl.setopt(pycurl.CUSTOMREQUEST, request.method)
        curl.setopt(pycurl.URL, url)
        curl.setopt(pycurl.HTTPHEADER, headers)
        curl.setopt(pycurl.CONNECTTIMEOUT_MS, int(self._connect_timeout * 1000))

    def _renew(
        self, refused: Optional[Transport], why: Optional[KubeError]
    ) -> Optional[Transport]:
        """The transport by a new reading of the kubeconfig. One thread calls this.

        None when the kubeconfig has been read within ``_RENEW_INTERVAL``, has not
        changed, or is invalid.

        Args:
            refused: the transport whose credentials the server refused. When it was
                replaced meanwhile, the result is the new one.
            why: the error of the server, for the log.
        """
        old = self._transport
        if old is not refused:
            return old
        if time.monotonic() < self._renewed + _RENEW_INTERVAL:
            return None
        try:
            kubeconfig = _kubeconfig.read(self._path)
            if old is not None and kubeconfig is not None:
                if kubeconfig.is_fixed and kubeconfig == old.kubeconfig:
                    return None
            transport = Transport(kubeconfig)
        except ConfigError as error:
            self._problem = str(error)
            self._renewed = time.monotonic()
            if old is not None:
                self._log(syslog.LOG_ERR, self._problem, error.reason)
            return None
        self._transport = transport
        if old is not None:
            self._renewed = time.monotonic()
            text = f"{transport.origin}: read again after: {why}"
            self._log(syslog.LOG_INFO, text, Reason.KUBERNETES_SETTINGS)
        return transport
