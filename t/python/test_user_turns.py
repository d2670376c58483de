# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What the jobs of one user cost others before they have nodes (``user_workflows``,
``user_directives_limit``)."""

from __future__ import annotations

from random import Random
from typing import Any, Callable, Optional

import pytest

from flux_k8s.config.table import Config
from flux_k8s.jobs.step import Step
from flux_k8s.jobs.userturns import CREATES, LIMITS, UserTurns
from flux_k8s.jobs.workflowinfo import WorkflowInfo
from flux_k8s.jobs.workflowrequests import WorkflowRequests
from flux_k8s.ports import WORKFLOW, KubeError
from flux_k8s.rfc.jobid import jobid_of_workflow, workflow_name
from rabbitsim.dws.options import Options, table
from rabbitsim.flux.events import JobState
from rabbitsim.kube.direct import Fault, Request
from rabbitsim.system import VirtualSystem
from support.queries import GUEST, OTHER, query
from support.service import (
    DAY,
    HOUR,
    XFS,
    desired,
    exceptions,
    jobspec,
    lines,
    long,
    memo,
    names,
    running,
    settle,
    started,
    wait,
)
from support.staging import always, set_urgency
from support.staging import submit as stage

COPY_IN = "#DW copy_in source=/lustre/x destination=$DW_JOB_p1/"
WAITS = "rabbit_waits_for"
WORK = 0.02
"""Seconds that DWS works on one Workflow, in Proposal and in Teardown."""


def one_at_a_time() -> tuple[Options, Callable[[VirtualSystem], None]]:
    """Options of a DWS that works on one Workflow after the other, and what gives it
    its clock."""
    clock: list[Callable[[], float]] = []
    free = 0.0

    def latency(state: str, rng: Random) -> float:
        nonlocal free
        if state not in ("Proposal", "Teardown"):
            return 0.0
        now = clock[0]()
        free = max(free, now) + WORK
        return free - now

    return Options(latency=latency), lambda system: clock.append(system.loop.now)


def busy(**limits: Any) -> VirtualSystem:
    """A system whose DWS works on one Workflow after the other."""
    options, connect = one_at_a_time()
    system = VirtualSystem(options=options, config=Config.parse(limits))
    connect(system)
    system.start()
    return system


def slow(**limits: Any) -> VirtualSystem:
    """A system whose DWS takes a minute for Proposal, of any number of Workflows."""
    options = Options(latency=table({"Proposal": 60.0}))
    return started(options=options, config=Config.parse(limits))


def hold(system: VirtualSystem, count: int, userid: int = GUEST) -> list[int]:
    """Submit so many jobs, each of which is held."""
    return [
        system.instance.submit(jobspec(), userid=userid, urgency=0)
        for _ in range(count)
    ]


def is_planned(system: VirtualSystem, jobid: int) -> bool:
    return system.instance.job(jobid).was_posted("dependency-remove")


def time_to_plan(system: VirtualSystem) -> float:
    """Submit a job of another user; the seconds until its storage is planned."""
    submitted = system.loop.now()
    jobid = system.instance.submit(jobspec(), userid=OTHER)
    assert system.loop.run(lambda: is_planned(system, jobid), HOUR)
    return system.loop.now() - submitted


def proposed(system: VirtualSystem) -> list[int]:
    """The jobs whose storage DWS has to plan."""
    found = []
    for workflow in system.workflows():
        jobid = jobid_of_workflow(workflow["metadata"]["name"])
        status = workflow.get("status", {})
        if jobid is not None and not (
            status.get("state") == "Proposal" and status.get("ready")
        ):
            found.append(jobid)
    return found


def test_a_job_beside_the_held_jobs_of_another_user_is_planned_as_if_alone() -> None:
    alone = time_to_plan(busy())
    system = busy()
    held = hold(system, 60)
    wait(system, 0.1)
    assert time_to_plan(system) < alone + 0.3
    assert not all(is_planned(system, jobid) for jobid in held)
    wait(system, 30.0)
    assert all(is_planned(system, jobid) for jobid in held)


def test_a_job_beside_a_user_who_submits_and_cancels_is_planned_as_if_alone() -> None:
    alone = time_to_plan(busy())
    system = busy()
    for _ in range(60):
        (jobid,) = hold(system, 1)
        wait(system, WORK / 8)
        system.loop.call_later(WORK, lambda jobid=jobid: system.instance.cancel(jobid))
    assert time_to_plan(system) < alone + 0.3
    settle(system)


def test_the_jobs_of_a_user_who_is_alone_are_planned_as_fast_as_without_a_limit() -> (
    None
):
    def time_to_plan_all(**limits: Any) -> float:
        system = busy(**limits)
        submitted = system.loop.now()
        held = hold(system, 60)
        assert system.loop.run(
            lambda: all(is_planned(system, jobid) for jobid in held), HOUR
        )
        return system.loop.now() - submitted

    assert time_to_plan_all() < 1.1 * time_to_plan_all(user_workflows=0)


def test_no_more_workflows_of_a_user_are_planned_at_a_time_than_the_limit() -> None:
    system = busy(user_workflows=5)
    held = hold(system, 40)
    assert always(system, lambda: len(proposed(system)) <= 5, 10.0)
    assert all(is_planned(system, jobid) for jobid in held)


def test_a_workflow_in_teardown_counts_if_its_job_never_had_nodes() -> None:
    options = Options(latency=table({"Teardown": 60.0}))
    system = started(options=options, config=Config.parse({"user_workflows": 1}))
    (cancelled,) = hold(system, 1)
    wait(system, 1.0)
    system.instance.cancel(cancelled)
    wait(system, 1.0)
    (waits,) = hold(system, 1)
    wait(system, 30.0)
    assert not is_planned(system, waits) and "user_workflows" in memo(
        system, waits, WAITS
    )
    wait(system, 60.0)
    assert is_planned(system, waits)


def test_jobs_that_had_nodes_and_jobs_that_wait_for_nodes_do_not_count() -> None:
    options = Options(latency=table({"Teardown": 600.0}))
    system = started(options=options, config=Config.parse({"user_workflows": 1}))
    ended = system.instance.submit(long(XFS, seconds=1), userid=GUEST)
    running(system, ended)
    held = hold(system, 3)
    wait(system, 60.0)
    assert all(is_planned(system, jobid) for jobid in held)
    assert "epilog-start" in names(system, ended)
    system.unload_module()
    system.load_module()
    (later,) = hold(system, 1)
    wait(system, 60.0)
    assert is_planned(system, later)


def test_a_job_whose_storage_is_made_does_not_count_by_whatever_is_known_of_it() -> (
    None
):
    options = Options(latency=table({"DataIn": HOUR}))
    system = started(options=options, config=Config.parse({"user_workflows": 1}))
    made = system.instance.submit(long([XFS, COPY_IN]), userid=GUEST)
    wait(system, 10.0)
    assert desired(system, made) == "DataIn"
    system.unload_module()
    unmarked = {"metadata": {"annotations": None}}
    system.store.merge_patch(WORKFLOW, "default", workflow_name(made), unmarked)
    system.load_module()
    (later,) = hold(system, 1)
    wait(system, 10.0)
    assert is_planned(system, later)


def test_a_job_that_waits_in_proposal_for_others_than_dws_does_not_count() -> None:
    system = started(config=Config.parse({"user_workflows": 1, "stage_limit": 0}))
    ahead = [stage(system, userid=GUEST, urgency=0) for _ in range(3)]
    wait(system, 10.0)
    assert [desired(system, jobid) for jobid in ahead] == ["Proposal"] * 3
    assert not any(is_planned(system, jobid) for jobid in ahead)
    (later,) = hold(system, 1)
    wait(system, 10.0)
    assert is_planned(system, later)


def test_a_teardown_for_which_rabbits_are_needed_does_not_count() -> None:
    options = Options(latency=table({"DataIn": HOUR, "Teardown": DAY}))
    limits = {"user_workflows": 1, "stage_user_limit": 100, "stage_limit": 100}
    system = started(options=options, config=Config.parse(limits))
    ahead = stage(system, userid=GUEST)
    wait(system, 60.0)
    assert desired(system, ahead) == "DataIn" and not is_planned(system, ahead)
    system.instance.cancel(ahead)
    wait(system, 60.0)
    assert desired(system, ahead) == "Teardown"
    (later,) = hold(system, 1)
    wait(system, 10.0)
    assert is_planned(system, later)


def test_a_workflow_that_only_others_still_hold_does_not_count() -> None:
    """Its Teardown is complete, and another program's finalizer keeps it."""
    system = started(config=Config.parse({"user_workflows": 1}))
    (first,) = hold(system, 1)
    wait(system, 60.0)
    (workflow,) = system.workflows()
    finalizers = [*workflow["metadata"]["finalizers"], "example.com/other"]
    name, held = workflow["metadata"]["name"], {"finalizers": finalizers}
    system.store.merge_patch(WORKFLOW, "default", name, {"metadata": held})
    system.instance.cancel(first)
    wait(system, 60.0)
    (later,) = hold(system, 1)
    wait(system, 10.0)
    assert is_planned(system, later)


