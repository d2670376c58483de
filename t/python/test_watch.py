# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Watches, against servers that are scripted byte by byte, and the simulated one."""

from __future__ import annotations

import itertools
import json
import random
import socket
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Callable, NamedTuple, Optional

import pytest

import flux_k8s.kube.watch
from flux_k8s.control.coroutines import Call
from flux_k8s.kube.eventqueue import EventQueue
from flux_k8s.kube.transfers import Transfers
from flux_k8s.ports import COMPUTES, DWS_GROUP, WORKFLOW, Json, Seen
from rabbitsim.kube.handler import HttpFault
from rabbitsim.kube.server import KubeServer
from rabbitsim.kube.store import Store
from support.client import (
    Answer,
    Connect,
    Recorder,
    Request,
    Service,
    Wire,
    computes,
    discovery,
    with_discovery,
    workflow,
)


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    monkeypatch.setattr(flux_k8s.kube.watch, "FIRST_PAUSE", 0.02)
    monkeypatch.setattr(flux_k8s.kube.watch, "GRACE", 0.05)
    monkeypatch.setattr(flux_k8s.kube.watch, "LONGEST_LINE", 100_000)
    with Service() as service:
        yield service


def page(version: int, *items: Json, more: str = "") -> Json:
    metadata = {"resourceVersion": str(version), **({"continue": more} if more else {})}
    return {"kind": "WorkflowList", "metadata": metadata, "items": list(items)}


class Script:
    """A server that answers the requests about Workflows, in their order."""

    def __init__(self, *answers: Answer) -> None:
        self.requests: list[Request] = []
        self._answers = list(answers)

    def __call__(self, request: Request, wire: Wire) -> None:
        if request.path == f"/apis/{DWS_GROUP}":
            wire.json(200, discovery())
            return
        number = len(self.requests)
        self.requests.append(request)
        if number < len(self._answers):
            self._answers[number](request, wire)
        else:
            wire.begin_stream()
            wire.hang()


def lists(*args: Any, **kwargs: Any) -> Answer:
    def answer(request: Request, wire: Wire) -> None:
        assert "watch" not in request.query
        wire.json(200, page(*args, **kwargs))

    return answer


def watches(
    *events: tuple[str, Json], end: Callable[[Wire], None] = Wire.hang
) -> Answer:
    def answer(request: Request, wire: Wire) -> None:
        assert request.query["watch"] == "true"
        wire.begin_stream()
        for type, object in events:
            wire.event(type, object)
        end(wire)

    return answer


def status(code: int, reason: str, **headers: str) -> Answer:
    body = {"kind": "Status", "code": code, "reason": reason, "details": {"name": "w"}}
    return lambda request, wire: wire.json(code, body, **headers)


