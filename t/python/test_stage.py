# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Jobs whose data is copied in before they have nodes: what no story says."""

from __future__ import annotations

from typing import Optional

import pytest

from flux_k8s.formats.jobid import f58, workflow_name
from flux_k8s.ports import SERVERS, Json, Request
from flux_k8s.rules.directivebreakdown.resources import below_chassis
from rabbitsim.flux.broker import Offered, Respond
from rabbitsim.kube.errors import ApiError
from rabbitsim.system import VirtualSystem
from support.queries import GUEST, OTHER, query
from support.service import (
    COPY_OUT,
    DAY,
    HOUR,
    LUSTRE,
    XFS,
    exceptions,
    lines,
    long,
    memo,
    names,
    running,
    settle,
)
from support.staging import (
    AHEAD,
    COPY,
    COPY_IN,
    computes,
    config,
    made_for,
    occupy,
    reaches,
    set_urgency,
    slow,
    submit,
    wait,
)
from support.unmounting import job_show


@pytest.mark.parametrize("dw_stage", ["ahead", "prolog"])
def test_a_job_that_waits_for_nodes_says_so_and_names_rabbits_that_have_none(
    dw_stage: str,
) -> None:
    system = slow()
    occupy(system, 4)
    jobid = submit(system, dw_stage=dw_stage)
    wait(system, COPY + 60.0)
    (row,) = (each for each in query(system, "job-list")["jobs"] if each["id"] == jobid)
    assert (row["state"], row["ready"]) == (
        "DataIn" if dw_stage == "ahead" else "Proposal",
        True,
    )
    assert row["waits"] == job_show(system, jobid)["waits"] == "nodes"
    query(system, "rabbit-disable", {"rabbits": ["rabbit-02"], "reason": "new disks"})
    wait(system, 1.0)
    owner = system.instance.broker.owner
    waits = f"nodes; out of service: rabbit-02 (disabled by {owner}: new disks)"
    assert job_show(system, jobid)["waits"] == waits
    query(system, "rabbit-enable", {"rabbits": ["rabbit-02"]})
    settle(system)
    assert names(system, jobid)[-1] == "clean"


def test_a_job_that_waits_for_no_storage_yet_says_so() -> None:
    system = slow()
    held = submit(system, urgency=0)
    first = submit(system, dw=[XFS, COPY_IN, COPY_OUT], seconds=3000)
    depends = {"dependencies": [{"scheme": "dws-out", "value": f58(first)}]}
    behind = submit(system, **depends)
    wait(system, HOUR / 2)
    assert job_show(system, held)["waits"] == "an urgency above 0: the job is held"
    assert job_show(system, behind)["waits"] == "another dependency of the job"


def test_a_job_asks_for_no_ssd_with_the_resources_of_one_that_had_some() -> None:
    system = slow()
    first = submit(system, dw_stage="prolog")
    running(system, first)
    resources = system.instance.job(first).jobspec["resources"]
    assert "ssd" in str(resources)
    spec = long([XFS, COPY_IN], 1, 10, **AHEAD)
    jobid = system.instance.submit({**spec, "resources": resources})
    running(system, jobid)
    assert "ssd" not in str(system.instance.job(jobid).jobspec["resources"])
    settle(system)


def test_a_job_is_staged_where_the_nodes_have_the_cores_that_it_needs() -> None:
    system = slow()

    def spy(resource: Offered) -> Offered:
        def answer(method: str, payload: Json, user: int, respond: Respond) -> None:
            def fewer(errnum: int, text: str, status: Optional[Json]) -> None:
                if status is not None:
                    two, four = ({"core": f"0-{last}"} for last in (1, 3))
                    status["R"]["execution"]["R_lite"] = [
                        {"rank": "0-1", "children": two},
                        {"rank": "2-3", "children": four},
                    ]
                respond(errnum, text, status)

            resource(method, payload, user, fewer)

        return answer

    system.instance.broker.stand_in("resource", spy)
    system.instance.drain("compute-02", "to have the nodes read again")
    system.instance.undrain("compute-02")
    wait(system, 2.0)
    spec = long([XFS, COPY_IN], 2, 10, dw_stage="ahead")
    spec["resources"][0]["with"][0]["with"][0]["count"] = 3
    jobid = system.instance.submit(spec)
    running(system, jobid)
    assert computes(system, jobid) == ["compute-03", "compute-04"]
    settle(system)
    assert not exceptions(system, jobid)


