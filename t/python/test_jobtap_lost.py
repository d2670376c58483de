# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Requests that the module dies of, and text of others in notes and log lines."""

from __future__ import annotations

import errno
from syslog import LOG_CRIT

import pytest
from jobtap_host import INACTIVE, JobManager
from jobtap_jobs import OK, WITH_TIMEOUT, finish, notes, submitted, up_to


class MortalModule:
    """A module that dies when it gets a request for one of ``fatal``."""

    def __init__(self, manager: JobManager, fatal: set[int]) -> None:
        self.manager = manager
        self.fatal = fatal
        self.deaths = 0

    def live(self) -> None:
        """It starts, and gets one request after the other."""
        manager = self.manager
        manager.request("hello", {})
        while True:
            manager.answer_lookups()
            requests = [rpc for rpc in manager.rpcs if rpc[0].startswith("dws.")]
            requests = [rpc for rpc in requests if "jobid" in rpc[1]]
            if not requests:
                return
            if self.fatal & {payload["jobid"] for _, payload, _ in requests}:
                self.deaths += 1
                for rpc in requests:
                    manager.rpcs.remove(rpc)
                for rpc in requests:
                    rpc[2](errno.EHOSTUNREACH, "", None)
                return
            manager.rpcs.remove(requests[0])
            requests[0][2](0, "", OK)


def test_a_request_that_the_module_dies_of_is_failed_and_no_other(
    manager: JobManager,
) -> None:
    for jobid in range(1, 8):
        assert manager.submit(jobid, {"dw": "#DW a"}) is None
    module = MortalModule(manager, {3, 5})
    for _ in range(20):
        module.live()
    failed = {job.id for job in manager.jobs.values() if job.has("exception")}
    assert failed == {3, 5}
    assert "died 5 times in a row" in notes(manager.jobs[3])[0]
    # Twice both together, then each alone, first its create, then its post_run.
    assert module.deaths <= 2 + 3 + 3 + 5 + 5


def test_such_a_job_is_released_and_says_that_its_storage_may_be_left(
    manager: JobManager,
) -> None:
    job = up_to(manager, "running")
    finish(manager, job)
    module = MortalModule(manager, {1})
    for _ in range(6):
        module.live()
    assert job.state == INACTIVE and module.deaths == 5
    assert "storage may be left behind (Workflow fluxjob-1)" in notes(job)[-1]
    assert any(
        level == LOG_CRIT and "fluxjob-1" in text for level, text in manager.logged
    )


@WITH_TIMEOUT
def test_an_abort_that_the_module_dies_of_is_given_up(manager: JobManager) -> None:
    job = up_to(manager, "epilog")
    manager.advance(60.0)
    manager.advance(10.0)
    assert job.state == INACTIVE
    module = MortalModule(manager, {1})
    for _ in range(6):
        module.live()
    assert module.deaths == 5
    assert "dws.abort failed, nodes and Rabbits may still be in" in str(manager.logged)


def test_a_module_that_is_away_for_long_fails_nothing(manager: JobManager) -> None:
    job = submitted(manager)
    for _ in range(20):
        manager.take("dws.create")[1](errno.ENOSYS, "", None)
        manager.request("hello", {})
    assert not job.has("exception")


def test_a_success_in_between_starts_the_count_anew(manager: JobManager) -> None:
    job = submitted(manager)
    for _ in range(3):
        for _ in range(4):
            manager.take("dws.create")[1](errno.EHOSTUNREACH, "", None)
            manager.request("hello", {})
        manager.take("dws.create")[1](0, "", OK)
        manager.request("hello", {})
    assert not job.has("exception")


@pytest.mark.parametrize(
    "text, shown",
    [
        ("%n%s%p", "%n%s%p"),
        ("a\x1b[31mb\r\nc\x7f", "a\\x1b[31mb\\x0d\\x0ac\\x7f"),
        ("\x85\x9bm", "\\x85\\x9bm"),
        ("Grüße, 日本", "Grüße, 日本"),
    ],
)
def test_control_characters_are_escaped_in_notes_and_in_the_log(
    manager: JobManager, text: str, shown: str
) -> None:
    job = submitted(manager)
    manager.take("dws.create")[1](0, "", {"success": False, "errstr": text})
    assert notes(job) == [shown]
    manager.take("dws.post_run")[1](0, "", {"success": False, "errstr": text})
    assert manager.logged[-1][1].endswith(shown) and text.isprintable() == (
        text == shown
    )
