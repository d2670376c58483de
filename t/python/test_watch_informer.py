# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Watches against servers that are scripted, byte by byte."""

from __future__ import annotations

import itertools
import json
import random
import socket
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Callable, NamedTuple

import pytest

import flux_k8s.kube.watch
from flux_k8s.control.coroutines import Call
from flux_k8s.kube.cache import Cache
from flux_k8s.kube.eventqueue import EventQueue
from flux_k8s.kube.transfers import Transfers
from flux_k8s.ports import DWS_GROUP, WORKFLOW, Json
from support.client import (
    Connect,
    Fake,
    Recorder,
    Request,
    Service,
    Wire,
    discovery,
    with_discovery,
    workflow,
    write_kubeconfig,
)


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    monkeypatch.setattr(flux_k8s.kube.watch, "FIRST_PAUSE", 0.02)
    with Service() as service:
        yield service


def page(version: int, *items: Json, more: str = "") -> Json:
    metadata = {"resourceVersion": str(version), **({"continue": more} if more else {})}
    return {"kind": "WorkflowList", "metadata": metadata, "items": list(items)}


class Script:
    """A server that answers the requests about Workflows, in their order."""

    def __init__(self, *answers: Callable[[Request, Wire], None]) -> None:
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


def lists(*args: Any, **kwargs: Any) -> Callable[[Request, Wire], None]:
    def answer(request: Request, wire: Wire) -> None:
        assert "watch" not in request.query
        wire.json(200, page(*args, **kwargs))

    return answer


def watches(
    *events: tuple[str, Json], end: Callable[[Wire], None] = Wire.hang
) -> Callable[[Request, Wire], None]:
    def answer(request: Request, wire: Wire) -> None:
        assert request.query["watch"] == "true"
        wire.begin_stream()
        for type, object in events:
            wire.event(type, object)
        end(wire)

    return answer


def status(code: int, reason: str, **headers: str) -> Callable[[Request, Wire], None]:
    body = {"kind": "Status", "code": code, "reason": reason, "details": {"name": "w"}}
    return lambda request, wire: wire.json(code, body, **headers)


def cut(request: Request, wire: Wire) -> None:
    wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{")
    wire.drop()


def cut_within_an_event(wire: Wire) -> None:
    wire.chunk(b'{"type": "ADDED", "obj')
    wire.drop()


EXPIRED = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}


CANNOT_WATCH = "cannot watch workflows, and lists them: "

ADDS_A = watches(("ADDED", workflow("a", 2)))
ENDS = watches(end=Wire.end_stream)
OUT_OF_DATE = watches(("ERROR", EXPIRED))
EXPIRES, FORBIDDEN = status(410, "Expired"), status(403, "Forbidden")


def drops(name: str, version: int) -> Callable[[Request, Wire], None]:
    """A watch that is cut after an event."""
    return watches(("ADDED", workflow(name, version)), end=Wire.drop)


class Course(NamedTuple):
    """A server that answers so, and what is told to the handler of a watch, in words.

    Attributes:
        logged: how often it is logged that watches are refused, though lists are not.
    """

    answers: Sequence[Callable[[Request, Wire], None]]
    told: str
    logged: int = 0