def test_a_job_that_wants_all_of_its_chassis_is_refused() -> None:
    system = slow()
    spec = long([XFS, COPY_IN], 2, 10, dw_stage="ahead")
    spec["resources"] = below_chassis(spec["resources"], 1)
    spec["resources"][0]["exclusive"] = True
    jobid = system.instance.submit(spec)
    settle(system)
    (exception,) = exceptions(system, jobid)
    assert "a fixed number of whole nodes" in exception["note"]


def test_a_lustre_file_system_is_made_where_there_is_room() -> None:
    """And not where nodes are free."""
    system = slow(nodes=4)
    less = {"constraints": {"hostlist": ["compute-08"]}}
    running(system, submit(system, size=40, seconds=4000, dw_stage="prolog", **less))
    occupy(system, 4, seconds=4000, constraints={"hostlist": ["compute-[01-04]"]})
    jobid = submit(system, 2, dw=[LUSTRE, COPY_IN])
    reaches(system, jobid, "DataIn")
    assert "rabbit-01" in made_for(system, jobid)


def test_a_late_request_changes_no_storage_that_is_made() -> None:
    """That of a module that has died may come when the next one has chosen others."""
    written: list[Json] = []

    def note(request: Request) -> None:
        if request.kind == SERVERS and request.verb == "patch":
            assert isinstance(request.body, dict)
            written.append(request.body)

    system = slow()
    assert system.service_kube is not None
    system.service_kube.faults = note
    occupy(system, 4)
    jobid = submit(system, 1)
    reaches(system, jobid, "DataIn")
    (body,) = written
    with pytest.raises(ApiError) as refused:
        system.store.merge_patch(SERVERS, "default", f"{workflow_name(jobid)}-0", body)
    assert refused.value.code == 409


# What users who have data copied in before their jobs have nodes cost each other


def hold_most(system: VirtualSystem) -> None:
    """Another user's job leaves little of what jobs without nodes may have."""
    reaches(system, submit(system, 1, 30, userid=500), "DataIn")


def test_a_job_has_no_more_rabbits_kept_than_it_needs() -> None:
    system = slow(rabbits=4)
    for rabbit in range(4):
        host = f"compute-0{2 * rabbit + 1}"
        jobid = submit(
            system,
            1,
            30 + rabbit,
            dw_stage="prolog",
            seconds=int(DAY),
            userid=GUEST,
            constraints={"hostlist": [host]},
        )
        running(system, jobid)
    submit(system, 2, 45, userid=GUEST)
    jobs = [submit(system, 1, 20, userid=OTHER) for _ in range(3)]
    running(system, *jobs)


def test_urgencies_that_change_all_the_time_fill_no_other_users_eventlog() -> None:
    system = slow(config=config(stage_limit=30))
    occupy(system, 4, seconds=int(DAY))
    hold_most(system)
    first, second = (submit(system, 1, 40, userid=GUEST) for _ in range(2))
    behind = submit(system, 1, 40, userid=OTHER)
    for change in range(100):
        set_urgency(system, first, 15 + change % 2)
        set_urgency(system, second, 16 - change % 2)
        wait(system, 10.0)
    events = [event.name for event in system.instance.eventlog(behind)]
    assert events.count("memo") < 4
    text = "other jobs get their storage before"
    assert memo(system, behind, "rabbit_waits_for") == text
    assert not lines(system, text)  # there may be thousands that wait


def test_a_job_that_waits_for_its_turn_is_not_tried_until_then() -> None:
    system = slow(config=config(stage_limit=30))
    occupy(system, 4, seconds=int(DAY))
    hold_most(system)
    jobs = [submit(system, 1, 40, userid=GUEST) for _ in range(20)]
    wait(system, HOUR)
    assert query(system, "metrics")["retrying"] == 1
    text = "other jobs get their storage before"
    assert [memo(system, job, "rabbit_waits_for") for job in jobs[1:]] == [text] * 19


def test_a_job_that_lacks_room_is_told_so_once_however_many_others_do() -> None:
    system = slow(config=config(stage_limit=100, stage_user_limit=100))
    occupy(system, 4, seconds=int(DAY))
    hold_most(system)
    jobs = [submit(system, 1, 40, userid=GUEST + number) for number in range(12)]
    wait(system, HOUR)
    text = "others' storage: no Rabbits have room"
    waiting = [job for job in jobs if memo(system, job, "rabbit_waits_for") == text]
    assert len(waiting) == 9
    for job in waiting:
        told = [event.context or {} for event in system.instance.eventlog(job)]
        assert [memo.get("rabbit_waits_for") for memo in told].count(text) == 1
