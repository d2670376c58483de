# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Which step comes next when some of a job's nodes may have failed (seed 001, "Node
failure tolerance" and "State timeouts")."""

from __future__ import annotations

import dataclasses
from typing import Any, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.config.table import Config
from flux_k8s.dws.nodefailure import Survey, computes_patch, survey_storage, tolerated
from flux_k8s.dws.workflowstate import State
from flux_k8s.dws.workflowview import FINALIZER, WorkflowView
from flux_k8s.jobs.step import (
    Exclude,
    Fail,
    Force,
    Inspect,
    Lookup,
    NoteTrouble,
    Step,
    Wait,
)
from flux_k8s.jobs.workflow import next_step
from flux_k8s.jobs.workflowinfo import Goal, WorkflowInfo
from flux_k8s.reasons import Reason
from flux_k8s.rfc import rset
from flux_k8s.rfc.jobid import f58
from flux_k8s.rfc.rset import Allocated
from support.nodefailure import (
    HOSTS,
    JOBID,
    MAPPING,
    NOW,
    breakdown,
    computes,
    servers,
    surveys,
)

R = rset.parse(
    {
        "version": 1,
        "execution": {
            "R_lite": [{"rank": "0-3", "children": {"core": "0"}}],
            "nodelist": ["node[1-4]"],
        },
    }
)


def view_of(
    state: State = State.PreRun,
    status: str = "TransientCondition",
    outstanding: tuple[str, ...] = ("jobdw",),
    forced: bool = False,
    changed: float = NOW,
) -> WorkflowView:
    return WorkflowView(
        uid="uid",
        resource_version="1",
        jobid=f58(JOBID),
        wlm="flux",
        desired=state,
        state=state,
        ready=False,
        status=status,
        message="no mount",
        finalizers=(FINALIZER,),
        deleting=False,
        changed=changed,
        elapsed=None,
        breakdowns=(),
        computes=None,
        environment={},
        token=None,
        forced=forced,
        outstanding=outstanding,
        mounts=1,
    )


def info_of(
    view: WorkflowView, tolerance: int = 1, survey: Optional[Survey] = None
) -> WorkflowInfo:
    info = WorkflowInfo(JOBID, Goal.READY, planned=True, allocation=R)
    info.failure_tolerance = tolerance
    info.see(view, NOW)
    info.survey = survey
    return info


def step(info: WorkflowInfo, now: float, **config: Any) -> Step:
    return next_step(info, now, Config(**config))


LOST = Survey(State.PreRun, NOW + 10, HOSTS, ("node4",), True)


@pytest.mark.parametrize("status", ["TransientCondition", "Error"])
@pytest.mark.parametrize("state", [State.Setup, State.PreRun])
def test_trouble_is_looked_into_after_tc_timeout(state: State, status: str) -> None:
    """Nodes that are only slower than the one that failed have their time."""
    info = info_of(view_of(state, status))
    assert step(info, NOW) == NoteTrouble()
    noted = dataclasses.replace(info.view, trouble_note=info.trouble_note)
    info.see(noted, NOW)
    assert step(info, NOW) == Wait(NOW + 10)
    assert step(info, NOW + 10) == Lookup()
    info.looked_up = NOW + 10
    assert step(info, NOW + 10) == Inspect()
    info.survey = dataclasses.replace(LOST, state=state)
    assert isinstance(step(info, NOW + 10), Exclude)
    info.survey = info.survey.without_lost(NOW + 10)
    assert step(info, NOW + 10) == Force()
    info.see(dataclasses.replace(view_of(state, status, forced=True)), NOW + 10)
    assert step(info, NOW + 10) == Wait()


@pytest.mark.parametrize("tolerance", [0, 1])
def test_a_prerun_timeout_is_looked_into(tolerance: int) -> None:
    info = info_of(view_of(status="DriverWait"), tolerance)
    info.looked_up = NOW + 60
    assert step(info, NOW + 59, prerun_timeout=60.0) == Wait(NOW + 60)
    assert step(info, NOW + 60, prerun_timeout=60.0) == Inspect()


