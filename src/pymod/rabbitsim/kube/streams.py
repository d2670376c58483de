# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Watch streams: one JSON object a line, for as long as the client wants."""

from __future__ import annotations

import asyncio
from typing import Callable, Optional

from aiohttp import web

from flux_k8s.ports import Json
from rabbitsim.kube.errors import ApiError
from rabbitsim.kube.kinds import Resource
from rabbitsim.kube.watch import Event, Stored, encode

# A client that is so far behind is cut off; it lists again.
_MOST_PENDING = 100_000

Render = Callable[[Stored], bytes]


def frame(type: str, body: bytes) -> bytes:
    """A line of the stream."""
    return b'{"type":"%b","object":%b}\n' % (type.encode(), body)


class Stream:
    """The lines that one watch has still to send.

    Args:
        render: makes an object's JSON (itself, or a table's).
        bookmark_every: seconds between bookmarks; 0 for none.
        lifetime: seconds after which the stream ends.
    """

    def __init__(
        self,
        resource: Resource,
        render: Render,
        version: Callable[[], int],
        bookmark_every: float,
        lifetime: float,
    ) -> None:
        self._resource = resource
        self._render = render
        self._version = version
        self._bookmark_every = bookmark_every
        self._lifetime = lifetime
        self._lines: list[bytes] = []
        self._wake = asyncio.Event()
        self._ended = False
        self._timer: Optional[asyncio.TimerHandle] = None

    def add(self, event: Event) -> None:
        self._line(frame(event.type, self._render(event.object)))

    def fail(self, error: ApiError) -> None:
        """Tell the client why the watch ends, and end it."""
        self._line(frame("ERROR", encode(error.status())))
        self.end()

    def bookmark(self, annotations: Optional[Json] = None) -> None:
        """Tell the client how far it has seen everything."""
        metadata: Json = {"resourceVersion": str(self._version())}
        if annotations:
            metadata["annotations"] = annotations
        obj = {
            "kind": self._resource.kind.name,
            "apiVersion": self._resource.api_version,
            "metadata": metadata,
        }
        self._line(frame("BOOKMARK", self._render(Stored(obj))))

    def end(self) -> None:
        """Send what is pending, and nothing more."""
        self._ended = True
        self._wake.set()

    async def send(self, response: web.StreamResponse) -> None:
        """Send lines until the end."""
        loop = asyncio.get_running_loop()
        end = loop.call_later(self._lifetime, self._expire)
        self._plan_bookmark()
        try:
            while self._lines or not self._ended:
                if not self._lines:
                    self._wake.clear()
                    await self._wake.wait()
                    continue
                data, self._lines = b"".join(self._lines), []
                await response.write(data)
        finally:
            end.cancel()
            if self._timer is not None:
                self._timer.cancel()

    def _line(self, line: bytes) -> None:
        if self._ended:
            return
        self._lines.append(line)
        if len(self._lines) > _MOST_PENDING:
            self._lines.clear()
            self._ended = True
        self._wake.set()

    def _expire(self) -> None:
        if self._bookmark_every:
            self.bookmark()
        self.end()

    def _plan_bookmark(self) -> None:
        if self._bookmark_every:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._bookmark_every, self._bookmark_due)

    def _bookmark_due(self) -> None:
        self.bookmark()
        self._plan_bookmark()
