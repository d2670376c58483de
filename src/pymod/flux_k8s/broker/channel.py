# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The connection between the supervisor and the service: a pair of sockets with a Flux
handle (``fd://``) at each end.

The supervisor sends the requests of others as they are, :data:`CONFIG` at the start
and whenever the configuration changes, and :data:`PING` now and then. The service sends
its responses, :data:`PONG` for each PING, and once :data:`READY` or :data:`REFUSED`.
"""

from __future__ import annotations

import errno
import os
import socket
from collections import deque
from types import MappingProxyType
from typing import Any, Callable

from flux.constants import (
    FLUX_MATCHTAG_NONE,
    FLUX_MSGTYPE_ANY,
    FLUX_O_NONBLOCK,
    FLUX_POLLERR,
    FLUX_POLLIN,
    FLUX_POLLOUT,
    FLUX_ROLE_OWNER,
)
from flux.core.inner import ffi, lib
from flux.message import Message

METHODS = MappingProxyType(
    dict.fromkeys(
        ("create", "setup", "post_run", "teardown", "abort", "hello", "stats-get"),
        FLUX_ROLE_OWNER,
    )
)
"""The topics of the service without ``dws.``, and who may use each: FLUX_ROLE_OWNER, or
FLUX_ROLE_ALL for a topic whose handler checks the message's user itself."""

CONFIG = "service.config"
"""Has ``{"rabbit": TABLE or null, "queues": TABLE or null}``; the first one also has
``"barred"``, a list of ``[JOBID, RELEASING]``
(:class:`flux_k8s.jobs.isolation.Work`)."""
PING = "service.ping"
PONG = "service.pong"
READY = "service.ready"
REFUSED = "service.refused"
"""The service cannot start; has ``{"reason": TEXT}``."""

QUEUE_SIZE = 256 * 1024 * 1024
"""Bytes of messages that may wait for the service to take them."""

MESSAGES_PER_TURN = 32
"""Messages that are received before others have their turn."""

WOULD_BLOCK = (errno.EAGAIN, errno.EWOULDBLOCK)


def socket_pair() -> tuple[int, int]:
    """File descriptors of two connected sockets. For each end the byte is waiting that
    a handle expects of the one that accepts it."""
    ours, theirs = socket.socketpair()
    ours.sendall(b"\0")
    theirs.sendall(b"\0")
    return ours.detach(), theirs.detach()


def message_size(message: Any) -> int:
    """How many bytes a message has on its way."""
    return max(0, int(lib.flux_msg_encode_size(message.handle)))


class Channel:
    """The supervisor's end. Neither sending nor receiving waits for the other end.

    Args:
        received: gets each message.
        lost: is called once, when the other end is gone.
    """

    def __init__(
        self, flux: Any, received: Callable[[Any], None], lost: Callable[[], None]
    ) -> None:
        self._received = received
        self._lost = lost
        fd, self.peer = socket_pair()
        """``peer`` is the file descriptor for the service."""
        self._fd = fd
        self._queue: deque[Any] = deque()
        self._queued = 0
        self._readable: Any = None
        self._writable: Any = None
        self._handle = lib.flux_open(f"fd://{fd}".encode(), 0)
        if self._handle == ffi.NULL:
            number = ffi.errno
            os.close(fd)
            os.close(self.peer)
            raise OSError(number, f"flux_open: {os.strerror(number)}")
        try:
            self._any = ffi.new(
                "struct flux_match *", (FLUX_MSGTYPE_ANY, FLUX_MATCHTAG_NONE, ffi.NULL)
            )
            self._readable = flux.fd_watcher_create(
                fd, lambda *_: self.receive(), FLUX_POLLIN | FLUX_POLLERR
            )
            self._writable = flux.fd_watcher_create(
                fd, lambda *_: self._flush(), FLUX_POLLOUT
            )
            self._readable.start()
        except BaseException:
            self.close()
            raise

    def fileno(self) -> int:
        return int(self._fd)

    def send(self, message: Any) -> None:
        """Send a message, in order, as soon as the other end takes it."""
        self._queue.append(message)
        self._queued += message_size(message)
        if len(self._queue) == 1:
            self._flush()

    @property
    def is_empty(self) -> bool:
        """All that was sent was taken."""
        return not self._queue

    def has_room_for(self, message: Any) -> bool:
        """Whether a message may be sent that others can do without. There is room for
        one of any size."""
        return not self._queue or self._queued + message_size(message) <= QUEUE_SIZE

    def receive(self) -> None:
        """Handle what has arrived."""
        for _ in range(MESSAGES_PER_TURN):
            if self._handle is None:  # closed by what came before
                return
            raw = lib.flux_recv(self._handle, self._any[0], FLUX_O_NONBLOCK)
            if raw == ffi.NULL:
                if ffi.errno not in WOULD_BLOCK:
                    self._end()
                return
            message = Message(handle=raw)
            lib.flux_msg_decref(raw)  # the Message has a reference of its own
            self._received(message)

    def close_peer(self) -> None:
        """Close the file descriptor that the service has inherited."""
        if self.peer >= 0:
            os.close(self.peer)
            self.peer = -1

    def close(self) -> None:
        if self._handle is not None:
            for watcher in (self._readable, self._writable):
                if watcher is not None:
                    watcher.stop()
                    watcher.destroy()
            self.close_peer()
            lib.flux_close(self._handle)
            self._handle = None
            self._queue.clear()

    def _flush(self) -> None:
        while self._queue and self._handle is not None:
            message = self._queue[0]
            if lib.flux_send(self._handle, message.handle, FLUX_O_NONBLOCK) < 0:
                if ffi.errno in WOULD_BLOCK:
                    self._writable.start()
                    return
                # The reader finds the end, after what the service still has sent.
                self._queue.clear()
                self._queued = 0
                break
            self._queued -= message_size(self._queue.popleft())
        self._writable.stop()

    def _end(self) -> None:
        self.close()
        self._lost()
