# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The connection between the supervisor and the service: a pair of sockets with a Flux
handle (``fd://``) at each end.

The supervisor passes requests on unchanged. It sends :data:`CONFIG` at the start and at
each change of the configuration, and :data:`PING` from time to time. The service sends
the responses, :data:`PONG` for each PING, and once :data:`READY` or :data:`REFUSED`.
What work the service is doing stands in memory that outlives it (:class:`CurrentWork`).
"""

from __future__ import annotations

import errno
import json
import mmap
import os
import socket
import struct
from collections import deque
from types import MappingProxyType
from typing import Any, Callable, Optional

from flux.constants import (
    FLUX_MATCHTAG_NONE,
    FLUX_MSGTYPE_ANY,
    FLUX_MSGTYPE_REQUEST,
    FLUX_O_NONBLOCK,
    FLUX_POLLERR,
    FLUX_POLLIN,
    FLUX_POLLOUT,
    FLUX_ROLE_ALL,
    FLUX_ROLE_OWNER,
)
from flux.core.inner import ffi, lib
from flux.message import Message

from flux_k8s.jobs.work import DISCONNECT, OWNER_QUERIES, QUERIES, Work
from flux_k8s.ports import Json

PLUGIN = (
    *("create", "setup", "post_run", "teardown", "abort", "report_data", "hello"),
    "stats-get",
)
"""The methods for the plugin and the instance owner."""

METHODS = MappingProxyType(
    {
        **dict.fromkeys((*PLUGIN, *OWNER_QUERIES), FLUX_ROLE_OWNER),
        **dict.fromkeys((*QUERIES, DISCONNECT), FLUX_ROLE_ALL),
    }
)
"""The roles that may use each topic of the service (without ``dws.``): FLUX_ROLE_OWNER,
or FLUX_ROLE_ALL for a topic whose handler checks the user of the message itself."""

CONFIG = "service.config"
"""The payload is ``{"rabbit": TABLE or null, "queues": TABLE or null, "graph": FILE}``,
with the file of the resource graph, or "". That of the
first request also has ``"barred"``, a list of ``[JOBID, RELEASING]``: the
:class:`flux_k8s.jobs.work.Work` that the service must not do."""
PING = "service.ping"
PONG = "service.pong"
READY = "service.ready"
REFUSED = "service.refused"
"""The service cannot start. The payload is ``{"reason": TEXT, "why": REASON}``, with a
:class:`flux_k8s.reasons.Reason`."""

_LAYOUT = struct.Struct("=QQ")
_NOTHING, _STORAGE, _RELEASE = range(3)

QUEUE_SIZE = 256 * 1024 * 1024
"""The most bytes of requests that wait until the service receives them."""

GUEST_QUEUE_SIZE = 1024 * 1024
"""The same for requests of guests, which must leave room for those of the plugin."""

MESSAGES_PER_TURN = 32
"""The most messages that are received before the reactor has its turn again."""

WOULD_BLOCK = (errno.EAGAIN, errno.EWOULDBLOCK)


def socket_pair() -> tuple[int, int]:
    """The file descriptors of two connected sockets. A Flux handle reads a byte first,
    by which the other end accepts it; that byte is in both sockets already."""
    ours, theirs = socket.socketpair()
    ours.sendall(b"\0")
    theirs.sendall(b"\0")
    return ours.detach(), theirs.detach()


def owned(raw: Any) -> Message:
    """The message that a function of Flux has returned, which is freed with it.

    Raises:
        OSError: the function has failed.
    """
    if raw == ffi.NULL:
        raise OSError(ffi.errno, os.strerror(ffi.errno))
    message = Message(handle=raw)
    lib.flux_msg_decref(raw)  # the Message has a reference of its own
    return message


def encode_request(topic: str, payload: Any) -> Message:
    """A request of the instance owner that gets no response.

    Raises:
        OSError: the message cannot be made.
    """
    text = json.dumps(payload).encode()
    message = owned(lib.flux_request_encode(topic.encode(), text))
    if (
        lib.flux_msg_set_noresponse(message.handle) < 0
        or lib.flux_msg_set_rolemask(message.handle, FLUX_ROLE_OWNER) < 0
    ):
        raise OSError(ffi.errno, os.strerror(ffi.errno))
    return message


def first_config(channel: Any) -> Json:
    """Wait, in the service, for the first message of the supervisor, and return its
    payload: that of :data:`CONFIG`.

    Raises:
        OSError: the supervisor is gone.
    """
    anything = ffi.new("struct flux_match *", {"topic_glob": ffi.NULL})
    anything.typemask = FLUX_MSGTYPE_REQUEST
    anything.matchtag = 0
    tables: Json = owned(lib.flux_recv(channel.handle, anything[0], 0)).payload
    return tables


def message_size(message: Any) -> int:
    """The size of an encoded message in bytes."""
    return max(0, int(lib.flux_msg_encode_size(message.handle)))


class Channel:
    """The supervisor's end of the connection. Neither sending nor receiving waits for
    the service.

    Args:
        flux: the module's handle.
        received: is called with each message.
        lost: is called once, when the service has closed its end.

    Attributes:
        peer: the file descriptor for the service; -1 after :meth:`close_peer`.

    Raises:
        OSError: the connection cannot be made.
    """

    def __init__(
        self, flux: Any, received: Callable[[Any], None], lost: Callable[[], None]
    ) -> None:
        self._received = received
        self._lost = lost
        fd, self.peer = socket_pair()
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
        """The file descriptor that is readable when messages have arrived."""
        return int(self._fd)

    def send(self, message: Any) -> None:
        """Send a message, after those before it, as soon as the socket has room."""
        self._queue.append(message)
        self._queued += message_size(message)
        if len(self._queue) == 1:
            self._flush()

    @property
    def is_empty(self) -> bool:
        """Whether no message waits to be sent."""
        return not self._queue

    def has_room_for(self, message: Any, limit: int = QUEUE_SIZE) -> bool:
        """Whether another request may wait: with it, at most ``limit`` bytes do. An
        empty queue has room for a request of any size."""
        return not self._queue or self._queued + message_size(message) <= limit

    def receive(self) -> None:
        """Call ``received`` with the messages that have arrived, at most
        ``MESSAGES_PER_TURN``."""
        for _ in range(MESSAGES_PER_TURN):
            if self._handle is None:  # closed by an earlier message
                return
            raw = lib.flux_recv(self._handle, self._any[0], FLUX_O_NONBLOCK)
            if raw == ffi.NULL:
                if ffi.errno not in WOULD_BLOCK:
                    self._end()
                return
            self._received(owned(raw))

    def close_peer(self) -> None:
        """Close the file descriptor that the service has inherited."""
        if self.peer >= 0:
            os.close(self.peer)
            self.peer = -1

    def close(self) -> None:
        """Close this end. ``lost`` is not called."""
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
                # receive() finds the end, after the last messages of the service.
                self._queue.clear()
                self._queued = 0
                break
            self._queued -= message_size(self._queue.popleft())
        self._writable.stop()

    def _end(self) -> None:
        self.close()
        self._lost()


class CurrentWork:
    """Memory that the service writes and the supervisor reads.

    Args:
        fd: the descriptor of a file in memory. The caller closes it.
    """

    def __init__(self, fd: int) -> None:
        self._memory = mmap.mmap(fd, _LAYOUT.size)

    def set(self, work: Optional[Work]) -> None:
        """Note the work for a job; None while the service works for no single job."""
        if work is None:
            _LAYOUT.pack_into(self._memory, 0, _NOTHING, 0)
        else:
            kind = _RELEASE if work.releasing else _STORAGE
            _LAYOUT.pack_into(self._memory, 0, kind, work.jobid)

    def get(self) -> Optional[Work]:
        """The work that was noted last."""
        kind, jobid = _LAYOUT.unpack_from(self._memory)
        return None if kind == _NOTHING else Work(jobid, kind == _RELEASE)
