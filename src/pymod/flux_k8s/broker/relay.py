# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The relay of requests to the service, and of responses to the sender.

Messages are passed on unchanged, with user, role, matchtag and route, so the broker
delivers the service's response like a response of the module. No payload is read.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from flux.constants import FLUX_MSGTYPE_RESPONSE
from flux.core.inner import ffi, lib

from flux_k8s.broker.channel import owned

Route = tuple[bytes, ...]
"""The way of a message, with the last hop first."""


def route_of(message: Any) -> Route:
    """The route of a request. The response to it has the same one.

    A guest may send a request with a route that begins with that of somebody else, but
    Flux adds the guest's own hops: only the whole route tells who has sent it.

    Raises:
        OSError: there is no memory for it.
    """
    copy = owned(lib.flux_msg_copy(message.handle, False))
    hops = []
    while (hop := lib.flux_msg_route_last(copy.handle)) != ffi.NULL:
        hops.append(ffi.string(hop))
        lib.flux_msg_route_delete_last(copy.handle)
    return tuple(hops)


def matchtag_of(message: Any) -> int:
    """The matchtag of a request, or of the response to it."""
    matchtag = ffi.new("uint32_t [1]")
    lib.flux_msg_get_matchtag(message.handle, matchtag)
    return int(matchtag[0])


class Relay:
    """The requests that were sent to the service and are not answered yet.

    Args:
        flux: the module's handle.
    """

    def __init__(self, flux: Any) -> None:
        self._flux = flux
        self._pending: dict[Route, dict[int, Any]] = {}
        self._of_user: Counter[int] = Counter()

    def __len__(self) -> int:
        return sum(map(len, self._pending.values()))

    def count(self, userid: int) -> int:
        """The number of a user's requests that are not answered yet."""
        return self._of_user[userid]

    def add(self, message: Any) -> None:
        """Note a request that is sent to the service. Its payload is not kept.

        Raises:
            OSError: there is no memory for it.
        """
        if lib.flux_msg_is_noresponse(message.handle):
            return
        copy = owned(lib.flux_msg_copy(message.handle, False))
        route, matchtag = route_of(message), matchtag_of(message)
        self._remove(route, matchtag)
        self._pending.setdefault(route, {})[matchtag] = copy
        self._of_user[copy.userid] += 1

    def drop(self, message: Any) -> bool:
        """Forget the requests of a sender that has gone. Return whether there are any.

        Args:
            message: the ``disconnect`` of the sender. A guest may send a hundred
                thousand of them a second: few have their route looked at.
        """
        if message.userid not in self._of_user:
            return False
        route = route_of(message)
        matchtags = tuple(self._pending.get(route, ()))
        for matchtag in matchtags:
            self._remove(route, matchtag)
        return bool(matchtags)

    def respond(self, message: Any) -> None:
        """Send a response of the service to the sender of the request."""
        assert message.type == FLUX_MSGTYPE_RESPONSE
        self._remove(route_of(message), matchtag_of(message))
        self._flux.send(message)

    def fail(self, errnum: int, text: str) -> None:
        """Answer all open requests with an error."""
        pending, self._pending = self._pending, {}
        self._of_user.clear()
        for messages in pending.values():
            for message in messages.values():
                self._flux.respond_error(message, errnum, text)

    def _remove(self, route: Route, matchtag: int) -> None:
        messages = self._pending.get(route, {})
        message = messages.pop(matchtag, None)
        if message is None:
            return
        if not messages:
            del self._pending[route]
        self._of_user[message.userid] -= 1
        if not self._of_user[message.userid]:
            del self._of_user[message.userid]
