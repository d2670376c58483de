# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""flux dws free: a stuck job is let go, after its user has read what that costs."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from support.dwscli import (
    FIRST,
    NOW,
    OLD,
    FixedInstance,
    detail,
    dws,
    ended_job,
    is_golden,
    kvs_of,
    refused,
)

F58 = "ƒ3gDmDv6tjHH"
DIRECTIVES = [
    "#DW jobdw type=xfs capacity=10GiB name=p1",
    "#DW copy_out source=$DW_JOB_p1/out destination=/lustre/out",
]
SCHED, RUN, CLEANUP, INACTIVE = 8, 16, 32, 64


def instance(
    state: str, phase: int, owner: int = 0, changes: Any = (), **options: Any
) -> FixedInstance:
    answer = detail(
        FIRST, state=state, directives=DIRECTIVES, since=NOW - 9000, **dict(changes)
    )
    job = {**ended_job(FIRST, userid=owner), "state": phase}
    return FixedInstance({"dws.job-show": answer}, jobs=[job], **options)


@pytest.mark.parametrize(
    ("state", "phase", "exception"),
    [
        ("Proposal", SCHED, "cancel"),
        ("PreRun", RUN, "cancel"),
        ("DataOut", CLEANUP, "cancel"),
        ("Teardown", CLEANUP, "dws-epilog-timeout"),
    ],
)
def test_free_shows_its_actions_and_their_cost_before_it_takes_them(
    state: str, phase: int, exception: str
) -> None:
    found = instance(state, phase)
    done = dws(found, "free", F58)
    assert (done.status, done.err, found.raised) == (0, "", [])
    assert is_golden(f"free-{state.lower()}.txt", done.out)
    done = dws(found, "free", "--yes", F58)
    assert found.raised == [(FIRST, exception)]
    assert f"Done: flux dws wait {F58} shows what comes of it." in done.out


def test_a_copy_that_is_complete_is_not_lost() -> None:
    assert "$DW_JOB_p1" in dws(instance("DataOut", CLEANUP), "free", F58).out
    complete = instance("DataOut", CLEANUP, changes={"ready": True})
    assert "$DW_JOB_p1" not in dws(complete, "free", F58).out


def test_tasks_that_run_are_killed_and_their_data_is_copied() -> None:
    running = instance("PreRun", RUN, changes={"ready": True, "cancel": "copied"})
    out = dws(running, "free", F58).out
    assert "- the job is cancelled, and its tasks are killed\n" in out
    assert "unmounted, copied out and deleted as after any job\n" in out
    assert "Teardown" not in out and "Lost" not in out
    changes = {"ready": True, "cancel": "lost", "wants": "released"}
    ended = instance("PreRun", CLEANUP, changes=changes)
    out = dws(ended, "free", F58).out
    assert "Teardown at once" in out and "- $DW_JOB_p1/out" in out


@pytest.mark.parametrize(
    ("cancel", "why"),
    [
        ("copied", "its tasks are still ending: a cancel changes nothing, its data"),
        ("freed", "its tasks are still ending: a cancel changes nothing, its storage"),
        ("nothing", "a cancel changes nothing any more; PreRun for 2.5h, complete"),
    ],
)
def test_free_does_not_cancel_a_job_for_which_that_changes_nothing(
    cancel: str, why: str
) -> None:
    wants = "released" if cancel == "nothing" else "ready"
    changes = {"ready": True, "cancel": cancel, "waits": "", "wants": wants}
    found = instance("PreRun", CLEANUP, changes=changes)
    done = dws(found, "free", "--yes", F58)
    assert (done.status, done.out, found.raised) == (1, "", [])
    assert f"flux-dws: ERROR: job {F58}: {why}" in done.err


def test_a_job_whose_workflow_is_not_known_may_have_run() -> None:
    unknown = {**OLD, "wants": "ready", "status": "", "cancel": "copied"}
    done = dws(instance("none", RUN, changes=unknown), "free", F58)
    assert "WARNING: Kubernetes was last heard of 3.5m ago" in done.err
    assert "before it has run" not in done.out
    assert "- the job is cancelled, and its tasks are killed\n" in done.out
    assert "once Kubernetes answers, as after any job\n" in done.out.replace(
        "\n  ", " "
    )
    ended = {**unknown, "wants": "released", "cancel": "lost"}
    done = dws(instance("none", CLEANUP, changes=ended), "free", F58)
    assert "Teardown once Kubernetes answers and is deleted" in done.out
    assert "Lost:\n- all that the job has written to its storage" in done.out
    lacking = {"kubernetes": "dws-jobtap.so is not loaded", "incomplete": True}
    done = dws(instance("none", CLEANUP, changes={**ended, **lacking}), "free", F58)
    assert "Teardown once dws-jobtap.so is loaded and is deleted" in done.out
    planned = {**unknown, "wants": "planned", "cancel": "freed"}
    out = dws(instance("none", SCHED, changes=planned), "free", F58).out
    assert "- the job is cancelled before it has run\n" in out


def test_a_job_without_a_workflow_has_no_storage_that_goes() -> None:
    planned = {"wants": "planned", "status": "", "cancel": "freed"}
    out = dws(instance("none", SCHED, changes=planned), "free", F58).out
    assert "- the job is cancelled before it has run\n- it has no storage yet\n" in out


def test_only_the_instance_owner_gives_up_a_teardown() -> None:
    guest = {"owner": 7, "userid": 7, "is_owner": False}
    found = instance("Teardown", CLEANUP, **guest)
    done = dws(found, "free", "--yes", F58)
    error = f"flux-dws: ERROR: job {F58}: its storage is in Teardown, which only the"
    assert done == (1, "", f"{error} instance owner may give up\n")
    assert found.raised == []
    found = instance("DataOut", CLEANUP, **guest)
    assert dws(found, "free", "--yes", F58).status == 0
    assert found.raised == [(FIRST, "cancel")]


def test_no_exception_lets_the_storage_of_a_job_go_that_has_ended() -> None:
    gone = {"dws.job-show": refused(errno.ENOENT)}
    ended = FixedInstance(gone, jobs=[ended_job(FIRST)], kvs=kvs_of(FIRST))
    error = f"flux-dws: ERROR: job {F58} has ended: there is nothing to be freed\n"
    assert dws(ended, "free", "--yes", F58) == (1, "", error)
    inactive = instance("PostRun", INACTIVE, changes={"waits": "compute-02 to unmount"})
    purged = instance("DataOut", INACTIVE)
    purged.jobs = []
    why = {
        inactive: ("; PostRun for 2.5h", "; waits for: compute-02 to unmount\n"),
        purged: ("; DataOut for 2.5h", "\n"),
    }
    for found, (start, end) in why.items():
        done = dws(found, "free", "--yes", F58)
        assert done.status == 1 and done.out == "" and found.raised == []
        error = (
            f"flux-dws: ERROR: job {F58} has ended: no exception lets its storage go"
        )
        assert done.err.startswith(error + start) and done.err.endswith(end)


def test_the_page_fits_on_a_narrow_terminal() -> None:
    done = dws(instance("DataOut", CLEANUP), "free", F58, columns=40)
    assert max(map(len, done.out.splitlines()[:-1])) <= 40