def test_a_job_that_has_nodes_never_waits_for_others_of_its_user() -> None:
    system = slow(user_workflows=1)
    first = system.instance.submit(long(XFS), userid=GUEST)
    wait(system, 90.0)
    hold(system, 20)
    running(system, first)
    system.instance.cancel(first)
    job = system.instance.job(first)
    assert system.loop.run(lambda: job.state is JobState.INACTIVE, 60.0)


def test_a_job_that_waits_says_so_in_its_memo_and_to_queries() -> None:
    system = slow(user_workflows=2)
    *others, waits = hold(system, 3)
    wait(system, 1.0)
    text = LIMITS
    assert memo(system, waits, WAITS) == text
    rows = {row["id"]: row for row in query(system, "job-list")["jobs"]}
    assert rows[waits]["waits"] == text and rows[waits]["state"] == "none"
    assert query(system, "job-show", {"id": waits})["waits"] == text
    assert [memo(system, jobid, WAITS) for jobid in others] == [None, None]
    wait(system, 300.0)
    assert is_planned(system, waits) and memo(system, waits, WAITS) is None
    assert not lines(system, "user_workflows")


def test_a_job_that_comes_to_wait_for_others_says_so() -> None:
    system = slow(user_workflows=2)
    held = hold(system, 1)
    wait(system, 90.0)
    held += hold(system, CREATES + 2)
    wait(system, 1.0)
    silent = [job for job in held if memo(system, job, WAITS) is None]
    assert silent == held[:3]


