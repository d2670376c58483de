# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""A job that waits for nodes does not notice that its Workflow is lost, and made
again."""

from __future__ import annotations

import json
from typing import Any, Callable, Optional

import pytest

from flux_k8s.config.table import Config
from flux_k8s.ports import WORKFLOW, Json
from flux_k8s.rfc.jobid import workflow_name
from rabbitsim.dws import Options
from rabbitsim.dws.options import Fault as DwsFault
from rabbitsim.dws.options import table
from rabbitsim.flux.events import JobState
from rabbitsim.system import VirtualSystem
from support.effort import SOAKING
from support.service import (
    COPY_OUT,
    HOUR,
    KEEP,
    LIFE,
    USE,
    XFS,
    exceptions,
    in_state,
    jobspec,
    lines,
    long,
    names,
    run_to,
    run_until_inactive,
    running,
    settle,
    started,
    wipe,
    workflow,
)

Lose = Callable[[VirtualSystem, str], None]


def delete(system: VirtualSystem, name: str) -> None:
    """As ``kubectl delete`` does: it stays until its finalizers are gone."""
    system.store.delete(WORKFLOW, "default", name)


def tear_down(system: VirtualSystem, name: str) -> None:
    spec = {"spec": {"desiredState": "Teardown"}}
    system.store.merge_patch(WORKFLOW, "default", name, spec)


def wipe_unseen(system: VirtualSystem, name: str) -> None:
    if system.service_kube is not None:
        system.service_kube.silence_watches()
    wipe(system, name)
    if system.service_kube is not None:
        system.service_kube.drop_watches()


LOSSES = [delete, tear_down, wipe, wipe_unseen]


def filled(seconds: int = 1000, **options: Any) -> VirtualSystem:
    """A system whose nodes all have a job, which ends after some time."""
    system = started(**options)
    nodes = len(system.instance.scheduler.pool.nodes)
    running(system, system.instance.submit(long(XFS, nodes, seconds)))
    return system


def scheduled(system: VirtualSystem, jobid: int) -> None:
    """Run until a job waits for nodes."""
    job = system.instance.job(jobid)
    assert system.loop.run(lambda: job.state is JobState.SCHED, HOUR), names(
        system, jobid
    )
    system.loop.run(timeout=1.0)


def uid(system: VirtualSystem, jobid: int) -> str:
    found: str = workflow(system, jobid)["metadata"]["uid"]
    return found


def shown(system: VirtualSystem, jobid: int) -> Optional[Json]:
    name = workflow_name(jobid)
    found = (w for w in system.workflows() if w["metadata"]["name"] == name)
    return next(found, None)


@pytest.mark.parametrize("lose", LOSSES)
@pytest.mark.parametrize("away", [False, True], ids=["loaded", "unloaded"])
def test_a_job_that_waits_for_nodes_does_not_notice(lose: Lose, away: bool) -> None:
    system = filled()
    jobid = system.instance.submit(jobspec([XFS, COPY_OUT], attributes_of="x"))
    scheduled(system, jobid)
    before = uid(system, jobid)
    if away:
        system.unload_module()
    lose(system, workflow_name(jobid))
    system.loop.run(timeout=30.0)
    if away:
        system.load_module()
        system.loop.run(timeout=30.0)
    assert uid(system, jobid) != before
    settle(system)
    assert names(system, jobid) == LIFE
    assert exceptions(system, jobid) == []


@pytest.mark.parametrize("lose", LOSSES)
def test_a_job_that_is_planned_does_not_notice(lose: Lose) -> None:
    options = Options(faults=(DwsFault("Proposal", "slow", duration=20.0),))
    system = started(options=options)
    jobid = system.instance.submit(jobspec())
    system.loop.run(timeout=10.0)
    lose(system, workflow_name(jobid))
    settle(system)
    assert names(system, jobid) == LIFE


def test_whenever_the_module_dies_meanwhile_the_job_does_not_notice() -> None:
    for steps in range(0, 200, 1 if SOAKING else 40):
        system = filled()
        jobid = system.instance.submit(jobspec())
        scheduled(system, jobid)
        delete(system, workflow_name(jobid))
        run_to(system, steps)
        system.kill_module()
        run_to(system, 3)
        system.load_module()
        settle(system)
        assert names(system, jobid) == LIFE, steps


def test_a_job_that_gets_nodes_while_its_workflow_is_made_again_runs() -> None:
    system = filled(seconds=60)
    jobid = system.instance.submit(jobspec())
    scheduled(system, jobid)
    job = system.instance.job(jobid)
    for _ in range(2):  # each pause is longer than the one before
        wipe(system, workflow_name(jobid))
        assert system.loop.run(lambda: shown(system, jobid) is not None, HOUR)
        system.loop.run(timeout=1.0)
    at = system.loop.now()
    wipe(system, workflow_name(jobid))
    assert system.loop.run(lambda: job.was_posted("prolog-start"), HOUR)
    assert shown(system, jobid) is None
    settle(system)
    assert system.loop.now() > at
    assert names(system, jobid) == LIFE


def test_a_workflow_is_made_again_three_times_with_pauses_and_no_more() -> None:
    system = filled()
    jobid = system.instance.submit(jobspec())
    scheduled(system, jobid)
    pauses = []
    while not exceptions(system, jobid):
        at = system.loop.now()
        wipe(system, workflow_name(jobid))
        assert system.loop.run(
            lambda: shown(system, jobid) is not None or bool(exceptions(system, jobid)),
            HOUR,
        )
        pauses.append(system.loop.now() - at)
        system.loop.run(timeout=1.0)
    assert [int(pause) for pause in pauses[:-1]] == [1, 10, 60]
    (exception,) = exceptions(system, jobid)
    deleted = f"Workflow {workflow_name(jobid)} was deleted under the job"
    assert exception["note"].startswith(deleted)
    assert len(lines(system, "was lost, and is made again")) == 3


def test_a_job_whose_plan_does_not_fit_any_more_fails_with_that() -> None:
    presets = {"scratch": [XFS]}
    system = filled(config=Config(presets=presets))
    jobid = system.instance.submit(jobspec("scratch"))
    scheduled(system, jobid)
    system.unload_module()
    wipe(system, workflow_name(jobid))
    more = {"scratch": [XFS.replace("10GiB", "20GiB")]}
    system.config = Config(presets=more)
    system.load_module()
    run_until_inactive(system, jobid)
    (exception,) = exceptions(system, jobid)
    assert "needs other resources now than Flux was asked for" in exception["note"]
    settle(system)


def test_a_plan_for_less_storage_fits() -> None:
    presets = {"scratch": [XFS]}
    system = filled(config=Config(presets=presets))
    jobid = system.instance.submit(jobspec("scratch"))
    scheduled(system, jobid)
    system.unload_module()
    wipe(system, workflow_name(jobid))
    system.config = Config(presets={"scratch": [XFS.replace("10GiB", "9GiB")]})
    system.load_module()
    settle(system)
    assert names(system, jobid) == LIFE


def test_a_job_near_persistent_storage_gets_the_same_nodes() -> None:
    system = started()
    system.instance.submit(jobspec(KEEP, nodes=1))
    settle(system)
    nodes = len(system.instance.scheduler.pool.nodes)
    running(system, system.instance.submit(long(XFS, nodes, 1000)))
    jobid = system.instance.submit(jobspec(USE, nodes=1))
    scheduled(system, jobid)
    before = uid(system, jobid)
    wipe(system, workflow_name(jobid))
    system.loop.run(timeout=30.0)
    assert uid(system, jobid) != before
    settle(system)
    assert names(system, jobid) == LIFE


def test_a_job_that_has_nodes_fails_when_its_workflow_is_lost() -> None:
    options = Options(faults=(DwsFault("Setup", "slow", duration=20.0),))
    system = started(options=options)
    jobid = system.instance.submit(jobspec())
    job = system.instance.job(jobid)
    assert system.loop.run(lambda: job.was_posted("prolog-start"), HOUR)
    system.loop.run(timeout=5.0)
    wipe(system, workflow_name(jobid))
    settle(system)
    (exception,) = exceptions(system, jobid)
    assert "was deleted under the job" in exception["note"]


def test_data_that_was_copied_while_no_module_was_there_is_out() -> None:
    """A module that dies when it has let the Workflow go cannot know that."""
    system = started(options=Options(latency=table({"DataOut": 600.0})))
    jobid = system.instance.submit(jobspec([XFS, COPY_OUT]))
    assert system.loop.run(in_state(system, "DataOut"), timeout=HOUR)
    system.loop.run(timeout=10.0)
    system.kill_module()
    system.loop.run(timeout=600.0)
    delete(system, workflow_name(jobid))
    system.load_module()
    settle(system)
    kvs = system.instance.job(jobid).kvs
    assert json.loads(kvs["rabbit_data_out"]) == {"success": True}
    assert not exceptions(system, jobid)
