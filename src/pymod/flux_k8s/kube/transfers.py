# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""HTTP exchanges on one thread, which waits for all of their sockets together.

libcurl makes the exchanges. It resolves names, connects, does TLS, talks to proxies and
keeps connections, and never waits. An exchange costs a tenth of what it costs in
urllib3, and no thread of its own: to wake up a thread costs more than most of what the
service does with an event of a watch.
"""

from __future__ import annotations

import select
import threading
import time
from functools import partial
from typing import Any, Callable, Coroutine, Optional, TypeVar, Union

import pycurl

from flux_k8s.control.coroutines import Answer, Call, drive
from flux_k8s.eventloop.callbackqueue import CallbackQueue, Function
from flux_k8s.eventloop.timers import OneShotTimer, Timers

T = TypeVar("T")

IDLE_CONNECTIONS = 16
"""Connections that are kept for later exchanges."""

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
    """An HTTP exchange. All methods are for the thread of its :class:`Transfers`.

    Args:
        curl: the handle, with all options but those for its output.
        receive: gets the parts of the body, as they arrive. It does not refer to the
            exchange, which otherwise stays until a full collection of garbage.
        silence: seconds within which something must arrive.

    Attributes:
        headers: the lines of the answer's head.
    """

    def __init__(
        self,
        transfers: Transfers,
        curl: Any,
        receive: Receive,
        silence: float,
    ) -> None:
        self.headers: list[bytes] = []
        self._transfers = transfers
        self._curl = curl
        self._receive = receive
        self._silence = silence
        self._heard = time.monotonic()
        self._arrived: list[bytes] = []
        self._paused = False
        self._timer: Optional[OneShotTimer] = None
        self._answer: Optional[Answer] = None
        self._interrupted = False
        curl.setopt(pycurl.HEADERFUNCTION, self.headers.append)
        curl.setopt(pycurl.WRITEFUNCTION, self._write)

    @property
    def status(self) -> int:
        """The HTTP status; 0 before the answer's head has come."""
        return int(self._curl.getinfo(pycurl.RESPONSE_CODE))

    def begin(self, answer: Answer) -> None:
        """Send the request. ``answer`` is called when the exchange is over: with None,
        or with the error that ended it."""
        if self._interrupted:
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
        if self._paused and self._answer is not None:
            self._paused = False
            self._heard = time.monotonic()
            self._curl.pause(pycurl.PAUSE_CONT)

    def deliver(self) -> None:
        """Pass on what has arrived."""
        data = b"".join(self._arrived)
        self._arrived.clear()
        if self._answer is not None:
            self._receive(self, data)

    def end(self, error: Optional[Exception]) -> None:
        """The exchange is over."""
        answer, self._answer = self._answer, None
        if answer is None:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._transfers.finish(self._curl)
        # The handle refers to this exchange until its next one: without ``receive``,
        # it keeps no body of megabytes.
        self._receive = _ignore
        answer(error)

    def _write(self, data: bytes) -> Optional[int]:
        # An exception here would be lost, so the data is passed on after libcurl's
        # turn.
        if self._paused:
            return int(pycurl.WRITEFUNC_PAUSE)
        if not self._arrived:
            self._heard = time.monotonic()
            self._transfers.note_arrival(self)
        self._arrived.append(data)
        return None

    def _listen(self, seconds: float) -> None:
        self._timer = self._transfers.call_later(seconds, self._check)

    def _check(self) -> None:
        left = self._heard + self._silence - time.monotonic()
        if self._paused:
            left = self._silence
        if left > 0.0:
            self._listen(left)
        else:
            self.end(Silence())


