# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Requests that get lost, and text of others in notes and log lines."""

from __future__ import annotations

import errno

import pytest

from support.jobtap import INACTIVE, JobManager
from support.jobtap_jobs import WITH_TIMEOUT, notes, submitted, up_to


def test_a_module_that_is_away_for_long_fails_nothing(manager: JobManager) -> None:
    """Nor does one that dies again and again: the supervisor knows why."""
    job = submitted(manager)
    for errnum in (errno.ENOSYS, errno.EAGAIN, errno.EHOSTUNREACH):
        for _ in range(20):
            manager.take("dws.create")[1](errnum, "", None)
            manager.request("hello", {})
    assert not job.has("exception")


@WITH_TIMEOUT
def test_an_abort_is_sent_until_it_is_answered(manager: JobManager) -> None:
    job = up_to(manager, "epilog")
    manager.advance(60.0)
    manager.advance(10.0)
    for _ in range(20):
        manager.take("dws.abort")[1](errno.EHOSTUNREACH, "", None)
        assert job.state == INACTIVE
        manager.request("hello", {})
    manager.take("dws.abort")[1](0, "", {"success": False, "errstr": "barred"})
    assert "may still be in use: barred" in manager.logged[-1][1]
    manager.request("hello", {})
    assert "dws.abort" not in manager.topics()


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
