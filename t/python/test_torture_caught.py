# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Torture can fail: services with something wrong in them are caught."""

from __future__ import annotations

from typing import Any, Callable, Optional

import pytest
from msgspec.structs import replace

from flux_k8s.config.context import Context
from flux_k8s.control.backoff import Backoff
from flux_k8s.jobs import jobtable, reconciler, timelimits, workflow, workflowrequests
from flux_k8s.jobs.inuse import InUse
from flux_k8s.jobs.orphans import Orphans
from flux_k8s.jobs.outcomes import Outcomes
from flux_k8s.jobs.planning import Planner
from flux_k8s.jobs.plugin import RequestHandler
from flux_k8s.jobs.step import Next, Step
from flux_k8s.jobs.timelimits import Moment
from flux_k8s.jobs.workflow import next_step
from flux_k8s.jobs.workflowinfo import WorkflowInfo
from flux_k8s.machine import manager
from flux_k8s.machine.manager import RabbitManager
from flux_k8s.machine.nodes import Nodes
from flux_k8s.machine.undrain import Undrain
from flux_k8s.objects import cleanup
from flux_k8s.objects.clientmount import ClientMount
from flux_k8s.objects.workflowstate import State
from flux_k8s.objects.workflowview import WorkflowView
from flux_k8s.reasons import Note
from rabbitsim.torture.life import live
from rabbitsim.torture.plan import make_plan
from rabbitsim.torture.run import run
from rabbitsim.torture.scenarios import SCENARIOS

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
        replacing(
            WorkflowInfo, "_note_interference", lambda self, uid, how, view: None
        ),
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
        replacing(Planner, "colocated", lambda self, breakdowns, lasting=False: {}),
        ("latency",),
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


def test_a_service_that_leaves_orphans_is_caught_when_the_module_dies(
    monkeypatch: Patch,
) -> None:
    monkeypatch.setattr(Orphans, "check", lambda self: None)
    standard = SCENARIOS[0]
    points = live(standard).points
    lives = (live(standard, number) for number in reversed(range(len(points))))
    assert any(life.breach is not None for life in lives)
