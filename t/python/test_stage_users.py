# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What users who have data copied in before their jobs have nodes cost each other."""

from __future__ import annotations

from rabbitsim.system import VirtualSystem
from support.queries import GUEST, OTHER
from support.service import (
    DAY,
    lines,
    memo,
    running,
)
from support.staging import (
    config,
    occupy,
    reaches,
    set_urgency,
    slow,
    submit,
    wait,
)


def hold_most(system: VirtualSystem) -> None:
    """Another user's job leaves little of what jobs without nodes may have."""
    reaches(system, submit(system, 1, 30, userid=500), "DataIn")


def test_a_job_has_no_more_rabbits_kept_than_it_needs() -> None:
    system = slow(rabbits=4)
    for rabbit in range(4):
        host = f"compute-0{2 * rabbit + 1}"
        jobid = submit(
            system,
            1,
            30 + rabbit,
            dw_stage="prolog",
            seconds=int(DAY),
            userid=GUEST,
            constraints={"hostlist": [host]},
        )
        running(system, jobid)
    submit(system, 2, 45, userid=GUEST)
    jobs = [submit(system, 1, 20, userid=OTHER) for _ in range(3)]
    running(system, *jobs)


def test_urgencies_that_change_all_the_time_fill_no_other_users_eventlog() -> None:
    system = slow(config=config(stage_limit=30))
    occupy(system, 4, seconds=int(DAY))
    hold_most(system)
    first, second = (submit(system, 1, 40, userid=GUEST) for _ in range(2))
    behind = submit(system, 1, 40, userid=OTHER)
    for change in range(100):
        set_urgency(system, first, 15 + change % 2)
        set_urgency(system, second, 16 - change % 2)
        wait(system, 10.0)
    events = [event.name for event in system.instance.eventlog(behind)]
    assert events.count("memo") < 4
    text = "jobs of other users get their storage before"
    assert memo(system, behind, "rabbit_waits_for") == text
    assert not lines(system, text)  # there may be thousands that wait
