# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What a watch tells, and how it gets to the service's thread."""

from __future__ import annotations

import gc
from typing import Any, Callable, Optional

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from flux_k8s.kube.cache import Cache
from flux_k8s.kube.eventqueue import EventQueue
from flux_k8s.ports import Json, KubeError
from support.client import (
    Recorder,
    workflow,
)
from support.effort import examples


class Cluster(RuleBasedStateMachine):
    """A cluster whose objects change while a cache follows it through a list and
    a stream of events, which may break, and then misses what happens."""

    def __init__(self) -> None:
        super().__init__()
        self.version = 0
        self.objects: dict[str, Json] = {}
        self.log: list[Json] = []
        self.sent: Optional[int] = None
        """How much of the log the stream has sent; None without a stream."""
        self.cache = Cache()
        self.handler = Recorder()

    def tell(self, events: list[tuple[str, Json]]) -> None:
        for type, object in events:
            known = self.handler.view.get(object["metadata"]["name"])
            self.handler.event(type, object)
            if known is not None:
                old, new = known["metadata"], object["metadata"]
                assert old["uid"] == new["uid"]
                assert old["resourceVersion"] != new.get("resourceVersion") or (
                    type == "DELETED"
                )

    @rule(name=st.sampled_from("abc"), delete=st.booleans())
    def change(self, name: str, delete: bool) -> None:
        self.version += 1
        old = self.objects.get(name)
        if old is None:
            object = workflow(name, self.version, f"uid-{self.version}")
            type = "ADDED"
        else:
            object = workflow(name, self.version, old["metadata"]["uid"])
            type = "DELETED" if delete else "MODIFIED"
        if type == "DELETED":
            del self.objects[name]
        else:
            self.objects[name] = object
        self.log.append({"type": type, "object": object})

    @precondition(lambda self: self.sent is not None)
    @rule(count=st.integers(1, 4), twice=st.booleans())
    def send(self, count: int, twice: bool) -> None:
        assert self.sent is not None
        for event in self.log[self.sent : self.sent + count]:
            self.tell(self.cache.add_event(event))
            if twice:
                assert self.cache.add_event(event) == []
            self.sent += 1
            expected = event["object"]["metadata"]["resourceVersion"]
            assert self.cache.resource_version == expected

    @precondition(lambda self: self.sent == len(self.log))
    @rule()
    def bookmark(self) -> None:
        self.version += 1  # something of another kind changed
        object = {"metadata": {"resourceVersion": str(self.version)}}
        assert self.cache.add_event({"type": "BOOKMARK", "object": object}) == []
        assert self.cache.resource_version == str(self.version)

    @rule()
    def break_stream(self) -> None:
        self.sent = None

    @rule(page=st.integers(1, 3), pages=st.integers(0, 4))
    def list(self, page: int, pages: int) -> None:
        """List; ``pages`` too few means that the list breaks off."""
        self.sent = None
        self.cache.begin_list()
        assert self.cache.resource_version == ""
        items = [self.objects[name] for name in sorted(self.objects)]
        for number in range(pages):
            chunk = items[number * page : (number + 1) * page]
            self.tell(self.cache.add_page(chunk))
        if pages * page >= len(items):
            self.tell(self.cache.end_list(str(self.version)))
            self.sent = len(self.log)

    @invariant()
    def the_view_is_the_cluster(self) -> None:
        if self.sent == len(self.log):
            assert self.handler.view == self.objects

    def teardown(self) -> None:
        self.list(3, 4)
        self.the_view_is_the_cluster()


Cluster.TestCase.settings = settings(examples(25), stateful_step_count=30)
Test_any_history_ends_in_a_view_that_equals_the_cluster = Cluster.TestCase


class Test_View:
    def test_an_object_made_again_is_deleted_then_added(self) -> None:
        cache = Cache()
        cache.begin_list()
        cache.add_page([workflow("w", 1, "first")])
        cache.end_list("1")
        again = workflow("w", 5, "second")
        [gone, new] = cache.add_event({"type": "MODIFIED", "object": again})
        metadata = {"namespace": "default", "name": "w", "uid": "first"}
        assert gone == ("DELETED", {"metadata": metadata})
        assert new == ("ADDED", again)

    def test_a_stale_event_changes_nothing(self) -> None:
        cache = Cache()
        cache.begin_list()
        cache.add_page([workflow("w", 10)])
        cache.end_list("10")
        for type in ("ADDED", "MODIFIED", "DELETED"):
            assert cache.add_event({"type": type, "object": workflow("w", 9)}) == []

    def test_a_page_with_a_bad_object_is_an_error_as_a_whole(self) -> None:
        cache = Cache()
        cache.begin_list()
        with pytest.raises(KubeError):
            cache.add_page([workflow("w", 1), {"kind": "Workflow"}])
        cache.begin_list()
        assert cache.add_page([workflow("w", 1)]) == [("ADDED", workflow("w", 1))]

    def test_a_list_may_go_back_in_time(self) -> None:
        cache = Cache()
        for version in (10, 7):
            cache.begin_list()
            events = cache.add_page([workflow("w", version)])
            cache.end_list(str(version))
            assert len(events) == 1

    @pytest.mark.parametrize(
        "event",
        [
            None,
            [],
            {},
            {"type": "ADDED"},
            {"type": "ADDED", "object": []},
            {"type": "ADDED", "object": {"metadata": []}},
            {"type": "ADDED", "object": {"metadata": {"name": "w"}}},
            {"type": "ADDED", "object": {"metadata": {"resourceVersion": "1"}}},
            {"type": "RENAMED", "object": workflow("w")},
            {"type": "BOOKMARK", "object": None},
        ],
    )
    def test_a_line_that_is_no_event_is_a_bad_response(self, event: Any) -> None:
        with pytest.raises(KubeError) as caught:
            Cache().add_event(event)
        assert caught.value.reason == "BadResponse"

    def test_an_ERROR_event_is_raised(self) -> None:
        status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "old"}
        with pytest.raises(KubeError) as caught:
            Cache().add_event({"type": "ERROR", "object": status})
        assert (caught.value.status, caught.value.reason) == (410, "Expired")


