# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Which step comes next for a job, as a table."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from typing import Any, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.config.table import Config
from flux_k8s.dws.directives import parse
from flux_k8s.dws.goduration import parse_go_duration
from flux_k8s.dws.storagerequest import StorageRequest
from flux_k8s.dws.workflowstate import State
from flux_k8s.dws.workflowview import FINALIZER, WorkflowView
from flux_k8s.jobs.step import (
    Advance,
    Allocate,
    Create,
    CutOff,
    Delete,
    DrainMounted,
    Fail,
    FindWriters,
    Forget,
    Inspect,
    Lookup,
    NoteGivenUp,
    NoteTrouble,
    Plan,
    ReleaseEpilog,
    ReleaseProlog,
    RemoveFinalizer,
    ReportData,
    Step,
    Wait,
    Withhold,
)
from flux_k8s.jobs.workflow import WRITERS_VALID, next_step
from flux_k8s.jobs.workflowinfo import Goal, WorkflowInfo
from flux_k8s.reasons import Note, Reason
from flux_k8s.rfc import rset
from flux_k8s.rfc.jobid import f58

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
        breakdowns=(),
        computes=None,
        environment={},
        token=None,
        damage=damage,
    )


def info_of(
    goal: Goal, view: Optional[WorkflowView] = None, **facts: Any
) -> WorkflowInfo:
    facts.setdefault("request", REQUEST)
    facts.setdefault("planned", goal is not Goal.PLANNED)
    if goal is Goal.READY:
        facts.setdefault("allocation", R)
    return WorkflowInfo(JOBID, goal, view=view, **facts)


def step(info: WorkflowInfo, now: float = NOW, **config: Any) -> Step:
    return next_step(info, now, Config(**config))


PLANNED, READY, RELEASED = Goal.PLANNED, Goal.READY, Goal.RELEASED
S = State


@pytest.mark.parametrize(
    "info, expected",
    [
        # the way up
        (info_of(PLANNED), Create()),
        (info_of(PLANNED, view_of(S.Proposal, ready=False)), Wait()),
        (info_of(PLANNED, view_of(S.Proposal)), Plan()),
        (info_of(PLANNED, view_of(S.Proposal), planned=True), Wait()),
        (info_of(READY, view_of(S.Proposal)), Allocate()),
        (info_of(READY, view_of(S.Proposal), allocation=None), Wait()),
        (info_of(READY, view_of(S.Setup, state=S.Proposal)), Wait()),
        (info_of(READY, view_of(S.Setup, ready=False)), Wait()),
        (info_of(READY, view_of(S.Setup)), Advance(S.DataIn)),
        (info_of(READY, view_of(S.DataIn)), Advance(S.PreRun)),
        (info_of(READY, view_of(S.PreRun)), ReleaseProlog()),
        (info_of(READY, view_of(S.PreRun), mounted=True), Wait()),
        # after a restart, before it is known which nodes the job has
        (info_of(READY, view_of(S.DataIn), allocation=None), Wait()),
        (info_of(READY, view_of(S.PreRun), allocation=None), Wait()),
        # the way down
        (info_of(RELEASED, view_of(S.PreRun), ran=True), Advance(S.PostRun)),
        (info_of(RELEASED, view_of(S.PostRun), ran=True), Advance(S.DataOut)),
        (info_of(RELEASED, view_of(S.DataOut), ran=True), Advance(S.Teardown)),
        (info_of(RELEASED, view_of(S.DataOut, ready=False), ran=True), Wait()),
        (info_of(RELEASED, view_of(S.PreRun), ran=False), Advance(S.Teardown)),
        (info_of(RELEASED, view_of(S.Setup, ready=False)), Advance(S.Teardown)),
        (info_of(RELEASED, view_of(S.Teardown, state=S.DataOut)), Wait()),
        (info_of(RELEASED, view_of(S.Teardown, ready=False)), RemoveFinalizer()),
        (info_of(RELEASED, view_of(S.Teardown), unmounted=True), ReleaseEpilog()),
        (
            info_of(RELEASED, view_of(S.Teardown)),
            DrainMounted("Teardown is complete"),
        ),
        (info_of(RELEASED, view_of(S.Teardown), released=True), RemoveFinalizer()),
        (
            info_of(RELEASED, view_of(S.Teardown, finalizers=()), released=True),
            Delete(),
        ),
        (
            info_of(
                RELEASED,
                view_of(S.Teardown, finalizers=(), deleting=True),
                released=True,
            ),
            Wait(),
        ),
        (info_of(RELEASED, released=True), Forget()),
        # a job that never had a Workflow
        (info_of(RELEASED), ReleaseEpilog()),
        # a create that got no answer
        (info_of(PLANNED, doubtful=True), Lookup()),
        (info_of(RELEASED, doubtful=True), Lookup()),
    ],
)
def test_each_situation_has_its_step(info: WorkflowInfo, expected: Step) -> None:
    assert step(info) == expected