def test_users_take_turns() -> None:
    system = busy(user_workflows=1000)
    made: list[int] = []
    system.store.watch(
        WORKFLOW,
        None,
        lambda event: (
            made.append(event.object["spec"]["userID"])
            if event.type == "ADDED"
            else None
        ),
        resource_version=str(system.store.version),
    )
    first = hold(system, 60, GUEST)
    hold(system, 20, OTHER)
    hold(system, 20, OTHER + 1)
    wait(system, 60.0)
    assert len(first) == made.count(GUEST)
    last = max(n for n, userid in enumerate(made) if userid != GUEST)
    assert made[:last].count(GUEST) <= 20 + 2 * CREATES


def test_without_a_limit_no_job_waits_for_others() -> None:
    system = slow(user_workflows=0, user_directives_limit=0)
    held = hold(system, 120)
    wait(system, 1.0)
    assert sorted(proposed(system)) == held


def test_a_job_whose_workflow_cannot_be_created_holds_up_no_other_user() -> None:
    system = slow(user_workflows=100)
    hold(system, 3 * CREATES)

    def fail(request: Request) -> Optional[Fault]:
        body = request.body if isinstance(request.body, dict) else {}
        if request.verb == "create" and body["spec"]["userID"] == GUEST:
            return Fault(error=KubeError(500, "InternalError", "no"))
        return None

    assert system.service_kube is not None
    system.service_kube.faults = fail
    wait(system, 10.0)
    assert not system.workflows()
    assert time_to_plan(system) < 61.0