def test_a_prerun_timeout_names_the_nodes_to_a_job_that_tolerates_no_failure() -> None:
    survey = dataclasses.replace(LOST, requested_at=NOW + 60)
    info = info_of(view_of(status="DriverWait"), tolerance=0, survey=survey)
    info.looked_up = NOW + 60
    chosen = step(info, NOW + 60, prerun_timeout=60.0)
    assert isinstance(chosen, Fail)
    assert chosen.note.text == (
        "PreRun took more than prerun_timeout=60s; failed nodes: 1 of 4 (node4),"
        " dw_failure_tolerance=0"
    )


@pytest.mark.parametrize("forced, nodes", [(True, R), (False, None)])
def test_a_job_that_tolerates_no_failure_fails_although_nodes_cannot_be_named(
    forced: bool, nodes: Optional[Allocated]
) -> None:
    """Somebody else has forced the state, or the module was just loaded."""
    info = info_of(view_of(forced=forced), tolerance=0)
    info.looked_up, info.allocation = NOW + 10, nodes
    assert isinstance(step(info, NOW + 10), Fail)


def test_a_setup_timeout_is_not_looked_into() -> None:
    info = info_of(view_of(State.Setup, "DriverWait"))
    info.looked_up = NOW + 60
    assert isinstance(step(info, NOW + 60, setup_timeout=60.0), Fail)


def test_a_job_that_tolerates_no_failure_is_told_which_nodes_did_not_mount() -> None:
    info = info_of(view_of(), tolerance=0)
    info.looked_up = NOW + 10
    assert step(info, NOW + 10) == Inspect()
    info.survey = LOST
    failed = step(info, NOW + 10)
    assert isinstance(failed, Fail)
    assert failed.note.text.endswith(
        "; failed nodes: 1 of 4 (node4), dw_failure_tolerance=0"
    )


@pytest.mark.parametrize(
    "state, status",
    [("PreRun", "Error"), ("Setup", "Error"), ("Setup", "TransientCondition")],
)
def test_a_job_that_tolerates_no_failure_fails_at_once_otherwise(
    state: str, status: str
) -> None:
    info = info_of(view_of(State[state], status), tolerance=0)
    info.looked_up = NOW + 10
    assert isinstance(step(info, NOW + 10), Fail)


def test_a_module_that_was_just_started_waits_for_the_jobs_r() -> None:
    info = info_of(view_of())
    info.looked_up, info.allocation = NOW + 10, None
    assert step(info, NOW + 10) == Wait()


def test_a_survey_from_before_the_trouble_is_repeated() -> None:
    info = info_of(view_of(), survey=dataclasses.replace(LOST, requested_at=NOW + 9))
    info.looked_up = NOW + 10
    assert step(info, NOW + 10) == Inspect()
    info.survey = dataclasses.replace(LOST, state=State.Setup)
    assert step(info, NOW + 10) == Inspect()


def test_more_failed_nodes_than_tolerated_fail_the_job() -> None:
    lost = dataclasses.replace(LOST, lost=("node3", "node4"))
    info = info_of(view_of(), survey=lost)
    info.looked_up = NOW + 10
    chosen = step(info, NOW + 10)
    assert isinstance(chosen, Fail)
    assert chosen.note.text.startswith("DWS reports a TransientCondition in PreRun")
    assert (
        "failed nodes: 2 of 4 (node[3-4]), dw_failure_tolerance=1" in chosen.note.text
    )
    assert chosen.note.reason is Reason.NODES_FAILED


def test_where_no_node_can_be_named_the_job_fails_as_it_always_did() -> None:
    info = info_of(view_of(), survey=dataclasses.replace(LOST, lost=()))
    info.looked_up = NOW + 10
    chosen = step(info, NOW + 10)
    assert isinstance(chosen, Fail) and chosen.note.text.endswith("10s: no mount")


