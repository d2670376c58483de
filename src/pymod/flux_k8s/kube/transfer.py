# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""An HTTP exchange: what has arrived, its time limits, its end, and its error."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Callable, Optional

import pycurl

from flux_k8s.control.coroutines import Answer
from flux_k8s.ports import BAD_RESPONSE, KubeError, Timer

if TYPE_CHECKING:
    from flux_k8s.kube.transfers import Transfers

CATCH_UP = 1.0
"""Seconds after the end of a time limit in which an answer is still taken. When the
service was busy, or stopped, it has not read yet what came meanwhile."""

PART = 64 * 1024
"""Bytes of a body after which no more is read before they are passed on. By itself
libcurl reads megabytes at a time, and to parse those would hold up the service."""

LOST = "ConnectionLost"

Receive = Callable[["Transfer", bytes], None]
"""Gets a part of a body, and the exchange, which it may pause and interrupt."""


def _ignore(transfer: Transfer, data: bytes) -> None:
    """The exchange is over."""


class CurlError(Exception):
    """libcurl has given an exchange up.

    Attributes:
        code: one of libcurl's ``CURLE_...``.
        errnum: the errno of the system call that failed, or 0.
        text: libcurl's words. They have no header, and so no credentials.
    """

    def __init__(self, code: int, errnum: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.errnum = errnum
        self.text = text


class Silence(Exception):
    """The server has sent nothing for too long."""


class Interrupted(Exception):
    """:meth:`Transfer.interrupt` was called."""


class Transfer:
    """An HTTP exchange.

    Args:
        curl: the handle, with all options but those for its output.
        receive: gets the parts of the body, as they arrive. It does not refer to the
            exchange, which otherwise stays until a full collection of garbage.
        silence: seconds within which something must arrive.
        limit: seconds for all of it; None for any time. libcurl's own limit would
            throw away an answer that came while the service was busy, or stopped.

    Attributes:
        headers: the lines of the answer's head.
    """

    def __init__(
        self,
        transfers: Transfers,
        curl: Any,
        receive: Receive,
        silence: float,
        limit: Optional[float] = None,
    ) -> None:
        self.headers: list[bytes] = []
        self._transfers = transfers
        self._curl: Optional[Any] = curl
        self._status = 0
        self._receive = receive
        self._silence = silence
        self._heard = time.monotonic()
        self._end = float("inf") if limit is None else self._heard + limit
        self._arrived: list[bytes] = []
        self._size = 0
        self._paused = False
        self._timer: Optional[Timer] = None
        self._late = False
        self._answer: Optional[Answer] = None
        self._interrupted = False
        curl.setopt(pycurl.HEADERFUNCTION, self.headers.append)
        curl.setopt(pycurl.WRITEFUNCTION, self._write)

    @property
    def status(self) -> int:
        """The HTTP status; 0 before the answer's head has come."""
        if self._curl is not None:
            self._status = int(self._curl.getinfo(pycurl.RESPONSE_CODE))
        return self._status

    def begin(self, answer: Answer) -> None:
        """Send the request. ``answer`` is called when the exchange is over: with None,
        or with the error that ended it."""
        if self._interrupted:
            self.forget()
            answer(Interrupted())
            return
        self._answer = answer
        self._transfers.begin(self, self._curl)
        self._listen(self._silence)

    def interrupt(self) -> None:
        """End the exchange, if it is not over. It may not have begun yet."""
        self._interrupted = True
        self.end(Interrupted())

    def pause(self) -> None:
        """Receive nothing until :meth:`resume`."""
        self._paused = True

    def resume(self) -> None:
        """Receive again."""
        if self._paused:
            self._paused = False
            self._heard = time.monotonic()
            self._read_on()

    def deliver(self) -> None:
        """Pass on what has arrived."""
        data = b"".join(self._arrived)
        self._arrived.clear()
        read_on = self._size >= PART
        self._size = 0
        if data and self._answer is not None:
            self._receive(self, data)
        if read_on and not self._paused:
            self._read_on()

    def end(self, error: Optional[Exception]) -> None:
        """The exchange is over."""
        answer = self._answer
        if answer is None:
            return
        curl = self._curl
        self.forget()
        self._transfers.finish(curl)
        answer(error)

    def forget(self) -> None:
        """Give no answer."""
        self._answer = None
        if self._timer is not None:
            self._timer.cancel()
        # The handle refers to this exchange until its next one. So without ``receive``
        # it keeps no body of megabytes; and a cycle would outlive the credentials that
        # the handle was made for.
        self._receive = _ignore
        self._status, self._curl = self.status, None

    def _read_on(self) -> None:
        if self._curl is not None:
            with contextlib.suppress(pycurl.error):  # it is over: that comes next
                self._curl.pause(pycurl.PAUSE_CONT)
            self._transfers.go_on()

    def _write(self, data: bytes) -> Optional[int]:
        # An exception here would be lost, so the data is passed on after libcurl's
        # turn.
        if self._paused or self._size >= PART:
            return int(pycurl.WRITEFUNC_PAUSE)
        if not self._arrived:
            self._heard = time.monotonic()
            self._transfers.note_arrival(self)
        self._arrived.append(data)
        self._size += len(data)
        return None

    def _listen(self, seconds: float) -> None:
        self._timer = self._transfers.call_later(seconds, self._check)

    def _check(self) -> None:
        left = self._left()
        was_late, self._late = self._late, left <= 0.0
        if not self._late:
            self._listen(left)
        elif not was_late:
            self._listen(CATCH_UP)
        else:
            self.end(Silence())

    def _left(self) -> float:
        """Seconds until the exchange is given up."""
        now = time.monotonic()
        heard = now if self._paused else self._heard
        return min(heard + self._silence, self._end) - now


def transfer_error(error: Exception, server: str) -> KubeError:
    """The error for an exchange that was not completed. The message begins with
    ``server``."""
    reason, text = _diagnose(error)
    return KubeError(0, reason, f"{server}: {text}")


def _diagnose(error: Exception) -> tuple[str, str]:
    if isinstance(error, Interrupted):
        return LOST, "the connection was closed"
    if isinstance(error, Silence):
        return "Timeout", "no answer in time"
    if not isinstance(error, CurlError):
        return "InternalError", type(error).__name__
    if error.code == pycurl.E_COULDNT_CONNECT and error.errnum == errno.ECONNREFUSED:
        return "ConnectionRefused", "connection refused"
    if error.code in _VERIFICATION:
        return "TLS", _TLS_DETAIL.sub("", error.text) or "the certificate is not valid"
    refused = _PROXY_REFUSED.search(error.text)
    if refused is not None:
        return LOST, f"the proxy refuses the connection: HTTP status {refused[1]}"
    tls = error.code == pycurl.E_SSL_CONNECT_ERROR or _TLS_ALERT.search(error.text)
    if tls and not _ENDED.search(error.text):
        return "TLS", "TLS failed"
    known = _DIAGNOSES.get(error.code)
    if known is not None:
        return known
    return LOST, os.strerror(
        error.errnum
    ) if error.errnum else "the connection was lost"


_VERIFICATION = frozenset((pycurl.E_PEER_FAILED_VERIFICATION, pycurl.E_SSL_CACERT))

_TLS_DETAIL = re.compile("^SSL(?: certificate problem)?: ")

_PROXY_REFUSED = re.compile("CONNECT.*(?:response|code) ([0-9]{3})")

_TLS_ALERT = re.compile(r"\balert\b|SSL routines")
"""The server has refused the client's certificate, which it may say after the
handshake."""

_ENDED = re.compile(
    "unexpected eof|SYSCALL|(?:Recv|Send) failure|terminated|end of file|reset by peer"
)
"""The connection has ended, in the words of OpenSSL, GnuTLS and NSS. A server that
dies, and a load balancer without one, close it without an alert of TLS."""

_CUT = "the connection was cut before the answer ended"

_DIAGNOSES: Mapping[int, tuple[str, str]] = MappingProxyType(
    {
        pycurl.E_COULDNT_RESOLVE_HOST: (
            "NameResolution",
            "the host's name is not known",
        ),
        pycurl.E_COULDNT_RESOLVE_PROXY: (
            "NameResolution",
            "the proxy's name is not known",
        ),
        pycurl.E_OPERATION_TIMEDOUT: ("Timeout", "no answer in time"),
        pycurl.E_GOT_NOTHING: (LOST, "the connection was lost"),
        pycurl.E_PARTIAL_FILE: (LOST, _CUT),
        pycurl.E_RECV_ERROR: (LOST, _CUT),
        pycurl.E_FTP_WEIRD_SERVER_REPLY: (
            BAD_RESPONSE,
            "the answer is malformed: no HTTP",
        ),
        pycurl.E_UNSUPPORTED_PROTOCOL: (
            BAD_RESPONSE,
            "the answer is malformed: no HTTP",
        ),
    }
)
"""Reason and message by libcurl's code."""
