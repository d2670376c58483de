# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Torture can fail: services with something wrong in them are caught."""

from __future__ import annotations

from syslog import LOG_ERR
from typing import AbstractSet, Any, Callable, Mapping, Optional

import pytest
from msgspec.structs import replace

from flux_k8s.config.context import Context
from flux_k8s.config.table import Config
from flux_k8s.control.backoff import Backoff
from flux_k8s.formats.directives import GIB
from flux_k8s.formats.jobid import f58, workflow_name
from flux_k8s.jobs import (
    hello,
    jobtable,
    reconciler,
    timelimits,
    workflow,
    workflowrequests,
)
from flux_k8s.jobs.findings import Recording
from flux_k8s.jobs.inuse import InUse
from flux_k8s.jobs.losses import with_losses
from flux_k8s.jobs.orphans import Orphans
from flux_k8s.jobs.outcomes import EVENT, Outcomes
from flux_k8s.jobs.plugin import RequestHandler
from flux_k8s.jobs.reports import MEMO as WAITS_FOR
from flux_k8s.jobs.step import Next, Step
from flux_k8s.jobs.timelimits import Moment
from flux_k8s.jobs.workflow import next_step
from flux_k8s.jobs.workflowinfo import Goal, WorkflowInfo
from flux_k8s.machine import manager
from flux_k8s.machine.fluxiongraph import Chassis
from flux_k8s.machine.ledger import Ledger
from flux_k8s.machine.manager import RabbitManager
from flux_k8s.machine.nodes import Nodes
from flux_k8s.machine.storages import RabbitState
from flux_k8s.machine.undrain import Undrain
from flux_k8s.machine.wanted import lost_connection_reason
from flux_k8s.objects import cleanup
from flux_k8s.objects.clientmount import ClientMount
from flux_k8s.objects.workflowstate import State
from flux_k8s.objects.workflowview import WLM_ID, WorkflowView
from flux_k8s.ports import WORKFLOW, Json, KubeError, Request
from flux_k8s.reasons import Note, Reason
from mutants import MUTANTS, Mutant
from rabbitsim.dws.topology import Topology
from rabbitsim.flux.events import Event
from rabbitsim.torture.crashpoints import problem_at, problems, tries
from rabbitsim.torture.deeds import submit
from rabbitsim.torture.interruptions import Interruption
from rabbitsim.torture.life import StorySystem, live
from rabbitsim.torture.outages import fail_for
from rabbitsim.torture.plan import make_plan
from rabbitsim.torture.run import run
from rabbitsim.torture.scenarios import SCENARIOS
from rabbitsim.torture.story import COPY_IN, LIFE, Deed, Job, Story, When
from support.rules import rules_of_torture

Patch = pytest.MonkeyPatch
Wrong = Callable[[Patch], None]


def choosing(choose: Callable[[Next, WorkflowInfo], Next]) -> Wrong:
    """A service that sometimes takes another step."""

    def wrong(info: WorkflowInfo, at: Moment) -> Next:
        return choose(next_step(info, at), info)

    return lambda patch: patch.setattr(reconciler, "next_step", wrong)


def replacing(owner: Any, name: str, value: Any) -> Wrong:
    return lambda patch: patch.setattr(owner, name, value)


def instead(step: Next, other: Next) -> Wrong:
    return choosing(lambda chosen, info: other if chosen == step else chosen)


def impatient(chosen: Next, info: WorkflowInfo) -> Next:
    early = info.view is not None and info.view.desired is State.Teardown
    return Step.RELEASE_EPILOG() if early and not info.released else chosen


def hasty(chosen: Next, info: WorkflowInfo) -> Next:
    early = chosen == Step.MOVE(to=State.PreRun) and not info.mounted
    return Step.RELEASE_PROLOG() if early else chosen


def resigned(chosen: Next, info: WorkflowInfo) -> Next:
    """It gives up the data of each job, and says so."""
    if chosen != Step.MOVE(to=State.DataOut) or info.released or info.view is None:
        return chosen
    if info.failed or not info.view.copies_out:
        return Step.MOVE(to=State.Teardown)
    lost = with_losses(Note("given up", Reason.GIVEN_UP), info, info.view)
    return Step.FAIL(lost)


def strict_links(
    unwell: Mapping[str, RabbitState], down: AbstractSet[str]
) -> dict[str, str]:
    """It drains all nodes of a Rabbit that is not well, whatever their connections."""
    hosts = [f"compute-{number:02}" for number in range(1, 17)]
    return {
        host: lost_connection_reason(name, "Offline")
        for number, host in enumerate(hosts)
        for name in unwell
        if name not in down and name == f"rabbit-{1 + number // 8:02}"
    }


