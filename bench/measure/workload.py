# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The jobs of a measured system, and what was recorded of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

DIRECTIVE = "#DW jobdw type=xfs capacity=10GiB name=p1"
FIRST_JOB = 6731191091817518
"""The ID of the first job, where no Flux gives it one."""

Marks = Mapping[str, list[tuple[float, str, str]]]
"""What the API server saw of each Workflow: the time, "asked" or "reached" or
"gone", and the state."""


def jobspec(directive: bool) -> dict[str, Any]:
    """A job of one whole node that runs for a millisecond."""
    system: dict[str, Any] = {
        "duration": 0,
        "cwd": "/",
        "environment": {},
        "exec": {"test": {"run_duration": "0.001s"}},
    }
    if directive:
        system["dw"] = DIRECTIVE
    slot = {
        "type": "slot",
        "count": 1,
        "label": "task",
        "with": [{"type": "core", "count": 1}],
    }
    return {
        "version": 1,
        "resources": [{"type": "node", "count": 1, "with": [slot]}],
        "tasks": [{"command": ["true"], "slot": "task", "count": {"per_slot": 1}}],
        "attributes": {"system": system},
    }


def resource_set(rank: int, host: str) -> dict[str, Any]:
    """An R (RFC 20) of one node."""
    return {
        "version": 1,
        "execution": {
            "R_lite": [{"rank": str(rank), "children": {"core": "0"}}],
            "nodelist": [host],
            "starttime": 0,
            "expiration": 0,
        },
    }


def transitions(marks: Marks) -> Iterator[float]:
    """Seconds from each state that was reached to the patch for the next one,
    where nothing but watching and patching is to be done in between.

    The API server saw both. So the event's way to us is in it, and the patch's.
    """
    simple = {"Setup", "DataIn", "PostRun", "DataOut"}
    for history in marks.values():
        for (then, what, state), (now, next_what, _) in zip(history, history[1:]):
            if what == "reached" and next_what == "asked" and state in simple:
                yield now - then


def makespan(marks: Marks) -> float:
    """Seconds from the first Workflow that was made to the last that was torn down."""
    begin = min(history[0][0] for history in marks.values())
    return max(map(torn_down, marks.values())) - begin


def torn_down(history: list[tuple[float, str, str]]) -> float:
    """When DWS had torn a Workflow down."""
    (end,) = (
        when
        for when, what, state in history
        if (what, state) == ("reached", "Teardown")
    )
    return end


def dws_seconds(history: list[tuple[float, str, str]]) -> float:
    """What DWS itself took: from each state that was asked for until it was
    reached."""
    total = 0.0
    for (then, what, _), (now, next_what, _) in zip(history, history[1:]):
        if what == "asked" and next_what == "reached":
            total += now - then
    return total


def added(jobs: Mapping[str, tuple[float, float]], marks: Marks) -> list[float]:
    """Seconds of each job, from submission to its end, that DWS did not need.
    ``jobs`` has both times of each, by the name of its Workflow."""
    return [
        end - submit - dws_seconds(marks[name]) for name, (submit, end) in jobs.items()
    ]
