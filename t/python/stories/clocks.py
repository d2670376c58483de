# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Clocks are set: the limits of a job count the seconds that pass."""

from __future__ import annotations

from flux_k8s.config.table import Config
from flux_k8s.formats.timestamps import format_timestamp
from flux_k8s.jobs.outage import QUIET
from flux_k8s.objects.workflowmarks import RESCUED
from rabbitsim.dws.options import Fault as DwsFault
from rabbitsim.torture.deeds import patch_workflows, set_clock, unload
from rabbitsim.torture.life import StorySystem
from rabbitsim.torture.story import (
    LIFE,
    Story,
    When,
)

HOUR = 3600.0
LIMITS = {
    "PreRun": "prerun_timeout",
    "PostRun": "postrun_timeout",
    "DataOut": "teardown_after",
}
LATE = "Proposal..PreRun nodes-failed! Teardown..gone"
BACK = set_clock(-2 * HOUR)


def slow(state: str) -> DwsFault:
    return DwsFault(state, "slow", duration=2 * HOUR)


def antedate(system: StorySystem) -> None:
    """The clock of DWS is a day ahead."""
    patch_workflows(
        system, {"status": {"desiredStateChange": _later(system, 24 * HOUR)}}
    )


def rescue_later(system: StorySystem) -> None:
    """A rescue has a time that is yet to come."""
    late = {RESCUED: _later(system, HOUR)}
    patch_workflows(system, {"metadata": {"annotations": late}})


def _later(system: StorySystem, seconds: float) -> str:
    return format_timestamp(system.loop.now() + seconds)


STORIES = (
    *(
        Story(
            f"after a clock was set back by {back} s, the limit of {state} counts from "
            "the start of the module",
            course,
            troubles=(slow(state), When(state, set_clock(-back), after=5.0)),
            config=Config.parse({LIMITS[state]: 20}),
            spans=((state, told, 25.0),),
            ahead=-back,
            harm=state == "PostRun",
        )
        for state, told, course, back in (
            ("PreRun", "nodes-failed!", LATE, 60.0),
            (
                "PostRun",
                "postrun-timeout!",
                "Proposal..PostRun drain:compute-01 drain:compute-02 unmount-failed "
                "postrun-timeout! Teardown disable:compute-01 disable:compute-02 "
                "clean gone",
                2 * HOUR,
            ),
            (
                "DataOut",
                "teardown-after!",
                "Proposal..DataOut teardown-after! Teardown..gone",
                9000 * HOUR,
            ),
        )
    ),
    Story(
        "a time that is yet to come is none: each module counts from its start",
        LATE,
        troubles=(
            slow("PreRun"),
            When("PreRun", BACK, after=1),
            When("PreRun", BACK, after=16),
        ),
        config=Config(prerun_timeout=30.0),
        spans=(("PreRun", "nodes-failed!", 46.0),),
        ahead=-2 * HOUR,
    ),
    Story(
        "a time of DWS that is yet to come is no limit of ours",
        "Proposal..DataOut stall-timeout! Teardown..gone",
        troubles=(slow("DataOut"), When("DataOut", antedate, after=2.0)),
        config=Config(stall_timeout=60.0),
        spans=(("DataOut", "stall-timeout!", 62.0),),
    ),
    *(
        Story(
            f"a clock is set forward in {state}, and no limit is over at once",
            LIFE,
            latency={state: 8.0},
            troubles=(When(state, set_clock(2 * HOUR), after=1.0),),
            config=Config.parse({key: 600}),
            ahead=2 * HOUR,
        )
        for state, key in LIMITS.items()
    ),
    Story(
        "a limit that was over before the module is there is over soon after",
        LATE,
        troubles=(slow("PreRun"), When("PreRun", unload(700.0), 1.0)),
        config=Config(prerun_timeout=600.0),
        spans=(("PreRun", "nodes-failed!", 701.0 + QUIET),),
        away=700.0,
    ),
    Story(
        "a rescue that is yet to come does not put off a limit",
        "Proposal..DataOut teardown-after! Teardown..gone",
        data="cause-unknown",
        troubles=(slow("DataOut"), When("DataOut", rescue_later)),
        config=Config(teardown_after=600.0),
        spans=(("DataOut", "teardown-after!", 600.0),),
    ),
    Story(
        "storage that is kept stays for a while after a clock was set forward",
        "Proposal..DataOut kept dws-failed! clean Teardown gone",
        troubles=(
            DwsFault("DataOut", "copy"),
            When("clean", set_clock(2 * HOUR), after=20.0),
        ),
        config=Config(keep_failed=HOUR),
        spans=(("clean", "Teardown", 20.0 + QUIET),),
        ahead=2 * HOUR,
    ),
)
