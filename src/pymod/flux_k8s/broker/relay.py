# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The relay of requests to the service, and of responses to the sender.

Messages are passed on unchanged, with user, role, matchtag and route, so the broker
delivers the service's response like a response of the module. No payload is read.
"""

from __future__ import annotations

import os
from typing import Any

from flux.constants import FLUX_MSGTYPE_RESPONSE
from flux.core.inner import ffi, lib
from flux.message import Message

RequestKey = tuple[bytes, int]
"""The sender and the matchtag of a request."""


def key_of(message: Any) -> RequestKey:
    """The key of a request. The response to it has the same key."""
    sender = lib.flux_msg_route_first(message.handle)
    matchtag = ffi.new("uint32_t [1]")
    lib.flux_msg_get_matchtag(message.handle, matchtag)
    return b"" if sender == ffi.NULL else ffi.string(sender), int(matchtag[0])


class Relay:
    """The requests that were sent to the service and are not answered yet.

    Args:
        flux: the module's handle.
    """

    def __init__(self, flux: Any) -> None:
        self._flux = flux
        self._pending: dict[RequestKey, Any] = {}

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, message: Any) -> None:
        """Note a request that is sent to the service. Its payload is not kept.

        Raises:
            OSError: there is no memory for it.
        """
        if lib.flux_msg_is_noresponse(message.handle):
            return
        raw = lib.flux_msg_copy(message.handle, False)
        if raw == ffi.NULL:
            raise OSError(ffi.errno, os.strerror(ffi.errno))
        self._pending[key_of(message)] = Message(handle=raw)
        lib.flux_msg_decref(raw)

    def respond(self, message: Any) -> None:
        """Send a response of the service to the sender of the request."""
        assert message.type == FLUX_MSGTYPE_RESPONSE
        if not (lib.flux_msg_is_streaming(message.handle) and succeeded(message)):
            self._pending.pop(key_of(message), None)
        self._flux.send(message)

    def fail(self, errnum: int, text: str) -> None:
        """Answer all open requests with an error."""
        pending, self._pending = self._pending, {}
        for message in pending.values():
            self._flux.respond_error(message, errnum, text)


def succeeded(message: Any) -> bool:
    """Whether a response is no error."""
    errnum = ffi.new("int [1]")
    rc = int(lib.flux_msg_get_errnum(message.handle, errnum))
    return rc == 0 and int(errnum[0]) == 0
