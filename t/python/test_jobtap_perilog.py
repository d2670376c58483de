# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The compiled plugin beside prolog and epilog scripts of the site (perilog.so)."""

from __future__ import annotations

import pytest

from support.jobtap import INACTIVE, JobManager
from support.jobtap_jobs import outcome, play

IN_PROLOG = "sched prolog-start alloc setup=ok"


@pytest.mark.parametrize(
    ("course", "expected"),
    [
        (f"{IN_PROLOG} prolog-fails epilog-finish", "CLEANUP post_run"),
        (f"{IN_PROLOG} mounted prolog-fails epilog-finish tick", "CLEANUP post_run"),
        (f"{IN_PROLOG} mounted prolog-fails tick post_run=ok epilog-finish", "CLEANUP"),
        (
            f"{IN_PROLOG} mounted prolog-fails restart tick post_run=ok epilog-finish",
            "CLEANUP",
        ),
        # the plugin is loaded again
        (
            f"{IN_PROLOG} unload prolog-fails load epilog-finish tick",
            "CLEANUP post_run",
        ),
        (
            "running unload finish-event epilog-start tasks-lost load epilog-finish",
            "CLEANUP post_run+started",
        ),
    ],
)
def test_a_job_with_storage_ends_after_its_own_epilog_and_that_of_the_site(
    manager: JobManager, course: str, expected: str
) -> None:
    play(manager, course)
    assert outcome(manager) == expected
    play(manager, "released" if "post_run=ok" in course else "post_run=ok released")
    assert outcome(manager) == "INACTIVE"


def test_a_job_whose_epilog_is_started_once_of_twice_goes_on(
    manager: JobManager,
) -> None:
    play(manager, f"{IN_PROLOG} mounted")
    manager.epilog_starts = 1
    play(manager, "prolog-fails")
    assert any("error starting dws-epilog" in text for _, text in manager.logged)
    play(manager, "tick post_run=ok released")
    assert outcome(manager) == "INACTIVE"


@pytest.mark.parametrize("sent", [False, True])
def test_a_job_that_others_end_before_its_tasks_have_is_released(
    manager: JobManager, sent: bool
) -> None:
    job = play(manager, "prolog mounted")
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
