# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What the service notes on Workflows, as annotations that others may write too."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.objects.workflowmarks import (
    COPIES,
    LONGEST_NOTE,
    REQUESTED,
    copies_note,
    read_copies,
    requested_note,
    requested_times,
)
from flux_k8s.objects.workflowstate import State
from flux_k8s.objects.workflowview import WorkflowView

NEVER = (None,) * len(State)
microseconds = st.integers(0, 4 * 10**15)


@given(st.permutations(list(State)), st.lists(microseconds, min_size=7, max_size=7))
def test_a_note_has_all_times_to_the_microsecond(
    order: list[State], at: list[int]
) -> None:
    note = requested_note({state: at[state] / 1e6 for state in order})
    assert len(note) <= LONGEST_NOTE
    found = requested_times({REQUESTED: note})
    assert [round((time or 0.0) * 1e6) for time in found] == at


@given(st.text() | st.from_regex(r"(\w+=[-0-9TZ:.]* )*") | st.integers() | st.none())
def test_a_note_that_others_wrote_has_times_or_none(note: Any) -> None:
    assert len(requested_times({REQUESTED: note})) == len(State)


def test_a_note_that_is_too_long_is_not_read() -> None:
    note = requested_note({State.Setup: 1.0})
    assert requested_times({REQUESTED: note})[State.Setup] == 1.0
    assert requested_times({REQUESTED: note + " " * LONGEST_NOTE}) == NEVER


@given(st.dictionaries(st.integers(0, 999), st.booleans()))
def test_the_annotation_says_what_became_of_each_copy(copied: dict[int, bool]) -> None:
    assert read_copies({COPIES: copies_note(copied)}) == copied


@given(st.text(max_size=40) | st.none() | st.integers())
def test_an_annotation_that_others_have_written_does_no_harm(value: Any) -> None:
    found = read_copies({COPIES: value})
    assert found is not None
    assert all(isinstance(done, bool) for done in found.values())
    assert read_copies({"workflows": value}) is None


@pytest.mark.parametrize(
    ("statuses", "names"),
    [
        (("Error", "Running", "Completed"), ("x (failed)", "y")),
        (("Error", "Completed", "Error"), ("x", "z")),
        (("Pending", "Running", "Running"), ("x", "y", "z")),
    ],
)
def test_of_copies_that_are_not_done_those_that_failed_are_marked(
    statuses: tuple[str, ...], names: tuple[str, ...]
) -> None:
    copies = [
        f"#DW copy_out source=$DW_JOB_p1/{x} destination=/lustre/{x}" for x in "xyz"
    ]
    drivers = [
        {"dwdIndex": number, "watchState": "DataOut", "status": status}
        | {"completed": status == "Completed"}
        for number, status in enumerate(statuses, 1)
    ]
    spec = {"desiredState": "DataOut", "dwDirectives": ["#DW jobdw", *copies]}
    metadata = {"uid": "u", "resourceVersion": "1"}
    status = {"state": "DataOut", "drivers": drivers}
    spec |= {"jobID": "f1", "wlmID": "flux"}
    view = WorkflowView.parse({"metadata": metadata, "spec": spec, "status": status})
    assert view.unsaved == tuple(
        f"$DW_JOB_p1/{name[0]} to /lustre/{name}" for name in names
    )
