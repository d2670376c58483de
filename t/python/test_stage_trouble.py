# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Trouble while the data of jobs that have no nodes is copied in, or waits."""

from __future__ import annotations

from typing import Optional

import pytest

from flux_k8s.control.coroutines import Call
from flux_k8s.dws.workflowmarks import KEPT_FOR
from flux_k8s.ports import SERVERS, Json, KubeError
from flux_k8s.rabbits.availability import Availability
from flux_k8s.rfc.jobid import workflow_name
from rabbitsim.dws.options import Fault
from rabbitsim.flux.events import JobState
from rabbitsim.kube.direct import Fault as KubeFault
from rabbitsim.kube.direct import Request
from rabbitsim.kube.errors import ApiError
from rabbitsim.system import VirtualSystem
from support.effort import pairs
from support.queries import query
from support.rabbits import set_link, set_status
from support.service import (
    COPY_OUT,
    DAY,
    HOUR,
    XFS,
    desired,
    exceptions,
    names,
    running,
    settle,
    workflow,
)
from support.staging import (
    COPY,
    COPY_IN,
    always,
    computes,
    config,
    fits,
    made_for,
    occupy,
    reaches,
    set_urgency,
    slow,
    ssds_down,
    started_staging,
    submit,
    time_of,
    wait,
)


@pytest.mark.parametrize(
    ("end", "steps"),
    pairs(["kill_module", "unload_plugin", "cancel"], range(60, 1080, 60), usual=4),
)
def test_whatever_happens_when_nothing_is_stuck_or_lost(end: str, steps: int) -> None:
    system = slow()
    occupied = occupy(system, 4)
    jobid = submit(system, 4, size=45)
    other = submit(system, 2, size=45, dw_stage="prolog")
    for _ in range(steps):
        system.loop.step()
    if end == "cancel":
        system.instance.cancel(jobid)
    elif end == "unload_plugin":
        system.instance.unload_plugin()
        system.loop.call_later(0.05, system.load_plugin)
    else:
        system.kill_module()
        system.loop.call_later(1.0, system.load_module)
    assert always(system, lambda: fits(system), 3 * COPY)
    settle(system, DAY)
    assert not exceptions(system, other) and not exceptions(system, occupied)
    if end != "cancel":
        assert not exceptions(system, jobid)
    wait(system, 120.0)
    assert ssds_down(system) == 0


def test_a_fluxion_that_is_loaded_again_does_not_give_the_storage_twice() -> None:
    system = slow()
    occupied = occupy(system, 4)
    jobid = submit(system, 4, size=45)
    reaches(system, jobid, "DataIn")
    system.instance.reload_fluxion()
    other = submit(system, 2, size=45, dw_stage="prolog")
    assert always(system, lambda: fits(system), 2 * COPY)
    settle(system, DAY)
    for each in (occupied, jobid, other):
        assert not exceptions(system, each)


def test_a_late_request_of_a_module_that_died_changes_no_storage() -> None:
    late: list[Json] = []

    def dies(request: Request) -> Optional[KubeFault]:
        if late or request.kind != SERVERS or request.verb != "patch":
            return None
        assert isinstance(request.body, dict)
        late.append(request.body)
        system.loop.call_later(0.0, system.kill_module)
        system.loop.call_later(1.0, system.load_module)
        return KubeFault(error=KubeError(0, "ConnectionLost", "it was lost"))

    system = slow()
    system.kill_module()
    system._faults = dies
    system.load_module()
    occupy(system, 4)
    jobid = submit(system, 1)
    reaches(system, jobid, "DataIn")
    (body,) = late
    ((storage,),) = (found["storage"] for found in body["spec"]["allocationSets"])
    storage["name"] = {"rabbit-01": "rabbit-02", "rabbit-02": "rabbit-01"}[
        storage["name"]
    ]
    with pytest.raises(ApiError) as refused:
        system.store.merge_patch(SERVERS, "default", f"{workflow_name(jobid)}-0", body)
    assert refused.value.code == 409
    settle(system, DAY)
    assert not exceptions(system, jobid)


def test_a_rabbit_that_breaks_while_data_waits_there_fails_the_job_and_is_named() -> (
    None
):
    system = slow()
    occupy(system, 4)
    jobid = submit(system, 4)
    reaches(system, jobid, "DataIn")
    set_status(system, "rabbit-02", "Offline")
    wait(system, 30.0)
    set_status(system, "rabbit-02", "Ready")
    settle(system, DAY)
    (exception,) = exceptions(system, jobid)
    assert (
        "its data is lost before it had nodes: Rabbit rabbit-02 is"
        in (exception["note"])
    )
    assert "alloc" not in names(system, jobid)


