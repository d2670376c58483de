# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The stand-in controllers do what real ones were recorded doing."""

from __future__ import annotations

import contextlib
import functools
import gzip
import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from flux_k8s.ports import COMPUTES, SERVERS, WORKFLOW, Json
from rabbitsim.dws import Options, Rabbit, Topology, table
from rabbitsim.dws.directive import STATES
from rabbitsim.kube.errors import ApiError
from support.dws import System
from support.tree import RECORDED

pytestmark = pytest.mark.skipif(
    not RECORDED.is_dir(), reason="the recordings of real controllers are not here"
)

TOPOLOGY = Topology.of(
    [
        Rabbit("kind-worker2", 1 << 45, ("compute-01", "compute-02", "compute-03")),
        Rabbit("kind-worker3", 1 << 45, ("compute-04",)),
    ]
)
SECONDS = dict.fromkeys(STATES, 0.2) | {"DataIn": 0.01, "DataOut": 0.01}
LIVES = ("xfs", "gfs2", "raw", "lustre", "create-persistent", "persistentdw")
ERRORS = (
    "copy-in-without-source",
    "persistentdw-unknown",
    "requires-copy-offload",
    "unknown-profile",
)
CANCELS = ("cancel-in-proposal", "cancel-in-prerun")
SCENARIOS = (*LIVES, *ERRORS, *CANCELS, "destroy-persistent")
REFUSED = ("invalid-capacity", "invalid-type", "no-prefix", "unknown-command")


class Seen(NamedTuple):
    """An event of a watch."""

    kind: str
    type: str
    object: Json

    @property
    def key(self) -> tuple[str, str, str]:
        meta = self.object["metadata"]
        return self.kind, meta["namespace"], meta["name"]


