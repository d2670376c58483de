# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Which step comes next for a job, as a table."""

from __future__ import annotations

from typing import Any, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from flux_k8s.config.table import Config
from flux_k8s.formats import rset
from flux_k8s.formats.directives import parse
from flux_k8s.formats.jobid import f58
from flux_k8s.formats.timestamps import parse_go_duration
from flux_k8s.jobs.step import Next, Step
from flux_k8s.jobs.timelimits import Moment
from flux_k8s.jobs.workflow import next_step
from flux_k8s.jobs.workflowinfo import Goal, Haste, Mounts, WorkflowInfo
from flux_k8s.objects.storagerequest import StorageRequest
from flux_k8s.objects.workflowstate import State
from flux_k8s.objects.workflowview import FINALIZER, WorkflowView
from flux_k8s.reasons import Note, Reason

JOBID = 1234
NOW = 1000.0
REQUEST = StorageRequest(
    userid=5588,
    directives=(parse("#DW jobdw type=xfs capacity=10GiB name=p1"),),
    resources=[{"type": "node", "count": 1}],
)
R = rset.parse(
    {
        "version": 1,
        "execution": {
            "R_lite": [{"rank": "0", "children": {"core": "0"}}],
            "nodelist": ["compute-01"],
        },
    }
)


def view_of(
    desired: State,
    *,
    state: Optional[State] = None,
    ready: bool = True,
    status: str = "Completed",
    message: str = "",
    deleting: bool = False,
    finalizers: tuple[str, ...] = (FINALIZER, "dws"),
    jobid: str = f58(JOBID),
    changed: Optional[float] = NOW - 1,
    damage: Optional[str] = None,
    cut_off: bool = False,
    gone: bool = False,
) -> WorkflowView:
    return WorkflowView(
        uid="uid",
        resource_version="1",
        jobid=jobid,
        wlm="flux",
        desired=desired,
        state=desired if state is None else state,
        ready=ready,
        status=status,
        message=message,
        finalizers=finalizers,
        deleting=deleting,
        changed=changed,
        elapsed=0.1,
        damage=damage,
        cut_off=cut_off,
        gone=gone,
    )


BEGUN: frozenset[Goal] = frozenset()
UNDER_WAY = frozenset({Goal.PLANNED})


def info_of(
    goal: Goal, view: Optional[WorkflowView] = None, **facts: Any
) -> WorkflowInfo:
    facts.setdefault("request", REQUEST)
    facts.setdefault("answered", BEGUN if goal is Goal.PLANNED else UNDER_WAY)
    if goal is Goal.READY:
        facts.setdefault("allocation", R)
    return WorkflowInfo(JOBID, goal, last=view, **facts)


def step(info: WorkflowInfo, now: float = NOW, **config: Any) -> Next:
    return next_step(info, Moment(now, Config(**config)))


PLANNED, READY, RELEASED = Goal.PLANNED, Goal.READY, Goal.RELEASED
S = State


STATES = st.sampled_from(list(State))
VIEWS = st.none() | st.builds(
    view_of,
    STATES,
    state=STATES,
    ready=st.booleans(),
    status=st.sampled_from(["Completed", "DriverWait", "TransientCondition", "Error"]),
    deleting=st.booleans(),
    finalizers=st.sampled_from([(), (FINALIZER,), ("dws", FINALIZER)]),
    jobid=st.sampled_from([f58(JOBID), "fother"]),
    changed=st.none() | st.floats(0, 2 * NOW),
    damage=st.none() | st.just("damaged"),
    cut_off=st.booleans(),
    gone=st.booleans(),
)
INFOS = st.builds(
    info_of,
    st.sampled_from(list(Goal)),
    VIEWS,
    request=st.none() | st.just(REQUEST),
    allocation=st.none() | st.just(R),
    ran=st.booleans(),
    haste=st.sampled_from(Haste),
    answered=st.frozensets(st.sampled_from(Goal)),
    doubtful=st.booleans(),
    failure=st.none() | st.just(Note("failure", Reason.DWS_REFUSED)),
    troubled_since=st.none() | st.floats(0, 2 * NOW),
)


@given(INFOS)
def test_every_state_of_a_job_has_a_next_step(info: WorkflowInfo) -> None:
    chosen = step(info, setup_timeout=5.0, teardown_after=7.0)
    if chosen.step is Step.MOVE:
        assert info.view is not None and info.view.desired is not None
        assert chosen.to > info.view.desired or info.view.desired is S.Teardown
        assert chosen.to == info.view.desired + 1 or chosen.to is S.Teardown
    if chosen.step in (Step.RELEASE_PROLOG, Step.PLACE):
        assert info.view is not None and info.view.complete


@given(INFOS)
def test_a_job_whose_storage_is_released_is_never_held_for_ever(
    info: WorkflowInfo,
) -> None:
    """An ideal DWS, and steps that succeed: the job ends within a few of them."""
    info.goal = RELEASED
    for _ in range(20):
        chosen = step(info)
        if chosen.step is Step.FORGET:
            break
        carry_out(info, chosen)
    assert info.released


def carry_out(info: WorkflowInfo, chosen: Next) -> None:
    """What a step achieves where everything works."""
    if chosen.step is Step.MOVE:
        cut_off = info.view is not None and info.view.cut_off
        info.last = view_of(chosen.to, cut_off=cut_off)
    elif chosen.step is Step.WAIT and info.view is not None:
        assert info.view.desired is not None
        kept = {"finalizers": info.view.finalizers, "cut_off": info.view.cut_off}
        info.last = view_of(info.view.desired, **kept)
        if FINALIZER not in info.view.finalizers:
            info.last = None
    elif chosen.step is Step.REMOVE_FINALIZER:
        assert info.view is not None
        info.last = replace(info.view, finalizers=())
    elif chosen.step in (Step.DELETE, Step.LOOK_UP):
        info.last, info.doubtful = None, False
    elif chosen.step is Step.RELEASE_EPILOG:
        info.answered |= {RELEASED}
    elif chosen.step is Step.CUT_OFF:
        assert info.view is not None
        info.last = replace(info.view, cut_off=True)
    elif chosen.step is Step.UNMOUNT:
        info.mounts = Mounts(found_at=NOW)
    elif chosen.step is Step.FAIL:
        info.failure = chosen.note


@pytest.mark.parametrize(
    "text, seconds",
    [
        ("119.81ms", 0.11981),
        ("1.048427s", 1.048427),
        ("2m3.5s", 123.5),
        ("1h0m0s", 3600.0),
        ("15µs", 15e-6),
        ("", None),
        ("3", None),
        ("soon", None),
    ],
)
def test_go_durations_are_read(text: str, seconds: Optional[float]) -> None:
    found = parse_go_duration(text)
    assert found == (seconds if seconds is None else pytest.approx(seconds))


def test_a_job_whose_storage_was_made_does_not_lose_it_to_another_in_silence() -> None:
    own = view_of(S.DataIn, changed=NOW)
    info = info_of(PLANNED, own)
    info.see(replace(view_of(S.Proposal, jobid="fother"), uid="theirs"), NOW)
    info.see_gone(NOW, confirmed=True)
    assert info.again_at is None and step(info).step is Step.FAIL
