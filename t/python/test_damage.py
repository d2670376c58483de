# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Whatever stands in a Workflow, there is a next step for its job, and a row for
``flux dws show``."""

from __future__ import annotations

import itertools
from typing import Any, Iterator

import pytest

from flux_k8s.config.table import KEEP, Config
from flux_k8s.formats.jobid import jobid_of_workflow
from flux_k8s.jobs import jobrows
from flux_k8s.jobs.losses import UNKNOWN_LOSS, data_loss
from flux_k8s.jobs.timelimits import Moment
from flux_k8s.jobs.workflow import next_step
from flux_k8s.jobs.workflowinfo import NOT_HERE, Goal, Haste, WorkflowInfo
from flux_k8s.objects.workflowstate import State
from flux_k8s.objects.workflowview import WorkflowView
from flux_k8s.ports import Json
from flux_k8s.reasons import Note, Reason
from rabbitsim.dws.options import Options, table
from support.effort import SOAKING, pairs
from support.service import COPY_OUT, HOUR, XFS, in_state, jobspec, started

STATES = ("Proposal", "Setup", "DataIn", "PreRun", "PostRun", "DataOut", "Teardown")
COPY_IN = "#DW copy_in source=/lustre/x destination=$DW_JOB_p1"
BAD: list[Any] = [None, "x", -1, [None], {"x": None}]
CONFIGS = [
    Config(),
    Config(
        unmount_failure=KEEP,
        keep_failed=60.0,
        setup_timeout=1.0,
        prerun_timeout=1.0,
        postrun_timeout=1.0,
        teardown_after=1.0,
        stall_timeout=1.0,
        stage_timeout=1.0,
    ),
]


def workflow_in(state: str) -> Json:
    """The Workflow of a job in a state that DWS works on."""
    options = Options(latency=table(dict.fromkeys(STATES, 1.0)))
    system = started(options=options)
    system.instance.submit(jobspec([XFS, COPY_IN, COPY_OUT]))
    assert system.loop.run(in_state(system, state), HOUR)
    system.loop.run(timeout=0.5)
    (workflow,) = system.workflows()
    return workflow


def damaged(value: Any) -> Iterator[Any]:
    """A JSON value with something else in one place, for each place."""
    for other in BAD:
        if other != value:
            yield other
    if isinstance(value, dict):
        for key, item in value.items():
            yield {k: v for k, v in value.items() if k != key}
            for spoiled in damaged(item):
                yield {**value, key: spoiled}
    elif isinstance(value, list):
        for index, item in enumerate(value[: None if SOAKING else 2]):
            for spoiled in damaged(item):
                yield [*value[:index], spoiled, *value[index + 1 :]]


ENDED = frozenset({Goal.RELEASED})
JOBS = ({}, {"haste": Haste.ABANDON}, {"answered": ENDED}, {"failure": NOT_HERE})
SITUATIONS = list(itertools.product(Goal, (False, True), JOBS, CONFIGS))


def informed(
    jobid: int, view: WorkflowView, now: float, goal: Goal, ran: bool, more: Any
) -> WorkflowInfo:
    info = WorkflowInfo(jobid, goal, ran=ran, **more)
    if goal is not Goal.PLANNED:
        info.answered |= {Goal.PLANNED}
    info.see(view, now)
    return info


@pytest.mark.parametrize("state", STATES)
def test_a_damaged_workflow_has_a_next_step_and_a_row(state: str) -> None:
    workflow = workflow_in(state)
    jobid = jobid_of_workflow(workflow["metadata"]["name"])
    assert jobid is not None
    now = 2_000_000_000.0  # all limits are over
    views = [
        WorkflowView.parse({**workflow, part: spoiled})
        for part in ("metadata", "spec", "status")
        for spoiled in damaged(workflow[part])
    ]
    for view, (goal, ran, more, config) in pairs(views, SITUATIONS, 13):
        info = informed(jobid, view, now, goal, ran, more)
        at = Moment(now, config)
        assert next_step(info, at)
        assert jobrows.details(info, jobrows.Known(), at)


@pytest.mark.parametrize(
    ("state", "failed", "loss"),
    [
        (State.PostRun, False, UNKNOWN_LOSS),
        (State.DataOut, False, UNKNOWN_LOSS),
        (State.Teardown, True, UNKNOWN_LOSS),
        (State.Teardown, False, ""),  # all went well until then
    ],
)
def test_a_damaged_workflow_does_not_say_that_data_is_out(
    state: State, failed: bool, loss: str
) -> None:
    workflow = workflow_in(state.name)
    view = WorkflowView.parse({**workflow, "status": {"ready": "x"}})
    assert view.damage
    jobid = jobid_of_workflow(workflow["metadata"]["name"])
    assert jobid is not None
    failure = NOT_HERE if failed else None
    info = WorkflowInfo(jobid, Goal.RELEASED, ran=True, failure=failure)
    info.last = view
    assert data_loss(info) == (Note(loss, Reason.BAD_OBJECT) if loss else None)