KEPT = replace(view_of(S.PostRun, ready=False), kept_for="compute-01")
RELEASED_KEPT = replace(KEPT, nodes_released=True)
WRITES: dict[str, Any] = {"writers": ("compute-01",), "writers_at": NOW}
LATER = Wait(NOW + WRITERS_VALID)


@pytest.mark.parametrize(
    ("view", "facts", "expected"),
    [
        # DWS unmounts in PostRun, and waits for each node there
        (view_of(S.PreRun), {"abandoned": True}, Advance(S.PostRun)),
        (view_of(S.PreRun, ready=False), {"abandoned": True}, Advance(S.Teardown)),
        (view_of(S.PostRun, ready=False), {"failed": True}, Wait()),
        (view_of(S.PostRun), {}, FindWriters("DWS did not wait for it")),
        (view_of(S.PostRun), {"writers": ()}, Advance(S.DataOut)),
        (view_of(S.PostRun), {"writers": (), "failed": True}, Advance(S.Teardown)),
        (view_of(S.PostRun), WRITES, LATER),
        # a node has not unmounted in time
        (RELEASED_KEPT, {}, FindWriters("DWS waits for it")),
        (RELEASED_KEPT, WRITES, Withhold()),
        (RELEASED_KEPT, {**WRITES, "withholding": True}, LATER),
        (
            RELEASED_KEPT,
            {**WRITES, "withholding": True, "withheld": True},
            ReleaseEpilog(),
        ),
        (RELEASED_KEPT, {**WRITES, "failed": True}, NoteGivenUp()),
        (
            replace(RELEASED_KEPT, given_up=True),
            {**WRITES, "failed": True},
            Withhold(),
        ),
        (RELEASED_KEPT, {**WRITES, "released": True}, LATER),
        (
            RELEASED_KEPT,
            {"writers": (), "writers_at": NOW, "released": True},
            LATER,
        ),
        (
            RELEASED_KEPT,
            {"writers": (), "writers_at": NOW - WRITERS_VALID, "released": True},
            FindWriters("DWS waits for it"),
        ),
        # its epilog was given up
        (
            view_of(S.PostRun, ready=False),
            {"aborted": True, "cut_off": True, "released": True},
            FindWriters("its epilog was given up"),
        ),
        # the job waits for storage that others cannot be kept off
        (KEPT, WRITES, LATER),
    ],
)
def test_storage_that_a_node_may_write_to_is_kept(
    view: WorkflowView, facts: dict[str, Any], expected: Step
) -> None:
    info = info_of(RELEASED, view, ran=True, **facts)
    assert step(info, unmount_failure="keep") == expected


def test_data_movement_is_given_up_when_teardown_is_asked_for() -> None:
    view = view_of(S.DataOut, ready=False)
    info = info_of(RELEASED, view, ran=True, abandoned=True)
    assert step(info) == Advance(S.Teardown)


def test_an_abort_takes_out_of_service_what_is_in_use_and_then_hurries() -> None:
    view = view_of(S.PostRun, ready=False)
    info = info_of(RELEASED, view, ran=True, abandoned=True, aborted=True)
    assert step(info) == CutOff()
    info.cut_off = True
    assert step(info) == ReleaseEpilog()
    info.released = True
    assert step(info) == Advance(S.Teardown, hurry=True)
    info.view = view_of(S.Teardown, ready=False)
    assert step(info) == RemoveFinalizer()


@pytest.mark.parametrize("goal", [PLANNED, READY])
@pytest.mark.parametrize("state", [S.Proposal, S.Setup, S.DataIn, S.PreRun])
def test_an_error_fails_the_job_with_the_message_of_dws(
    goal: Goal, state: State
) -> None:
    view = view_of(state, ready=False, status="Error", message="no space")
    info = info_of(goal, view)
    text = f"DWS failed in {state.name}: no space"
    assert step(info) == Fail(Note(text, Reason.DWS_FAILED))
    info.failed = True
    assert step(info) == Wait()