def test_a_job_whose_rabbit_breaks_before_its_storage_is_made_gets_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    system = slow()
    given_out = Availability.is_given_out

    async def breaks(self: Availability, jobid: int) -> bool:
        """Fluxion takes a while, and meanwhile a Rabbit that was chosen breaks."""
        monkeypatch.undo()
        (rabbit,) = self.free_storage.rabbits_of(jobid)
        set_status(system, rabbit, "Offline")
        await Call(lambda answer: system.loop.call_later(1.0, lambda: answer(None)))
        return await given_out(self, jobid)

    monkeypatch.setattr(Availability, "is_given_out", breaks)
    jobid = submit(system)
    settle(system, DAY)
    assert not exceptions(system, jobid) and "start" in names(system, jobid)


def test_a_rabbit_that_breaks_while_data_is_copied_in_fails_the_job() -> None:
    system = slow()
    jobid = submit(system, 4)
    assert system.loop.run(lambda: bool(started_staging(system, jobid)), timeout=HOUR)
    set_status(system, "rabbit-01", "Offline")
    wait(system, 30.0)
    set_status(system, "rabbit-01", "Ready")
    settle(system, DAY)
    (exception,) = exceptions(system, jobid)
    assert "Rabbit rabbit-01 is" in exception["note"]


def test_a_rabbit_that_broke_while_the_module_was_away_fails_the_job() -> None:
    system = slow()
    occupy(system, 4)
    jobid = submit(system, 4)
    reaches(system, jobid, "DataIn")
    system.kill_module()
    set_status(system, "rabbit-02", "Offline")
    wait(system, 10.0)
    system.load_module()
    wait(system, 30.0)
    set_status(system, "rabbit-02", "Ready")
    settle(system, DAY)
    (exception,) = exceptions(system, jobid)
    assert "Rabbit rabbit-02 is" in exception["note"]


def test_storage_that_gets_no_nodes_in_time_is_given_back() -> None:
    system = slow(config=config(stage_timeout="1h"))
    occupied = occupy(system, 4, seconds=20000)
    jobid = submit(system, 4, size=45)
    other = submit(system, 4, size=45)
    settle(system, DAY)
    for each in (jobid, other):
        (exception,) = exceptions(system, each)
        assert "stage_timeout=3600s" in exception["note"]
        assert "submit it again" in exception["note"]
    assert time_of(system, other, "clean") < time_of(system, occupied, "finish")


def test_a_module_that_is_loaded_again_keeps_the_time_limit() -> None:
    system = slow(config=config(stage_timeout="1h"))
    occupy(system, 4, seconds=20000)
    jobid = submit(system, 4)
    reaches(system, jobid, "DataIn")
    begun = system.loop.now()
    wait(system, HOUR / 2)
    system.kill_module()
    wait(system, 10.0)
    system.load_module()
    settle(system, DAY)
    assert HOUR - 2 < time_of(system, jobid, "exception") - begun < HOUR + 60


def test_nodes_where_a_job_has_no_storage_fail_it() -> None:
    system = slow()
    occupied = occupy(system, 4)
    jobid = submit(system, 2)
    reaches(system, jobid, "DataIn")
    wait(system, 1.0)
    (rabbit,) = made_for(system, jobid)
    hosts = {"rabbit-01": "compute-[03-04]", "rabbit-02": "compute-[01-02]"}[rabbit]
    updates = {"attributes.system.constraints": {"hostlist": [hosts]}}
    system.instance.manager.post(system.instance.job(jobid), "jobspec-update", updates)
    system.instance.cancel(occupied)
    settle(system)
    (exception,) = exceptions(system, jobid)
    assert "its storage was made for 0 there" in exception["note"]


def test_the_time_limit_counts_from_when_the_data_was_copied() -> None:
    system = slow(config=config(stage_timeout="1h"))
    occupy(system, 4, seconds=20000)
    jobid = submit(system, 4)
    reaches(system, jobid, "Setup")
    system.controllers.pause()
    wait(system, 2 * HOUR)
    system.controllers.resume()
    reaches(system, jobid, "DataIn")
    copied = system.loop.now()
    settle(system, DAY)
    assert HOUR - 2 < time_of(system, jobid, "exception") - copied < HOUR + 60