def lines(scenario: str) -> list[Json]:
    text = (RECORDED / f"{scenario}.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


@functools.lru_cache(maxsize=None)
def recording(scenario: str) -> list[Seen]:
    return [
        Seen(line["object"]["kind"], line["type"], line["object"])
        for line in lines(scenario)
        if "object" in line
    ]


@functools.lru_cache(maxsize=None)
def replay(scenario: str, full_events: bool = False) -> list[Seen]:
    """Do what the recorded client did, and see what happens."""
    options = Options(
        latency=table(SECONDS),
        user_container_tls=scenario not in ERRORS,
        full_events=full_events,
    )
    system = System(options, TOPOLOGY)
    if scenario in ("persistentdw", "destroy-persistent"):
        _walk(system, recording("create-persistent"))
    start = len(system.events)
    _walk(system, recording(scenario))
    system.sleep(5.0)
    return [
        Seen(obj["kind"], type, obj)
        for _, type, obj in system.events[start:]
        if obj["kind"] != "Storage"
    ]


def _walk(system: System, events: list[Seen]) -> None:
    first = events[0].object
    name = first["metadata"]["name"]
    body = {
        "metadata": {key: first["metadata"][key] for key in ("name", "finalizers")},
        "spec": first["spec"],
    }
    system.store.create(WORKFLOW, "default", body)
    system.wait(name)
    for event in events:
        obj = event.object
        if event.kind == "Workflow" and event.type == "MODIFIED":
            wanted = obj["spec"]["desiredState"]
            if wanted != system.workflow(name)["spec"]["desiredState"]:
                system.go(wanted, name)
        elif event.kind == "Servers" and event.type == "MODIFIED":
            _fill(system, obj)
        elif event.kind == "Computes" and event.type == "MODIFIED":
            system.store.merge_patch(COMPUTES, "default", name, {"data": obj["data"]})
    system.release(name)


def _fill(system: System, servers: Json) -> None:
    """Write to a Servers what the client wrote, unless it has it already."""
    name = servers["metadata"]["name"]
    with contextlib.suppress(ApiError):  # it is gone
        found = system.store.get(SERVERS, "default", name)
        if found["spec"] != servers["spec"]:
            patch = {"spec": servers["spec"]}
            system.store.merge_patch(SERVERS, "default", name, patch)


def steps(events: list[Seen]) -> dict[tuple[str, str, str], list[Any]]:
    """What each object went through: the type of event, state, ready, status.
    Events that change none of it are left out, and what one mocked driver did
    to the recorded Lustre (TransientCondition)."""
    found: dict[tuple[str, str, str], list[Any]] = {}
    for event in events:
        status = event.object.get("status") or {}
        ready = status.get("ready", status.get("allReady"))
        state = (status.get("state"), ready, status.get("status"))
        if state[2] == "TransientCondition":
            continue
        before = found.setdefault(event.key, [])
        if event.type != "MODIFIED" or not before or before[-1][1:] != state:
            before.append((event.type, *state))
    return found


@pytest.mark.parametrize("full_events", [False, True])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_each_object_goes_through_the_recorded_steps(
    scenario: str, full_events: bool
) -> None:
    want, have = steps(recording(scenario)), steps(replay(scenario, full_events))
    assert set(have) == set(want)
    for key in want:
        assert have[key] == want[key], key


def events_of_each(events: list[Seen], kind: str) -> float:
    """The number of events for each object of a kind."""
    shown = [event.key for event in events if event.kind == kind]
    return len(shown) / len(set(shown))


@pytest.mark.parametrize("kind", ["Workflow", "Servers"])
def test_a_watch_shows_as_many_events_as_of_real_controllers_under_load(
    kind: str,
) -> None:
    with gzip.open(RECORDED / "load-20.jsonl.gz", "rt") as file:
        objects = [(line["type"], line["object"]) for line in map(json.loads, file)]
    want = events_of_each([Seen(o["kind"], type, o) for type, o in objects], kind)
    few, have = (events_of_each(replay("xfs", full), kind) for full in (False, True))
    assert few < 0.75 * want < have < 1.25 * want


def paths(value: Any, path: str = "") -> Iterator[str]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            name = "RABBIT" if key.startswith("kind-worker") else key
            yield from paths(item, f"{path}.{name}")
    elif isinstance(value, list) and value:
        for item in value:
            yield from paths(item, f"{path}[]")
    else:
        yield f"{path}: {type(value).__name__}"


def fields(events: list[Seen]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for event in events:
        found.setdefault(event.kind, set()).update(paths(event.object))
    return found


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_objects_have_the_recorded_fields(scenario: str) -> None:
    want, have = fields(recording(scenario)), fields(replay(scenario))
    if scenario in (*LIVES, *CANCELS):
        # Real controllers get in each other's way for a moment, and say so.
        for kinds in (want, have):
            kinds["Workflow"].discard(".status.drivers[].error: str")
    assert have == want


def _comparable(value: Any, uids: dict[str, str]) -> Any:
    """``value`` without what differs from run to run."""
    text = json.dumps(value, sort_keys=True)
    text = re.sub(r"MOCK-[^\"]*", "MOCK", text)
    text = re.sub(
        r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
        lambda match: uids.setdefault(match.group(0), f"uid{len(uids)}"),
        text,
    )
    return json.loads(text)


def _one_device(value: Any) -> Any:
    """``value`` with one NVMe device for each mount."""
    if isinstance(value, dict):
        return {
            key: item[:1] if key == "nvmeInfo" else _one_device(item)
            for key, item in value.items()
        }
    return [_one_device(item) for item in value] if isinstance(value, list) else value


def last(events: list[Seen], kind: str, field: str) -> Any:
    """A field of all objects of a kind, as it was when they were deleted."""
    uids: dict[str, str] = {}
    found = {e.key: e.object.get(field) for e in events if e.kind == kind}
    return [_comparable(_one_device(found[key]), uids) for key in sorted(found)]


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize(
    "kind, field",
    [
        ("DirectiveBreakdown", "spec"),
        ("DirectiveBreakdown", "status"),
        ("Servers", "spec"),
        ("ClientMount", "spec"),
        ("ClientMount", "status"),
        ("PersistentStorageInstance", "spec"),
        ("PersistentStorageInstance", "status"),
        ("Workflow", "spec"),
    ],
)
def test_objects_have_the_recorded_last_state(
    scenario: str, kind: str, field: str
) -> None:
    want, have = recording(scenario), replay(scenario)
    assert last(have, kind, field) == last(want, kind, field)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_labels_owners_and_finalizers_are_as_recorded(scenario: str) -> None:
    def marks(events: list[Seen]) -> Any:
        found: dict[tuple[str, str, str], Json] = {}
        for event in events:
            meta = event.object["metadata"]
            entry = found.setdefault(event.key, {"finalizers": set()})
            entry["finalizers"] |= set(meta.get("finalizers", ()))
            if event.type == "ADDED":
                labels = {
                    key: value
                    for key, value in meta.get("labels", {}).items()
                    if "uid" not in key
                }
                owners = [r["kind"] for r in meta.get("ownerReferences", ())]
                entry.update(labels=labels, owners=owners)
        return found

    assert marks(replay(scenario)) == marks(recording(scenario))


def messages(events: list[Seen]) -> set[str]:
    statuses = [e.object.get("status") or {} for e in events if e.kind == "Workflow"]
    return {status["message"] for status in statuses if "message" in status}


def test_workflows_say_nothing_that_was_not_recorded() -> None:
    known = {text for name in SCENARIOS for text in messages(recording(name))}
    for scenario in SCENARIOS:
        assert messages(replay(scenario)) <= known


@pytest.mark.parametrize("scenario", ERRORS)
def test_errors_have_the_recorded_texts(scenario: str) -> None:
    def errors(events: list[Seen]) -> Any:
        [status] = [
            e.object["status"]
            for e in events
            if e.kind == "Workflow" and e.object["status"].get("status") == "Error"
        ][:1]
        drivers = [d for d in status["drivers"] if d["status"] == "Error"]
        return status["message"], status.get("requires"), drivers

    assert errors(replay(scenario)) == errors(recording(scenario))


@pytest.mark.parametrize("scenario", REFUSED)
def test_refusals_have_the_recorded_texts(scenario: str) -> None:
    body = lines(scenario)[-1]["note"]["body"]
    directive = {
        "invalid-capacity": "#DW jobdw type=xfs capacity=10Gib name=project1",
        "invalid-type": "#DW jobdw type=zfs capacity=10GiB name=project1",
        "no-prefix": "jobdw type=xfs capacity=10GiB name=project1",
        "unknown-command": "#DW frobnicate name=project1",
    }[scenario]
    with pytest.raises(ApiError) as refused:
        System().submit(directive)
    assert refused.value.status() == body