class Transfers:
    """The exchanges of a client, and the thread that they are made on.

    Any thread may use :meth:`call`, :meth:`in_thread` and :meth:`close`; the other
    methods are for functions that are called on the thread.
    """

    def __init__(self) -> None:
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_MAXCONNECTS, IDLE_CONNECTIONS)
        self._functions = CallbackQueue()
        self._due: Optional[float] = None
        self._timers = Timers(self._arm)
        self._running: dict[Any, Transfer] = {}
        self._arrived: list[Transfer] = []
        self._closed = False
        self._thread: Optional[threading.Thread] = None

    def start(self, name: str) -> None:
        """Begin with the exchanges, on a thread of this name."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def close(self, seconds: float) -> None:
        """End all exchanges, without an answer, and wait for up to ``seconds`` until
        their connections are closed."""
        self._functions.put(self._stop)
        if self._thread is not None:
            self._thread.join(seconds)
        else:
            self._functions.run()
            self._end()

    def call(self, function: Function) -> None:
        """Call a function on the thread. After :meth:`close` this has no effect."""
        self._functions.put(function)

    def in_thread(self, function: Callable[[], T], seconds: float) -> Call[T]:
        """The result of a function that may wait. It is called on a thread of its
        own. When it takes longer than ``seconds``, the error is :class:`Silence`, and
        its result is dropped."""

        def begin(answer: Answer) -> None:
            timer = self.call_later(seconds, partial(answer, Silence()))

            def end(result: Union[T, Exception]) -> None:
                timer.cancel()
                answer(result)

            def run() -> None:
                result: Union[T, Exception]
                try:
                    result = function()
                except Exception as error:
                    result = error
                self.call(partial(end, result))

            try:
                threading.Thread(target=run, daemon=True).start()
            except RuntimeError as error:  # there are as many threads as may be
                end(error)

        return Call(begin)

    def sleep(self, seconds: float) -> Call[None]:
        """Wait."""
        return Call(lambda answer: self.call_later(seconds, partial(answer, None)))

    def call_later(self, seconds: float, function: Function) -> OneShotTimer:
        """Call a function after so many seconds."""
        return self._timers.add(seconds, function)

    def wait_for(self, coroutine: Coroutine[Call[Any], Any, T]) -> T:
        """Make exchanges on the calling thread until a coroutine has its result. Only
        without :meth:`start`.

        Raises:
            Exception: the coroutine raised it.
        """
        results: list[Any] = []
        drive(coroutine, results.append, (Exception,))
        self._turn()
        while not results:
            self._wait()
            self._turn()
        (result,) = results
        if isinstance(result, Exception):
            raise result
        answer: T = result
        return answer

    def begin(self, transfer: Transfer, curl: Any) -> None:
        """Begin an exchange."""
        self._running[curl] = transfer
        self._multi.add_handle(curl)

    def finish(self, curl: Any) -> None:
        """An exchange is over: its handle may be used for another one."""
        del self._running[curl]
        self._multi.remove_handle(curl)

    def note_arrival(self, transfer: Transfer) -> None:
        """A part of a body has arrived."""
        self._arrived.append(transfer)

    def _run(self) -> None:
        while not self._closed:
            self._turn()
            self._wait()
        self._end()

    def _stop(self) -> None:
        self._closed = True

    def _end(self) -> None:
        self._functions.close()
        for curl in self._running:
            self._multi.remove_handle(curl)
            curl.close()
        self._running.clear()
        self._multi.close()

    def _turn(self) -> None:
        self._functions.run()
        if self._due is not None and self._due <= time.monotonic():
            self._due = None
            self._timers.run()
        if self._closed:
            return
        _, active = self._multi.perform()
        # Compared here: an exchange that is interrupted below was active.
        some_ended = active < len(self._running)
        arrived, self._arrived = self._arrived, []
        for transfer in arrived:
            transfer.deliver()
        if some_ended:
            self._end_transfers()

    def _end_transfers(self) -> None:
        _, completed, failed = self._multi.info_read(max(1, len(self._running)))
        # An answer may begin another exchange with a handle that is named here.
        ended: list[tuple[Transfer, Optional[Exception]]]
        ended = [(self._running[curl], None) for curl in completed]
        for curl, code, text in failed:
            errnum = curl.getinfo(pycurl.OS_ERRNO)
            ended.append((self._running[curl], CurlError(code, errnum, text)))
        for transfer, error in ended:
            transfer.end(error)

    def _wait(self) -> None:
        """Wait until something can be done."""
        if self._functions or self._closed:
            return
        waits = self._multi.timeout()  # -1: libcurl needs no turn
        if self._due is not None:
            due = max(0.0, (self._due - time.monotonic()) * 1000.0)
            waits = due if waits < 0 else min(waits, due)
        poll = select.poll()
        # libcurl leaves out descriptors above 1023, which the service does not have.
        readable, writable, _ = self._multi.fdset()
        for descriptor in {*readable, *writable}:
            events = select.POLLIN * (descriptor in readable)
            poll.register(
                descriptor, events | select.POLLOUT * (descriptor in writable)
            )
        poll.register(self._functions.fileno(), select.POLLIN)
        poll.poll(None if waits < 0 else waits)

    def _arm(self, seconds: float) -> None:
        self._due = time.monotonic() + seconds
