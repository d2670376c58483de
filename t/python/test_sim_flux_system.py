# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Everything together in virtual time: the shipped plugin and service, with
the stand-ins for Flux, Kubernetes and DWS around them."""

from __future__ import annotations

from typing import Any

import pytest

from rabbitsim.dws import Options, recorded
from rabbitsim.flux.events import JobState
from rabbitsim.flux.fluid import encode
from rabbitsim.flux.manager import SubmitError
from rabbitsim.system import VirtualSystem
from support.service import HOUR, LIFE, OPTION, names, run_until, settle, submit


def make(seed: int = 1, **options: Any) -> VirtualSystem:
    system = VirtualSystem(
        seed, options=Options(latency=recorded()), kube_latency=0.003, **options
    )
    system.start()
    system.loop.run(timeout=1.0)
    return system


def test_a_job_with_storage_has_the_eventlog_of_the_specification() -> None:
    system = make()
    jobid = submit(system, "-N2", "-S", OPTION)
    settle(system)
    assert names(system, jobid) == LIFE
    assert system.instance.job(jobid).exit_code == 0


def test_every_shell_sees_the_variables() -> None:
    system = make()
    jobid = submit(system, "-N3", "-S", OPTION)
    settle(system)
    environments = system.executor.environments[jobid]
    assert len(environments) == 3
    assert all(e["DW_JOB_p1"].startswith("/mnt/nnf/") for e in environments)


def test_a_job_manager_that_is_loaded_anew_starts_no_job_before_job_exec_is() -> None:
    """A job-exec that was told to start the job already would run it twice."""
    system = make()
    jobid = submit(system, "-N2", "-S", OPTION)
    assert system.loop.run(lambda: "prolog-start" in names(system, jobid), HOUR)
    system.reload_manager()
    assert system.loop.run(lambda: "prolog-finish" in names(system, jobid), HOUR)
    system.loop.run(timeout=10.0)
    assert "start" not in names(system, jobid)
    system.instance.reload_exec()
    settle(system)
    assert names(system, jobid) == LIFE


def test_a_job_without_directives_is_left_alone() -> None:
    system = make()
    jobid = submit(system, "-N2")
    settle(system)
    assert not [n for n in names(system, jobid) if "log-" in n or "dependency" in n]


def test_a_seed_gives_the_same_run_each_time() -> None:
    def run(seed: int) -> list[Any]:
        system = make(seed)
        jobs = [submit(system, "-N2", "-S", OPTION) for _ in range(5)]
        settle(system)
        return [
            [event.as_json() for event in system.instance.eventlog(jobid)]
            for jobid in jobs
        ] + [system.log]

    assert run(3) == run(3)
    assert run(3) != run(4)


def test_jobs_have_their_nodes_one_after_the_other() -> None:
    system = make()
    jobs = [submit(system, "-N4", "-S", OPTION) for _ in range(3)]
    settle(system)
    spans = []
    for jobid in jobs:
        times = {e.name: e.timestamp for e in system.instance.eventlog(jobid)}
        spans.append((times["alloc"], times["free"]))
    spans.sort()
    for (_, freed), (alloc, _) in zip(spans, spans[1:]):
        assert freed <= alloc


@pytest.mark.parametrize(
    "event", ["validate", "dependency-add", "prolog-start", "start", "epilog-start"]
)
def test_a_job_may_be_cancelled_at_any_time(event: str) -> None:
    system = make()
    jobid = submit(system, "-N2", "-S", OPTION)
    run_until(system, jobid, event)
    system.instance.cancel(jobid)
    settle(system)
    assert names(system, jobid)[-1] == "clean"


@pytest.mark.parametrize(
    "event", ["submit", "dependency-add", "alloc", "prolog-start", "start", "finish"]
)
def test_the_module_may_die_at_any_time(event: str) -> None:
    system = make()
    jobid = submit(system, "-N2", "-S", OPTION)
    run_until(system, jobid, event)
    system.kill_module()
    system.loop.call_later(5.0, system.load_module)
    settle(system)
    assert names(system, jobid) == LIFE


@pytest.mark.parametrize("event", ["dependency-add", "prolog-start", "start", "finish"])
def test_the_plugin_may_be_unloaded_and_loaded_again(event: str) -> None:
    system = make()
    jobid = submit(system, "-N2", "-S", OPTION)
    run_until(system, jobid, event)
    system.instance.unload_plugin()
    system.loop.call_later(0.05, system.load_plugin)
    settle(system)
    assert system.instance.job(jobid).state is JobState.INACTIVE


def test_a_job_submitted_while_the_module_is_away_waits_for_it() -> None:
    system = make()
    system.unload_module()
    jobid = submit(system, "-N2", "-S", OPTION)
    system.loop.call_later(60.0, lambda: None)
    system.loop.run(timeout=60.0)
    assert system.instance.job(jobid).state is JobState.DEPEND
    system.load_module()
    settle(system)
    assert names(system, jobid) == LIFE


def test_a_bad_directive_ends_the_job_with_one_exception() -> None:
    system = make()
    jobid = submit(system, "-N2", "-S", "dw=#DW jobdw type=foo capacity=1GiB name=a")
    settle(system)
    exception = system.instance.job(jobid).fatal_exception
    assert exception is not None
    assert "foo" in exception["note"]
    assert names(system, jobid).count("exception") == 1


def wait_for(target: int) -> str:
    return f"--dependency=dws-out:{encode(target)}"


@pytest.mark.parametrize("anew", ["nothing", "the plugin", "the job manager"])
def test_a_job_that_waits_for_the_data_of_another_finds_its_record(anew: str) -> None:
    system = make()
    target = submit(system, "-N2", "-S", OPTION)
    jobid = submit(system, wait_for(target))
    run_until(system, target, "finish")
    if anew == "the plugin":
        system.instance.unload_plugin()
        system.load_plugin()
    elif anew == "the job manager":
        system.reload_manager()
        system.instance.reload_exec()
    assert system.instance.job(jobid).state is JobState.DEPEND
    system.instance.job(target).kvs["rabbit_data_out"] = '{"success": true}'
    settle(system)
    assert system.instance.job(jobid).exit_code == 0
    assert names(system, jobid).count("dependency-remove") == 1


def test_a_dependency_that_a_plugin_refuses_is_refused_with_its_reason() -> None:
    system = make()
    with pytest.raises(SubmitError, match="dws-out: 'bar': not a job ID"):
        submit(system, "--dependency=dws-out:bar")
    with pytest.raises(SubmitError, match='scheme "other" not supported'):
        submit(system, "--dependency=other:bar")
