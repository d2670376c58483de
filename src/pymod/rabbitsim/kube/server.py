# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The API server: a store, an asyncio loop, and HTTP on loopback.

The loop's thread owns the store. Controllers that live on the same loop use
:class:`rabbitsim.kube.direct.DirectKube` with :class:`AsyncioClock`; others
come in through HTTP, or through :meth:`KubeServer.call`.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Mapping
from typing import Any, Callable, Optional, TypeVar
from urllib.parse import quote

from aiohttp import web

from flux_k8s.ports import Timer
from rabbitsim.kube import kubeconfig
from rabbitsim.kube.handler import Handler, HttpFaults
from rabbitsim.kube.routes import Authorizer
from rabbitsim.kube.store import Store

T = TypeVar("T")

_HOST = "127.0.0.1"


class AsyncioClock:
    """:class:`flux_k8s.ports.Clock` on an asyncio loop; use it on that loop's
    thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._epoch = time.time() - loop.time()

    def now(self) -> float:
        """UNIX time that never goes back, whatever the system's clock does."""
        return self._epoch + self._loop.time()

    def call_later(self, delay: float, function: Callable[[], None]) -> Timer:
        if delay <= 0.0:
            return self._loop.call_soon(function)
        return self._loop.call_later(delay, function)


class KubeServer:
    """An API server on 127.0.0.1, on a thread of its own.

    Args:
        store: belongs to the server's thread from :meth:`start` on.
        port: 0 for any that is free.
        tokens: bearer token → user name; None lets everybody in.
        authorizer: who may do what; None allows everything.
        bookmark_every: seconds between the bookmarks of a watch.
        watch_timeout: seconds after which a watch ends at the latest.
    """

    def __init__(
        self,
        store: Store,
        *,
        port: int = 0,
        tokens: Optional[Mapping[str, str]] = None,
        authorizer: Optional[Authorizer] = None,
        bookmark_every: float = 60.0,
        watch_timeout: float = 1800.0,
    ) -> None:
        self.store = store
        self._port = port
        self._tokens = tokens
        self._handler = Handler(
            store, time.time, tokens, authorizer, bookmark_every, watch_timeout
        )
        self._thread: Optional[threading.Thread] = None
        self._loop: Optional[asyncio.AbstractEventLoop] = None
        self._clock: Optional[AsyncioClock] = None
        self._server: Optional[web.Server] = None
        self._runner: Optional[web.ServerRunner] = None
        self._site: Optional[web.TCPSite] = None

    # The life of the server

    def start(self) -> str:
        """Start serving; returns the URL.

        Raises:
            OSError: the port cannot be listened on.
        """
        loop = asyncio.new_event_loop()
        self._loop, self._clock = loop, AsyncioClock(loop)
        try:
            loop.run_until_complete(self._open())
        except OSError:
            loop.close()
            raise
        self._thread = threading.Thread(
            target=self._run, args=(loop,), name="rabbitsim-kube", daemon=True
        )
        self._thread.start()
        return self.url

    def stop(self) -> None:
        """Stop serving, and end the thread. Stopping twice does nothing."""
        thread, self._thread = self._thread, None
        if thread is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join()

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            loop.run_forever()
        finally:
            loop.run_until_complete(self._close())
            loop.close()

    async def _open(self) -> None:
        self._server = web.Server(self._handler, handler_cancellation=True)
        self._runner = web.ServerRunner(
            self._server, access_log=None, shutdown_timeout=0.0
        )
        await self._runner.setup()
        await self._listen()

    async def _listen(self) -> None:
        assert self._runner is not None
        self._site = web.TCPSite(self._runner, _HOST, self._port, reuse_address=True)
        await self._site.start()
        # A server that is paused and resumed keeps its address.
        self._port = self._runner.addresses[0][1]

    async def _close(self) -> None:
        self._cut_connections()
        if self._runner is not None:
            await self._runner.cleanup()
        tasks = [task for task in asyncio.all_tasks() if task is not _current()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # Functions for other threads

    @property
    def url(self) -> str:
        return f"http://{_HOST}:{self._port}"

    @property
    def clock(self) -> AsyncioClock:
        """The clock of the server's thread, once it is started."""
        assert self._clock is not None, "the server is not started"
        return self._clock

    def call(self, function: Callable[[], T]) -> T:
        """Run ``function`` on the server's thread and return what it returns."""
        if threading.current_thread() is self._thread:
            return function()

        async def run() -> T:
            return function()

        assert self._loop is not None, "the server is not started"
        return asyncio.run_coroutine_threadsafe(run(), self._loop).result()

    def write_kubeconfig(self, path: str) -> None:
        """Write a kubeconfig with the first token, readable by its owner only.

        The token stands in the address as well: kubectl and other Go clients
        send a user's token over TLS only.
        """
        server, user = self.url, {}
        if self._tokens:
            token, name = next(iter(self._tokens.items()))
            user = {"token": token}
            userinfo = f"{quote(name, safe='')}:{quote(token, safe='')}"
            server = server.replace("//", f"//{userinfo}@")
        kubeconfig.write(path, {"server": server}, user)

    # Faults

    @property
    def faults(self) -> Optional[HttpFaults]:
        """Asked about every request; says what goes wrong with it."""
        return self._handler.faults

    @faults.setter
    def faults(self, faults: Optional[HttpFaults]) -> None:
        self._handler.faults = faults

    def drop_watches(self) -> None:
        """End all watch streams, as a server does that rebalances its load."""

        def drop() -> None:
            for stream in tuple(self._handler.streams):
                stream.end()

        self.call(drop)

    def pause(self) -> None:
        """Cut all connections and refuse new ones, as if the server was down.
        The store, and controllers on this thread, go on."""
        if self._site is not None:
            site, self._site = self._site, None
            self._await(site.stop())
            self.call(self._cut_connections)

    def resume(self) -> None:
        """Accept connections again, on the same port."""
        if self._site is None:
            self._await(self._listen())

    def _await(self, coroutine: Any) -> None:
        assert self._loop is not None, "the server is not started"
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def _cut_connections(self) -> None:
        assert self._server is not None
        for connection in self._server.connections:
            if connection.transport is not None:
                connection.transport.abort()


def _current() -> Any:
    return asyncio.current_task()
