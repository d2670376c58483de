# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The compiled plugin asks for storage to be released when tasks have ended."""

from __future__ import annotations

import errno

import pytest

from support.jobtap import JobManager
from support.jobtap_jobs import OK, finish, up_to


def test_the_last_release_tells_that_tasks_have_ended_if_there_is_no_finish(
    manager: JobManager,
) -> None:
    job = up_to(manager, "running")
    manager.raise_exception(1, "cancel", 0, "")
    manager.post(job, "release", {"ranks": "0", "final": False})
    assert "dws.post_run" not in manager.topics()
    manager.tasks_end(job, finish=False)
    assert manager.take("dws.post_run")[0] == {"jobid": 1, "run_started": True}


def test_tasks_that_run_on_while_the_job_manager_is_reloaded_keep_their_storage(
    manager: JobManager,
) -> None:
    job = up_to(manager, "running")
    manager.restart()
    manager.answer_eventlogs()
    manager.raise_exception(1, "cancel", 0, "")
    for _ in range(3):
        manager.advance(2.0)
        manager.answer_exec()
    assert "dws.post_run" not in manager.topics()
    manager.tasks_end(job)  # no event tells
    manager.advance(2.0)
    manager.answer_exec()
    assert manager.take("dws.post_run")[0] == {"jobid": 1, "run_started": True}


def test_tasks_cancelled_before_a_reload_of_the_job_manager_keep_their_storage(
    manager: JobManager,
) -> None:
    job = up_to(manager, "running")
    manager.raise_exception(1, "cancel", 0, "")
    manager.restart()
    manager.answer_eventlogs()
    manager.advance(2.0)
    manager.answer_exec()
    assert "dws.post_run" not in manager.topics()
    manager.tasks_end(job)
    manager.advance(2.0)
    manager.answer_exec()
    assert "dws.post_run" in manager.topics()


def test_a_job_whose_tasks_were_ending_when_job_exec_was_reloaded_is_released(
    manager: JobManager,
) -> None:
    up_to(manager, "running")
    manager.raise_exception(1, "cancel", 0, "")
    manager.exec_lost()
    manager.advance(2.0)
    assert "dws.post_run" not in manager.topics()
    manager.take("job-exec.stats-get")[1](errno.ENOSYS, "", None)  # in between
    manager.advance(2.0)
    manager.answer_exec()
    assert "dws.post_run" in manager.topics()


def test_an_answer_of_job_exec_after_the_tasks_have_ended_changes_nothing(
    manager: JobManager,
) -> None:
    job = up_to(manager, "running")
    manager.raise_exception(1, "cancel", 0, "")
    job.running = False
    manager.advance(2.0)
    manager.tasks_end(job)
    manager.answer_exec()
    assert manager.topics().count("dws.post_run") == 1


def test_a_job_that_was_cancelled_before_its_start_event_keeps_its_storage(
    manager: JobManager,
) -> None:
    """Its shells are being started."""
    job = up_to(manager, "prolog")
    manager.request("prolog-remove", {"id": 1, "variables": {}})
    assert job.start_pending and not job.has("start")
    manager.raise_exception(1, "cancel", 0, "")
    assert "dws.post_run" not in manager.topics()
    manager.tasks_end(job)
    assert manager.take("dws.post_run")[0] == {"jobid": 1, "run_started": False}


def restart_of(what: str, manager: JobManager) -> None:
    """The plugin, the job manager or neither is loaded anew."""
    if what == "plugin":
        manager.unload()
        manager.load()
    elif what == "job manager":
        manager.restart()
    manager.answer_eventlogs()


RESTARTS = pytest.mark.parametrize("what", ["nothing", "plugin", "job manager"])
ENDING = pytest.mark.parametrize(
    ("first", "second"),
    [
        ("cancel", "cancel"),
        ("timeout", "cancel"),
        ("timeout", "timeout"),
        ("cancel", "timeout"),
        ("exec", "cancel"),
    ],
)


@RESTARTS
@ENDING
def test_a_cancel_while_tasks_are_ending_does_not_give_their_data_up(
    manager: JobManager, what: str, first: str, second: str
) -> None:
    job = up_to(manager, "running")
    manager.raise_exception(1, first, 0, "")
    manager.raise_exception(1, second, 0, "")
    manager.raise_exception(1, second, 0, "")
    finish(manager, job)
    restart_of(what, manager)
    manager.take("dws.post_run")[1](0, "", OK)
    assert "dws.teardown" not in manager.topics()
    assert not manager.request("hello", {})["jobs"][0]["teardown"]


@RESTARTS
def test_the_first_cancel_after_tasks_have_ended_gives_their_data_up(
    manager: JobManager, what: str
) -> None:
    job = up_to(manager, "running")
    manager.raise_exception(1, "cancel", 0, "")
    finish(manager, job)
    manager.raise_exception(1, "cancel", 0, "")
    restart_of(what, manager)
    manager.take("dws.post_run")[1](0, "", OK)
    assert "dws.teardown" in manager.topics()
    assert manager.request("hello", {})["jobs"][0]["teardown"]


@RESTARTS
def test_a_cancel_counts_by_the_moment_at_which_it_came(
    manager: JobManager, what: str
) -> None:
    """It may come while the plugin is not loaded, or reads the eventlog."""
    job = up_to(manager, "running")
    manager.raise_exception(1, "cancel", 0, "")
    manager.unload()
    manager.raise_exception(1, "cancel", 0, "")
    manager.load()
    manager.raise_exception(1, "cancel", 0, "")
    manager.answer_eventlogs()
    finish(manager, job)
    restart_of(what, manager)
    manager.take("dws.post_run")[1](0, "", OK)
    assert "dws.teardown" not in manager.topics()
    manager.unload()
    manager.raise_exception(1, "cancel", 0, "")
    manager.load()
    manager.answer_eventlogs()
    manager.take("dws.post_run")[1](0, "", OK)
    assert "dws.teardown" in manager.topics()


def test_a_cancel_gives_data_up_after_job_exec_has_lost_the_tasks(
    manager: JobManager,
) -> None:
    """There is no ``finish`` then."""
    up_to(manager, "running")
    manager.raise_exception(1, "cancel", 0, "")
    manager.exec_lost()
    manager.advance(2.0)
    manager.answer_exec()
    manager.take("dws.post_run")[1](0, "", OK)
    assert "dws.teardown" not in manager.topics()
    manager.raise_exception(1, "cancel", 0, "")
    assert "dws.teardown" in manager.topics()


def test_epilog_timeout_does_not_wait_for_tasks_to_end(manager: JobManager) -> None:
    up_to(manager, "running")
    manager.raise_exception(1, "cancel", 0, "")
    manager.raise_exception(1, "dws-epilog-timeout", 0, "")
    assert "dws.abort" in manager.topics()
