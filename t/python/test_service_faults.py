# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Internal errors and deaths of the service that the stories of :mod:`stories.faults`
cannot have: outside of the steps of a job."""

from __future__ import annotations

import errno
import json
import syslog
from typing import Any, Optional

import pytest

from flux_k8s.formats.jobid import f58, workflow_name
from flux_k8s.jobs.work import Work
from flux_k8s.ports import Json
from rabbitsim.system import VirtualSystem
from rabbitsim.torture.deeds import break_step
from rabbitsim.torture.interruptions import Interrupter, Interruption
from rabbitsim.torture.life import StorySystem
from rabbitsim.torture.story import Job, Story
from support.service import (
    HOUR,
    LIFE,
    XFS,
    exceptions,
    jobspec,
    memo,
    names,
    settle,
    started,
)


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


# The service in a whole system under virtual time


def test_storage_belongs_to_the_user_of_the_job_and_their_group() -> None:
    system = started()
    system.instance.groups = lambda userid: userid + 1
    system.instance.submit(jobspec(), userid=1234)
    assert system.loop.run(lambda: bool(system.workflows()), HOUR)
    (workflow,) = system.workflows()
    spec = workflow["spec"]
    assert (spec["userID"], spec["groupID"]) == (1234, 1235)


def test_a_job_has_its_storage_its_records_and_its_environment() -> None:
    system = started()
    copy_out = "#DW copy_out source=$DW_JOB_p1/out destination=/lustre/out"
    for dw, said in ((XFS, None), ([XFS, copy_out], "$DW_JOB_p1/out to /lustre/out")):
        jobid = system.instance.submit(jobspec(dw))
        settle(system)
        assert names(system, jobid) == LIFE
        assert exceptions(system, jobid) == []
        assert memo(system, jobid, "rabbit_workflow") == workflow_name(jobid)
        assert memo(system, jobid, "rabbits") in ("rabbit-01", "rabbit-02")
        kvs = system.instance.job(jobid).kvs
        for state in ("proposal", "setup", "datain", "prerun", "postrun", "teardown"):
            assert float(kvs[f"rabbit_{state}_timing"]) >= 0
        assert json.loads(kvs["rabbit_workflow"])["spec"]["jobID"] == f58(jobid)
        events = system.instance.eventlog(jobid)
        (event,) = (event for event in events if event.name == "dws_environment")
        assert event.context is not None
        variables = event.context["variables"]
        assert variables["DW_JOB_p1"] == variables["DW_JOB_XFS"]
        assert variables["DW_WORKFLOW_NAME"] == workflow_name(jobid)
        assert event.context.get("copy_out") == said


def test_an_error_in_a_guests_job_is_no_error_in_the_administrators_log() -> None:
    system = started()
    deep: dict[str, Any] = {"type": "core", "count": 1}
    for _ in range(140):
        deep = {"type": "x", "count": 1, "with": [deep]}
    nested = jobspec()
    nested["resources"] = [deep]
    for job in (nested, jobspec("nonsense"), jobspec("#DW jobdw type=xfs")):
        jobid = system.instance.submit(job)
        settle(system)
        assert exceptions(system, jobid)
    assert [line for _, level, line in system.log if level < syslog.LOG_INFO] == []