def test_an_error_of_the_previous_state_does_not_count_in_the_next_state() -> None:
    view = view_of(S.Teardown, state=S.Proposal, ready=False, status="Error")
    assert step(info_of(RELEASED, view)) == Wait()


@pytest.mark.parametrize("state", [S.PostRun, S.DataOut])
def test_an_error_after_the_job_is_an_exception_and_then_teardown(state: State) -> None:
    view = view_of(state, ready=False, status="Error", message="quota")
    info = info_of(RELEASED, view, ran=True)
    if state is S.PostRun:
        assert step(info) == DrainMounted("DWS failed in PostRun: quota")
        info.still_mounted = ()
    text = f"DWS failed in {state.name}: quota"
    assert step(info) == Fail(Note(text, Reason.DWS_FAILED))
    info.failed = True
    assert step(info) == Advance(S.Teardown)


def test_an_error_in_teardown_does_not_end_the_wait_for_it() -> None:
    view = view_of(S.Teardown, ready=False, status="Error", finalizers=())
    assert step(info_of(RELEASED, view, warned=True)) == Wait()


def test_a_workflow_that_was_deleted_under_the_job_fails_it() -> None:
    assert isinstance(step(info_of(PLANNED, deleted_uid="1")), Fail)
    assert isinstance(step(info_of(READY)), Fail)
    deleting = view_of(S.PreRun, deleting=True)
    assert isinstance(step(info_of(READY, deleting, mounted=True)), Fail)


def test_of_a_workflow_that_is_being_deleted_only_our_finalizer_is_removed() -> None:
    view = view_of(S.PreRun, deleting=True)
    assert step(info_of(RELEASED, view, ran=True)) == RemoveFinalizer()
    view = view_of(S.PreRun, deleting=True, finalizers=("dws",))
    assert step(info_of(RELEASED, view, ran=True)) == Wait()


def test_a_workflow_of_another_program_is_left_alone() -> None:
    view = view_of(S.Proposal, jobid="fSomeOther")
    assert isinstance(step(info_of(PLANNED, view)), Fail)
    info = info_of(RELEASED, view)
    assert step(info) == ReleaseEpilog()
    info.released = True
    assert step(info) == Forget()


def test_a_malformed_workflow_fails_its_job_with_what_is_wrong() -> None:
    view = view_of(S.Proposal, damage="Workflow x: status.ready is 3")
    wrong = Note("Workflow x: status.ready is 3", Reason.BAD_OBJECT)
    assert step(info_of(PLANNED, view)) == Fail(wrong)
    assert step(info_of(RELEASED, view, failed=True)) == Advance(S.Teardown)


def test_a_transient_condition_is_tolerated_for_tc_timeout_from_first_sight() -> None:
    view = view_of(S.Setup, ready=False, status="TransientCondition", message="busy")
    info = info_of(READY)
    info.see(view, NOW)
    assert step(info, NOW, tc_timeout=10.0) == NoteTrouble()
    view = dataclasses.replace(view, trouble_note=info.trouble_note)
    info.see(dataclasses.replace(view, resource_version="2"), NOW + 5)
    assert step(info, NOW, tc_timeout=10.0) == Wait(NOW + 10)
    assert step(info, NOW + 10, tc_timeout=10.0) == Lookup()
    info.looked_up = NOW + 10
    failed = step(info, NOW + 10, tc_timeout=10.0)
    assert isinstance(failed, Fail) and "tc_timeout=10s: busy" in failed.note.text
    assert failed.note.reason is Reason.TRANSIENT_CONDITION
    view = view_of(S.Setup, ready=False, status="DriverWait")
    info.see(dataclasses.replace(view, resource_version="3"), NOW + 6)
    assert step(info, NOW + 20, tc_timeout=10.0) == Wait()


def test_setup_timeout_fails_the_job() -> None:
    info = info_of(READY, view_of(S.Setup, ready=False, changed=NOW))
    assert step(info, NOW + 59, setup_timeout=60.0) == Wait(NOW + 60)
    assert step(info, NOW + 60, setup_timeout=60.0) == Lookup()
    info.looked_up = NOW + 60
    failed = step(info, NOW + 60, setup_timeout=60.0)
    assert isinstance(failed, Fail) and "setup_timeout=60s" in failed.note.text
    assert failed.note.reason is Reason.SETUP_TIMEOUT


