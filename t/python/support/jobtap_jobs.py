# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Jobs in each phase, for tests of the compiled plugin."""

from __future__ import annotations

from typing import Any

import pytest

from support.jobtap import Job, JobManager

OK = {"success": True}
WITH_TIMEOUT = pytest.mark.parametrize(
    "manager", [{"epilog-timeout": 60.0}], indirect=True
)


def submitted(manager: JobManager, **system: Any) -> Job:
    assert manager.submit(1, {"dw": "#DW jobdw name=a", **system}) is None
    return manager.jobs[1]


def up_to(manager: JobManager, phase: str, **system: Any) -> Job:
    """A job in "depend", "sched", "prolog", "running" or "epilog", with the
    requests so far answered."""
    job = submitted(manager, **system)
    manager.take("dws.create")[1](0, "", OK)
    if phase != "depend":
        update = {"id": 1, "resources": [{"type": "slot"}], "exclude": None}
        manager.request("resource-update", update)
    if phase in ("prolog", "running", "epilog"):
        manager.post(job, "alloc")
        manager.answer_lookups()
        manager.take("dws.setup")[1](0, "", OK)
    if phase in ("running", "epilog"):
        manager.request("prolog-remove", {"id": 1, "variables": {"DW_JOB_a": "/a"}})
        manager.post(job, "start")
    if phase == "epilog":
        finish(manager, job)
        manager.take("dws.post_run")[1](0, "", OK)
    return job


def finish(manager: JobManager, job: Job) -> None:
    job.start_pending = job.running = False
    manager.post(job, "finish")


def notes(job: Job) -> list[str]:
    return [
        entry["context"]["note"]
        for entry in job.eventlog
        if entry["name"] == "exception"
    ]


def error_of(manager: JobManager, method: str, payload: dict[str, Any]) -> OSError:
    with pytest.raises(OSError) as caught:
        manager.request(method, payload)
    return caught.value
