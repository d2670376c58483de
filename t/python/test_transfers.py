# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""HTTP exchanges in an event loop; test_client.py has them with requests."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Callable, Optional

import pycurl
import pytest

from flux_k8s.eventloop.loop import PollLoop
from flux_k8s.eventloop.timers import OneShotTimer
from flux_k8s.kube import transfers
from flux_k8s.kube.transfers import PART, Interrupted, Transfer, Transfers
from flux_k8s.ports import WORKFLOW
from support.client import (
    PATIENCE,
    Fake,
    Recorder,
    Request,
    Service,
    Wire,
    unused_port,
    with_discovery,
    workflow,
    write_kubeconfig,
)

LONG = 3600.0
"""Seconds after which an exchange would be given up; no test takes that long."""


class Exchanges:
    """Exchanges with a server, and how they have ended."""

    def __init__(self) -> None:
        self.loop = PollLoop()
        self.transfers = Transfers(self.loop)
        self.ends: dict[str, Optional[Exception]] = {}

    def begin(
        self,
        url: str,
        receive: Callable[[Transfer, bytes], None] = lambda transfer, data: None,
    ) -> None:
        """Begin an exchange."""
        curl = pycurl.Curl()
        curl.setopt(pycurl.URL, url)
        curl.setopt(pycurl.NOSIGNAL, 1)
        transfer = Transfer(self.transfers, curl, receive, LONG)

        def answer(error: Optional[Exception]) -> None:
            self.ends[url.rpartition("/")[2]] = error

        transfer.begin(answer)

    def wait_for(self, count: int) -> bool:
        return self.loop.run(lambda: len(self.ends) == count, PATIENCE)


@pytest.fixture
def exchanges() -> Iterator[Exchanges]:
    exchanges = Exchanges()
    yield exchanges
    exchanges.transfers.close()
    exchanges.loop.close()


def test_an_answer_is_not_held_back_by_an_exchange_that_is_interrupted_beside_it(
    exchanges: Exchanges,
) -> None:
    reached = threading.Barrier(3)
    sent = threading.Barrier(3)

    def answer(request: Request, wire: Wire) -> None:
        reached.wait(PATIENCE)
        if request.path == "/endless":
            wire.begin_stream()
            wire.chunk(b"part")
        else:
            wire.json(200, {})
        sent.wait(PATIENCE)
        wire.hang()

    def interrupt(transfer: Transfer, data: bytes) -> None:
        transfer.interrupt()

    def hold() -> None:
        if reached.n_waiting < 2:
            exchanges.transfers.call_later(0.01, hold)
            return
        # Both answers are in the sockets when libcurl has its turn.
        reached.wait(PATIENCE)
        sent.wait(PATIENCE)

    with Fake(answer) as fake:
        exchanges.begin(f"http://127.0.0.1:{fake.port}/endless", interrupt)
        exchanges.begin(f"http://127.0.0.1:{fake.port}/whole")
        hold()
        assert exchanges.wait_for(2)
        assert isinstance(exchanges.ends["endless"], Interrupted)
        assert exchanges.ends["whole"] is None


def flood_or_answer(request: Request, wire: Wire) -> None:
    """Send more and more, or an answer."""
    if request.path == "/flood":
        wire.send(b"HTTP/1.1 200 OK\r\n\r\n")
        while wire.open:
            wire.send(bytes(16 * PART))
    else:
        wire.json(200, {})


def work() -> None:
    """Be slower with a part than its server."""
    end = time.monotonic() + 0.001
    while time.monotonic() < end:
        pass


def test_an_answer_is_passed_on_while_another_exchange_gets_more_than_it_can_take(
    exchanges: Exchanges,
) -> None:
    parts: list[int] = []

    def receive(transfer: Transfer, data: bytes) -> None:
        parts.append(len(data))
        work()

    with Fake(flood_or_answer) as fake:
        exchanges.begin(f"http://127.0.0.1:{fake.port}/flood", receive)
        assert exchanges.loop.run(lambda: len(parts) > 100, PATIENCE)
        exchanges.begin(f"http://127.0.0.1:{fake.port}/whole")
        assert exchanges.wait_for(1)
        assert exchanges.ends == {"whole": None}


@pytest.mark.parametrize("size", [PART - 1, PART, PART + 1, 4 * PART, 2_000_000])
def test_a_long_answer_is_passed_on_in_parts_and_as_a_whole(
    exchanges: Exchanges, size: int
) -> None:
    body = bytes(range(250)) * (size // 250 + 1)
    parts: list[bytes] = []

    def answer(request: Request, wire: Wire) -> None:
        wire.text(200, body[:size])

    with Fake(answer) as fake:
        url = f"http://127.0.0.1:{fake.port}/long"
        exchanges.begin(url, lambda transfer, data: parts.append(data))
        assert exchanges.wait_for(1)
    assert exchanges.ends == {"long": None}
    assert b"".join(parts) == body[:size]
    assert max(map(len, parts)) < PART + 16 * 1024  # the longest write of libcurl


def test_the_loop_is_idle_when_all_exchanges_are_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """libcurl 7.88 of Debian 12 does not take back a time that is past."""
    loop = PollLoop()
    exchanges = Transfers(loop)
    timers: list[float] = []
    call_later = loop.call_later

    def note(delay: float, function: Callable[[], None]) -> OneShotTimer:
        timers.append(delay)
        return call_later(delay, function)

    try:
        curl = pycurl.Curl()
        curl.setopt(pycurl.URL, f"http://127.0.0.1:{unused_port()}/")
        ends: list[Optional[Exception]] = []
        Transfer(exchanges, curl, lambda found, _: None, LONG).begin(ends.append)
        assert loop.run(lambda: bool(ends), PATIENCE)
        monkeypatch.setattr(loop, "call_later", note)
        loop.run(lambda: False, 0.2)
        assert len(timers) < 10
    finally:
        exchanges.close()
        loop.close()


def test_a_turn_that_is_over_as_it_begins_answers_and_delivers_even_so(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To read what has arrived may take longer than a turn, each time."""
    monkeypatch.setattr(transfers, "TURN", 0.0)

    def answer(request: Request, wire: Wire) -> None:
        if "watch" in request.query:
            wire.begin_stream()
            wire.event("ADDED", workflow("w", 2))
            wire.hang()
        else:
            wire.json(200, {"items": [], "metadata": {"resourceVersion": "1"}})

    with Fake(with_discovery(answer)) as fake:
        client = service.client(write_kubeconfig(tmp_path / "kc", fake.port))
        handler = Recorder()
        client.watch(WORKFLOW, "default", handler)
        service.run(lambda: handler.calls == ["synced", "ADDED w"])
        assert service.ask(client.get, WORKFLOW, "default", "w")["items"] == []
