# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What the service writes to a Workflow: each write costs the API server and DWS more
than it costs the service."""

from __future__ import annotations

from typing import Any, Optional

from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.dws.workflowmarks import REQUESTED
from flux_k8s.dws.workflowview import (
    LONGEST_NOTE,
    State,
    requested_note,
    requested_times,
)
from flux_k8s.ports import WORKFLOW, Json, KubeError
from rabbitsim.system import VirtualSystem
from support.service import jobspec, settle, started

NEVER = (None,) * len(State)


class Workflows:
    """All versions of Workflows (a ``WatchHandler``)."""

    def __init__(self, system: VirtualSystem) -> None:
        self.versions: list[Json] = []
        assert system.service_kube is not None
        system.service_kube.watch(WORKFLOW, "default", self)

    def event(self, type: str, object: Json) -> None:
        if type != "DELETED":
            self.versions.append(object)

    def synced(self) -> None:
        pass

    def trouble(self, error: KubeError) -> None:
        raise error


def test_the_times_of_all_states_are_in_one_annotation() -> None:
    system = started()
    workflows = Workflows(system)
    system.instance.submit(jobspec())
    settle(system)
    before, last = None, {}
    for version in workflows.versions:
        annotations = version["metadata"]["annotations"]
        if version["spec"]["desiredState"] != "Teardown":
            assert list(annotations) == [REQUESTED]
            before = annotations
        last = annotations
    assert before is not None and None not in requested_times(before)[:-1]
    assert None not in requested_times(last)


microseconds = st.integers(0, 4 * 10**15)


@given(st.permutations(list(State)), st.lists(microseconds, min_size=7, max_size=7))
def test_a_note_has_all_times_to_the_microsecond(
    order: list[State], at: list[int]
) -> None:
    known: tuple[Optional[float], ...] = NEVER
    for state in order:
        note = requested_note(known, state, at[state] / 1e6)
        assert len(note) <= LONGEST_NOTE
        known = requested_times({REQUESTED: note})
    assert [round((time or 0.0) * 1e6) for time in known] == at


@given(st.text() | st.from_regex(r"(\w+=[-0-9TZ:.]* )*") | st.integers() | st.none())
def test_a_note_that_others_wrote_has_times_or_none(note: Any) -> None:
    assert len(requested_times({REQUESTED: note})) == len(State)


def test_a_note_that_is_too_long_is_not_read() -> None:
    note = requested_note(NEVER, State.Setup, 1.0)
    assert requested_times({REQUESTED: note})[State.Setup] == 1.0
    assert requested_times({REQUESTED: note + " " * LONGEST_NOTE}) == NEVER