class Desk:
    """A ``deliver`` whose work the test does when it wants to."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def __call__(self, function: Callable[[], None]) -> None:
        self.waiting.append(function)

    def work(self) -> int:
        count = 0
        while self.waiting:
            self.waiting.pop(0)()
            count += 1
        return count


class Test_EventQueue:
    def test_many_events_are_few_wake_ups_and_none_delivers_too_many(self) -> None:
        handler, desk = Recorder(), Desk()
        queue = EventQueue(handler, desk)
        for start in range(0, 1000, 200):
            queue.put_events(
                [("ADDED", workflow(str(n))) for n in range(start, start + 200)]
            )
        assert len(desk.waiting) == 1
        desk.waiting.pop()()
        assert 0 < len(handler.calls) <= EventQueue.PORTION
        desk.work()
        assert handler.calls == [f"ADDED {n}" for n in range(1000)]

    def test_a_change_that_waits_is_replaced_by_a_newer_one(self) -> None:
        handler, desk = Recorder(), Desk()
        queue = EventQueue(handler, desk)
        queue.put_events([("ADDED", workflow("a", 1)), ("ADDED", workflow("b", 2))])
        for version in range(3, 100):
            queue.put_events([("MODIFIED", workflow("a", version))])
        desk.work()
        assert handler.calls == ["ADDED a", "ADDED b"]
        assert handler.view["a"] == workflow("a", 99)
        queue.put_events([("MODIFIED", workflow("a", 100))])
        desk.work()
        assert handler.calls[-1] == "MODIFIED a"

    def test_the_event_queue_keeps_deletions(self) -> None:
        handler, desk = Recorder(), Desk()
        queue = EventQueue(handler, desk)
        queue.put_events([("ADDED", workflow("a", 1, "u1"))])
        queue.put_events([("DELETED", workflow("a", 2, "u1"))])
        queue.put_events([("ADDED", workflow("a", 3, "u2"))])
        queue.put_events([("MODIFIED", workflow("a", 4, "u2"))])
        queue.put_synced()
        desk.work()
        assert handler.calls == ["ADDED a", "DELETED a", "ADDED a", "synced"]
        assert handler.view["a"] == workflow("a", 4, "u2")

    def test_the_garbage_collector_never_finds_much_that_is_new(self) -> None:
        """An event leaves less than it takes with it: it would not look by itself."""

        class Keeping(Recorder):
            def __init__(self) -> None:
                super().__init__()
                self.kept: list[list[Any]] = []
                self.most_new = 0

            def event(self, type: str, object: Json) -> None:
                self.kept.append([[[[[]]]]])
                new = len(gc.get_objects(generation=0))
                self.most_new = max(self.most_new, new)

        handler, desk = Keeping(), Desk()
        queue = EventQueue(handler, desk)
        queue.put_events([("ADDED", workflow(str(n))) for n in range(4000)])
        gc.collect()  # as JSON that another thread has read, they are old
        desk.work()
        assert len(handler.kept) == 4000
        assert handler.most_new < 4000  # of 20,000

    def test_nothing_is_delivered_after_close(self) -> None:
        class Closing(Recorder):
            def event(self, type: str, object: Json) -> None:
                super().event(type, object)
                queue.close()

        handler, desk = Closing(), Desk()
        queue = EventQueue(handler, desk)
        queue.put_events([("ADDED", workflow("a")), ("ADDED", workflow("b"))])
        desk.work()
        queue.put_events([("ADDED", workflow("c"))])
        desk.work()
        assert handler.calls == ["ADDED a"]

    def test_a_handler_that_raises_gets_the_rest(self) -> None:
        class Failing(Recorder):
            def event(self, type: str, object: Json) -> None:
                super().event(type, object)
                raise ValueError

        handler, desk = Failing(), Desk()
        queue = EventQueue(handler, desk)
        queue.put_events([("ADDED", workflow(name)) for name in "abc"])
        for _ in "abc":
            with pytest.raises(ValueError):
                desk.work()
        assert handler.calls == ["ADDED a", "ADDED b", "ADDED c"]

    def test_a_queue_is_full_until_enough_events_are_delivered(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(EventQueue, "CAPACITY", 3)
        monkeypatch.setattr(EventQueue, "PORTION", 1)
        handler, desk = Recorder(), Desk()
        queue = EventQueue(handler, desk)
        queue.when_fewer(queue.CAPACITY, lambda: handler.calls.append("empty"))
        queue.put_events([("ADDED", workflow(str(number))) for number in range(4)])
        assert queue.full
        queue.when_fewer(queue.CAPACITY, lambda: handler.calls.append("room"))
        while desk.waiting:
            desk.work()
        assert not queue.full
        assert handler.calls == [
            "empty",
            "ADDED 0",
            "room",
            "ADDED 1",
            "ADDED 2",
            "ADDED 3",
        ]
