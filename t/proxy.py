# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""A way to an API server that can be cut.

usage: proxy.py KUBECONFIG COPY STATE

Writes COPY, a kubeconfig like KUBECONFIG whose way to the server leads through
here. SIGUSR1 cuts it: connections are reset, and new ones refused. SIGUSR2
mends it. When that is done the file STATE says "cut" or "open".
"""

from __future__ import annotations

import asyncio
import pathlib
import signal
import socket
import struct
import sys
import urllib.parse
from typing import Optional

import yaml

RESET = struct.pack("ii", 1, 0)
"""SO_LINGER of a connection that ends by a reset and loses what is under way."""


class Proxy:
    """Passes on what comes to a port on loopback."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._server: Optional[asyncio.AbstractServer] = None
        self._clients: set[asyncio.StreamWriter] = set()
        self._port = 0

    async def open(self) -> int:
        """Accept connections on the port that is returned, always the same."""
        if self._server is None:
            self._server = await asyncio.start_server(
                self._serve, "127.0.0.1", self._port
            )
            self._port = self._server.sockets[0].getsockname()[1]
        return self._port

    def cut(self) -> None:
        """Refuse connections from now on, and reset those that there are in the
        next turn of the loop."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for client in self._clients:
            connection = client.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            client.transport.abort()

    async def _serve(
        self, reader: asyncio.StreamReader, client: asyncio.StreamWriter
    ) -> None:
        self._clients.add(client)
        try:
            answers, server = await asyncio.open_connection(*self._target)
            await asyncio.gather(copy(reader, server), copy(answers, client))
        except OSError:
            client.transport.abort()
        finally:
            self._clients.discard(client)


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass on what comes until one of the two ends, then close."""
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


def through(kubeconfig: str, port: int) -> str:
    """A kubeconfig like this one, by which the server is on a port of ours."""
    config = yaml.safe_load(pathlib.Path(kubeconfig).read_text("utf-8"))
    cluster = config["clusters"][0]["cluster"]
    url = urllib.parse.urlsplit(cluster["server"])
    userinfo, at, _ = url.netloc.rpartition("@")
    url = url._replace(netloc=f"{userinfo}{at}127.0.0.1:{port}")
    cluster["server"] = url.geturl()
    return str(yaml.safe_dump(config))


def server_of(kubeconfig: str) -> tuple[str, int]:
    """Where the server is."""
    config = yaml.safe_load(pathlib.Path(kubeconfig).read_text("utf-8"))
    url = urllib.parse.urlsplit(config["clusters"][0]["cluster"]["server"])
    if url.hostname is None or url.port is None:
        sys.exit(f"{kubeconfig}: {url.geturl()}: expected a host and a port")
    return url.hostname, url.port


async def run(kubeconfig: str, through_here: str, state: str) -> None:
    loop = asyncio.get_running_loop()
    proxy = Proxy(*server_of(kubeconfig))
    status = pathlib.Path(state)
    wanted = asyncio.Event()

    def cut() -> None:
        proxy.cut()
        loop.call_soon(status.write_text, "cut\n")

    loop.add_signal_handler(signal.SIGUSR1, cut)
    loop.add_signal_handler(signal.SIGUSR2, wanted.set)
    pathlib.Path(through_here).write_text(through(kubeconfig, await proxy.open()))
    while True:
        await proxy.open()
        status.write_text("open\n")
        await wanted.wait()
        wanted.clear()


if __name__ == "__main__":
    asyncio.run(run(*sys.argv[1:]))