def test_at_prerun_timeout_the_nodes_that_have_not_mounted_are_looked_for() -> None:
    info = info_of(READY, view_of(S.PreRun, ready=False, changed=NOW))
    assert step(info, NOW + 59, prerun_timeout=60.0) == Wait(NOW + 60)
    assert step(info, NOW + 60, prerun_timeout=60.0) == Lookup()
    info.looked_up = NOW + 60
    assert step(info, NOW + 60, prerun_timeout=60.0) == Inspect()


@pytest.mark.parametrize(
    "state, key",
    [
        (S.PostRun, "postrun_timeout"),
        (S.PostRun, "teardown_after"),
        (S.DataOut, "teardown_after"),
    ],
)
def test_a_state_timeout_after_the_job_leads_to_teardown(
    state: State, key: str
) -> None:
    info = info_of(RELEASED, view_of(state, ready=False, changed=NOW), ran=True)
    assert step(info, NOW + 59, **{key: 60.0}) == Wait(NOW + 60)
    assert step(info, NOW + 60, **{key: 60.0}) == Lookup()
    info.looked_up = NOW + 60
    if state is S.PostRun:
        note = f"PostRun took more than {key}=60s"
        assert step(info, NOW + 60, **{key: 60.0}) == DrainMounted(note)
        info.still_mounted = ()
    assert step(info, NOW + 60, **{key: 60.0}) == Advance(S.Teardown)


OUT = "$DW_JOB_p1/x to /lustre/x"


def with_output(state: State, **facts: Any) -> WorkflowInfo:
    view = dataclasses.replace(view_of(state, ready=False), unsaved=(OUT,))
    return info_of(RELEASED, view, ran=True, still_mounted=(), **facts)


def test_an_exception_names_data_that_is_not_copied() -> None:
    late = with_output(S.DataOut, looked_up=NOW + 60)
    text = f"PostRun and DataOut took more than teardown_after=60s; not copied: {OUT}"
    failed = Fail(Note(text, Reason.TEARDOWN_AFTER))
    assert step(late, NOW + 60, teardown_after=60.0) == failed
    cancelled = with_output(S.DataOut, abandoned=True)
    text = f"given up in DataOut; not copied: {OUT}"
    assert step(cancelled) == Fail(Note(text, Reason.GIVEN_UP))
    cancelled.failed = True
    assert step(cancelled) == Advance(S.Teardown)
    found = with_output(S.Teardown, unmounted=True)
    assert found.view is not None
    found.view = dataclasses.replace(found.view, ready=True)
    text = f"the storage is gone; not copied: {OUT}"
    assert step(found) == Fail(Note(text, Reason.CAUSE_UNKNOWN))


def test_nodes_that_do_not_unmount_may_cost_persistent_storage_some_data() -> None:
    view = dataclasses.replace(
        view_of(S.PostRun, ready=False), persistent_storage=("keep",)
    )
    info = info_of(
        RELEASED, view, ran=True, looked_up=NOW + 60, still_mounted=("n1", "n2")
    )
    failed = step(info, NOW + 60, postrun_timeout=60.0)
    assert isinstance(failed, Fail)
    assert "n[1-2] may not have written everything to keep" in failed.note.text
    assert failed.note.reason is Reason.POSTRUN_TIMEOUT


def test_a_timeout_of_a_state_that_was_left_never_fires() -> None:
    info = info_of(READY, view_of(S.DataIn, ready=False, changed=NOW))
    assert step(info, NOW + 10**6, setup_timeout=60.0, prerun_timeout=60.0) == Wait()
    done = info_of(READY, view_of(S.Setup, changed=NOW))
    assert step(done, NOW + 10**6, setup_timeout=60.0) == Advance(S.DataIn)


def test_a_view_with_an_earlier_state_is_ignored_as_late() -> None:
    info = info_of(READY)
    info.see(view_of(S.PreRun), NOW)
    info.see(view_of(S.Setup), NOW)
    assert info.view is not None and info.view.desired is S.PreRun
    info.see(dataclasses.replace(view_of(S.Proposal), uid="another"), NOW)
    assert info.view.desired is S.Proposal