def careless(
    info: WorkflowInfo, view: WorkflowView, state: State, at: Moment
) -> Optional[float]:
    """It counts the time of a state from the one before."""
    return view.changed


async def cheerful(self: Outcomes, jobid: int, loss: Optional[Note]) -> None:
    """It tells those who wait for data that it is out, whatever it has recorded."""
    await NOTIFY_PLUGIN(self, jobid, None)


NOTIFY_PLUGIN = Outcomes._notify_plugin


async def forgetful(self: Outcomes, info: WorkflowInfo) -> None:
    """It lets a job end, and leaves no record of that."""


class HastyUndrain(Undrain):
    """It looks at no mount, and takes every job's storage for unmounted."""

    def __init__(self, context: Context, nodes: Nodes, *rest: Any) -> None:
        super().__init__(context, nodes, lambda jobid: False)

    async def _mounted(self) -> frozenset[str]:
        return frozenset()

    async def _still_unmounted(self, jobid: int, hosts: list[str]) -> list[str]:
        return hosts


async def cut_off(self: InUse, info: WorkflowInfo) -> None:
    if info.view is not None:
        info.last = replace(info.view, cut_off=True)


class Misled:
    """It takes its start for the end of an outage."""

    STARTED = Reason.KUBERNETES_BACK

    def __getattr__(self, name: str) -> Reason:
        return Reason[name]


WRONG: dict[str, tuple[str, Wrong, tuple[str, ...]]] = {
    "skips DataOut": (
        "data",
        instead(Step.MOVE(to=State.DataOut), Step.MOVE(to=State.Teardown)),
        (),
    ),
    "keeps its finalizer": (
        "left",
        replacing(cleanup, "finalizer_patch", lambda view: []),
        (),
    ),
    "lets a job end before Teardown is complete": ("epilog", choosing(impatient), ()),
    "lets a job start before PreRun is complete": ("start", choosing(hasty), ()),
    "takes 404 for an error": (
        "left",
        replacing(workflowrequests, "gone", lambda error: False),
        ("admin", "api", "watch"),
    ),
    "believes what is out of date": (
        "order",
        replacing(WorkflowInfo, "_is_late", lambda self, view: False),
        ("watch", "admin"),
    ),
    "never tries again": (
        "left",
        replacing(jobtable, "Backoff", lambda first, longest, rng: Backoff(1e9, 1e9)),
        ("api",),
    ),
    "counts a state's time from the state before": (
        "exception",
        replacing(timelimits, "begin_of", careless),
        ("controllers",),
    ),
    "is deaf to questions about data": (
        "data",
        replacing(Orphans, "ask", lambda self, jobid: None),
        ("admin", "module"),
    ),
    "calls all data out": (
        "awaited",
        replacing(Outcomes, "_notify_plugin", cheerful),
        ("dws",),
    ),
    "does not record that a job ends before its data is out": (
        "data",
        replacing(Outcomes, "write_release", forgetful),
        ("dws", "module", "admin"),
    ),
    "does not obey a cancel in the epilog": (
        "obedience",
        replacing(RequestHandler, "_teardown", lambda self, payload: {"success": True}),
        ("user", "outage"),
    ),
    "is silent when a Workflow is taken away": (
        "data",
        replacing(WorkflowInfo, "_note_interference", lambda self, how, view: None),
        ("admin",),
    ),
    "takes nothing out of service at an abort": (
        "mounted",
        replacing(InUse, "cut_off", cut_off),
        ("dws", "outage"),
    ),
    "takes every node for one that has unmounted": (
        "in use",
        replacing(ClientMount, "is_unmounted", True),
        ("abort", "dws", "outage"),
    ),
    "takes nodes that have not unmounted for nodes that cannot write": (
        "written",
        replacing(RabbitManager, "may_write", lambda self, host: False),
        ("unmount",),
    ),
    "keeps no storage whose data could not be copied out": (
        "kept",
        replacing(workflow, "is_kept", lambda info, view, now: False),
        ("dws",),
    ),
    "does not look where a colocation key is in use": (
        "key",
        replacing(Ledger, "colocated", lambda self, own, lasting=False: {}),
        ("latency",),
    ),
    "gives a reason that is not so": (
        "unexplained",
        replacing(hello, "Reason", Misled()),
        (),
    ),
    "tries again at once": (
        "spin",
        replacing(jobtable, "Backoff", lambda *pauses: Backoff(0.0, 0.0)),
        ("api",),
    ),
    "gives up the data of each job": ("exception", choosing(resigned), ()),
    "drains nodes whose connections are good": (
        "unexplained",
        replacing(manager, "lost_links", strict_links),
        ("rabbit",),
    ),
    "puts nodes back on which storage is mounted": (
        "mounted",
        replacing(manager, "Undrain", HastyUndrain),
        ("abort", "dws", "outage"),
    ),
}
"""Services with something wrong: the rule that they break, and the kinds of trouble
that show it."""

