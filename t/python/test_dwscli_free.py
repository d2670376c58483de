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
    shows,
)
from support.tables import rows

F58 = "ƒ3gDmDv6tjHH"
DIRECTIVES = [
    "#DW jobdw type=xfs capacity=10GiB name=p1",
    "#DW copy_out source=$DW_JOB_p1/out destination=/lustre/out",
]
SCHED, RUN, CLEANUP, INACTIVE = 8, 16, 32, 64


def instance(
    state: str, phase: int, changes: Any = (), owner: int = 0, **options: Any
) -> FixedInstance:
    changed = {"directives": DIRECTIVES, **dict(changes)}
    answer = detail(FIRST, state=state, since=NOW - 9000, **changed)
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


def test_a_directive_that_cannot_be_read_hides_no_loss() -> None:
    found = instance("PostRun", CLEANUP, {"directives": ["#DW", DIRECTIVES[1]]})
    done = dws(found, "free", F58)
    assert done.status == 0
    assert "$DW_JOB_p1/out, which is not copied to /lustre/out" in " ".join(
        done.out.split()
    )


READY = {"ready": True, "waits": "", "wants": "ready"}
RELEASED = {"ready": True, "waits": "", "wants": "released"}
UNKNOWN = {**OLD, "wants": "ready", "status": "", "cancel": "copied"}
GONE = {**UNKNOWN, "wants": "released", "cancel": "lost"}
PLANNED = {"wants": "planned", "status": "", "cancel": "freed"}
LACKING = {"kubernetes": "dws-jobtap.so is not loaded", "incomplete": True}
INSTANCES = {
    "copying": instance("DataOut", CLEANUP),
    "copied": instance("DataOut", CLEANUP, READY),
    "running": instance("PreRun", RUN, {**READY, "cancel": "copied"}),
    "ended": instance("PreRun", CLEANUP, {**RELEASED, "cancel": "lost"}),
    "data kept": instance("PreRun", CLEANUP, {**READY, "cancel": "copied"}),
    "no data": instance("PreRun", CLEANUP, {**READY, "cancel": "freed"}),
    "nothing": instance("PreRun", CLEANUP, {**RELEASED, "cancel": "nothing"}),
    # Whose Workflow is not known may have run.
    "unseen": instance("none", RUN, UNKNOWN),
    "unseen, ended": instance("none", CLEANUP, GONE),
    "no plugin": instance("none", CLEANUP, {**GONE, **LACKING}),
    "unseen, planned": instance("none", SCHED, {**UNKNOWN, **PLANNED}),
    "planned": instance("none", SCHED, PLANNED),
}
SAID = """
copying -> 0 -> $DW_JOB_p1
copied -> 0 -> Teardown | -- $DW_JOB_p1
running -> 0 -> - the job is cancelled, and its tasks are killed
  | unmounted, copied out and deleted as after any job | -- Teardown | -- Lost
ended -> 0 -> Teardown at once | - $DW_JOB_p1/out
data kept -> 1 -> its tasks are still ending: a cancel changes nothing, its data
no data -> 1 -> its tasks are still ending: a cancel changes nothing, its storage
nothing -> 1 -> a cancel changes nothing any more; PreRun for 2.5h, complete
unseen -> 0 -> WARNING: Kubernetes was last heard of 3.5m ago
  | - the job is cancelled, and its tasks are killed
  | once Kubernetes answers, as after any job | -- before it has run
unseen, ended -> 0 -> Teardown once Kubernetes answers and is deleted
  | Lost: - all that the job has written to its storage
no plugin -> 0 -> Teardown once dws-jobtap.so is loaded and is deleted
unseen, planned -> 0 -> - the job is cancelled before it has run
planned -> 0 -> - the job is cancelled before it has run - it has no storage yet
"""


@pytest.mark.parametrize(("name", "status", "said"), rows(SAID, 3))
def test_free_says_what_a_cancel_does_and_cancels_no_job_for_which_it_does_nothing(
    name: str, status: str, said: str
) -> None:
    found = INSTANCES[name]
    assert shows(dws(found, "free", F58), int(status), *said.split(" | "))
    done = dws(found, "free", "--yes", F58)
    assert (done.status, bool(found.raised)) == (int(status), status == "0")
    assert status == "0" or done.out == ""


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
    inactive = instance("PostRun", INACTIVE, {"waits": "compute-02 to unmount"})
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
