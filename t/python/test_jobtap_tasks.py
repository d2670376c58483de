# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The compiled plugin: what becomes of a job that ends, and what is asked for then."""

from __future__ import annotations

from typing import Optional

import pytest

from support.jobtap import JobManager
from support.jobtap_jobs import WITH_TIMEOUT, notes, outcome, play, up_to

MOUNTED = "may still be mounted on node[1-2],node7,"
ABORT = "abort post_run+started"
ABORTED = f"CLEANUP {ABORT}"
COURSES = [
    # before there is storage
    ("submit create=refused", "CLEANUP post_run", "it is %s wrong"),
    ("depend errmsg", "CLEANUP post_run", "no %s"),
    ("submit create=ENOSYS cancel", "INACTIVE", ""),
    ("submit create=EHOSTUNREACH cancel", "CLEANUP post_run", ""),
    ("sched alloc setup=refused", "CLEANUP post_run", "it is %s wrong"),
    ("prolog cancel", "CLEANUP post_run", ""),
    ("prolog unload cancel restart", "CLEANUP post_run", ""),
    ("prolog unload cancel restart post_run=ok released", "INACTIVE", ""),
    (
        "sched unload alloc load",
        "CLEANUP",
        "started without its storage",
    ),
    # it changes
    ("submit urgency-1 urgency-2 urgency-3", "DEPEND create+16", None),
    ("submit urgency-1 urgency-2 urgency-3 create=ok", "DEPEND create+3", None),
    ("submit urgency-1 urgency-3 create=ok create=ok", "DEPEND", None),
    ("submit urgency-1 create=ok create=ok urgency-4", "DEPEND create+4", None),
    ("submit urgency-1 create=EAGAIN", "DEPEND", None),
    ("submit urgency-1 create=EAGAIN hello", "DEPEND create+1", None),
    ("submit urgency-1 create=EAGAIN hello create=ok", "DEPEND", None),
    ("submit urgency-1 admitted alloc setup=ok", "RUN create+16", None),
    # it had another dependency first: a look-up of these is no request of a job
    *(
        (f"{first} submit-after {change} {answers} no-module {end}", "INACTIVE", "")
        for change in ("", "after-gone another")
        for first, answers, end in (
            ("", "", "cancel no-eventlogs"),
            ("", "eventlogs", "cancel"),
            ("", "no-eventlogs", "cancel"),
            ("eventlog-unsent", "", "cancel"),
        )
    ),
    ("submit-after eventlogs", "DEPEND create+16+depends", None),
    ("submit-after eventlogs cancel", "CLEANUP create+16+depends post_run", ""),
    ("submit-after hello cancel no-eventlogs", "CLEANUP post_run", ""),
    ("eventlog-unsent submit-after", "DEPEND create+16+depends", None),
    ("eventlog-unsent submit-after cancel", "CLEANUP create+16+depends post_run", ""),
    (
        "submit-after unload load-only after-gone eventlogs",
        "DEPEND create+16",
        None,
    ),
    # it is in another phase than when the plugin looked
    ("depend unload load-only let-go eventlogs", "SCHED", None),
    ("depend unload load-only let-go eventlogs alloc", "RUN setup", None),
    ("sched unload load-only alloc eventlogs R setup=ok mounted", "RUN", None),
    (
        "submit-after described-memo unload load-only eventlogs",
        "DEPEND create+16+depends",
        None,
    ),
    ("prolog unload environment load mounted", "RUN", None),
    # answers that come late, or twice
    ("epilog released released", "INACTIVE", None),
    ("running mounted errmsg admitted", "RUN", None),
    ("epilog mounted errmsg admitted", "CLEANUP", None),
    # its tasks have ended
    ("running finish", "CLEANUP post_run+started", None),
    ("running finish post_run=refused", "INACTIVE", None),
    ("running cancel", "CLEANUP", ""),
    ("running cancel finish", "CLEANUP post_run+started", ""),
    ("running cancel a-node", "CLEANUP", ""),
    ("running cancel tasks-lost", "CLEANUP post_run+started", ""),
    ("running restart cancel tick tick tick", "CLEANUP", ""),
    ("running restart cancel tick tasks-end tick", "CLEANUP post_run+started", ""),
    ("running cancel restart tick", "CLEANUP", ""),
    ("running cancel restart tick tasks-end tick", "CLEANUP post_run+started", ""),
    ("running cancel exec-lost +2", "CLEANUP job-exec.stats-get", ""),
    (
        "running cancel exec-lost +2 job-exec.stats-get=ENOSYS",
        "CLEANUP",
        "",
    ),
    (
        "running cancel exec-lost +2 job-exec.stats-get=ENOSYS tick",
        "CLEANUP post_run+started",
        "",
    ),
    ("prolog mounted cancel", "CLEANUP", ""),  # its shells are being started
    ("prolog mounted cancel tasks-end", "CLEANUP post_run", ""),
    # its data is given up
    *(
        (f"epilog {type} {type}", "CLEANUP teardown", "")
        for type in ("cancel", "dws", "exec")
    ),
    ("epilog timeout mild", "CLEANUP", ""),
    ("epilog all-nodes timeout", "CLEANUP teardown", ""),  # somebody raises it
    ("epilog all-nodes reload timeout post_run=ok", "CLEANUP teardown", ""),
    ("epilog a-node reload timeout post_run=ok", "CLEANUP", ""),
    ("epilog cancel reload post_run=ok", "CLEANUP teardown", ""),
    ("epilog cancel teardown=ok cancel", "CLEANUP", ""),
    ("epilog cancel teardown=ENOSYS hello post_run=ok", "CLEANUP teardown", ""),
    ("running timeout exec finish post_run=ok", "CLEANUP", ""),
    ("running cancel exec-lost tick post_run=ok", "CLEANUP", ""),
    ("running cancel exec-lost tick post_run=ok cancel", "CLEANUP teardown", ""),
    (
        "running cancel unload cancel load cancel finish post_run=ok",
        "CLEANUP",
        "",
    ),
    (
        "running cancel finish post_run=ok unload cancel load post_run=ok",
        "CLEANUP teardown",
        "",
    ),
    *(
        (f"running {first} {second} {second} finish {what} post_run=ok", "CLEANUP", "")
        for first, second in (
            ("cancel", "cancel"),
            ("timeout", "cancel"),
            ("timeout", "timeout"),
            ("cancel", "timeout"),
            ("exec", "cancel"),
        )
        for what in ("", "reload", "restart")
    ),
    *(
        (f"running cancel finish cancel {what} post_run=ok", "CLEANUP teardown", "")
        for what in ("", "reload", "restart")
    ),
    # epilog-timeout
    ("epilog +59", "CLEANUP", None),
    ("epilog +60", "CLEANUP abort", "epilog-timeout"),
    ("epilog +60 abort=ok +9", "CLEANUP", "epilog-timeout"),
    ("epilog +60 abort=ok +10", "INACTIVE", MOUNTED),
    ("epilog +60 abort=ok +10", "INACTIVE", "the dws module has not finished in time"),
    ("epilog +60 abort=ok released", "INACTIVE", "epilog-timeout"),
    ("epilog +60 abort=ENOSYS", "INACTIVE", MOUNTED),
    ("epilog +60 abort=ENOSYS", "INACTIVE", "(Workflow fluxjob-1)"),
    ("epilog +60 abort=ENOSYS", "INACTIVE", "is not loaded"),
    ("epilog +60 abort=EPROTO", "INACTIVE", MOUNTED),
    ("epilog +60 abort=EPROTO", "INACTIVE", "Protocol error"),
    ("epilog +60 abort=ENOSYS hello", "INACTIVE abort", MOUNTED),
    ("epilog +60 abort=ENOSYS hello abort=ok hello", "INACTIVE", MOUNTED),
    *(
        (f"epilog +60 abort={error} {rest}", course, note)
        for error in ("EAGAIN", "EHOSTUNREACH")
        for rest, course, note in (
            ("+2", "CLEANUP", "epilog-timeout"),
            (
                "+2 hello abort=ok released",
                "INACTIVE post_run+started",
                "epilog-timeout",
            ),
            ("+2 +8", "INACTIVE", MOUNTED),
        )
    ),
    ("epilog dws-epilog-timeout", "CLEANUP abort", ""),
    ("running cancel dws-epilog-timeout", "CLEANUP abort", ""),
    ("epilog dws-epilog-timeout abort=ok hello", ABORTED, ""),
    ("epilog dws-epilog-timeout abort=ok reload", ABORTED, ""),
    (
        "epilog dws-epilog-timeout abort=ok reload +10",
        "INACTIVE abort post_run+started",
        None,
    ),
    ("epilog +0.5 reload +58.5", "CLEANUP post_run+started", None),
    ("epilog +0.5 reload +58.5 +1", ABORTED, "epilog-timeout"),
    ("epilog +40 reload +19", "CLEANUP post_run+started", None),
    ("epilog +40 reload +19 +1", ABORTED, "epilog-timeout"),
]


@WITH_TIMEOUT
@pytest.mark.parametrize(("course", "expected", "note"), COURSES)
def test_a_job_ends(
    manager: JobManager, course: str, expected: str, note: Optional[str]
) -> None:
    """``note`` is in that of its last exception; None is for any, or none."""
    job = play(manager, course)
    assert outcome(manager) == expected
    if note is not None:
        assert (note in notes(job)[-1]) if note else set(notes(job)) == {""}


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


@WITH_TIMEOUT
@pytest.mark.parametrize(
    ("course", "event"),
    [
        ("prolog cancel", "prolog-finish"),
        ("prolog unload cancel restart", "prolog-finish"),
        ("epilog +60 abort=ok released", "epilog-finish"),
    ],
)
def test_an_action_that_is_cut_short_has_failed(
    manager: JobManager, course: str, event: str
) -> None:
    assert play(manager, course).context(event)["status"] == 1


def test_a_job_whose_teardown_is_not_answered_says_that_it_waits(
    manager: JobManager,
) -> None:
    job = play(manager, "epilog cancel teardown=EHOSTUNREACH")
    assert job.memo["dws"] == "the dws module went away"
    play(manager, "hello post_run=ok")
    assert job.memo["dws"] is None