SHOWN_BY = {
    "keeps its finalizer": (3, 0),
    "is deaf to questions about data": (40, 21),
    "calls all data out": (15, 12),
    "does not record that a job ends before its data is out": (40, 12),
    "takes 404 for an error": (15, 7),
    "believes what is out of date": (40, 4),
    "counts a state's time from the state before": (15, 4),
    "does not obey a cancel in the epilog": (15, 28),
    "takes nothing out of service at an abort": (15, 25),
    "takes every node for one that has unmounted": (8, 2),
    "takes nodes that have not unmounted for nodes that cannot write": (8, 9),
    "keeps no storage whose data could not be copied out": (8, 3),
    "does not look where a colocation key is in use": (8, 20),
    "puts nodes back on which storage is mounted": (8, 21),
}
"""How many jobs show it, and the seed to begin with, where 15 and 0 do not."""


@pytest.mark.parametrize("name", WRONG)
def test_a_service_with_something_wrong_is_caught(
    name: str, monkeypatch: Patch
) -> None:
    rule, wrong, faults = WRONG[name]
    wrong(monkeypatch)
    jobs, first = SHOWN_BY.get(name, (15, 0))
    plans = (make_plan(seed, jobs, None, faults) for seed in range(first, first + 30))
    breaches = (run(plan).breach for plan in plans)
    assert any(breach is not None and breach.rule == rule for breach in breaches)


def test_a_service_that_spins_is_caught_in_a_story(monkeypatch: Patch) -> None:
    monkeypatch.setattr(jobtable, "Backoff", lambda *pauses: Backoff(0.0, 0.0))
    fails = fail_for(60.0, KubeError(500, "", ""), "create")
    breach = live(Story("creations fail", LIFE, troubles=(When("", fails),))).breach
    assert breach is not None and breach.rule == "spin"


def test_a_service_that_leaves_orphans_is_caught_when_the_module_dies(
    monkeypatch: Patch,
) -> None:
    monkeypatch.setattr(Orphans, "check", lambda self: None)
    standard = SCENARIOS[0]
    points = live(standard).points
    lives = (live(standard, number) for number in reversed(range(len(points))))
    assert any(life.breach is not None for life in lives)


def test_a_service_that_records_less_after_its_death_is_caught(
    monkeypatch: Patch,
) -> None:
    """No rule is broken: its job is to leave what it leaves without that."""
    rabbits = property(lambda self: True, lambda self, value: None)
    monkeypatch.setattr(Recording, "rabbits", rabbits)
    standard = SCENARIOS[0]
    whole = live(standard)
    found = {
        problem_at(standard, whole, number, Interruption.CRASH)
        for number, how in tries(whole)
        if how is Interruption.CRASH
    }
    assert problems(standard, whole) == []
    assert "missing: KVS rabbit_allocations, KVS rabbit_hostlist" in found


def test_a_service_that_unmounts_under_tasks_is_caught_when_the_module_dies(
    monkeypatch: Patch,
) -> None:
    story = Story("a job that runs for a minute", LIFE, job=Job(seconds=60.0))
    points = live(story).points
    monkeypatch.setitem(hello.PHASES, "running", Goal.RELEASED)
    lives = (live(story, number) for number in reversed(range(len(points))))
    assert any(
        life.breach is not None and life.breach.rule == "tasks" for life in lives
    )


def test_a_service_that_withholds_no_ssd_is_caught_when_others_get_it(
    monkeypatch: Patch,
) -> None:
    monkeypatch.setattr(Chassis, "needed", lambda self, size: 0)
    storage = "#DW jobdw type=xfs capacity=45GiB name=p1"
    elsewhere = {"constraints": {"hostlist": ["compute-[03-04]"]}}
    story = Story(
        "a job whose data is copied in waits for its nodes, and another one comes",
        job=Job((storage, COPY_IN), nodes=4, stage="ahead", exclusive=True),
        others=(Job((), seconds=1200.0, exclusive=True, attributes=elsewhere),),
        troubles=(When("DataIn", submit(Job((storage,), exclusive=True)), 10.0),),
        machine={"topology": Topology.regular(4, 2, capacity=100 * GIB)},
        config=Config.parse({"stage_limit": 100, "stage_user_limit": 100}),
        latency={"DataIn": 600.0},
    )
    breach = live(story).breach
    assert breach is not None and breach.rule == "twice"


