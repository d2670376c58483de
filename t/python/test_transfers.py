# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""HTTP exchanges in an event loop; test_client.py has them with requests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
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
from flux_k8s.kube.transfer import PART, Interrupted, Silence, Transfer
from flux_k8s.kube.transfers import Transfers
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
        silence: float = LONG,
    ) -> None:
        """Begin an exchange."""
        curl = pycurl.Curl()
        curl.setopt(pycurl.URL, url)
        curl.setopt(pycurl.NOSIGNAL, 1)
        transfer = Transfer(self.transfers, curl, receive, silence)

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
    """Send more and more, or nothing, or an answer."""
    if request.path == "/flood":
        wire.send(b"HTTP/1.1 200 OK\r\n\r\n")
        while wire.open:
            wire.send(bytes(16 * PART))
    elif request.path == "/silent":
        wire.hang()
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


def test_the_loop_has_turns_while_an_exchange_is_given_up_beside_one_that_goes_on(
    exchanges: Exchanges,
) -> None:
    parts, in_a_row, most = 0, 0, 0

    def receive(transfer: Transfer, data: bytes) -> None:
        nonlocal parts, in_a_row, most
        parts += 1
        in_a_row += 1
        most = max(most, in_a_row)
        work()
        if most > 500:
            transfer.interrupt()

    def turn() -> None:
        nonlocal in_a_row
        in_a_row = 0
        exchanges.transfers.call_later(0.0, turn)

    turn()
    with Fake(flood_or_answer) as fake:
        exchanges.begin(f"http://127.0.0.1:{fake.port}/flood", receive)
        assert exchanges.loop.run(lambda: parts > 100, PATIENCE)
        exchanges.begin(f"http://127.0.0.1:{fake.port}/silent", silence=0.1)
        assert exchanges.loop.run(lambda: "silent" in exchanges.ends, PATIENCE)
    assert isinstance(exchanges.ends["silent"], Silence)
    assert most < 100


PLUGIN_OF_A_SERVICE = """
import subprocess, sys, time
from flux_k8s.control.coroutines import drive
from flux_k8s.eventloop.loop import PollLoop
from flux_k8s.kube.transfers import Transfers

def plugin():
    run = subprocess.run(["head", "-n1"], stdout=subprocess.PIPE)
    time.sleep(0.02)  # more has to be done with its result
    return run.stdout

async def ask():
    return await Transfers(loop).in_thread(plugin, 0.5)

loop, results = PollLoop(), []
drive(ask(), results.append, (Exception,))
print("begun", flush=True)
loop.run(lambda: bool(results), 10.0)
print(repr(results), flush=True)
"""


def test_the_result_of_a_plugin_that_ended_while_the_service_was_stopped_is_used() -> (
    None
):
    with subprocess.Popen(
        [sys.executable, "-c", PLUGIN_OF_A_SERVICE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as service:
        assert service.stdin is not None and service.stdout is not None
        assert service.stdout.readline() == b"begun\n"
        os.kill(service.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, service.pid, os.WSTOPPED)
        service.stdin.write(b"token\n")
        service.stdin.flush()
        time.sleep(1.0)  # longer than the plugin may take
        os.kill(service.pid, signal.SIGCONT)
        assert service.stdout.readline() == b"[b'token\\n']\n"


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
            wire.json(
                200,
                {
                    "kind": "WorkflowList",
                    "items": [],
                    "metadata": {"resourceVersion": "1"},
                },
            )

    with Fake(with_discovery(answer)) as fake:
        client = service.client(write_kubeconfig(tmp_path / "kc", fake.port))
        handler = Recorder()
        client.watch(WORKFLOW, "default", handler)
        service.run(lambda: handler.calls == ["synced", "ADDED w"])
        assert service.ask(client.get, WORKFLOW, "default", "w")["items"] == []
