# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The compiled plugin beside another plugin, which acts in its callbacks."""

from __future__ import annotations

import errno

import pytest

from support.jobtap import CLEANUP, INACTIVE, Hostile, Job, JobManager
from support.jobtap_jobs import WITH_TIMEOUT, notes, submitted, up_to


def cancel(manager: JobManager, job: Job) -> None:
    manager.raise_exception(job.id, "cancel", 0, "another plugin")


@WITH_TIMEOUT
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize(
    "topic", ["job.update", "job.event.jobspec-update", "job.event.dependency-remove"]
)
def test_a_job_that_another_plugin_ends_while_it_is_admitted_is_released(
    manager: JobManager, topic: str, first: bool
) -> None:
    job = up_to(manager, "depend")
    manager.hostile.append(Hostile(topic, cancel, first=first))
    update = {"id": 1, "resources": [{"type": "slot"}], "exclude": None}
    manager.request("resource-update", update)
    assert job.state == CLEANUP and +job.open == {"dws-epilog": 1}
    assert manager.take("dws.post_run")[0] == {"jobid": 1, "run_started": False}
    assert manager.request("hello", {})["jobs"][0]["phase"] == "epilog"
    manager.advance(60.0)
    assert "dws.abort" in manager.topics()
    manager.advance(10.0)
    assert job.state == INACTIVE and "epilog-timeout" in notes(job)[-1]


@pytest.mark.parametrize("topic", ["job.event.dws_environment", "job.event.memo"])
def test_a_job_that_another_plugin_ends_while_its_prolog_ends_does_not_start(
    manager: JobManager, topic: str
) -> None:
    job = up_to(manager, "prolog")
    manager.request("hello", {})
    manager.answer_lookups()
    manager.take("dws.setup")[1](errno.EHOSTUNREACH, "", None)  # so there is a memo
    manager.hostile.append(Hostile(topic, cancel))
    manager.request("prolog-remove", {"id": 1, "variables": {}})
    assert not job.start_pending and +job.open == {"dws-epilog": 1}
    assert manager.take("dws.post_run")[0] == {"jobid": 1, "run_started": False}
    manager.request("epilog-remove", {"id": 1})
    assert job.state == INACTIVE


@pytest.mark.parametrize("topic", ["job.event.memo", "job.event.dependency-add"])
def test_a_job_that_another_plugin_ends_at_our_events_is_forgotten(
    manager: JobManager, topic: str
) -> None:
    """There is no epilog, so nothing keeps the job: its struct is freed at once."""
    manager.hostile.append(Hostile(topic, cancel))
    job = submitted(manager)
    if topic == "job.event.memo":
        manager.take("dws.create")[1](errno.ENOSYS, "", None)
    assert job.state in (CLEANUP, INACTIVE)
    assert job.state == INACTIVE or job.open["dws-epilog"]
