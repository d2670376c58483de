# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""HTTP exchanges in an event loop, on its thread.

libcurl makes the exchanges. It resolves names, connects, does TLS, talks to proxies and
keeps connections, and never waits. An exchange costs a tenth of what it costs in
urllib3, and no thread: to wake up another thread for each event of a watch, and for
each request, would cost more than most of what the service does with it.
"""

from __future__ import annotations

import select
import threading
import time
from collections import deque
from functools import partial
from typing import Any, Callable, Optional, TypeVar, Union

import pycurl

from flux_k8s.control.coroutines import Answer, Call
from flux_k8s.eventloop import EventLoop
from flux_k8s.kube.transfer import CATCH_UP, CurlError, Silence, Transfer
from flux_k8s.ports import Timer
from flux_k8s.threads import Threads
from flux_k8s.timers import Function

T = TypeVar("T")

IDLE_CONNECTIONS = 16
"""Connections that are kept for later exchanges."""

CLOSE_TIMEOUT = 1.0
"""Seconds to wait for connections to be closed."""

TURN = 0.002
"""Seconds after which nothing more is begun in a turn of the loop."""

_EVENTS = {
    pycurl.POLL_IN: select.EPOLLIN,
    pycurl.POLL_OUT: select.EPOLLOUT,
    pycurl.POLL_INOUT: select.EPOLLIN | select.EPOLLOUT,
}
"""What epoll waits for, by what libcurl asks for."""


class Transfers:
    """The exchanges of a client, in an event loop.

    libcurl says which sockets it waits for, and until when. One epoll has them all, and
    the loop watches the epoll. In a turn one socket after the other is read or written,
    what has arrived is passed on, and the functions of :meth:`call` are called. So a
    watch is read although the service falls behind with its events.

    Attributes:
        closed: :meth:`close` was called.
    """

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop
        self._threads = Threads(loop.call_soon_threadsafe)
        self._epoll = select.epoll()
        self._sockets: set[int] = set()
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_MAXCONNECTS, IDLE_CONNECTIONS)
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._wait_for)
        self._timer: Optional[Timer] = None
        self._armed = 0.0
        self._functions: deque[Function] = deque()
        self._in_turn = False
        self._scheduled = False
        self._functions_first = False
        self._running: dict[Any, Transfer] = {}
        self._some_ended = False
        self._arrived: deque[Transfer] = deque()
        self._ended: deque[tuple[Transfer, Optional[Exception]]] = deque()
        self.closed = False
        loop.add_reader(self._epoll.fileno(), self._ready)

    def __len__(self) -> int:
        """The number of functions that wait."""
        return len(self._functions)

    def close(self) -> None:
        """End all exchanges, without an answer, and close their connections."""
        if self.closed:
            return
        self.closed = True
        self._loop.remove_reader(self._epoll.fileno())
        self._functions.clear()
        self._arrived.clear()
        self._ended.clear()
        self._some_ended = False
        if self._timer is not None:
            self._timer.cancel()
        for curl, transfer in self._running.items():
            transfer.forget()
            self._multi.remove_handle(curl)
            curl.close()
        self._running.clear()
        # This waits for the end of threads that resolve names.
        closing = threading.Thread(target=self._multi.close, daemon=True)
        closing.start()
        closing.join(CLOSE_TIMEOUT)
        self._epoll.close()

    def call(self, function: Function) -> None:
        """Call a function when what is being done is done. After :meth:`close` this has
        no effect."""
        if self.closed:
            return
        self._functions.append(function)
        if not self._in_turn:
            self._turn_later()

    def in_thread(self, function: Callable[[], T], seconds: float) -> Call[T]:
        """The result of a function that may wait. One after the other is called, on a
        thread. When that takes longer than ``seconds``, the error is :class:`Silence`,
        and its result is dropped."""

        def begin(answer: Answer) -> None:
            over = False

            def end(result: Union[T, Exception]) -> None:
                nonlocal over
                if not over and not self.closed:
                    over = True
                    timer.cancel()
                    answer(result)

            def call() -> Optional[T]:
                return None if over else function()

            def late() -> None:
                self.call_later(CATCH_UP, partial(end, Silence()))

            timer = self.call_later(seconds, late)
            self._threads.call("credentials", call, end)

        return Call(begin)

    def sleep(self, seconds: float) -> Call[None]:
        """Wait."""
        return Call(lambda answer: self.call_later(seconds, partial(answer, None)))

    def call_later(self, seconds: float, function: Function) -> Timer:
        """Call a function after so many seconds, unless the exchanges are closed
        first."""

        def run() -> None:
            if not self.closed:
                function()

        return self._loop.call_later(seconds, run)

    def begin(self, transfer: Transfer, curl: Any) -> None:
        """Begin an exchange. On a connection that is there already the request is sent
        before this returns."""
        self._running[curl] = transfer
        self._multi.add_handle(curl)
        self.go_on()

    def finish(self, curl: Any) -> None:
        """An exchange is over: its handle may be used for another one."""
        del self._running[curl]
        self._multi.remove_handle(curl)
        self._arm()

    def note_arrival(self, transfer: Transfer) -> None:
        """A part of a body has arrived."""
        self._arrived.append(transfer)

    def go_on(self) -> None:
        """Let libcurl do what it need not wait for. Nothing is passed on before this
        returns."""
        self._act(pycurl.SOCKET_TIMEOUT, 0)
        if not self._in_turn:
            self._turn_later()

    @property
    def _has_news(self) -> bool:
        """Whether something has arrived, or an exchange is over."""
        return bool(self._arrived or self._some_ended or self._ended)

    @property
    def _waiting(self) -> bool:
        """Whether there is something to do that waits for no socket."""
        return self._has_news or bool(self._functions)

    def _turn_later(self) -> None:
        """Have a turn at once if there is something to do in it."""
        if self._waiting and not self._scheduled and not self.closed:
            self._scheduled = True
            self._loop.call_later(0.0, self._scheduled_turn)

    def _ready(self) -> None:
        """A socket is ready. One turn is enough in a turn of the loop."""
        if not self._scheduled:
            self._turn()

    def _scheduled_turn(self) -> None:
        self._scheduled = False
        self._turn()

    def _turn(self) -> None:
        if self.closed or self._in_turn:
            return
        self._in_turn = True
        end = time.monotonic() + TURN
        try:
            # What is read, or passed on, may take longer than the turn, each time. The
            # functions that wait have the next turn then.
            over = self._functions_first and self._call_functions(end)
            self._functions_first = False
            while not over and (self._read_one() or self._waiting):
                over = self._functions_first = self._pass_on_all(end)
                over = over or self._call_functions(end)
        finally:
            self._in_turn = False
            self._turn_later()

    def _pass_on_all(self, end: float) -> bool:
        """Pass on what has arrived and which exchanges are over; whether the turn is
        over."""
        while self._has_news:
            self._pass_on()
            if time.monotonic() >= end:
                return True
        # Nothing of what is read may be a body, again and again.
        return self.closed or time.monotonic() >= end

    def _call_functions(self, end: float) -> bool:
        """Call the functions that wait; whether the turn is over."""
        while self._functions:
            self._functions.popleft()()
            if time.monotonic() >= end:
                return True
        return self.closed

    def _read_one(self) -> bool:
        """Let libcurl read from a socket, or write to it; whether one was ready. One at
        a time: the functions that are called then may close others."""
        ready = self._epoll.poll(0, 1)
        if ready:
            self._act(*_action(*ready[0]))
        return bool(ready)

    def _act(self, socket: int, events: int) -> None:
        _, active = self._multi.socket_action(socket, events)
        # Compared here: an exchange that is interrupted later was active.
        self._some_ended = self._some_ended or active < len(self._running)
        self._arm()

    def _pass_on(self) -> None:
        """Pass on what has arrived for one exchange, or that one is over: an answer may
        be long."""
        # Ends first: an exchange whose server sends faster than its parts are passed on
        # has always another part.
        if self._some_ended:
            self._some_ended = False
            self._note_ends()
        elif self._ended:
            transfer, error = self._ended.popleft()
            transfer.deliver()  # what has arrived before the end
            transfer.end(error)
        else:
            self._arrived.popleft().deliver()

    def _note_ends(self) -> None:
        # By exchange: an answer may begin another one with a handle that is named here.
        _, completed, failed = self._multi.info_read(max(1, len(self._running)))
        self._ended += [(self._running[curl], None) for curl in completed]
        for curl, code, text in failed:
            errnum = curl.getinfo(pycurl.OS_ERRNO)
            self._ended.append((self._running[curl], CurlError(code, errnum, text)))

    def _wait_for(self, what: int, socket: int, multi: Any, data: Any) -> None:
        """libcurl waits for other events of a socket than before."""
        if self.closed:
            return
        events = _EVENTS.get(what)
        if events is None:  # none, or libcurl closes the socket
            if socket in self._sockets:
                self._sockets.remove(socket)
                self._epoll.unregister(socket)
        elif socket in self._sockets:
            self._epoll.modify(socket, events)
        else:
            self._sockets.add(socket)
            self._epoll.register(socket, events)

    def _arm(self) -> None:
        """Have a turn when libcurl wants it. A timer that is early enough is left: what
        libcurl waits for changes with each exchange, and comes to pass seldom."""
        # M_TIMERFUNCTION tells of changes only, and libcurl 7.88 not of all.
        milliseconds = self._multi.timeout()
        if milliseconds < 0:  # it waits for sockets only
            return
        due = time.monotonic() + milliseconds / 1000.0
        if self._timer is not None:
            if self._armed <= due:
                return
            self._timer.cancel()
        self._armed = due
        self._timer = self._loop.call_later(milliseconds / 1000.0, self._expire)

    def _expire(self) -> None:
        self._timer = None
        if not self.closed:
            self._act(pycurl.SOCKET_TIMEOUT, 0)
            self._turn()


def _action(socket: int, events: int) -> tuple[int, int]:
    """What epoll has said of a socket, for libcurl."""
    action = pycurl.CSELECT_IN * bool(events & (select.EPOLLIN | select.EPOLLHUP))
    action |= pycurl.CSELECT_OUT * bool(events & select.EPOLLOUT)
    return socket, action | pycurl.CSELECT_ERR * bool(events & select.EPOLLERR)
