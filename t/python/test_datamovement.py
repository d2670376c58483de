# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""How far data movements are, by what NNF writes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.objects.datamovement import Movement, Totals, parse, progress
from flux_k8s.ports import DWS_GROUP, NNF_GROUP, Json

MIB = 2**20


def movement(status: Any, name: str = "fluxjob-1-1-0") -> Json:
    return {
        "metadata": {
            "name": name,
            "namespace": "rabbit-01",
            "labels": {
                f"{DWS_GROUP}/workflow.name": "fluxjob-1",
                f"{NNF_GROUP}/teardown_state": "DataIn",
            },
        },
        "spec": {
            "source": {"path": "/lus/maui/in"},
            "destination": {"path": "/mnt/nnf/x-0/rabbit-01-0/"},
        },
        "status": status,
    }


RUNNING = {
    "commandStatus": {
        "command": "mpirun dcp",
        "data": "40.000 MiB",
        "elapsedTime": "0.8s",
        "lastMessage": "Copied 40.000 MiB (40%) in 0.800 secs (50.000 MiB/s)"
        " 2 secs left ...",
        "progress": 40,
        "rate": "50.000 MiB/s",
        "seconds": "0.800",
    },
    "startTime": "2026-11-22T03:41:25.000000Z",
    "state": "Running",
}


def test_a_copy_that_runs_tells_bytes_rate_and_seconds_left() -> None:
    found = parse(movement(RUNNING))
    assert found == Movement(
        name="rabbit-01/fluxjob-1-1-0",
        phase="DataIn",
        source="/lus/maui/in",
        destination="/mnt/nnf/x-0/rabbit-01-0/",
        state="Running",
        percent=40,
        bytes=40 * MIB,
        rate=50 * MIB,
        left=2.0,
        message=RUNNING["commandStatus"]["lastMessage"],  # type: ignore[index]
        begun=1795318885.0,
    )
    assert found.total == 100 * MIB and not found.finished


def test_the_time_left_is_estimated_where_the_copy_does_not_say() -> None:
    command = {"progress": 25, "elapsedTime": "1m0s", "lastMessage": "25%"}
    found = parse(movement({"state": "Running", "commandStatus": command}))
    assert (found.left, found.bytes, found.rate) == (180.0, None, None)


@pytest.mark.parametrize(
    "data, size",
    [("1.500 KiB", 1536), ("2 GB", 2 * 10**9), ("7 B", 7), ("", None), ("much", None)],
)
def test_sizes_are_read_in_all_units(data: str, size: Any) -> None:
    status = {"state": "Finished", "status": "Success", "commandStatus": {"data": data}}
    found = parse(movement(status))
    assert (found.bytes, found.percent, found.left) == (size, 100, 0.0)
    assert found.finished and found.state == "Success"


def test_one_size_that_cannot_be_does_not_spoil_the_sum_of_others() -> None:
    totals = Totals()
    for data in ("1 GiB", "999999999999999 TiB", "2 GiB"):
        totals.add(movement({"commandStatus": {"data": data}}))
    (total,) = totals.to_json()
    assert (total["movements"], total["bytes"]) == (3, 3 * 1024 * MIB)


def test_a_copy_that_failed_says_why() -> None:
    status = {"state": "Finished", "status": "Failed", "message": "no\x1b[2J space"}
    found = parse(movement(status))
    assert (found.state, found.message) == ("Failed", "no\\x1b[2J space")
    assert found.finished


def test_progress_is_that_of_all_copies_together() -> None:
    other = {"state": "Finished", "status": "Success"}
    other["commandStatus"] = {"data": "10 MiB"}  # type: ignore[assignment]
    found = progress([parse(movement(RUNNING)), parse(movement(other))])
    assert found is not None
    assert (found.moved, found.total) == (50 * MIB, 110 * MIB)
    assert (found.percent, found.left) == (45, 2.0)
    assert progress([]) is None


def test_copies_of_unknown_sizes_count_as_much_as_each_other() -> None:
    begun = {"state": "Running", "commandStatus": {"progress": 0}}
    found = progress([parse(movement(RUNNING)), parse(movement(begun))])
    assert found is not None
    assert (found.total, found.percent) == (None, 20)


values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
commands = st.fixed_dictionaries(
    {},
    optional={
        key: values | st.from_regex(r"Copied [0-9.]+ [KMGT]?i?B .*[0-9]+ secs left")
        for key in ("data", "elapsedTime", "lastMessage", "progress", "rate")
    },
)
statuses = values | st.fixed_dictionaries(
    {},
    optional={
        "state": values | st.sampled_from(["Running", "Finished"]),
        "status": values | st.sampled_from(["Success", "Failed"]),
        "message": values,
        "commandStatus": values | commands,
    },
)


@given(statuses, st.dictionaries(st.sampled_from(["spec", "metadata"]), values))
def test_whatever_kubernetes_shows_is_read_without_an_error(
    status: Any, others: dict[str, Any]
) -> None:
    others["metadata"] = {} if "metadata" not in others else others["metadata"]
    if not isinstance(others["metadata"], dict):
        others["metadata"] = {}  # the cache of the watch lets no other through
    found = parse({**movement(status), **others})
    assert 0 <= found.percent <= 100
    assert found.achieved == parse({**movement(status), **others}).achieved
    assert isinstance(hash(found.achieved), int)
    together = progress([found])
    assert together is not None
    json.dumps([vars(found), vars(together), found.total], allow_nan=False)
    assert all(v.isprintable() for v in vars(found).values() if isinstance(v, str))


# What counts as progress


COPIED = "Copied 10.000 MiB (10%) in 0.200 secs (50.000 MiB/s) 2 secs left ..."
SLOW = COPIED.replace("0.200 secs (50.000", "1023.2 secs (0.010")
STATUS: Json = {
    "state": "Running",
    "commandStatus": {"progress": 10, "lastMessage": COPIED, "data": "10.000 MiB"},
}


def achieved(status: Any, **command: Any) -> tuple[Any, ...]:
    command = {**STATUS["commandStatus"], **command}
    return parse(movement({**STATUS, "commandStatus": command, **status})).achieved


@pytest.mark.parametrize(
    ("status", "command", "gets_on"),
    [
        ({"state": "Finished", "status": "Success"}, {}, True),
        ({"state": "Finished", "status": "Failed"}, {}, True),
        ({"state": "Starting"}, {}, True),
        ({}, {"progress": 11}, True),
        ({"commandStatus": {"progress": 10, "data": "11.000 MiB"}}, {}, True),
        ({}, {"lastMessage": COPIED.replace("10.000", "10.001")}, True),
        ({}, {"lastMessage": "Walked 30001 items in 3.000 secs (1/s)"}, True),
        ({}, {"lastMessage": "a program of the site: 4711 files"}, True),
        # The time that it takes, and that at which a message was written, is none.
        ({}, {"elapsedTime": "17m3.2s", "lastMessageTime": "2026-01-01"}, False),
        ({}, {"rate": "1.000 MiB/s", "seconds": "1023.200"}, False),
        ({}, {"lastMessage": SLOW}, False),
        ({}, {"lastMessage": f"[2026-01-01T00:00:02] {COPIED}"}, False),
        ({}, {"unknown": {"x": [1, 2, 3]}}, False),
    ],
)
def test_a_movement_gets_on_or_only_takes_time(
    status: Json, command: Json, gets_on: bool
) -> None:
    assert (achieved(status, **command) != achieved({})) == gets_on
