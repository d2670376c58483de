# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""rabbitsim.kube.store: lists and watches."""

from __future__ import annotations

from typing import Any, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.ports import (
    COMPUTES,
    Json,
)
from rabbitsim.kube.store import ApiError, Event, Store
from support.effort import examples
from support.store import new_store, refused


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("", "abcd"),
        ("app=x", "ab"),
        ("app==x,tier=1", "a"),
        ("app!=x", "cd"),
        ("app in (x, y)", "abc"),
        ("app notin (x)", "cd"),
        ("app", "abc"),
        ("!app", "d"),
        ("app,tier in (1,2),!nope", "ab"),
        ("example.com/job=7", "d"),
    ],
)
def test_label_selectors_match_as_in_kubernetes(
    store: Store, selector: str, names: str
) -> None:
    labels = {
        "a": {"app": "x", "tier": "1"},
        "b": {"app": "x", "tier": "2"},
        "c": {"app": "y"},
        "d": {"example.com/job": "7"},
    }
    for name, value in labels.items():
        store.create(COMPUTES, "default", {"metadata": {"name": name, "labels": value}})
    listed = store.list(COMPUTES, "default", label_selector=selector)
    assert "".join(obj["metadata"]["name"] for obj in listed["items"]) == names
    assert listed["kind"] == "ComputesList"
    assert listed["metadata"]["resourceVersion"] == str(store.version)


def test_a_watch_from_a_version_that_is_forgotten_gets_410() -> None:
    store = new_store(history=3)
    for number in range(5):
        store.create(COMPUTES, "default", {"metadata": {"name": f"c{number}"}})
    oldest = store.version - 3
    events: list[Event] = []
    store.watch(COMPUTES, None, events.append, resource_version=str(oldest))
    assert len(events) == 3
    error = refused(
        lambda: store.watch(
            COMPUTES, None, events.append, resource_version=str(oldest - 1)
        )
    )
    assert (error.code, error.reason) == (410, "Expired")
    assert error.message == f"too old resource version: {oldest - 1} ({oldest})"
    store.forget_history()
    error = refused(
        lambda: store.watch(
            COMPUTES, None, events.append, resource_version=str(store.version - 1)
        )
    )
    assert error.code == 410
    store.watch(COMPUTES, None, events.append, resource_version=str(store.version))


NAMES = st.sampled_from(["a", "b", "c"])
SPACES = st.sampled_from(["default", "kube-system"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("create"), SPACES, NAMES, st.booleans()),
        st.tuples(st.just("patch"), SPACES, NAMES, st.integers(0, 2)),
        st.tuples(st.just("release"), SPACES, NAMES, st.none()),
        st.tuples(st.just("delete"), SPACES, NAMES, st.none()),
    ),
    max_size=40,
)


def walk(store: Store, step: tuple[str, str, str, Any]) -> None:
    verb, namespace, name, value = step
    try:
        if verb == "create":
            finalizers = ["a.io/x"] if value else []
            body = {"metadata": {"name": name, "finalizers": finalizers}}
            store.create(COMPUTES, namespace, body)
        elif verb == "patch":
            patch: Json = {
                "metadata": {"labels": {"n": str(value)}},
                "data": [{"name": f"n{value}"}],
            }
            store.merge_patch(COMPUTES, namespace, name, patch)
        elif verb == "release":
            release = {"metadata": {"finalizers": None}}
            store.merge_patch(COMPUTES, namespace, name, release)
        else:
            store.delete(COMPUTES, namespace, name)
    except ApiError as error:
        assert error.code in (404, 409)


class Mirror:
    """What a client knows that only sees a watch's events."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Json] = {}
        self.versions: list[int] = []

    def event(self, event: Event) -> None:
        metadata = event.object["metadata"]
        key = (metadata["namespace"], metadata["name"])
        if event.type == "DELETED":
            del self.objects[key]
        else:
            assert (key in self.objects) == (event.type == "MODIFIED")
            self.objects[key] = event.object
        self.versions.append(event.object.version)


@examples(30)
@given(
    before=STEPS,
    after=STEPS,
    namespace=st.one_of(st.none(), SPACES),
    labels=st.sampled_from(["", "n=1", "n!=1", "n"]),
)
def test_a_list_and_the_watch_from_its_version_always_show_the_present(
    before: list[Any], after: list[Any], namespace: Optional[str], labels: str
) -> None:
    store = new_store()
    for step in before:
        walk(store, step)
    page = store.select(COMPUTES, namespace, label_selector=labels)
    late, live, fresh = Mirror(), Mirror(), Mirror()
    for mirror in (late, live):
        for obj in page.items:
            metadata = obj["metadata"]
            mirror.objects[metadata["namespace"], metadata["name"]] = obj
    store.watch(
        COMPUTES,
        namespace,
        live.event,
        resource_version=str(page.version),
        label_selector=labels,
    )
    store.watch(COMPUTES, namespace, fresh.event, label_selector=labels)
    for step in after:
        walk(store, step)
    store.watch(
        COMPUTES,
        namespace,
        late.event,
        resource_version=str(page.version),
        label_selector=labels,
    )
    present = {
        (obj["metadata"]["namespace"], obj["metadata"]["name"]): obj
        for obj in store.select(COMPUTES, namespace, label_selector=labels).items
    }
    assert late.objects == live.objects == fresh.objects == present
    assert late.versions == live.versions == sorted(set(live.versions))
