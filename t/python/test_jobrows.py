# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Whatever is known of a job gives a row that follows the contract."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.config.table import Config
from flux_k8s.formats.directives import parse_attribute
from flux_k8s.formats.timestamps import format_timestamp
from flux_k8s.jobs import jobrows
from flux_k8s.jobs.jobrows import Known, MountCount
from flux_k8s.jobs.timelimits import Moment
from flux_k8s.jobs.workflowinfo import Goal, Haste, WorkflowInfo
from flux_k8s.objects.datamovement import Movement, progress
from flux_k8s.objects.storagerequest import StorageRequest
from flux_k8s.objects.storageusage import Allocations, StorageUsage
from flux_k8s.objects.workflowmarks import GIVEN_UP, REQUESTED
from flux_k8s.objects.workflowstate import State
from flux_k8s.objects.workflowview import WorkflowView
from flux_k8s.ports import Json
from flux_k8s.reasons import Note, Reason
from flux_k8s.text import printable
from support.queries import DETAILS, ROW, check
from support.tables import rows

names = st.sampled_from(["rabbit-01", "rabbit-02", "tuo1003"])
texts = st.text(max_size=20)
shown = texts.map(printable)
times = st.floats(1.7e9, 1.9e9)
states = st.sampled_from([state.name for state in State])
values = st.none() | st.booleans() | st.integers() | st.floats() | texts


@st.composite
def workflows(draw: st.DrawFn) -> Json:
    """A Workflow as Kubernetes may show it, malformed ones as well."""
    keys = draw(st.dictionaries(st.sampled_from(list(State)), times))
    return {
        "metadata": {
            "name": "fluxjob-1",
            "uid": "u",
            "resourceVersion": "7",
            "annotations": {
                REQUESTED: " ".join(
                    f"{state.name}={format_timestamp(time)}"
                    for state, time in keys.items()
                )
            },
        },
        "spec": {
            "desiredState": draw(states),
            "wlmID": "flux",
            "jobID": "f1",
            "userID": draw(st.integers(-5, 2**40) | values),
            "dwDirectives": draw(
                st.lists(
                    texts | st.just("#DW jobdw type=xfs capacity=1GiB name=p1"),
                    max_size=3,
                )
                | values
            ),
        },
        "status": {
            "state": draw(states | values),
            "ready": draw(st.booleans()),
            "status": draw(texts),
            "message": draw(texts),
            "elapsedTimeLastState": draw(st.sampled_from(["1.5s", "", "x"])),
        },
    }


movements = st.builds(
    Movement,
    name=shown,
    phase=states,
    source=shown,
    destination=shown,
    state=st.sampled_from(["", "Running", "Success", "Failed"]),
    percent=st.integers(0, 100),
    bytes=st.none() | st.integers(0, 2**60),
    rate=st.none() | st.integers(0, 2**40),
    left=st.none() | st.floats(0, 1e9),
    message=shown,
)
usages = st.dictionaries(
    st.sampled_from(["fluxjob-1-0", "fluxjob-1-9", "other", "fluxjob-1-x"]),
    st.builds(
        StorageUsage,
        workflow=st.just("fluxjob-1"),
        allocated=st.just({}),
        unavailable=st.dictionaries(names, st.integers(0, 2**50)),
        allocations=st.lists(
            st.builds(
                Allocations,
                label=texts,
                size=st.integers(0, 2**50),
                counts=st.dictionaries(names, st.integers(0, 100)),
            ),
            max_size=2,
        ).map(tuple),
    ),
)


@st.composite
def knowns(draw: st.DrawFn) -> Known:
    found = draw(st.lists(movements, max_size=100))
    return Known(
        nodes=draw(st.sampled_from(["", "tuo[1-3]"])),
        nnodes=draw(st.integers(0, 3)),
        usage=draw(usages),
        waits=draw(texts),
        progress=progress(found),
        movements=tuple(found),
        mounts=draw(
            st.none()
            | st.builds(
                MountCount,
                wanted=st.integers(0, 9),
                mounted=st.integers(0, 9),
                done=st.integers(0, 9),
            )
        ),
    )


def infos(goal: Goal, workflow: Any, asks: bool, failure: Any) -> WorkflowInfo:
    info = WorkflowInfo(1, goal, failure=failure)
    if asks:
        directives = parse_attribute("#DW jobdw type=xfs capacity=1GiB name=p1", {})
        info.request = StorageRequest(4711, directives, [])
    if workflow is not None:
        info.last = WorkflowView.parse(workflow)
        info.troubled_since = 1.8e9
    return info


all_infos = st.builds(
    infos,
    st.sampled_from(list(Goal)),
    st.none() | workflows(),
    st.booleans(),
    st.none() | st.builds(Note, texts, st.sampled_from(Reason)),
)
configs = st.sampled_from(
    [
        Config(),
        Config.parse(
            {"setup_timeout": 9, "prerun_timeout": 9, "postrun_timeout": 9}
            | {"teardown_after": 9, "stall_timeout": 9}
        ),
    ]
)


@given(all_infos, knowns(), configs)
def test_any_known_state_of_a_job_gives_a_row_and_details(
    info: WorkflowInfo, known: Known, config: Config
) -> None:
    row = jobrows.row(info, known)
    check(row, ROW)
    details = jobrows.details(info, known, Moment(2e9, config))
    check({"serial": 1, **details}, DETAILS)
    assert {key: details[key] for key in row if key != "waits"} == {
        key: value for key, value in row.items() if key != "waits"
    }
    assert len(details["movements"]) <= jobrows.MOVEMENTS
    assert row["state"] in (*State.__members__, jobrows.NONE)
    assert json.dumps(details, ensure_ascii=False).isprintable()


CANCELS = """
PLANNED none -> freed
PLANNED Proposal copies -> freed
READY Setup copies -> freed
READY PreRun copies -> freed
READY PreRun copies mounted -> copied
READY PreRun mounted -> freed
READY none mounted -> copied
RELEASED PostRun copies ran -> lost
RELEASED DataOut copies ran -> lost
RELEASED none ran -> lost
RELEASED PostRun ran -> freed
RELEASED DataOut copies ran given-up -> nothing
RELEASED PostRun copies ran failed -> nothing
RELEASED PostRun copies ran cancelled -> nothing
RELEASED PostRun copies -> nothing
RELEASED Teardown copies ran -> nothing
"""
"""What Flux wants of a job's storage, its state, what the job does, or has done, and
what a cancel would do to it."""


@pytest.mark.parametrize(("job", "cancel"), rows(CANCELS))
def test_a_row_says_what_a_cancel_would_do(job: str, cancel: str) -> None:
    goal, state, *facts = job.split()
    copy_out = "#DW copy_out source=$DW_JOB_p1/x destination=/lustre/x"
    marks = {GIVEN_UP: "true"} if "given-up" in facts else {}
    workflow = {
        "metadata": {"uid": "u", "resourceVersion": "7", "annotations": marks},
        "spec": {
            "desiredState": state,
            "wlmID": "flux",
            "dwDirectives": [copy_out] if "copies" in facts else [],
        },
    }
    failure = Note("", Reason.DWS_FAILED) if "failed" in facts else None
    info = WorkflowInfo(1, Goal[goal], ran="ran" in facts, failure=failure)
    if state != jobrows.NONE:
        info.last = WorkflowView.parse(workflow)
    if "mounted" in facts:
        info.answered = frozenset({Goal.READY})
    if "cancelled" in facts:
        info.haste = Haste.ABANDON
    assert jobrows.row(info, Known())["cancel"] == cancel