@pytest.mark.parametrize(
    "outstanding, served", [(("jobdw",), False), (("jobdw", "jobdw"), True)]
)
def test_dws_gets_the_same_time_again_for_the_remaining_nodes(
    outstanding: tuple[str, ...], served: bool
) -> None:
    survey = dataclasses.replace(LOST, lost=(), served=served, excluded=NOW + 10)
    info = info_of(view_of(outstanding=outstanding), survey=survey)
    info.looked_up = NOW + 10
    assert step(info, NOW + 15) == Wait(NOW + 20)
    assert step(info, NOW + 20) == Inspect()
    info.survey = dataclasses.replace(survey, requested_at=NOW + 20)
    assert isinstance(step(info, NOW + 20), Fail)


def test_servers_that_were_not_written_before_a_crash_are_written_after_it() -> None:
    found = servers({"rabbit1": True, "rabbit2": False})
    survey = survey_storage(
        NOW + 10,
        {
            **computes(*HOSTS[:2]),
            **computes_patch(
                Survey(State.Setup, NOW, HOSTS, HOSTS[2:], True), NOW + 10
            ),
        },
        [(breakdown("AllocatePerCompute"), found)],
        MAPPING,
    )
    info = info_of(view_of(State.Setup), tolerance=2, survey=survey)
    info.looked_up = NOW + 10
    assert step(info, NOW + 10) == Exclude()


INFOS = st.builds(
    info_of,
    st.builds(
        view_of,
        st.sampled_from([State.Setup, State.PreRun]),
        st.sampled_from(["DriverWait", "TransientCondition", "Error"]),
        st.lists(st.sampled_from(["jobdw", "container"]), max_size=3).map(tuple),
        st.booleans(),
        st.floats(0, 2 * NOW),
    ),
    st.integers(0, 5),
    st.none() | surveys(),
)


@given(INFOS, st.floats(0, 3 * NOW))
def test_no_node_is_excluded_and_no_state_forced_without_a_reason(
    info: WorkflowInfo, now: float
) -> None:
    info.looked_up = now
    chosen = step(info, now, prerun_timeout=60.0, setup_timeout=60.0)
    survey, view = info.survey, info.view
    assert view is not None
    if isinstance(chosen, (Inspect, Exclude, Force)):
        assert not view.forced
        assert info.failure_tolerance > 0 or chosen == Inspect()
    if isinstance(chosen, Inspect) and not info.failure_tolerance:
        assert view.state is State.PreRun
    if isinstance(chosen, (Exclude, Force)):
        assert survey is not None and survey.state is view.state
    if isinstance(chosen, Exclude) and survey is not None:
        assert survey.lost and tolerated(HOSTS, survey, info.failure_tolerance)
    if isinstance(chosen, Force) and survey is not None:
        assert not survey.lost and survey.served and survey.excluded is not None
        assert "container" not in view.outstanding
    if isinstance(chosen, Wait) and chosen.until is not None:
        assert chosen.until > now


@given(INFOS)
def test_every_trouble_of_a_state_comes_to_an_end(info: WorkflowInfo) -> None:
    """Whatever is found out, and if DWS does nothing by itself: the job goes on
    or fails after a few steps and waits."""
    now = 2 * NOW
    for _ in range(30):
        info.looked_up = now
        chosen = step(info, now, prerun_timeout=60.0, setup_timeout=60.0)
        view, survey = info.view, info.survey
        assert view is not None
        if isinstance(chosen, (Fail, Force)) or view.forced:
            break
        if isinstance(chosen, Wait):
            assert chosen.until is not None
            now = chosen.until
        elif isinstance(chosen, Exclude) and survey is not None:
            info.survey = survey.without_lost(now)
        elif isinstance(chosen, Inspect):
            known = survey or Survey(State.PreRun, now, HOSTS, HOSTS[:1], True)
            assert view.state is not None
            info.survey = dataclasses.replace(known, state=view.state, requested_at=now)
    else:
        raise AssertionError(f"no end: {info}")
