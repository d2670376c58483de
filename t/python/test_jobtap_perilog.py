# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Prologs and epilogs of others, which the job manager counts together with ours."""

from __future__ import annotations

import pytest

from support.jobtap import CLEANUP, INACTIVE, Job, JobManager
from support.jobtap_jobs import OK, up_to

EPILOG = "job-manager.epilog"


def prolog_fails(manager: JobManager, job: Job) -> None:
    """As perilog.so does it: its epilog runs from now on, but was started in RUN."""
    manager.event_post(1, "epilog-start", {"description": EPILOG})
    manager.raise_exception(1, "prolog", 0, "prolog exited with code=1")
    manager.prolog_finish(1, "job-manager.prolog", 1)


def in_prolog_of_the_site(manager: JobManager, mounted: bool) -> Job:
    job = up_to(manager, "sched")
    manager.post(job, "prolog-start", {"description": "job-manager.prolog"})
    manager.post(job, "alloc")
    manager.answer_lookups()
    manager.take("dws.setup")[1](0, "", OK)
    if mounted:
        manager.request("prolog-remove", {"id": 1, "variables": {}})
    return job


def answer_post_run(manager: JobManager) -> None:
    manager.advance(2.0)
    manager.answer_exec()
    manager.take("dws.post_run")[1](0, "", OK)


@pytest.mark.parametrize("mounted", [False, True])
def test_the_epilog_after_a_failed_prolog_does_not_end_a_job_with_storage(
    manager: JobManager, mounted: bool
) -> None:
    job = in_prolog_of_the_site(manager, mounted)
    prolog_fails(manager, job)
    manager.epilog_finish(1, EPILOG, 1)
    assert job.state == CLEANUP
    answer_post_run(manager)
    manager.request("epilog-remove", {"id": 1})
    assert job.state == INACTIVE


@pytest.mark.parametrize("early", [False, True])
def test_a_job_that_ends_without_the_plugin_is_held_when_it_is_loaded_again(
    manager: JobManager, early: bool
) -> None:
    if early:
        job = in_prolog_of_the_site(manager, mounted=False)
        manager.unload()
        prolog_fails(manager, job)
    else:
        job = up_to(manager, "running")
        manager.unload()
        manager.post(job, "finish", {"status": 0})
        manager.post(job, "epilog-start", {"description": EPILOG})
        manager.tasks_end(job, finish=False)
    manager.load()
    manager.answer_eventlogs()
    manager.epilog_finish(1, EPILOG, 1)
    assert job.state == CLEANUP
    if early:
        manager.advance(2.0)
        manager.answer_exec()
    manager.take("dws.post_run")[1](0, "", OK)
    manager.request("epilog-remove", {"id": 1})
    assert job.state == INACTIVE


@pytest.mark.parametrize("restarted", [False, True])
def test_a_job_whose_prolog_failed_ends_after_the_epilog_of_the_site(
    manager: JobManager, restarted: bool
) -> None:
    job = in_prolog_of_the_site(manager, mounted=True)
    prolog_fails(manager, job)
    if restarted:
        manager.restart()
        manager.answer_eventlogs()
    answer_post_run(manager)
    manager.epilog_finish(1, EPILOG, 1)
    manager.request("epilog-remove", {"id": 1})
    assert job.state == INACTIVE


def test_a_job_whose_epilog_is_started_once_of_twice_goes_on(
    manager: JobManager,
) -> None:
    job = in_prolog_of_the_site(manager, mounted=True)
    manager.epilog_starts = 1
    prolog_fails(manager, job)
    assert any("error starting dws-epilog" in text for _, text in manager.logged)
    answer_post_run(manager)
    manager.request("epilog-remove", {"id": 1})
    assert job.state == INACTIVE


@pytest.mark.parametrize("sent", [False, True])
def test_a_job_that_others_end_before_its_tasks_have_is_released(
    manager: JobManager, sent: bool
) -> None:
    job = up_to(manager, "prolog")
    manager.request("prolog-remove", {"id": 1, "variables": {}})
    job.start_pending = job.running = False
    manager.raise_exception(1, "cancel", 0, "")
    assert "dws.post_run" not in manager.topics()
    job.actions = 0  # as after an epilog-finish too many
    manager.unsendable["dws.post_run"] = 0 if sent else 1
    manager.act(job)
    assert job.state == INACTIVE
    text = "the storage is released when the dws module is loaded again"
    assert any(text in line for _, line in manager.logged) is not sent
    if sent:
        post_run, _ = manager.take("dws.post_run")
        assert post_run == {"jobid": 1, "run_started": False}