def test_an_unexpected_exception_holds_up_no_other_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    create = WorkflowRequests.create

    async def broken(self: WorkflowRequests, info: Any) -> None:
        if info.userid == GUEST:
            raise ZeroDivisionError("on purpose")
        await create(self, info)

    monkeypatch.setattr(WorkflowRequests, "create", broken)
    system = started(config=Config.parse({"user_workflows": 5}))
    broke = hold(system, 3 * CREATES)
    wait(system, 60.0)
    assert all(exceptions(system, jobid) for jobid in broke)
    assert time_to_plan(system) < 1.0


def test_a_job_that_waits_ends_at_once_when_it_is_cancelled() -> None:
    system = slow(user_workflows=1)
    first, waits, behind = hold(system, 3)
    wait(system, 1.0)
    system.instance.cancel(waits)
    wait(system, 1.0)
    assert system.instance.job(waits).state is JobState.INACTIVE
    wait(system, 200.0)
    assert is_planned(system, first) and is_planned(system, behind)


def test_jobs_wait_for_the_same_others_after_a_restart() -> None:
    system = slow(user_workflows=3)
    held = hold(system, 20)
    wait(system, 1.0)
    before = proposed(system)
    system.kill_module()
    system.load_module()
    assert always(system, lambda: proposed(system) == before, 30.0)
    wait(system, HOUR)
    assert all(is_planned(system, jobid) for jobid in held)


def test_a_reload_of_the_configuration_puts_the_limits_in_force() -> None:
    system = slow(user_workflows=1)
    held = hold(system, 5)
    wait(system, 1.0)
    assert proposed(system) == held[:1]
    assert system.service is not None
    system.service.reconfigure(Config.parse({"user_workflows": 4}))
    wait(system, 1.0)
    assert proposed(system) == held[:4]


def test_a_held_job_that_is_released_keeps_its_place() -> None:
    system = slow(user_workflows=1)
    held = hold(system, 3)
    wait(system, 1.0)
    set_urgency(system, held[2], 31)
    wait(system, 90.0)
    assert [is_planned(system, jobid) for jobid in held] == [True, False, False]


def padded(size: int) -> str:
    """Directives of so many bytes."""
    return XFS + "1" * (size - len(XFS))


def test_a_job_waits_while_the_directives_of_its_users_jobs_reach_the_limit() -> None:
    system = started(config=Config.parse({"user_directives_limit": 300}))
    first, second, waits = [
        system.instance.submit(jobspec(padded(150)), userid=GUEST, urgency=0)
        for _ in range(3)
    ]
    other = system.instance.submit(jobspec(padded(200)), userid=OTHER, urgency=0)
    wait(system, HOUR)
    assert all(is_planned(system, jobid) for jobid in (first, second, other))
    assert system.instance.job(waits).state is JobState.DEPEND
    assert memo(system, waits, WAITS) == LIMITS
    system.unload_module()
    system.load_module()
    wait(system, HOUR)
    assert not is_planned(system, waits) and not exceptions(system, waits)
    system.instance.cancel(first)
    wait(system, 60.0)
    assert is_planned(system, waits) and memo(system, waits, WAITS) is None


def test_a_job_that_is_beyond_the_limit_by_itself_waits_for_all_others_only() -> None:
    system = started(config=Config.parse({"user_directives_limit": 100}))
    first = system.instance.submit(long(padded(60)), userid=GUEST)
    large = system.instance.submit(long(padded(150)), userid=GUEST)
    running(system, first)
    wait(system, 60.0)
    assert not is_planned(system, large)
    settle(system, DAY)
    assert not exceptions(system, large) and "start" in names(system, large)


def test_a_job_in_line_is_not_asked_whenever_another_one_has_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Which of the limits the line waits for changes all the time."""
    asked: list[int] = []
    decide = UserTurns.decide

    def count(self: UserTurns, info: WorkflowInfo, step: Step) -> Step:
        asked.append(info.jobid)
        return decide(self, info, step)

    monkeypatch.setattr(UserTurns, "decide", count)
    system = slow(user_workflows=1, user_directives_limit=300)
    *_, last = [
        system.instance.submit(jobspec(padded(150)), userid=GUEST, urgency=0)
        for _ in range(5)
    ]
    wait(system, 30.0)
    asked.clear()
    wait(system, 60.0)
    assert asked and last not in asked
    assert memo(system, last, WAITS) == LIMITS