@pytest.mark.parametrize("how", ["by Flux", "by DWS"])
def test_data_waits_on_a_rabbit_that_gets_no_more_jobs(how: str) -> None:
    system = slow()
    occupied = occupy(system, 4)
    jobid = submit(system, 4)
    reaches(system, jobid, "DataIn")
    if how == "by Flux":
        names = {"rabbits": ["rabbit-01"], "reason": "slow"}
        query(system, "rabbit-disable", names)
    else:
        set_status(system, "rabbit-01", "Disabled")
    wait(system, 30.0)
    system.instance.cancel(occupied)
    wait(system, HOUR)
    assert not exceptions(system, jobid)
    if how == "by Flux":
        query(system, "rabbit-enable", {"rabbits": ["rabbit-01"]})
    else:
        set_status(system, "rabbit-01", "Ready")
    running(system, jobid)
    settle(system)
    assert not exceptions(system, jobid)


def test_a_rabbit_that_breaks_after_it_was_disabled_fails_the_job() -> None:
    system = slow()
    occupy(system, 4)
    jobid = submit(system, 4)
    reaches(system, jobid, "DataIn")
    query(system, "rabbit-disable", {"rabbits": ["rabbit-01"], "reason": "slow"})
    wait(system, 30.0)
    assert not exceptions(system, jobid)
    set_status(system, "rabbit-01", "Failed")
    wait(system, 5.0)
    (exception,) = exceptions(system, jobid)
    assert "Rabbit rabbit-01 is Failed" in exception["note"]


def update(system: VirtualSystem, jobid: int, constraints: Json) -> None:
    """As ``flux update`` does with the queue of a job."""
    updates = {"attributes.system.constraints": constraints}
    system.instance.manager.post(system.instance.job(jobid), "jobspec-update", updates)


def test_constraints_that_change_before_the_storage_is_made_are_kept() -> None:
    system = slow()
    jobid = submit(system, 2, urgency=0)
    wait(system, 5.0)
    update(system, jobid, {"hostlist": ["compute-[03-04]"]})
    set_urgency(system, jobid, 16)
    running(system, jobid)
    assert computes(system, jobid) == ["compute-03", "compute-04"]
    settle(system)
    assert not exceptions(system, jobid)


def test_constraints_that_change_while_data_is_copied_in_fail_the_job() -> None:
    system = slow()
    jobid = submit(system, 2)
    assert system.loop.run(lambda: bool(started_staging(system, jobid)), timeout=HOUR)
    (rabbit,) = made_for(system, jobid)
    elsewhere = {"rabbit-01": "compute-[03-04]", "rabbit-02": "compute-[01-02]"}
    update(system, jobid, {"hostlist": [elsewhere[rabbit]]})
    settle(system)
    (exception,) = exceptions(system, jobid)
    assert "its constraints leave it 0 nodes" in exception["note"]
    assert time_of(system, jobid, "exception") < time_of(system, jobid, "clean")


@pytest.mark.parametrize("release", ["teardown", "unmounted"])
def test_storage_that_was_made_ahead_is_kept_for_a_bad_node(release: str) -> None:
    system = slow(
        faults=[Fault("PostRun", "mount", node="compute-02")],
        config=config(unmount_failure="keep", postrun_timeout=60.0),
    )
    dw = [XFS.replace("10GiB", "45GiB"), COPY_IN, COPY_OUT]
    jobid = submit(system, 4, dw=dw, dw_release=release)
    job = system.instance.job(jobid)
    assert system.loop.run(lambda: job.state is JobState.INACTIVE, timeout=DAY)
    assert KEPT_FOR in workflow(system, jobid)["metadata"]["annotations"]
    small, other = submit(system, 2, size=4), submit(system, 2, size=45)
    wait(system, HOUR)
    assert "start" in names(system, small)
    assert desired(system, other) == "Proposal"
    assert always(system, lambda: fits(system), HOUR)
    system.instance.set_up("compute-02", False)
    set_link(system, "compute-02", False)
    assert always(system, lambda: fits(system), HOUR)
    settle(system, DAY)
    assert not exceptions(system, other) and "start" in names(system, other)
    wait(system, 120.0)
    assert ssds_down(system) == 0