def cut(request: Request, wire: Wire) -> None:
    wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{")
    wire.drop()


def cut_within_an_event(wire: Wire) -> None:
    wire.chunk(b'{"type": "ADDED", "obj')
    wire.drop()


def version(number: int) -> Json:
    return {"metadata": {"resourceVersion": str(number)}}


def endless(wire: Wire) -> None:
    while wire.open:
        wire.chunk(b"x" * 10_000)


EXPIRED = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
CANNOT_WATCH = "cannot watch workflows, and lists them: "

ANSWERS: dict[str, Answer] = {
    "outdated": watches(("ERROR", EXPIRED)),
    "cut": cut,
    "items=7": lambda request, wire: wire.json(200, {"items": 7}),
    "no-object": lists(1, workflow("a"), {"kind": "Workflow"}),
    **{
        reason: status(code, reason)
        for code, reason in (
            *((403, "Forbidden"), (410, "Expired"), (410, "Gone")),
            (500, "InternalError"),
        )
    },
}
ENDS = {"end": Wire.end_stream, "drop": Wire.drop}
EVENTS = {"+": "ADDED", "~": "MODIFIED", "-": "DELETED"}


def workflow_of(word: str) -> Json:
    name, number, *uid = word.split(":")
    return workflow(name, int(number), *uid)


def answer_of(words: str) -> Answer:
    """``list 7 a:3 next`` is a page with a Workflow of that version, which is not the
    last one; ``watch +a:2 -b:3 @4 drop`` are events, a bookmark, and how it ends."""
    what, *rest = words.split()
    if what in ANSWERS:
        return ANSWERS[what]
    if what == "list":
        more = rest.pop() if rest[-1] == "next" else ""
        return lists(int(rest[0]), *map(workflow_of, rest[1:]), more=more)
    end = ENDS[rest.pop()] if rest and rest[-1] in ENDS else Wire.hang
    return watches(
        *(
            ("BOOKMARK", version(int(word[1:])))
            if word[0] == "@"
            else (EVENTS[word[0]], workflow_of(word[1:]))
            for word in rest
        ),
        end=end,
    )


LOST: list[tuple[Callable[[Wire], object], str]] = [
    (Wire.drop, "ConnectionLost"),
    (lambda wire: wire.send(b"not a chunk\r\n"), "ConnectionLost"),
    (
        lambda wire: (wire.chunk(b'{"type": "ADDED"'), wire.end_stream()),
        "ConnectionLost",
    ),
    (endless, "BadResponse"),
    *(
        (lambda wire, line=line: wire.chunk(line + b"\n"), "BadResponse")
        for line in (b'{"type": "ADD', b"\xff", b"[" * 20_000, b"null", b"[]", b"{}")
    ),
    *(
        (lambda wire, event=event: wire.event(*event), "BadResponse")
        for event in (
            *(("ADDED", []), ("ADDED", {"metadata": []}), ("BOOKMARK", None)),
            *(("ADDED", {"metadata": {"name": "w"}}), ("ADDED", version(1))),
            ("RENAMED", workflow("x")),
        )
    ),
    (lambda wire: wire.event("ERROR", {"code": 500, "reason": "Internal"}), "Internal"),
]
"""How watches are lost, and the reason that is told."""


class Course(NamedTuple):
    """A server that answers so, and what is told to the handler of a watch, in words.

    Attributes:
        logged: how often it is logged that watches are refused, though lists are not.
        asked: what is asked first: ``list``, the next page, or a watch from a version.
        steady: seconds after which a watch counts as one that works.
    """

    answers: str
    told: str
    logged: int = 0
    asked: str = ""
    steady: float = 60.0
    options: Mapping[str, Any] = MappingProxyType({})


COURSES = {
    "each list is said to be expired": Course(
        "list 7, outdated, Expired, Expired, list 9, outdated, list 10, watch +a:11",
        "synced, trouble Expired, synced, synced, ADDED a",
        logged=1,
    ),
    "the same trouble again and again": Course(
        "Forbidden, Forbidden, Forbidden, cut, items=7, list 1",
        "trouble Forbidden, trouble ConnectionLost, trouble BadResponse, synced",
    ),
    # Jobs go on by the lists, and are not told each time.
    "watches are refused, and later again": Course(
        "list 1, Forbidden, list 1, Forbidden, list 1, Forbidden, list 1,"
        " watch +a:2 end, Forbidden, list 2 a:2, Forbidden, list 2 a:2, watch +b:3",
        "synced, trouble Forbidden, synced, synced, synced, ADDED a,"
        " trouble Forbidden, synced, synced, ADDED b",
        logged=2,
    ),
    "watches are cut after each event": Course(
        "list 1, watch +a:2 drop, list 2 a:2, watch +b:3 drop, list 3 a:2,"
        " watch +c:4 drop, list 4 a:2, watch +d:5",
        "synced, ADDED a, trouble ConnectionLost, synced, ADDED b, DELETED b, synced,"
        " ADDED c, DELETED c, synced, ADDED d",
        logged=1,
    ),
    "a watch that has worked for a while is cut, and again": Course(
        "list 1, watch +a:2 drop, list 2 a:2, watch +b:3 drop, list 3 a:2, watch +c:4",
        "synced, ADDED a, trouble ConnectionLost, synced, ADDED b,"
        " trouble ConnectionLost, DELETED b, synced, ADDED c",
        steady=0.0,
    ),
    "watches end at once": Course(
        "list 1, watch end, watch end, list 1, watch end, list 1, watch +a:2",
        "synced, trouble ConnectionLost, synced, synced, ADDED a",
        logged=1,
    ),
    "a list of two pages": Course(
        "list 7 a:3 next, list 7 b:5, watch +c:8 -b:9",
        "ADDED a, ADDED b, synced, ADDED c, DELETED b",
        asked="list next 7",
    ),
    "a list expires between its pages": Course(
        "list 7 a:3 next, Expired, list 9 b:8",
        "ADDED a, ADDED b, DELETED a, synced",
        asked="list next list",
    ),
    "the server ends watches": Course(
        "list 1, watch +a:5 end, watch @20 end, watch +b:21",
        "synced, ADDED a, ADDED b",
        asked="list 1 5 20",
    ),
    **{
        f"the version of a watch is forgotten: {expired}": Course(
            f"list 1 a:1 b:1 c:1:old, {expired}, list 9 a:1 c:8:new, watch +d:10",
            "ADDED a, ADDED b, ADDED c, synced, DELETED c, ADDED c, DELETED b, synced,"
            " ADDED d",
            asked="list 1 list 9",
        )
        for expired in ("outdated", "Expired", "Gone")
    },
    "nothing is heard of a connection": Course(
        "list 1, watch +a:2, list 9 a:2, watch +b:10",
        "synced, ADDED a, trouble Timeout, synced, ADDED b",
        options={"watch_timeout": 0.05},
    ),
    "an event is just short enough": Course(
        f"list 1, watch +a:2:{'x' * 90_000}", "synced, ADDED a"
    ),
    "an object is made again": Course(
        "list 1 a:1:first, watch ~a:5:second", "ADDED a, synced, DELETED a, ADDED a"
    ),
    "events are late": Course(
        "list 10 a:10, watch +a:9 ~a:9 -a:9 +b:11", "ADDED a, synced, ADDED b"
    ),
    "events come twice, or are of what is not there": Course(
        "list 1 a:1, watch +b:2 +b:2 -c:3 +d:4", "ADDED a, synced, ADDED b, ADDED d"
    ),
    "an object of a list is none": Course(
        "no-object, list 1 a:1", "trouble BadResponse, ADDED a, synced"
    ),
    "a list goes back in time": Course(
        "list 10 a:10, outdated, list 7 a:7, watch +b:8",
        "ADDED a, synced, DELETED a, ADDED a, synced, ADDED b",
    ),
}


class Follow:
    """Follows the Workflows of a server; what its handler is told, and is asked."""

    def __init__(self, service: Service, connect: Connect) -> None:
        self._service, self._connect = service, connect

    def __call__(
        self, *answers: Answer, until: str, **options: Any
    ) -> tuple[Recorder, list[Request]]:
        script, handler = Script(*answers), Recorder()
        _, client = self._connect(script, **options)
        client.watch(WORKFLOW, "default", handler)
        count = until.count(",") + 1
        self._service.run(
            lambda: (
                handler.calls[-1:] == until.split(", ")[-1:]
                and len(handler.calls) >= count
            )
        )
        return handler, script.requests


@pytest.fixture
def follow(service: Service, connect: Connect) -> Follow:
    return Follow(service, connect)


def asked(requests: list[Request]) -> str:
    words = (
        request.query.get("resourceVersion", request.query.get("continue", "list"))
        for request in requests
    )
    return " ".join(words)


@pytest.mark.parametrize("course", COURSES)
def test_what_is_told_and_logged_of_a_server(
    follow: Follow, service: Service, monkeypatch: pytest.MonkeyPatch, course: str
) -> None:
    row = COURSES[course]
    monkeypatch.setattr(flux_k8s.kube.watch, "STEADY", row.steady)
    answers = map(answer_of, row.answers.split(", "))
    handler, requests = follow(*answers, until=row.told, **row.options)
    assert ", ".join(handler.calls) == row.told
    assert asked(requests).startswith(row.asked)
    if "watch_timeout" in row.options:
        assert requests[1].query["timeoutSeconds"] == "1"
    lines = [line for line in service.logged if "cannot watch" in line]
    assert len(lines) == row.logged
    assert all(line.startswith(CANNOT_WATCH) for line in lines)


@pytest.mark.parametrize(("end", "reason"), LOST)
def test_a_watch_that_is_lost_is_told_and_followed_by_a_list(
    follow: Follow, end: Callable[[Wire], None], reason: str
) -> None:
    told = f"synced, ADDED a, trouble {reason}, ADDED b, DELETED a, synced, ADDED c"
    handler, _ = follow(
        *(lists(1), watches(("ADDED", workflow("a", 2)), end=end)),
        *(answer_of("list 9 b:8"), answer_of("watch +c:10")),
        until=told,
    )
    assert ", ".join(handler.calls) == told


def test_managedFields_are_dropped_and_bookmarks_asked_for(follow: Follow) -> None:
    fields = [{"manager": "dws"}]
    handler, requests = follow(
        lists(1, workflow("a", 1, managedFields=fields)),
        watches(("ADDED", workflow("b", 2, managedFields=fields))),
        until="ADDED a, synced, ADDED b",
    )
    assert handler.view == {"a": workflow("a", 1), "b": workflow("b", 2)}
    assert requests[1].query["allowWatchBookmarks"] == "true"
    assert int(requests[1].query["timeoutSeconds"]) >= 300


def test_events_may_arrive_in_any_parts(follow: Follow) -> None:
    names = [str(number) for number in range(20)]
    objects = [workflow(name, int(name) + 2) for name in names]
    lines = "".join(
        json.dumps({"type": "ADDED", "object": object}) + "\n" * (number % 3 + 1)
        for number, object in enumerate(objects)
    ).encode()

    def answer(request: Request, wire: Wire) -> None:
        wire.begin_stream()
        rng, sent = random.Random(1), 0
        while sent < len(lines):
            size = rng.choice((1, 2, 7, 200))
            wire.chunk(lines[sent : sent + size])
            sent += size
        wire.hang()

    told = ["synced", *(f"ADDED {name}" for name in names)]
    handler, _ = follow(lists(1), answer, until=", ".join(told))
    assert handler.calls == told


def an_error_in_parts(wire: Wire) -> None:
    for byte in json.dumps({"type": "ERROR", "object": EXPIRED}).encode():
        wire.chunk(bytes([byte]))
    wire.chunk(b"\n")
    wire.end_stream()


@pytest.mark.parametrize(
    "end", [Wire.drop, Wire.reset, Wire.end_stream, an_error_in_parts]
)
def test_pauses_become_longer_while_no_watch_works_for_a_while(
    service: Service,
    connect: Connect,
    monkeypatch: pytest.MonkeyPatch,
    end: Callable[[Wire], None],
) -> None:
    """Each costs the server a list of all objects; a proxy may do it for ever."""
    pauses, versions = [], itertools.count(2)

    def sleep(transfers: Transfers, seconds: float) -> Call[None]:
        pauses.append(seconds)
        return Call(lambda answer: transfers.call_later(0.0, partial(answer, None)))

    def answer(request: Request, wire: Wire) -> None:
        number = next(versions)
        if "watch" in request.query:
            watches(("ADDED", workflow(str(number), number)), end=end)(request, wire)
        else:
            wire.json(200, page(number))

    monkeypatch.setattr(Transfers, "sleep", sleep)
    _, client = connect(with_discovery(answer))
    client.watch(WORKFLOW, None, Recorder())
    service.run(lambda: len(pauses) >= 8)
    assert pauses[7] > 32 * flux_k8s.kube.watch.FIRST_PAUSE


@pytest.mark.xfail(
    strict=True, reason="a watch that is lost is followed by a list of all objects"
)
@pytest.mark.parametrize("end", [Wire.drop, Wire.reset, cut_within_an_event])
def test_a_watch_that_is_lost_goes_on_from_its_last_version(
    service: Service, connect: Connect, end: Callable[[Wire], None]
) -> None:
    """The server need not list all objects again, and jobs do not wait."""
    requests: list[Request] = []

    def answer(request: Request, wire: Wire) -> None:
        requests.append(request)
        number = len(requests)
        if "watch" in request.query:
            watches(("ADDED", workflow(str(number), number)), end=end)(request, wire)
        else:
            wire.json(200, page(number))

    _, client = connect(with_discovery(answer))
    handler = Recorder()
    client.watch(WORKFLOW, None, handler)
    service.run(lambda: len(requests) > 3)
    assert asked(requests).startswith("list 1 2 3")
    assert handler.errors == []


def test_a_watch_pauses_while_the_service_is_far_behind_and_loses_nothing(
    service: Service, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EventQueue, "CAPACITY", 3)
    count, sent = 150, []

    def answer(request: Request, wire: Wire) -> None:
        wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
        wire.begin_stream()
        for number in range(count):
            wire.event("ADDED", workflow(str(number), number + 2, "x" * 100_000))
            sent.append(number)
        wire.hang()

    _, client = connect(Script(lists(1), answer))
    handler = Recorder()
    client.watch(WORKFLOW, None, handler)
    service.run(lambda: handler.calls[:1] == ["synced"])
    seen = -1
    while len(sent) != seen or not sent:
        seen = len(sent)
        time.sleep(1.0)
    assert len(sent) < count
    last = f"ADDED {count - 1}"
    service.run(lambda: bool(handler.errors) or handler.calls[-1] == last)
    assert handler.errors == []
    assert handler.calls[1:] == [f"ADDED {number}" for number in range(count)]


def test_a_stopped_informer_delivers_nothing(
    service: Service, connect: Connect
) -> None:
    events = [("ADDED", workflow(str(n), n + 2)) for n in range(100)]
    ends: list[bool] = []
    watch = watches(*events, end=lambda wire: ends.append(wire.await_end()))
    _, client = connect(Script(lists(1), watch))

    class Stopping(Recorder):
        def event(self, type: str, object: Seen) -> None:
            super().event(type, object)
            informer.stop()

    handler = Stopping()
    informer = client.watch(WORKFLOW, None, handler)
    service.run(lambda: handler.calls == ["synced", "ADDED 0"])
    service.run(lambda: ends == [True])
    service.loop.run(lambda: False, 0.01)
    assert handler.calls == ["synced", "ADDED 0"]


def test_closing_the_client_ends_its_watches(
    service: Service, connect: Connect
) -> None:
    ends: list[bool] = []

    def answer(request: Request, wire: Wire) -> None:
        if request.path.endswith("/w"):
            wire.json(200, workflow("w"))
        elif "watch" in request.query:
            wire.begin_stream()
            ends.append(wire.await_end())
        else:
            wire.json(200, page(1))

    _, client = connect(with_discovery(answer))
    handlers = [Recorder(), Recorder()]
    for handler in handlers:
        client.watch(WORKFLOW, None, handler)
    service.ask(client, "get", WORKFLOW, "default", "w")
    service.run(lambda: all(h.calls for h in handlers))
    client.close()
    service.run(lambda: ends == [True, True])


class Chaos:
    """Random changes of a cluster whose server misbehaves, from a seed."""

    FAULTS = (
        HttpFault(status=500),
        HttpFault(status=429),
        HttpFault(status=410),
        HttpFault(close=True),
        HttpFault(close=True, carried_out=True),
        HttpFault(truncate=True),
        HttpFault(malformed=True),
        HttpFault(hang=0.02),
    )

    def __init__(self, server: KubeServer, seed: int) -> None:
        self.server = server
        self.rng = random.Random(seed)

    def fault(
        self, method: str, path: str, query: Mapping[str, str]
    ) -> Optional[HttpFault]:
        return self.rng.choice(self.FAULTS) if self.rng.random() < 0.4 else None

    def change(self) -> None:
        store, name = self.server.store, self.rng.choice("abcdef")
        if store.find(COMPUTES, "default", name) is None:
            store.create(COMPUTES, "default", computes(name))
        elif self.rng.random() < 0.3:
            store.delete(COMPUTES, "default", name)
        else:
            data = [{"name": f"node{self.rng.randrange(1000)}"}]
            store.merge_patch(COMPUTES, "default", name, {"data": data})

    def step(self) -> None:
        for _ in range(self.rng.randrange(20)):
            self.server.call(self.change)
        dice = self.rng.random()
        if dice < 0.1:
            self.server.drop_watches()
        elif dice < 0.2:
            self.server.call(self.server.store.forget_history)
        elif dice < 0.3:
            self.server.pause()
            self.server.call(self.change)
            self.server.resume()


@pytest.mark.parametrize("seed", range(4))
def test_whatever_goes_wrong_the_view_ends_equal_to_the_store(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(flux_k8s.kube.watch, "LONGEST_PAUSE", 0.05)
    store, kubeconfig = Store(time.time, random.Random(1), history=30), tmp_path / "kc"
    server = KubeServer(
        store, tokens={"t": "flux"}, bookmark_every=0.05, watch_timeout=0.3
    )
    server.start()
    server.write_kubeconfig(str(kubeconfig))
    chaos = Chaos(server, seed)
    client = service.client(str(kubeconfig), read_timeout=1.0, watch_timeout=1.0)
    handler = Recorder()
    server.faults = chaos.fault
    client.watch(COMPUTES, "default", handler)
    for _ in range(40):
        chaos.step()
        service.loop.run(lambda: False, 0.005)
    server.faults = None

    def settled() -> bool:
        page = server.call(lambda: server.store.list(COMPUTES, "default"))
        store = {item["metadata"]["name"]: item for item in page["items"]}
        return handler.view == store

    service.run(settled)
    server.stop()
