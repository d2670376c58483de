# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Jobs of one user that wait for each other before they have nodes: at
``user_workflows`` and ``user_directives_limit``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Optional

from flux_k8s.config.table import Config
from flux_k8s.jobs.turns import CREATES
from flux_k8s.objects.workflowview import FINALIZER
from flux_k8s.ports import KubeError, Request
from rabbitsim.kube.direct import Fault
from rabbitsim.torture.deeds import (
    cancel,
    cancel_job,
    configure,
    patch_workflows,
    set_urgency,
    strip,
    submit,
    unload,
)
from rabbitsim.torture.life import StorySystem
from rabbitsim.torture.outages import Broken
from rabbitsim.torture.story import COPY_IN, LIFE, XFS, Deed, Job, Story, When, of

HOUR = 3600.0
GUEST, OTHER = 4711, 4712
PLAIN = Job((XFS,), nodes=1, user=GUEST)
HELD = replace(PLAIN, urgency=0)
AHEAD = replace(PLAIN, directives=(XFS, COPY_IN), stage="ahead")


def turns(
    name: str,
    course: str,
    *troubles: Any,
    job: Job = PLAIN,
    proposal: float = 0.0,
    **more: Any,
) -> Story:
    """A story of jobs of a user who has one Workflow at a time."""
    given = {"config": Config(user_workflows=1), **more}
    latency = {"Proposal": proposal, **given.pop("latency", {})}
    return Story(name, course, troubles=troubles, job=job, latency=latency, **given)


def padded(size: int, **more: Any) -> Job:
    """A job with directives of so many bytes."""
    directive = XFS + "1" * (size - len(XFS))
    return replace(PLAIN, directives=(directive,), **more)


def hold_workflow(system: StorySystem) -> None:
    """Another program puts a finalizer of its own on the Workflow, for an hour."""
    names = [FINALIZER, "example.com/other"]
    patch_workflows(system, {"metadata": {"finalizers": names}})
    nothing = {"metadata": {"finalizers": []}}
    system.loop.call_later(HOUR, lambda: patch_workflows(system, nothing))


def fail_creates(how: Fault, seconds: float = 100.0) -> Deed:
    """The requests for a user's Workflows fail for some seconds."""

    def deed(system: StorySystem) -> None:
        until = system.loop.now() + seconds

        def fault(request: Request) -> Optional[Fault]:
            body: Any = request.body if request.verb == "create" else None
            fails = body and body["spec"]["userID"] == GUEST
            return how if fails and system.loop.now() < until else None

        system.api_fault = fault

    return deed


REFUSED = Fault(error=KubeError(500, "InternalError", "no"))
BROKEN = Fault(answer=Broken(metadata={}))
MANY = 3 * CREATES
"""More jobs than have their Workflows created at a time."""

LAST = MANY + 1


def each(word: str) -> str:
    """A word of each of them but the first."""
    return " ".join(f"{number}:{word}" for number in range(2, LAST))