def test_an_answer_after_a_newer_watch_event_is_ignored_as_late() -> None:
    event = dataclasses.replace(view_of(S.Teardown), resource_version="10")
    answer = dataclasses.replace(
        view_of(S.Teardown, ready=False, status="DriverWait"), resource_version="9"
    )
    info = info_of(RELEASED, abandoned=True, released=True)
    info.see(event, NOW)
    info.see(answer, NOW)
    assert info.view == event


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
)
INFOS = st.builds(
    info_of,
    st.sampled_from(list(Goal)),
    VIEWS,
    request=st.none() | st.just(REQUEST),
    allocation=st.none() | st.just(R),
    ran=st.booleans(),
    abandoned=st.booleans(),
    aborted=st.booleans(),
    planned=st.booleans(),
    mounted=st.booleans(),
    released=st.booleans(),
    deleted_uid=st.none() | st.just("1"),
    doubtful=st.booleans(),
    failure=st.none() | st.just(Note("failure", Reason.DWS_REFUSED)),
    failed=st.booleans(),
    troubled_since=st.none() | st.floats(0, 2 * NOW),
    cut_off=st.booleans(),
)


@given(INFOS)
def test_every_state_of_a_job_has_a_next_step(info: WorkflowInfo) -> None:
    chosen = step(info, setup_timeout=5.0, teardown_after=7.0)
    if isinstance(chosen, Advance):
        assert info.view is not None and info.view.desired is not None
        assert chosen.state > info.view.desired or info.view.desired is S.Teardown
        assert chosen.state == info.view.desired + 1 or chosen.state is S.Teardown
    if isinstance(chosen, (ReleaseProlog, Allocate)):
        assert info.view is not None and info.view.complete


@given(INFOS)
def test_a_job_whose_storage_is_released_is_never_held_for_ever(
    info: WorkflowInfo,
) -> None:
    """An ideal DWS, and steps that succeed: the job ends within a few of them."""
    info.goal = RELEASED
    for _ in range(20):
        chosen = step(info)
        if isinstance(chosen, Forget):
            break
        carry_out(info, chosen)
    assert info.released


def carry_out(info: WorkflowInfo, chosen: Step) -> None:
    """What a step achieves where everything works."""
    if isinstance(chosen, Advance):
        info.view = view_of(chosen.state)
    elif isinstance(chosen, Wait) and info.view is not None:
        assert info.view.desired is not None
        info.view = view_of(info.view.desired, finalizers=info.view.finalizers)
        if FINALIZER not in info.view.finalizers:
            info.view = None
    elif isinstance(chosen, RemoveFinalizer):
        assert info.view is not None
        info.view = dataclasses.replace(info.view, finalizers=())
    elif isinstance(chosen, (Delete, Lookup)):
        info.view, info.doubtful = None, False
    elif isinstance(chosen, ReleaseEpilog):
        info.released = True
    elif isinstance(chosen, CutOff):
        info.cut_off = True
    elif isinstance(chosen, DrainMounted):
        info.unmounted, info.still_mounted = True, ()
    elif isinstance(chosen, Fail):
        info.failed = True


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


def test_data_whose_workflow_nobody_has_seen_is_lost_unless_that_is_found() -> None:
    facts = {"ran": True, "released": True, "nodes_released": True}
    gone = info_of(RELEASED, doubtful=True, **facts)
    assert step(gone) == Lookup()
    gone.doubtful = False
    report = step(gone)
    assert isinstance(report, ReportData) and report.loss is not None
    lost = "was deleted under the job; what was to be copied may not"
    assert lost in report.loss.text
    assert report.loss.reason is Reason.WORKFLOW_DELETED
    found = info_of(RELEASED, **facts)
    found.see(view_of(S.DataOut), NOW)
    assert step(found) == ReportData()


def test_a_watch_that_goes_back_counts_and_a_late_answer_does_not() -> None:
    """Kubernetes may have been restored from a backup."""

    def version(number: int, state: State) -> WorkflowView:
        return replace(view_of(state), resource_version=str(number))

    info = info_of(RELEASED, ran=True)
    info.see_watched(version(5, S.PreRun), NOW)
    info.see(version(9, S.DataOut), NOW)  # the answer to a request
    for late in (version(5, S.PreRun), version(7, S.PostRun)):
        info.see_watched(late, NOW)
        assert info.view is not None and info.view.desired is S.DataOut
    info.see(version(6, S.PostRun), NOW)
    assert info.view.desired is S.DataOut
    info.see_watched(version(3, S.PreRun), NOW)
    assert info.view is not None and info.view.desired is S.PreRun
    assert step(info) == Lookup()  # or one of its servers lags
    info.doubtful = False
    assert step(info) == Advance(S.PostRun)