COURSES = {
    "each list is said to be expired": Course(
        [
            *(lists(7), OUT_OF_DATE, EXPIRES, EXPIRES),
            *(lists(9), OUT_OF_DATE, lists(10)),
            watches(("ADDED", workflow("a", 11))),
        ],
        "synced, trouble Expired, synced, synced, ADDED a",
        logged=1,
    ),
    "the same trouble again and again": Course(
        [
            *(FORBIDDEN, FORBIDDEN, FORBIDDEN, cut),
            *(lambda request, wire: wire.json(200, {"items": 7}), lists(1)),
        ],
        "trouble Forbidden, trouble ConnectionLost, trouble BadResponse, synced",
    ),
    # Jobs go on by the lists, and are not told each time.
    "watches are refused, and later again": Course(
        [
            *(lists(1), FORBIDDEN) * 3,
            lists(1),
            watches(("ADDED", workflow("a", 2)), end=Wire.end_stream),
            *(FORBIDDEN, lists(2, workflow("a", 2))) * 2,
            watches(("ADDED", workflow("b", 3))),
        ],
        "synced, trouble Forbidden, synced, synced, synced, ADDED a,"
        " trouble Forbidden, synced, synced, ADDED b",
        logged=2,
    ),
    "an outage after a watch that was refused": Course(  # lists failed as well
        [*(lists(1), cut) * 2, cut, cut, lists(1), ADDS_A],
        "synced, trouble ConnectionLost, synced, trouble ConnectionLost, synced,"
        " ADDED a",
    ),
    "watches are refused by errors in turn": Course(
        [
            *(lists(1), FORBIDDEN, lists(1), status(500, "InternalError")) * 2,
            *(lists(1), OUT_OF_DATE, lists(1), cut, lists(1), ADDS_A),
        ],
        "synced, trouble Forbidden, synced, trouble InternalError, synced, synced,"
        " synced, synced, trouble ConnectionLost, synced, ADDED a",
        logged=1,
    ),
    "watches are cut after each event": Course(
        [
            *(lists(1), drops("a", 2), lists(2, workflow("a", 2)), drops("b", 3)),
            *(lists(3, workflow("a", 2)), drops("c", 4), lists(4, workflow("a", 2))),
            watches(("ADDED", workflow("d", 5))),
        ],
        "synced, ADDED a, trouble ConnectionLost, synced, ADDED b, DELETED b, synced,"
        " ADDED c, DELETED c, synced, ADDED d",
        logged=1,
    ),
    "lists of nothing": Course(
        [
            *(lists(1, workflow("a", 1)), OUT_OF_DATE, lists(2)),
            *(lists(2, workflow("a", 1)), OUT_OF_DATE, lists(3), lists(3)),
            watches(("ADDED", workflow("b", 4))),
        ],
        "ADDED a, synced, synced, DELETED a, synced, ADDED b",
        logged=1,
    ),
    "a watch is lost after one that was out of date": Course(
        [lists(1), OUT_OF_DATE, lists(1), cut, lists(1), ADDS_A],
        "synced, synced, trouble ConnectionLost, synced, ADDED a",
    ),
    "watches are refused, and some lists are out of date": Course(
        [
            *(lists(1), FORBIDDEN, *(EXPIRES, lists(1), FORBIDDEN) * 3),
            *(EXPIRES, lists(1), ADDS_A),
        ],
        "synced, trouble Forbidden, synced, synced, synced, synced, ADDED a",
        logged=1,
    ),
    "watches end at once": Course(
        [lists(1), ENDS, ENDS, lists(1), ENDS, lists(1), ADDS_A],
        "synced, trouble ConnectionLost, synced, synced, ADDED a",
        logged=1,
    ),
    "one watch ends as it began": Course([lists(1), ENDS, ADDS_A], "synced, ADDED a"),
    "answers are empty": Course(
        [
            lists(1),
            *[lambda request, wire: wire.text(200, b"")] * 2,
            *(lists(2), watches(("ADDED", workflow("a", 3)))),
        ],
        "synced, trouble ConnectionLost, synced, ADDED a",
    ),
}