STORIES = (
    turns(
        "a job whose Workflow cannot be created holds up no other user",
        f"cancel! clean {of(LAST, LIFE)} {each('cancel!')} {each('clean')}",
        When("", fail_creates(REFUSED)),
        When("", cancel, 10.0),
        When("", submit(replace(PLAIN, user=OTHER)), 10.0),
        *(When(f"{LAST}:gone", cancel_job(number)) for number in range(2, LAST)),
        others=(PLAIN,) * (MANY - 1),
        config=Config(user_workflows=100),
        spans=(("clean", f"{LAST}:Proposal", 0.0),),
    ),
    turns(
        "a job that fails when its Workflow is created holds up no other user",
        f"service-fault! {each('service-fault!')} clean {each('clean')} "
        + of(LAST, LIFE),
        When("", fail_creates(BROKEN)),
        When(f"{LAST - 1}:clean", submit(replace(PLAIN, user=OTHER))),
        others=(PLAIN,) * (MANY - 1),
        config=Config(user_workflows=5),
        spans=((f"{LAST - 1}:clean", f"{LAST}:Proposal", 0.0),),
    ),
    turns(
        "a Workflow in Teardown counts if its job never had nodes",
        "Proposal cancel! Teardown 2:Proposal..Setup clean gone 2:DataIn..Teardown "
        "2:teardown-late 2:clean 2:gone",
        When("Proposal", cancel, 3.0),
        When("Teardown", submit(PLAIN), 1.0),
        job=HELD,
        latency={"Teardown": 60.0},
        spans=(("Teardown", "2:Proposal", 60.0),),
    ),
    turns(
        "a job that had nodes does not count in Teardown",
        "Proposal..Teardown 2:Proposal..Teardown teardown-late clean gone "
        "2:teardown-late 2:clean 2:gone",
        When("Teardown", submit(PLAIN), 1.0),
        latency={"Teardown": 60.0},
        spans=(("Teardown", "2:Proposal", 1.0),),
        spared="teardown-late",
    ),
    turns(
        "jobs that wait for nodes do not count",
        "Proposal 2:Proposal 3:Proposal 2:alloc 2:Setup 3:alloc 3:Setup 2:DataIn "
        "3:DataIn 2:PreRun 3:PreRun 2:start 2:finish 3:start 3:finish 2:PostRun "
        "3:PostRun 2:DataOut 3:DataOut 2:Teardown 3:Teardown 2:clean 3:clean 2:gone "
        "3:gone alloc..gone",
        When("", set_urgency(16), 60.0),
        job=HELD,
        others=(PLAIN, PLAIN),
        spans=(("Proposal", "3:Proposal", 0.0),),
    ),
    *(
        turns(
            f"a job whose storage is made does not count{how}",
            "Proposal..DataIn 2:Proposal..DataIn PreRun..gone 2:PreRun..gone",
            *troubles,
            When("DataIn", submit(PLAIN), 10.0),
            job=replace(PLAIN, directives=(XFS, COPY_IN)),
            latency={"DataIn": HOUR},
            spans=(("DataIn", "2:Proposal", 10.0),),
        )
        for how, troubles in (
            ("", ()),
            (
                ", whatever is known of it",
                (When("DataIn", unload(2.0), 1.0), When("DataIn", strip, 2.0)),
            ),
        )
    ),
    turns(
        "a job that waits in Proposal for others than DWS does not count",
        "Proposal 2:Proposal..gone cancel! Teardown..gone",
        When("Proposal", submit(PLAIN), 10.0),
        When("Proposal", cancel, HOUR),
        job=replace(AHEAD, urgency=0),
        spans=(("Proposal", "2:Proposal", 10.0),),
    ),
    turns(
        "a Teardown for which Rabbits are needed does not count",
        "Proposal Setup DataIn cancel! Teardown 2:Proposal..DataIn teardown-late "
        "clean gone 2:PreRun..Teardown 2:teardown-late 2:clean 2:gone",
        When("DataIn", cancel, 10.0),
        When("Teardown", submit(PLAIN), 10.0),
        job=AHEAD,
        config=Config.parse(
            {"user_workflows": 1, "stage_user_limit": 100, "stage_limit": 100}
        ),
        latency={"DataIn": HOUR, "Teardown": HOUR},
        spans=(("Teardown", "2:Proposal", 10.0),),
    ),
    turns(
        "a Workflow that only others still hold does not count",
        "Proposal cancel! Teardown clean 2:Proposal..gone gone",
        When("Proposal", hold_workflow, 1.0),
        When("Proposal", cancel, 2.0),
        When("clean", submit(PLAIN), 10.0),
        job=HELD,
        spans=(("clean", "2:Proposal", 10.0),),
    ),
    turns(
        "a job that has nodes waits for no others of its user",
        "Proposal 2:Proposal alloc..gone 3:Proposal 2:alloc..gone 3:alloc..gone",
        proposal=60.0,
        job=replace(PLAIN, seconds=1.0),
        others=(PLAIN, PLAIN),
        spans=(("Proposal", "2:Proposal", 60.0), ("Proposal", "gone", 61.5)),
    ),
    turns(
        "a job that waits for others ends at once when it is cancelled",
        "Proposal 2:cancel! 2:clean 3:Proposal alloc..gone 3:alloc..gone",
        When("Proposal", cancel_job(2), 1.0),
        proposal=60.0,
        others=(PLAIN, PLAIN),
        spans=(("Proposal", "2:clean", 1.0), ("Proposal", "3:Proposal", 60.0)),
    ),
    turns(
        "a reload of the configuration puts the limits in force",
        "Proposal 2:Proposal 3:Proposal alloc..gone 2:alloc 3:alloc 2:Setup 3:Setup "
        "2:DataIn 3:DataIn 2:PreRun 3:PreRun 2:start 2:finish 3:start 3:finish "
        "2:PostRun 3:PostRun 2:DataOut 3:DataOut 2:Teardown 3:Teardown 2:clean "
        "3:clean 2:gone 3:gone",
        When("Proposal", configure(Config(user_workflows=3)), 1.0),
        proposal=60.0,
        others=(PLAIN, PLAIN),
        spans=(("Proposal", "2:Proposal", 1.0), ("Proposal", "3:Proposal", 1.0)),
    ),
    turns(
        "without a limit no job waits for others of its user",
        "Proposal 2:Proposal alloc 2:alloc Setup 2:Setup DataIn 2:DataIn PreRun "
        "2:PreRun start finish 2:start 2:finish PostRun 2:PostRun DataOut 2:DataOut "
        "Teardown 2:Teardown clean 2:clean gone 2:gone",
        proposal=60.0,
        others=(PLAIN,),
        config=Config(user_workflows=0, user_directives_limit=0),
        spans=(("Proposal", "2:Proposal", 0.0),),
    ),
    turns(
        "a job that was held keeps its place",
        "Proposal 2:Proposal alloc..gone 3:Proposal 2:alloc..gone 3:alloc..gone",
        When("Proposal", set_urgency(31, 3), 1.0),
        proposal=60.0,
        others=(PLAIN, HELD),
        spans=(("Proposal", "2:Proposal", 60.0), ("Proposal", "3:Proposal", 120.0)),
    ),
    # Directives
    turns(
        "a job waits while the directives of its user's jobs reach the limit",
        "Proposal 2:Proposal 4:Proposal 2:alloc 4:alloc 2:Setup 4:Setup 2:DataIn "
        "4:DataIn 2:PreRun 4:PreRun 2:start 4:start..gone cancel! Teardown..gone "
        "3:Proposal..gone 2:finish..gone",
        When("2:start", unload(1.0), 10.0),
        When("Proposal", cancel, HOUR),
        job=padded(150, urgency=0),
        others=(
            padded(150, seconds=2 * HOUR),
            padded(150),
            padded(200, user=OTHER),
        ),
        config=Config(user_directives_limit=300),
        spans=(("Proposal", "3:Proposal", HOUR),),
    ),
    turns(
        "a job that is beyond the limit by itself waits for all others only",
        "Proposal..gone 2:Proposal..gone",
        job=padded(60, seconds=100.0),
        others=(padded(150),),
        config=Config(user_directives_limit=100),
        spans=(("Proposal", "2:Proposal", 100.5),),
    ),
)
