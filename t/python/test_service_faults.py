# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Internal errors and deaths of the service that the stories of :mod:`stories.faults`
cannot have: outside of the steps of a job."""

from __future__ import annotations

import errno
import syslog
from typing import Any, Optional

import pytest

from flux_k8s.formats.jobid import f58, jobid_of_workflow
from flux_k8s.jobs.work import Work
from flux_k8s.objects.decoding import plain
from flux_k8s.objects.workflowview import WorkflowView
from flux_k8s.ports import CLIENTMOUNT, Json
from rabbitsim.flux.broker import FluxPort
from rabbitsim.flux.events import JobState
from rabbitsim.system import VirtualSystem
from rabbitsim.torture.crashpoints import course_of
from rabbitsim.torture.deeds import break_step
from rabbitsim.torture.interruptions import Interrupter, Interruption
from rabbitsim.torture.life import DEATHS, StorySystem, live
from rabbitsim.torture.outages import break_next
from rabbitsim.torture.story import Job, Story, When, spell_out
from support.service import LIFE, exceptions, jobspec, names, settle, started


def crits(system: VirtualSystem) -> list[str]:
    return [line for _, level, line in system.log if level == syslog.LOG_CRIT]


class Payload(dict[str, Any]):
    """A payload that breaks whoever reads more of it than whose it is."""

    def get(self, key: str, default: Any = None) -> Any:
        if key != "jobid":
            raise RuntimeError("it broke")
        return super().get(key, default)

    __getitem__ = get


@pytest.mark.parametrize(
    "method, work",
    [
        ("create", Work(7, False)),
        ("setup", Work(7, False)),
        ("post_run", Work(7, True)),
    ],
)
def test_a_request_that_breaks_is_answered_and_its_work_is_known_to_the_supervisor(
    method: str, work: Work
) -> None:
    answers: list[tuple[int, str, Optional[Json]]] = []
    done: list[Optional[Work]] = []
    system = VirtualSystem()
    system.note_work = done.append
    system.start()
    service = system.service
    assert service is not None
    service.request(method, Payload(jobid=7), lambda *answer: answers.append(answer))
    text = f"internal error in dws.{method}"
    assert done[0] == work
    assert answers == [
        (errno.EINVAL, f"{text}, the log has more: RuntimeError: it broke", None)
    ]
    assert text in crits(system)[0] and f58(7) in crits(system)[0]
    jobid = system.instance.submit(jobspec())
    settle(system)
    assert system.service is service and names(system, jobid) == LIFE


def test_an_error_of_a_step_is_one_line_that_says_where_it_was() -> None:
    life = StorySystem(Story(""), Interrupter(None, Interruption.CRASH))
    life.start()
    life.submit(Job())
    break_step("PLAN")(life)
    settle(life)
    (line,) = crits(life)
    assert (
        f58(life.first.id) in line and "RuntimeError" in line and "carry_out <" in line
    )
    assert "\n" not in line
    (told,) = exceptions(life, life.first.id)
    assert told["note"].startswith("internal error, the log has more: RuntimeError: ")


def test_the_epilog_of_a_job_that_is_given_up_is_released_whatever_else_breaks() -> (
    None
):
    """Here: which nodes have mounts cannot be found out."""
    story = Story(
        "",
        troubles=(
            When("", break_step("MOVE to PostRun")),
            When("finish", break_next(CLIENTMOUNT)),
        ),
    )
    assert course_of(live(story)) == spell_out("Proposal..finish service-fault! clean")


def test_an_exception_about_what_a_watch_saw_fails_the_job_that_it_is_about(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    guilty: list[int] = []
    parse = WorkflowView.parse

    def fragile(workflow: Any) -> WorkflowView:
        if jobid_of_workflow(plain(workflow)["metadata"]["name"]) in guilty:
            raise KeyError("status")
        return parse(workflow)

    monkeypatch.setattr(WorkflowView, "parse", staticmethod(fragile))
    system = started()
    service = system.service
    guilty.append(system.instance.submit(jobspec(nodes=1)))
    other = system.instance.submit(jobspec(nodes=1))
    assert system.loop.run(system.instance.idle, timeout=3600.0)
    assert system.instance.job(guilty[0]).state is JobState.INACTIVE
    assert system.service is service and names(system, other) == LIFE


class Death(BaseException):
    """The end of a process, which no handler of exceptions sees."""


def test_a_view_that_services_die_of_is_read_again_when_its_job_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise the Workflow would be taken for one that is not there."""
    work: list[Optional[Work]] = [None]
    deaths: list[Optional[Work]] = []
    parse = WorkflowView.parse

    def deadly(workflow: Any) -> WorkflowView:
        if work[-1] == Work(jobid, False):
            deaths.append(work[-1])
            raise Death
        return parse(workflow)

    system = VirtualSystem(message_latency=0.01)
    system.note_work = work.append
    system.start()
    jobid = system.instance.submit(jobspec(nodes=1))
    assert system.loop.run(lambda: bool(system.workflows()), timeout=1.0)
    monkeypatch.setattr(WorkflowView, "parse", deadly)
    system.kill_module()
    system.load_module()
    while not system.instance.idle() or system.workflows():
        try:
            settle(system)
        except Death:
            if len(deaths) == DEATHS:
                system.barred.add(Work(jobid, False))
            system.kill_module()
            system.loop.call_later(1.0, system.load_module)
    assert deaths == [Work(jobid, False)] * DEATHS
    assert "died each time it worked on" in exceptions(system, jobid)[0]["note"]


def test_a_job_that_cannot_even_be_failed_does_not_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fragile(self: FluxPort, jobid: int, *args: Any) -> None:
        raise RuntimeError("this broke, too")

    monkeypatch.setattr(FluxPort, "raise_exception", fragile)
    system = StorySystem(Story(""), Interrupter(None, Interruption.CRASH))
    system.start()
    system.submit(Job())
    break_step("PLAN")(system)
    system.loop.run(timeout=100.0)
    assert len(crits(system)) == 2 and "cannot be failed" in crits(system)[1]
    other = system.instance.submit(jobspec())
    assert system.loop.run(lambda: "clean" in names(system, other), timeout=3600.0)
    assert names(system, other) == LIFE