class Test_Informer:
    @pytest.fixture
    def follow(
        self, service: Service, tmp_path: Path
    ) -> Iterator[Callable[..., tuple[Recorder, list[Request]]]]:
        fakes: list[Fake] = []

        def follow(
            *answers: Callable[[Request, Wire], None], until: str, **options: Any
        ) -> tuple[Recorder, list[Request]]:
            """What a handler is told by such a server, until it is told that."""
            script = Script(*answers)
            fakes.append(Fake(script))
            client = service.client(
                write_kubeconfig(tmp_path / "kc", fakes[-1].port), **options
            )
            handler = Recorder()
            client.watch(WORKFLOW, "default", handler)
            service.run(lambda: handler.calls[-1:] == [until])
            return handler, script.requests

        yield follow
        for fake in fakes:
            fake.close()

    def test_an_informer_lists_page_by_page_then_watches_from_there(
        self, follow: Any
    ) -> None:
        handler, requests = follow(
            lists(7, workflow("a", 3), more="next"),
            lists(7, workflow("b", 5)),
            watches(("ADDED", workflow("c", 8)), ("DELETED", workflow("b", 9))),
            until="DELETED b",
        )
        assert handler.calls == [
            "ADDED a",
            "ADDED b",
            "synced",
            "ADDED c",
            "DELETED b",
        ]
        first, second, watch = requests
        assert "continue" not in first.query
        assert second.query["continue"] == "next"
        assert watch.query["resourceVersion"] == "7"
        assert watch.query["allowWatchBookmarks"] == "true"
        assert int(watch.query["timeoutSeconds"]) >= 300

    @pytest.mark.parametrize("course", COURSES)
    def test_what_is_told_and_logged_of_a_server(
        self, follow: Any, service: Service, course: str
    ) -> None:
        answers, told, logged = COURSES[course]
        handler, _ = follow(*answers, until=told.split(", ")[-1])
        assert ", ".join(handler.calls) == told
        lines = [line for line in service.logged if "cannot watch" in line]
        assert len(lines) == logged
        assert all(line.startswith(CANNOT_WATCH) for line in lines)

    def test_managedFields_are_dropped(self, follow: Any) -> None:
        fields = [{"manager": "dws"}]
        handler, _ = follow(
            lists(1, workflow("a", 1, managedFields=fields)),
            watches(("ADDED", workflow("b", 2, managedFields=fields))),
            until="ADDED b",
        )
        assert handler.view == {"a": workflow("a", 1), "b": workflow("b", 2)}

    def test_an_informer_goes_on_from_its_version_when_the_server_ends_a_watch(
        self, follow: Any
    ) -> None:
        bookmark = {"metadata": {"resourceVersion": "20"}}
        handler, requests = follow(
            lists(1),
            watches(("ADDED", workflow("a", 5)), end=Wire.end_stream),
            watches(("BOOKMARK", bookmark), end=Wire.end_stream),
            watches(("ADDED", workflow("b", 21))),
            until="ADDED b",
        )
        assert handler.calls == ["synced", "ADDED a", "ADDED b"]
        versions = [request.query.get("resourceVersion") for request in requests]
        assert versions == [None, "1", "5", "20"]

    @pytest.mark.parametrize(
        "expired",
        [watches(("ERROR", EXPIRED)), status(410, "Expired"), status(410, "Gone")],
    )
    def test_an_informer_lists_again_after_its_version_expired_and_delivers_changes(
        self, follow: Any, expired: Any
    ) -> None:
        handler, requests = follow(
            lists(1, workflow("a", 1), workflow("b", 1), workflow("c", 1, "old")),
            expired,
            lists(9, workflow("a", 1), workflow("c", 8, "new")),
            watches(("ADDED", workflow("d", 10))),
            until="ADDED d",
        )
        assert handler.calls[3:] == [
            "synced",
            "DELETED c",
            "ADDED c",
            "DELETED b",
            "synced",
            "ADDED d",
        ]
        assert requests[3].query["resourceVersion"] == "9"

    def test_an_informer_begins_a_list_anew_that_expires_between_pages(
        self, follow: Any
    ) -> None:
        handler, requests = follow(
            lists(7, workflow("a", 3), more="next"),
            status(410, "Expired"),
            lists(9, workflow("b", 8)),
            until="synced",
        )
        assert handler.calls == ["ADDED a", "ADDED b", "DELETED a", "synced"]
        assert "continue" not in requests[2].query

    @pytest.mark.parametrize(
        ("end", "reason"),
        [
            (Wire.drop, "ConnectionLost"),
            (lambda wire: wire.send(b"not a chunk\r\n"), "ConnectionLost"),
            (lambda wire: wire.chunk(b'{"type": "ADD\n'), "BadResponse"),
            (lambda wire: wire.chunk(b"\xff\n"), "BadResponse"),
            (lambda wire: wire.chunk(b"[" * 20_000 + b"\n"), "BadResponse"),
            (lambda wire: wire.event("RENAMED", workflow("x")), "BadResponse"),
            (
                lambda wire: wire.event("ERROR", {"code": 500, "reason": "Internal"}),
                "Internal",
            ),
            (
                lambda wire: (wire.chunk(b'{"type": "ADDED"'), wire.end_stream()),
                "ConnectionLost",
            ),
        ],
    )
    def test_an_informer_reports_a_lost_watch_then_lists_again(
        self, follow: Any, end: Callable[[Wire], None], reason: str
    ) -> None:
        handler, _ = follow(
            lists(1),
            watches(("ADDED", workflow("a", 2)), end=end),
            lists(9, workflow("b", 8)),
            watches(("ADDED", workflow("c", 10))),
            until="ADDED c",
        )
        assert handler.calls == [
            "synced",
            "ADDED a",
            f"trouble {reason}",
            "ADDED b",
            "DELETED a",
            "synced",
            "ADDED c",
        ]

    def test_an_informer_keeps_no_event_without_end(
        self, follow: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(flux_k8s.kube.watch, "LONGEST_LINE", 100_000)

        def endless(wire: Wire) -> None:
            while wire.open:
                wire.chunk(b"x" * 10_000)

        handler, _ = follow(
            lists(1),
            watches(("ADDED", workflow("a", 2)), end=endless),
            lists(9, workflow("a", 2)),
            watches(("ADDED", workflow("b", 10, "x" * 90_000))),
            until="ADDED b",
        )
        assert handler.calls == [
            "synced",
            "ADDED a",
            "trouble BadResponse",
            "synced",
            "ADDED b",
        ]

    def test_events_may_arrive_in_any_parts(self, follow: Any) -> None:
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

        handler, _ = follow(lists(1), answer, until="ADDED 19")
        assert handler.calls == ["synced", *(f"ADDED {name}" for name in names)]

    def test_an_informer_notices_a_half_open_connection(
        self, follow: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(flux_k8s.kube.watch, "GRACE", 0.05)
        handler, _ = follow(
            lists(1),
            watches(("ADDED", workflow("a", 2))),
            lists(9, workflow("a", 2)),
            watches(("ADDED", workflow("b", 10))),
            until="ADDED b",
            watch_timeout=0.05,
        )
        assert handler.calls == [
            "synced",
            "ADDED a",
            "trouble Timeout",
            "synced",
            "ADDED b",
        ]

    def test_a_watch_that_has_worked_for_a_while_and_is_cut_is_told_again(
        self, follow: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(flux_k8s.kube.watch, "STEADY", 0.0)
        handler, _ = follow(
            *(lists(1), watches(("ADDED", workflow("a", 2)), end=Wire.drop)),
            lists(2, workflow("a", 2)),
            watches(("ADDED", workflow("b", 3)), end=Wire.drop),
            *(lists(3, workflow("a", 2)), watches(("ADDED", workflow("c", 4)))),
            until="ADDED c",
        )
        assert handler.calls.count("trouble ConnectionLost") == 2

    def test_an_informer_goes_on_after_an_error_of_its_own(
        self, follow: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        whole = Cache.add_event

        def broken(cache: Cache, event: Any) -> Any:
            monkeypatch.setattr(Cache, "add_event", whole)
            raise AttributeError

        monkeypatch.setattr(Cache, "add_event", broken)
        handler, _ = follow(
            lists(1),
            watches(("ADDED", workflow("a", 2))),
            lists(2, workflow("a", 2)),
            watches(("ADDED", workflow("b", 3))),
            until="ADDED b",
        )
        assert handler.calls == [
            "synced",
            "trouble InternalError",
            "ADDED a",
            "synced",
            "ADDED b",
        ]

    def test_an_informer_waits_as_long_as_the_server_asks(self, follow: Any) -> None:
        handler, _ = follow(
            status(429, "TooManyRequests", Retry_After="1"),
            lists(1),
            until="synced",
        )
        assert [error.retry_after for error in handler.errors] == [1.0]

    def test_pauses_become_longer_while_each_watch_begins_with_an_error(
        self, service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Each error costs the server a list of all objects."""
        pauses: list[float] = []

        def sleep(transfers: Transfers, seconds: float) -> Call[None]:
            pauses.append(seconds)
            return Call(lambda answer: transfers.call_later(0.0, partial(answer, None)))

        def answer(request: Request, wire: Wire) -> None:
            if "watch" in request.query:
                wire.begin_stream()
                for byte in json.dumps({"type": "ERROR", "object": EXPIRED}).encode():
                    wire.chunk(bytes([byte]))
                wire.chunk(b"\n")
                wire.end_stream()
            else:
                wire.json(200, page(1))

        monkeypatch.setattr(Transfers, "sleep", sleep)
        with Fake(with_discovery(answer)) as fake:
            client = service.client(write_kubeconfig(tmp_path / "kc", fake.port))
            client.watch(WORKFLOW, None, Recorder())
            service.run(lambda: len(pauses) >= 8)
        assert pauses[7] > 32 * flux_k8s.kube.watch.FIRST_PAUSE

    @pytest.mark.parametrize("end", [Wire.drop, Wire.reset, Wire.end_stream])
    def test_pauses_become_longer_while_each_watch_is_over_after_an_event(
        self,
        service: Service,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        end: Callable[[Wire], None],
    ) -> None:
        """So a proxy may do it, for ever."""
        pauses, version = [], itertools.count(2)

        def sleep(transfers: Transfers, seconds: float) -> Call[None]:
            pauses.append(seconds)
            return Call(lambda answer: transfers.call_later(0.0, partial(answer, None)))

        def answer(request: Request, wire: Wire) -> None:
            number = next(version)
            if "watch" in request.query:
                watches(("ADDED", workflow(str(number), number)), end=end)(
                    request, wire
                )
            else:
                wire.json(200, page(number))

        monkeypatch.setattr(Transfers, "sleep", sleep)
        with Fake(with_discovery(answer)) as fake:
            client = service.client(write_kubeconfig(tmp_path / "kc", fake.port))
            client.watch(WORKFLOW, None, Recorder())
            service.run(lambda: len(pauses) >= 8)
        assert pauses[7] > 32 * flux_k8s.kube.watch.FIRST_PAUSE

    @pytest.mark.xfail(
        strict=True, reason="a watch that is lost is followed by a list of all objects"
    )
    @pytest.mark.parametrize("end", [Wire.drop, Wire.reset, cut_within_an_event])
    def test_a_watch_that_is_lost_goes_on_from_its_last_version(
        self, service: Service, tmp_path: Path, end: Callable[[Wire], None]
    ) -> None:
        """The server need not list all objects again, and jobs do not wait."""
        asked: list[str] = []

        def answer(request: Request, wire: Wire) -> None:
            version = len(asked) + 1
            asked.append(request.query.get("resourceVersion", "list"))
            if "watch" in request.query:
                event = "ADDED", workflow(str(version), version)
                watches(event, end=end)(request, wire)
            else:
                wire.json(200, page(version))

        with Fake(with_discovery(answer)) as fake:
            client = service.client(write_kubeconfig(tmp_path / "kc", fake.port))
            handler = Recorder()
            client.watch(WORKFLOW, None, handler)
            service.run(lambda: len(asked) > 3)
        assert asked[:4] == ["list", "1", "2", "3"]
        assert handler.errors == []

    @pytest.mark.parametrize(
        "expired", [status(410, "Expired"), watches(("ERROR", EXPIRED))]
    )
    def test_one_list_is_enough_after_a_version_that_the_server_has_forgotten(
        self, follow: Any, expired: Callable[[Request, Wire], None]
    ) -> None:
        _, requests = follow(
            lists(1),
            expired,
            lists(5),
            watches(("ADDED", workflow("a", 6))),
            until="ADDED a",
        )
        assert ["watch" in request.query for request in requests] == [
            *(False, True, False, True)
        ]

    def test_an_informer_waits_for_a_missing_CRD(
        self, service: Service, connect: Connect
    ) -> None:
        fake, client = connect(
            lambda request, wire: wire.text(404, b"404 page not found")
        )
        handler = Recorder()
        client.watch(WORKFLOW, None, handler)
        service.run(lambda: handler.calls == ["trouble GroupNotFound"])
        fake.answer = Script(lists(1, workflow("a")))
        service.run(lambda: handler.calls[-1] == "synced")
        assert handler.calls[-2:] == ["ADDED a", "synced"]


class Test_flow:
    def test_a_watch_pauses_while_the_service_is_far_behind_and_loses_nothing(
        self, service: Service, connect: Connect, monkeypatch: pytest.MonkeyPatch
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
        service.run(lambda: handler.calls[-1] == f"ADDED {count - 1}")
        assert handler.calls[1:] == [f"ADDED {number}" for number in range(count)]

    def test_a_page_of_a_list_is_asked_for_when_those_before_are_delivered(
        self, service: Service, connect: Connect, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """But for the last one, so that nobody waits for it."""
        monkeypatch.setattr(flux_k8s.kube.watch, "PAGE", 10)
        monkeypatch.setattr(EventQueue, "PORTION", 1)
        asked: list[int] = []

        def answer(request: Request, wire: Wire) -> None:
            if "watch" in request.query:
                wire.hang()
                return
            first = int(request.query.get("continue", 0))
            asked.append(first)
            items = [workflow(str(number)) for number in range(first, first + 10)]
            following = str(first + 10) if first < 90 else ""
            page = {"resourceVersion": "1", "continue": following}
            wire.json(200, {"kind": "WorkflowList", "items": items, "metadata": page})

        class Counting(Recorder):
            def event(self, type: str, object: Json) -> None:
                assert asked[-1] <= len(self.calls) + 10
                super().event(type, object)

        _, client = connect(with_discovery(answer))
        handler = Counting()
        client.watch(WORKFLOW, None, handler)
        service.run(lambda: handler.calls[-1:] == ["synced"])
        assert len(handler.view) == 100

    def test_a_watch_is_not_opened_again_while_the_service_is_far_behind(
        self, service: Service, connect: Connect, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(EventQueue, "CAPACITY", 10)
        monkeypatch.setattr(flux_k8s.kube.watch, "LONGEST_PAUSE", 0.02)
        opened = 0

        def answer(request: Request, wire: Wire) -> None:
            nonlocal opened
            if "watch" not in request.query:
                wire.json(200, page(1))
                return
            wire.begin_stream()
            for number in range(5 * opened, 5 * opened + 5):
                wire.event("ADDED", workflow(str(number), number + 2))
            opened += 1
            wire.end_stream()

        _, client = connect(with_discovery(answer))

        class Slow(Recorder):
            def synced(self) -> None:
                super().synced()
                seen = -1
                while opened != seen and opened < 100:
                    seen = opened
                    time.sleep(0.5)
                assert opened <= 2

        handler = Slow()
        client.watch(WORKFLOW, None, handler)
        service.run(lambda: len(handler.calls) > 200)
        assert handler.calls[1:201] == [f"ADDED {n}" for n in range(200)]


class Test_stop:
    def test_an_informer_stops_although_the_server_is_silent(
        self, service: Service, connect: Connect
    ) -> None:
        ends: list[bool] = []

        def silent(request: Request, wire: Wire) -> None:
            wire.begin_stream()
            ends.append(wire.await_end())

        fake, client = connect(Script(lists(1, workflow("a")), silent))
        handler = Recorder()
        informer = client.watch(WORKFLOW, None, handler)
        service.run(lambda: len(fake.requests) == 3)
        informer.stop()
        informer.stop()
        service.run(lambda: ends == [True])

    def test_a_stopped_informer_delivers_nothing(
        self, service: Service, connect: Connect
    ) -> None:
        events = [("ADDED", workflow(str(n), n + 2)) for n in range(100)]
        ends: list[bool] = []
        watch = watches(*events, end=lambda wire: ends.append(wire.await_end()))
        _, client = connect(Script(lists(1), watch))

        class Stopping(Recorder):
            def event(self, type: str, object: Json) -> None:
                super().event(type, object)
                informer.stop()

        handler = Stopping()
        informer = client.watch(WORKFLOW, None, handler)
        service.run(lambda: handler.calls == ["synced", "ADDED 0"])
        service.run(lambda: ends == [True])
        service.loop.run(lambda: False, 0.01)
        assert handler.calls == ["synced", "ADDED 0"]

    def test_closing_the_client_ends_its_watches(
        self, service: Service, connect: Connect
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
        service.ask(client.get, WORKFLOW, "default", "w")
        service.run(lambda: all(h.calls for h in handlers))
        client.close()
        service.run(lambda: ends == [True, True])