# What each rule is for, done to the cluster or to Flux by somebody else


def posts(name: str, **context: Any) -> Deed:
    """An event of the first job, which nobody should post."""
    return lambda system: system.instance.manager.post(system.first, name, context)


def raises(note: str) -> Deed:
    """A fatal exception of the first job."""
    return lambda system: system.instance.manager.raise_exception(
        system.first.id, "dws", 0, note, system.instance.broker.owner
    )


def sends(verb: str, name: Callable[[StorySystem], str]) -> Deed:
    """A request of the service."""

    def act(system: StorySystem) -> None:
        request = Request(verb, WORKFLOW, "default", name(system), body=[])
        system.service_kube.send(request, lambda answer: None, key="")

    return act


def first(system: StorySystem) -> str:
    return workflow_name(system.first.id)


def of_others(system: StorySystem) -> str:
    """The Workflow of a job of another workload manager, which it makes."""
    workflow = system.workflow
    assert workflow is not None
    name = workflow_name(1)
    spec = {**workflow["spec"], "wlmID": "other", "desiredState": "Proposal"}
    body = {"metadata": {"name": name}, "spec": spec}
    system.store.create(WORKFLOW, "default", body)
    return name


def lets_go(system: StorySystem) -> None:
    """The Workflow has no finalizer any more."""
    body: Json = {"metadata": {"finalizers": []}}
    system.store.merge_patch(WORKFLOW, "default", first(system), body)


def makes_another(system: StorySystem) -> None:
    """There is another Workflow of the job, after the first."""
    spec = {"desiredState": "Proposal", "wlmID": WLM_ID, "jobID": f58(system.first.id)}
    workflow = {"metadata": {"name": first(system)}, "spec": {**OTHER, **spec}}
    system.store.create(WORKFLOW, "default", workflow)


OTHER: Json = {"dwDirectives": [], "forceReady": False, "groupID": 1, "userID": 1}


def waits(system: StorySystem) -> None:
    """It is said of a job that has ended that it waits."""
    system.first.annotations.setdefault("user", {})[WAITS_FOR] = "Kubernetes"


def publishes(system: StorySystem) -> None:
    """All are told that the data of the job is lost."""
    data = {"id": system.first.id, "success": False}
    system.instance.published.append((EVENT, data))


def goes_on(system: StorySystem) -> None:
    """There is an event of a job that has ended."""
    system.first.events.append(Event(system.loop.now(), "alloc", {}))


def harms(system: StorySystem) -> None:
    """A node could write to a file system that is deleted."""
    system.controllers.harm["fluxjob-1", "compute-01"] = "deleted"


def complains(system: StorySystem) -> None:
    system.instance.log(LOG_ERR, "dws: something is wrong [service-fault]")


BROKEN: dict[str, tuple[When, ...]] = {
    "action": (When("start", posts("prolog-start", description="another")),),
    "deleted": (When("DataIn", sends("delete", first)),),
    "exception twice": (When("DataIn", raises("no")), When("dws!", raises("no"))),
    "finalizer": (When("DataIn", lets_go),),
    "foreign": (When("DataIn", sends("patch", of_others)),),
    "harm": (When("DataIn", harms),),
    "inactive": (When("gone", goes_on),),
    "internal error": (When("DataIn", complains),),
    "made twice": (When("gone", makes_another),),
    "memo": (When("gone", waits),),
    "repeat": (
        *(When("DataIn", posts("memo", rabbit_waits_for="DWS")),) * 2,
        When("DataIn", posts("memo", rabbit_waits_for=None), 0.01),
    ),
    "told": (When("gone", publishes),),
}
"""What breaks a rule in the life of a job."""


@pytest.mark.parametrize("rule", BROKEN)
def test_a_rule_is_broken_by_what_it_is_for(rule: str) -> None:
    story = Story("a job", f"{LIFE} dws!", troubles=BROKEN[rule])
    breach = live(story).breach
    assert breach is not None and breach.rule == rule


def test_a_job_without_directives_has_nothing_of_ours() -> None:
    story = Story("a job", job=Job(()), troubles=(When("start", raises("no")),))
    breach = live(story).breach
    assert breach is not None and breach.rule == "plain"


def test_each_rule_has_a_service_or_a_deed_that_breaks_it() -> None:
    found = {Mutant.read(path).rule for path in MUTANTS.glob("*.patch")}
    found |= {rule for rule, _, _ in WRONG.values()} | {*BROKEN, "plain", "twice"}
    assert found == rules_of_torture()
